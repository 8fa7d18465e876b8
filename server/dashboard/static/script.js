// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Keeps a page up to date: the server sends the part of it that changes, and this changes
// what differs, so that focus, selection and what was typed stay where they are. And shows
// the command that an act stands for, as its form is filled in. And fills in the token that
// forms want where there is no TLS. Pages work without it.

const live = document.getElementById("live");
const link = document.getElementById("link");

// morph makes the children of one element like those of another. An element with an id is
// the same one wherever it stands; the others are identified by their place.
function morph(to, from) {
  const named = new Map();
  for (const child of to.children) if (child.id) named.set(child.id, child);
  let at = to.firstChild;
  for (const wanted of [...from.childNodes]) {
    let found = wanted.id ? named.get(wanted.id) : at;
    if (found && !wanted.id && found.id && found.nodeType === Node.ELEMENT_NODE) found = null;
    if (found && found.nodeName === wanted.nodeName) {
      if (found === at) at = at.nextSibling;
      else to.insertBefore(found, at);
      alter(found, wanted);
    } else {
      to.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alter(found, wanted) {
  if (found.nodeType !== Node.ELEMENT_NODE) {
    if (found.nodeValue !== wanted.nodeValue) found.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (found.getAttribute(name) !== value) found.setAttribute(name, value);
  }
  for (const { name } of [...found.attributes]) {
    // A detail that was opened stays so; a command is what was typed.
    if (!wanted.hasAttribute(name) && !(name === "open" && found.nodeName === "DETAILS")) found.removeAttribute(name);
  }
  if (!(found.matches("code.command") && found.dataset.typed)) morph(found, wanted);
}

// The token stays in this tab, which no other port of this host can read, until the visitor
// signs out or is asked to sign in.
const kept = "tenure-token";

function fill() {
  const token = sessionStorage.getItem(kept);
  for (const field of document.querySelectorAll("input[name=secret][data-keep]")) {
    if (token && !field.value && field !== document.activeElement) field.value = token;
  }
}

document.addEventListener("submit", (event) => {
  const field = event.target.querySelector("input[data-keep]");
  if (field) sessionStorage.setItem(kept, field.value);
  if (event.target.matches("form.signed")) sessionStorage.removeItem(kept);
});
if (!live) sessionStorage.removeItem(kept);
fill();

function say(state, text) {
  if (link.dataset.state === state) return;
  link.dataset.state = state;
  link.textContent = text;
}

let stream = null;

function open() {
  if (stream || !live || !document.body.dataset.stream) return;
  stream = new EventSource(document.body.dataset.stream);
  stream.onopen = () => say("live", "live");
  stream.addEventListener("live", (event) => {
    const made = document.createElement("template");
    made.innerHTML = event.data;
    morph(live, made.content);
    fill();
    say("live", "live");
  });
  stream.addEventListener("out", () => {
    shut();
    say("out", "signed out: load the page again");
  });
  stream.onerror = () => {
    if (stream.readyState !== EventSource.CLOSED) return say("lost", "not up to date: connecting");
    shut();
    say("lost", "not up to date: trying again");
    setTimeout(open, 5000);
  };
}

function shut() {
  if (stream) stream.close();
  stream = null;
}

// A page that nobody sees need not be kept up to date.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) shut();
  else if (!link || link.dataset.state !== "out") open();
});
window.addEventListener("pagehide", shut);
window.addEventListener("pageshow", () => { if (!document.hidden) open(); });
open();

// quoted is one word of a POSIX shell. What cannot be seen, or turns text around, is spelled: it
// may have been pasted.
function quoted(text) {
  if (/^[0-9A-Za-z_\-./:@%+,]+$/.test(text)) return text;
  if (/^[\p{L}\p{M}\p{N}\p{P}\p{S} ]*$/u.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const spelled = (c) => [...new TextEncoder().encode(c)].map((b) => "\\" + b.toString(8).padStart(3, "0")).join("");
  return "$'" + text.replace(/['\\]/g, "\\$&").replace(/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, spelled) + "'";
}

document.addEventListener("input", (event) => {
  const form = event.target.closest("form.act");
  const shown = form && form.querySelector("code.command");
  if (!shown) return;
  while (shown.lastChild.className !== "") shown.lastChild.remove(); // the words that stand
  for (const name of ["to", "to-label", "reason"]) {
    const field = form.elements.namedItem(name);
    if (!field || !field.value) continue;
    const word = document.createElement("span");
    word.className = "sample";
    word.textContent = `--${name}=${quoted(field.value)}`;
    shown.append(" ", word);
  }
  shown.dataset.typed = "yes";
});
