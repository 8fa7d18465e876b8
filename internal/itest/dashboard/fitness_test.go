// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure"
)

// all are the pages, each with something to see.
var all = []string{"./", "./?state=in+doubt", "./?prefix=nothing", "lock?name=scheduler", "lock?name=thumbnails", "lock?name=nightly", "sessions", "shards?group=orders", "doctor", "lock?name=none", "nowhere"}

// faults finds what keeps somebody from using a page with a keyboard, or a screen reader, and from
// reading it.
const faults = `(() => {
	const found = [];
	const say = (what, e) => found.push(what + ": " + e.outerHTML.slice(0, 120));
	const named = e => (e.getAttribute("aria-label") || [...(e.labels || [])].map(l => l.innerText).join("") ||
		(e.getAttribute("aria-labelledby") || "").split(" ").map(i => (document.getElementById(i) || {}).innerText || "").join("") || "").trim();
	if (!document.documentElement.lang) found.push("no language");
	if (!document.title.trim()) found.push("no title");
	if (document.querySelectorAll("h1").length !== 1) found.push("not one heading of the first level");
	let level = 0;
	for (const h of document.querySelectorAll("h1, h2, h3, h4")) {
		const next = Number(h.nodeName[1]);
		if (next > level + 1) say("a level of headings is left out", h);
		level = next;
	}
	for (const tag of ["header", "main"]) if (document.querySelectorAll(tag).length !== 1) found.push("not one " + tag);
	const marks = [...document.querySelectorAll("nav")];
	for (const n of marks) if (!named(n)) say("a landmark without a name", n);
	if (new Set(marks.map(named)).size !== marks.length) found.push("two landmarks with one name");
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) found.push("id twice: " + id);
	for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
		for (const id of ((e.getAttribute("aria-labelledby") || "") + " " + (e.getAttribute("aria-describedby") || "")).trim().split(" "))
			if (!document.getElementById(id)) say("it is described by nothing", e);
	for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea")) if (!named(e)) say("a field without a label", e);
	for (const e of document.querySelectorAll("button, a[href]")) if (!e.innerText.trim() && !named(e)) say("a button or link without a name", e);
	for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) say("a picture without alt", e);
	for (const e of document.querySelectorAll("svg")) if (!e.closest("[aria-hidden=true]") && !e.closest("[role=img][aria-label]")) say("a drawing without a name", e);
	for (const t of document.querySelectorAll("table")) {
		if (!t.caption || !t.caption.textContent.trim()) say("a table without a caption", t);
		for (const h of t.querySelectorAll("th")) if (!h.scope) say("a heading of a table without its scope", h);
		for (const r of t.querySelectorAll("tbody tr")) if (!r.querySelector("th[scope=row]")) say("a row without a heading", r);
	}
	for (const e of document.querySelectorAll(".findings tbody th")) {
		const was = e.textContent, word = document.createRange();
		e.textContent = "connections"; // the longest check, which this store has not
		word.selectNodeContents(e);
		if (word.getClientRects().length > 1) say("a word is broken", e);
		e.textContent = was;
	}
	for (const e of document.querySelectorAll("form")) if (!e.querySelector("button")) say("a form without a button", e);
	return found;
})()`

// contrasts finds text that stands out too little from what is behind it: less than 4.5 to 1,
// or 3 to 1 if it is large, as WCAG 2 has it. What is disabled may.
const contrasts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgba = css => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].map((v, i) => i < 3 ? v : v / 255); };
	const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
	const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = e => {
		const layers = [];
		for (let p = e; p; p = p.parentElement) {
			const s = getComputedStyle(p);
			const c = p instanceof SVGElement ? null : rgba(s.backgroundColor);
			if (c && c[3] > 0) { layers.push(c); if (c[3] === 1) break; }
			if (p.matches("svg.piece")) { const f = rgba(getComputedStyle(p).fill); layers.push(f); break; }
		}
		let at = [255, 255, 255];
		for (const l of layers.reverse()) at = over(l, at);
		return at;
	};
	const found = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const n = walk.currentNode, e = n.parentElement;
		if (!n.nodeValue.trim() || ["SCRIPT", "STYLE", "NOSCRIPT", "TITLE", "title", "OPTION"].includes(e.nodeName) || e.closest(".hidden, .skip, :disabled, noscript")) continue;
		const s = getComputedStyle(e);
		if (s.visibility === "hidden" || !e.getClientRects().length) continue;
		const back = behind(e), front = over(rgba(e instanceof SVGElement ? s.fill : s.color), back);
		const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(s.fontSize);
		if (ratio < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5)) found.push(ratio.toFixed(2) + ": " + n.nodeValue.trim().slice(0, 40) + " in " + e.outerHTML.slice(0, 80));
	}
	return found;
})()`

// TestFitness looks at each page for what keeps people from using it.
func TestFitness(t *testing.T) {
	b := newBrowserOf(t)
	w := newWorld(t)
	b.url = w.url
	w.fill()
	check := func(path, scheme string) {
		t.Helper()
		b.open(path)
		for _, fault := range append(value[[]string](b, faults), value[[]string](b, contrasts)...) {
			t.Errorf("%s, %s: %s", path, scheme, fault)
		}
	}
	check("login", "light")
	b.signIn(rootToken)
	b.until("document.querySelectorAll('tr.s-in-doubt').length > 0 && document.querySelectorAll('tr.s-expired').length > 0")
	for _, scheme := range []string{"light", "dark"} {
		b.dark(scheme == "dark")
		for _, path := range all {
			check(path, scheme)
		}
		check("login", scheme)
	}
	if got := value[string](b, "getComputedStyle(document.documentElement).backgroundColor"); got == "rgb(246, 247, 248)" {
		t.Errorf("the dark page has a background of %s", got)
	}
}

// TestPhone needs no scrolling to the side on a narrow page, whatever the names are.
func TestPhone(t *testing.T) {
	b := newBrowserOf(t)
	w := newWorld(t)
	b.url = w.url
	w.fill()
	long := strings.Repeat("a-very-long-name/", 50) + strings.Repeat("x", 100)
	w.holder(long, tenure.Options{Owner: strings.Repeat("o", 900), Host: strings.Repeat("h", 300), Label: strings.Repeat("l", 300)})
	b.size(360, 740, 1)
	b.signIn(rootToken)
	for _, path := range append([]string{"lock?name=" + url.QueryEscape(long), "./?prefix=a-very", "login"}, all...) {
		b.open(path)
		if wide := value[int](b, "document.documentElement.scrollWidth"); wide > 360 {
			t.Errorf("%s is %d pixels wide: %s", path, wide, value[string](b, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 361).map(e => e.outerHTML.slice(0, 100)).slice(0, 5).join("\n")`))
		}
		if small := value[[]string](b, `[...document.querySelectorAll("button, input:not([type=hidden])")].filter(e => e.getClientRects().length && e.getBoundingClientRect().height < 24).map(e => e.outerHTML.slice(0, 80))`); len(small) > 0 {
			t.Errorf("%s: too small for a finger: %q", path, small)
		}
	}
	// A name is a word, not a column of letters.
	b.open("./?prefix=scheduler")
	if high := value[float64](b, "document.querySelector('table.locks tbody th a').getBoundingClientRect().height"); high > 30 {
		t.Errorf("a short name is %v pixels high", high)
	}
}

// TestKeyboard comes to all that can be used by the tab key, and sees where it is.
func TestKeyboard(t *testing.T) {
	w, b := signedIn(t)
	w.holder("m", tenure.Options{Owner: "web-1"})
	b.open("lock?name=m")
	b.until("document.getElementById('act-revoke')")
	want := value[int](b, "[...document.querySelectorAll('a[href], button:not(:disabled), input:not([type=hidden]), summary')].filter(e => e.getClientRects().length).length")
	seen := map[string]bool{}
	for range want {
		b.do(chromedp.KeyEvent("\t"))
		e := value[string](b, "document.activeElement.outerHTML.slice(0, 150)")
		seen[e] = true
		if len(seen) == 1 && !strings.Contains(e, `class="skip"`) {
			t.Errorf("the first is %s", e)
		}
		if value[bool](b, "getComputedStyle(document.activeElement).outlineStyle == 'none' || parseFloat(getComputedStyle(document.activeElement).outlineWidth) < 1") {
			t.Errorf("nothing shows the focus on %s", e)
		}
		if value[bool](b, "(r => r.width < 1 || r.right < 0 || r.left > innerWidth)(document.activeElement.getBoundingClientRect())") {
			t.Errorf("the focus is out of sight: %s", e)
		}
	}
	if len(seen) != want {
		t.Errorf("%d of %d elements were reached", len(seen), want)
	}
	// The first one skips what stands above.
	b.open("lock?name=m")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	b.until("document.activeElement.id == 'main'")
	// The form can be sent without a mouse.
	value[any](b, "document.getElementById('reason-step-down').focus()")
	b.do(chromedp.KeyEvent("tired\r"))
	b.until("document.querySelector('.alert')")
}
