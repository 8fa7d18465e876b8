// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// TestStepDown asks a holder, and sees what comes of it.
func TestStepDown(t *testing.T) {
	w, b := signedIn(t)
	l := w.holder("team/it's", tenure.Options{Owner: "web-1", LeaseDuration: 5 * time.Second})
	w.obeys(l)
	b.open("lock?name=" + url.QueryEscape("team/it's"))
	b.until("document.getElementById('act-step-down')")
	reason := `it's "slow"; $(reboot)`
	b.fill("#reason-step-down", reason)
	shown := value[string](b, "document.querySelector('#act-step-down code').innerText")
	words := shellWords(t, shown)
	if want := []string{"tenure", "step-down", "team/it's", "--reason=" + reason}; !slices.Equal(words, want) {
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
	w, b := signedIn(t)
	w.holder("m", tenure.Options{Owner: "web-1"})
	b.open("lock?name=m")
	b.fill("#label-hand-over", "v8 beta")
	// As by a paste: no key makes the mark.
	value[any](b, `(f => { f.value = "new\u202eversion"; f.dispatchEvent(new Event("input", {bubbles: true})) })(`+
		`document.getElementById("reason-hand-over"))`)
	shown := value[string](b, "document.querySelector('#act-hand-over code').innerText")
	got := shellWords(t, shown)
	want := []string{"tenure", "step-down", "m", "--to-label=v8 beta", "--reason=new\u202eversion"}
	if !slices.Equal(got, want) {
		t.Errorf("a shell has %q, want %q", got, want)
	}
	if strings.Contains(shown, "\u202e") {
		t.Errorf("what cannot be seen is in %q", shown)
	}
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
