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
