// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/test/harness/proc"
)

type word struct{ Text string }

var roles = map[string]proc.Role{
	"echo": func(in io.Reader, out io.Writer) error {
		return proc.Serve(in, proc.NewLines(out), func(w *word) any { return word{"heard " + w.Text} })
	},
	"half a line": func(_ io.Reader, out io.Writer) error {
		_, err := fmt.Fprint(out, "first\nsec")
		return errors.Join(err, errors.New("enough"))
	},
}

func TestMain(m *testing.M) {
	proc.Play(roles)
	os.Exit(m.Run())
}

// A process that is stopped says nothing, until it is continued.
func TestProcess(t *testing.T) {
	lines := make(chan string, 10)
	p, err := proc.Start(proc.Command{Role: "echo", Line: func(line []byte) { lines <- string(line) }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := errors.Join(p.Hang(), p.Send(word{"two"})); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lines:
		t.Error("it answers though it is stopped")
	case <-time.After(50 * time.Millisecond):
	}
	p.Continue()
	if got := <-lines; got != `{"Text":"heard two"}` || !p.Alive() {
		t.Errorf("after it was stopped it says %q", got)
	}
	if p.Kill(); p.Alive() || p.Send(word{"four"}) == nil {
		t.Error("it lives when it was killed")
	}
}

// All that a process has said is handed on before its end is.
func TestEnd(t *testing.T) {
	for role, want := range map[string]struct {
		lines  []string
		stderr string
	}{
		"half a line": {[]string{"first", "sec"}, "half a line: enough\n"},
		"nonsense":    {nil, "nonsense: there is no such role\n"},
	} {
		var lines, before []string
		p, err := proc.Start(proc.Command{
			Role:  role,
			Line:  func(line []byte) { lines = append(lines, string(line)) },
			Ended: func(*os.ProcessState) { before = slices.Clone(lines) },
		})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Ended
		if !slices.Equal(before, want.lines) || p.State().ExitCode() != 1 || !strings.HasSuffix(p.Stderr(), want.stderr) {
			t.Errorf("%s: it said %q and %q, and ended with %v", role, before, p.Stderr(), p.State())
		}
	}
}
