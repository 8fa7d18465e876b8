// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// TestStepDown asks a holder, and sees what comes of it.
func TestStepDown(t *testing.T) {
	w, b := signedIn(t, rootToken)
	l := w.holder("team/it's", tenure.Options{Owner: "web-1", LeaseDuration: 5 * time.Second})
	w.obeys(l)
	b.open("lock?name=" + url.QueryEscape("team/it's"))
	b.until("document.getElementById('act-step-down')")
	reason := `it's "slow"; $(reboot)`
	b.fill("#reason-step-down", reason)
	shown := value[string](b, "document.querySelector('#act-step-down code').innerText")
	words := shellWords(t, shown)
	if want := []string{"tenure", "step-down", "team/it's", "--reason=" + reason}; fmt.Sprint(words) != fmt.Sprint(want) {
		t.Errorf("the command is %q: a shell has %q, want %q", shown, words, want)
	}
	b.click("#act-step-down button")
	b.until("document.querySelector('.alert.good') && document.querySelector('.alert.good').innerText.length > 0")
	b.until("document.getElementById('sentence').innerText.startsWith('Nobody holds it.')")
	if err := l.Check(); err == nil {
		t.Error("the holder goes on")
	}
	if !strings.Contains(b.text(), "alice: "+reason) {
		t.Errorf("no reason in\n%s", b.text())
	}
	b.until("document.querySelector('#act-step-down button').disabled")
	b.clean()
}

// TestHandOverCommand shows the command as the form is filled in.
func TestHandOverCommand(t *testing.T) {
	w, b := signedIn(t, rootToken)
	w.holder("m", tenure.Options{Owner: "web-1"})
	b.open("lock?name=m")
	b.fill("#label-hand-over", "v8 beta")
	// As by a paste: no key makes the mark.
	value[any](b, `(f => { f.value = "new\u202eversion"; f.dispatchEvent(new Event("input", {bubbles: true})) })(document.getElementById("reason-hand-over"))`)
	got := shellWords(t, value[string](b, "document.querySelector('#act-hand-over code').innerText"))
	if want := []string{"tenure", "step-down", "m", "--to-label=v8 beta", "--reason=new\u202eversion"}; fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("a shell has %q, want %q", got, want)
	}
	if shown := value[string](b, "document.querySelector('#act-hand-over code').innerText"); strings.Contains(shown, "\u202e") {
		t.Errorf("what cannot be seen is in %q", shown)
	}
}

// shellWords are the words that a shell makes of a command.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-c", `tenure() { printf '%s\0' tenure "$@"; }; `+command).Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// TestCrossSite has pages elsewhere send the form of an act, from the browser of a visitor who
// is signed in. One is of another site, so that the browser leaves out the cookie; the other
// is another port of this one, to which the cookie goes.
func TestCrossSite(t *testing.T) {
	w, b := signedIn(t, rootToken)
	l := w.holder("m", tenure.Options{Owner: "web-1"})
	evil := httptest.NewServer(http.HandlerFunc(func(r http.ResponseWriter, _ *http.Request) {
		r.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(r, `<form method="post" action="%s/act?name=m"><input name="kind" value="revoke"><input name="token" value="1">
			<input name="reason" value="evil"></form><a href="%[1]s/">look</a>`, w.url)
	}))
	defer evil.Close()
	for _, site := range []string{strings.Replace(evil.URL, "127.0.0.1", "localhost", 1), evil.URL} {
		b.url = site
		b.open("")
		value[any](b, "document.querySelector('form').submit()")
		b.until("document.body.innerText.includes('comes from a page of another site')")
	}
	if err := l.Check(); err != nil {
		t.Errorf("the lock was revoked: %v", err)
	}
	for _, act := range w.acts() {
		if act.Action == "revoke" {
			t.Errorf("audited: %+v", act)
		}
	}
	// A link on such a page leads in.
	b.url = strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	b.open("")
	b.click("a")
	b.until("document.querySelector('table.locks').innerText.includes('web-1')")
}

// TestMarkup has names that want to be part of the page.
func TestMarkup(t *testing.T) {
	w, b := signedIn(t, rootToken)
	for i, name := range []string{`<img src=x onerror="window.pwned=1">`, `"><script>window.pwned=1</script>`, `javascript:window.pwned=1`, `' onfocus='window.pwned=1' autofocus='`} {
		w.holder(name, tenure.Options{Owner: name, Label: name})
		b.open("lock?name=" + url.QueryEscape(name))
		b.until("document.querySelector('h1').innerText == " + fmt.Sprintf("%q", name))
		b.open("./?prefix=" + url.QueryEscape(name))
		b.until("document.querySelectorAll('table.locks tbody tr').length == 1")
		b.until(`document.getElementById("link").innerText == "live"`)
		b.click("table.locks a")
		b.until("document.querySelector('h1').innerText == " + fmt.Sprintf("%q", name))
		if value[bool](b, "!!window.pwned") {
			t.Errorf("name %d has run", i)
		}
	}
	b.clean()
}
