// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

const shown = (e) => e.getClientRects().length > 0;
const every = (selector) => [...document.querySelectorAll(selector)];
const cut = (e) => e.outerHTML.slice(0, 120);

// named is what a screen reader calls an element.
function named(e) {
  const labels = [...(e.labels || [])].map((l) => l.innerText).join("");
  const by = (e.getAttribute("aria-labelledby") || "").split(" ").map((i) => document.getElementById(i)?.innerText || "");
  return (e.getAttribute("aria-label") || labels || by.join("")).trim();
}

// faults finds what keeps somebody from using a page with a keyboard, or a screen reader, and from reading it.
function faults() {
  const found = [];
  const say = (what, e) => found.push(`${what}: ${cut(e)}`);
  const each = (selector, what, bad) => { for (const e of every(selector)) if (bad(e)) say(what, e); };
  if (!document.documentElement.lang) found.push("no language");
  if (!document.title.trim()) found.push("no title");
  for (const tag of ["h1", "header", "main"]) if (every(tag).length !== 1) found.push(`not one ${tag}`);
  let level = 0;
  for (const h of every("h1, h2, h3, h4")) {
    const next = Number(h.nodeName[1]);
    if (next > level + 1) say("a level of headings is left out", h);
    level = next;
  }
  const marks = every("nav").map(named);
  if (marks.includes("")) found.push("a landmark without a name");
  if (new Set(marks).size !== marks.length) found.push("two landmarks with one name");
  const ids = every("[id]").map((e) => e.id);
  for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) found.push(`id twice: ${id}`);
  for (const attribute of ["aria-labelledby", "aria-describedby"]) {
    each(`[${attribute}]`, "it is described by nothing", (e) =>
      e.getAttribute(attribute).split(" ").some((id) => !document.getElementById(id)));
  }
  each("input:not([type=hidden]), select, textarea", "a field without a label", (e) => !named(e));
  each("button, a[href]", "a button or link without a name", (e) => !e.innerText.trim() && !named(e));
  each("img", "a picture without alt", (e) => !e.hasAttribute("alt"));
  each("svg", "a drawing without a name", (e) => !e.closest("[aria-hidden=true], [role=img][aria-label]"));
  each("table", "a table without a caption", (t) => !t.caption || !t.caption.textContent.trim());
  each("table th", "a heading of a table without its scope", (h) => !h.scope);
  each("tbody tr", "a row without a heading", (r) => !r.querySelector("th[scope=row]"));
  each("form", "a form without a button", (e) => !e.querySelector("button"));
  each(".findings tbody th", "a word is broken", (e) => {
    const was = e.textContent, word = document.createRange();
    e.textContent = "connections"; // the longest check, which this store has not
    word.selectNodeContents(e);
    const broken = word.getClientRects().length > 1;
    e.textContent = was;
    return broken;
  });
  return found;
}

// contrasts finds text that stands out too little from what is behind it: less than 4.5 to 1, or 3 to 1 if it is
// large, as WCAG 2 has it. What is disabled may.
function contrasts() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (css) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((v, i) => (i < 3 ? v : v / 255));
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v <= 10.3 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) {
      const style = getComputedStyle(p);
      if (p.matches("svg.piece")) {
        layers.push(rgba(style.fill));
        break;
      }
      const colour = p instanceof SVGElement ? null : rgba(style.backgroundColor);
      if (colour && colour[3] > 0) layers.push(colour);
      if (colour && colour[3] === 1) break;
    }
    return layers.reverse().reduce((at, layer) => over(layer, at), [255, 255, 255]);
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.nodeValue.trim(), e = walk.currentNode.parentElement;
    if (!text || e.closest("script, style, noscript, title, option, .hidden, .skip, :disabled") || !shown(e)) continue;
    const style = getComputedStyle(e), back = behind(e);
    if (style.visibility === "hidden") continue;
    const front = over(rgba(e instanceof SVGElement ? style.fill : style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${text.slice(0, 40)} in ${cut(e)}`);
  }
  return found;
}

// narrow finds what a page of a width does not have room for, or what is too small for a finger.
function narrow(width) {
  const found = [];
  if (document.documentElement.scrollWidth > width) {
    const wide = every("body *").filter((e) => e.getBoundingClientRect().right > width + 1);
    found.push(`too wide: ${wide.slice(0, 5).map(cut).join("\n")}`);
  }
  const small = every("button, input:not([type=hidden])").filter((e) => shown(e) && e.getBoundingClientRect().height < 24);
  return found.concat(small.map((e) => `too small for a finger: ${cut(e)}`));
}

// reachable are the elements that the tab key should come to.
function reachable() {
  return every("a[href], button:not(:disabled), input:not([type=hidden]), summary").filter(shown).length;
}

// focus says which element has the focus, and what is wrong with that.
function focus() {
  const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
  const found = [e.outerHTML.slice(0, 150)];
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) found.push("nothing shows the focus");
  if (box.width < 1 || box.right < 0 || box.left > innerWidth) found.push("the focus is out of sight");
  return found;
}
