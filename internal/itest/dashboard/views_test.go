// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
)

// TestViews signs in by the form, and sees each page.
func TestViews(t *testing.T) {
	w, b := visited(t)
	w.fill()
	b.open("lock?name=scheduler")
	b.until("document.querySelector('h1').innerText == 'Sign in'")
	b.fill("#token", rootToken)
	b.click("main button")
	b.until("document.querySelector('h1').innerText == 'scheduler'") // where it wanted to go
	if got := value[int](b, "document.querySelectorAll('svg.piece:not(.gap)').length"); got != 6 {
		t.Errorf("the timeline has %d terms, not 6", got)
	}
	if got := value[float64](b, "document.querySelector('svg.piece').getBoundingClientRect().width"); got < 50 {
		t.Errorf("the first tenure is %v pixels wide", got)
	}
	for link, shows := range map[string]string{
		"./":       "document.querySelectorAll('table.locks tbody tr').length >= 8",
		"sessions": "document.querySelectorAll('table.sessions tbody tr').length == 4",
		"shards":   "document.querySelectorAll('table.grid tbody tr').length == 4 && document.querySelector('.strip .r-has')",
		"doctor":   "document.querySelector('table.findings').innerText.includes('Reads take')",
	} {
		b.click(`header nav a[href="` + link + `"]`)
		b.until("location.href.endsWith('" + strings.TrimPrefix(link, ".") + "') && " + shows)
		b.until(`document.getElementById("link").innerText == "live"`)
	}
	if cookies := value[string](b, "document.cookie"); cookies != "" {
		t.Errorf("a script can read %q", cookies)
	}
	// The token for the forms, in this tab, until the visitor signs out.
	if kept := value[string](b, "localStorage.length + Object.values(sessionStorage).join()"); kept != "0"+rootToken {
		t.Errorf("the page keeps %q in the browser", kept)
	}
	b.click(".signed button")
	b.until("document.querySelector('h1').innerText == 'Sign in'")
	if kept := value[int](b, "localStorage.length + sessionStorage.length"); kept != 0 {
		t.Error("the page keeps something of a visitor who has signed out")
	}
	b.clean()
}

// visited is a world, and a browser as wide as a desk's. The browser is the first to be
// started: without one the test is skipped.
func visited(t *testing.T) (*world, *browser) {
	t.Helper()
	b := newBrowser(t, "", 1180, 800)
	w := newWorld(t)
	b.url = w.pages.URL
	return w, b
}

// signedIn returns a world, and a browser that is signed in to it.
func signedIn(t *testing.T) (*world, *browser) {
	t.Helper()
	w, b := visited(t)
	b.signIn(rootToken)
	return w, b
}

// holder takes a lock in the name of a process, which steps down as soon as it is asked, and
// when the test ends.
func (w *world) holder(name string, o tenure.Options) *tenure.Lease {
	w.t.Helper()
	c := w.Client(o.Owner, func(own *tenure.Options) { *own = o })
	l := testutil.Must(c.Acquire(w.t.Context(), name, &tenure.AcquireOptions{History: true}))(w.t)
	context.AfterFunc(l.Context(), func() { _ = l.Release(context.Background()) })
	return l
}

// TestLiveUpdate changes a page that is open, and leaves the focus and what was typed where
// it is.
func TestLiveUpdate(t *testing.T) {
	w, b := signedIn(t)
	w.holder("m", tenure.Options{Owner: "web-1"})
	b.until("document.querySelector('table.locks').innerText.includes('web-1')")
	value[any](b, "document.querySelector('table.locks a').focus(), window.mark = document.querySelector('table.locks a')")
	w.holder("a", tenure.Options{Owner: "web-2"}) // comes before it
	w.holder("z", tenure.Options{Owner: "web-3"})
	b.until("document.querySelectorAll('table.locks tbody tr').length == 3")
	if !value[bool](b, "document.activeElement === mark && mark.isConnected && mark.innerText == 'm'") {
		t.Error("the focus has moved")
	}
	names := "[...document.querySelectorAll('table.locks a')].map(a => a.innerText).join()"
	if got := value[string](b, names); got != "a,m,z" {
		t.Errorf("the rows are %s", got)
	}
	if got := value[string](b, "document.getElementById('summary').innerText"); got != "3 locks" {
		t.Errorf("the summary is %q", got)
	}

	b.open("lock?name=m")
	b.until(`document.getElementById("link").innerText == "live"`)
	b.fill("#reason-step-down", "half a rea")
	value[any](b, "window.field = document.activeElement")
	before := value[string](b, "document.querySelector('.facts').innerText")
	b.until("document.querySelector('.facts').innerText != " + strconv.Quote(before)) // as time goes on
	b.fill("#reason-step-down", "son")
	if got := value[string](b, "document.activeElement === field ? field.value : 'lost'"); got != "half a reason" {
		t.Errorf("the field has %q", got)
	}
	b.clean()
}

// TestServerAway: a page says that it is not up to date, and connects again.
func TestServerAway(t *testing.T) {
	w, b := signedIn(t)
	b.until(`document.getElementById("link").innerText == "live"`)
	w.gone.Store(true)
	w.pages.CloseClientConnections()
	b.until(`document.getElementById("link").dataset.state == "lost"`)
	w.gone.Store(false)
	b.until(`document.getElementById("link").dataset.state == "live"`)
}

// TestWithoutScripts does all by forms and links.
func TestWithoutScripts(t *testing.T) {
	w, b := visited(t)
	b.scripts(false)
	b.signIn(rootToken)
	l := w.holder("m", tenure.Options{Owner: "web-1", LeaseDuration: 5 * time.Second})
	// The page reloads itself.
	b.until("document.querySelector('table.locks') && document.querySelector('table.locks').innerText.includes('web-1')")
	b.fill("#prefix", "m")
	b.do(chromedp.Submit(chromedp.CSS("#prefix")))
	b.until("location.search == '?prefix=m' && document.querySelector('table.locks')")
	b.click("table.locks a")
	b.until("document.querySelector('h1').innerText == 'm'")
	if !value[bool](b, "document.getElementById('link').innerText.includes('not live')") {
		t.Error("the page does not say that it is not live")
	}
	b.fill("#reason-step-down", "maintenance")
	b.fill("#secret-step-down", rootToken)
	b.click("#act-step-down button")
	b.until("document.querySelector('.alert.good')")
	if err := l.Check(); err == nil {
		t.Error("the holder goes on")
	}
	b.click(".signed button")
	b.until("document.querySelector('h1').innerText == 'Sign in'")
}

// TestStepDown asks a holder, and shows the result.
func TestStepDown(t *testing.T) {
	w, b := signedIn(t)
	l := w.holder("team/it's", tenure.Options{Owner: "web-1", LeaseDuration: 5 * time.Second})
	b.open("lock?name=" + url.QueryEscape("team/it's"))
	b.until("document.getElementById('act-step-down')")
	command := func(act string, want ...string) {
		t.Helper()
		shown := value[string](b, "document.querySelector('#act-"+act+" code').innerText")
		if words := shellWords(t, shown); !slices.Equal(words, want) || strings.Contains(shown, "\u202e") {
			t.Errorf("the command is %q: a shell has %q, want %q", shown, words, want)
		}
	}
	reason := `it's "slow"; $(reboot)`
	b.fill("#reason-step-down", reason)
	command("step-down", "tenure", "step-down", "team/it's", "--reason="+reason)
	b.fill("#label-hand-over", "v8 beta")
	// As by a paste: no key makes the mark.
	value[any](b, `(f => { f.value = "new\u202eversion"; f.dispatchEvent(new Event("input", {bubbles: true})) })(`+
		`document.getElementById("reason-hand-over"))`)
	command("hand-over", "tenure", "step-down", "team/it's", "--to-label=v8 beta", "--reason=new\u202eversion")
	b.click("#act-step-down button")
	b.until("document.querySelector('.alert.good') && document.querySelector('.alert.good').innerText.length > 0")
	b.until("document.getElementById('sentence').innerText.startsWith('It has no holder.')")
	if err := l.Check(); err == nil {
		t.Error("the holder goes on")
	}
	if !strings.Contains(b.text(), "alice: "+reason) {
		t.Errorf("no reason in\n%s", b.text())
	}
	b.until("document.querySelector('#act-step-down button').disabled")
	b.clean()
}

// shellWords are the words that a shell makes of a command.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	script := `tenure() { printf '%s\0' tenure "$@"; }; ` + command
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
