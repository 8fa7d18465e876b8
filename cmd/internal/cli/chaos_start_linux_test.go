// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A command that cannot be started for the moment.

// leadProgram writes down that it leads, and stays when it is told to.
const leadProgram = `#!/bin/sh
echo $TENURE_TOKEN >>"$DIR/terms"
[ ! -e "$DIR/stay" ] || exec sleep 600
`

func (s *scene) program() string {
	s.t.Helper()
	s.write("prog", leadProgram)
	if err := os.Chmod(s.path("prog"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return s.path("prog")
}

func (s *scene) terms() int { return strings.Count(s.read("terms"), "\n") }

// replacements are what a program goes through while it is being replaced.
var replacements = []struct {
	name     string
	away     func(t *testing.T, path string) (back func())
	said     string
	optional bool // the kernel may run it all the same
}{
	{"missing", func(t *testing.T, path string) func() {
		check(t, os.Rename(path, path+".new"))
		return func() { check(t, os.Rename(path+".new", path)) }
	}, "command not found: ", false},
	{"not executable", func(t *testing.T, path string) func() {
		check(t, os.Chmod(path, 0o644))
		return func() { check(t, os.Chmod(path, 0o755)) }
	}, "permission denied", false},
	{"open for writing", func(t *testing.T, path string) func() {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		check(t, err)
		return func() { check(t, f.Close()) }
	}, "text file busy", true},
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLeadOutlivesAReplacement replaces the program of a candidate that led
// before, and of one that has only waited so far.
func TestLeadOutlivesAReplacement(t *testing.T) {
	t.Parallel()
	for _, r := range replacements {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			t.Run("led before", func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				prog := s.program()
				p := s.start("lead", "--pause", "50ms", "--lease", "10s", "job", "--", prog)
				s.await("a term", func() bool { return s.terms() > 0 })
				testReplacement(s, p, r.away(t, prog), r.said, r.optional)
			})
			t.Run("only waited", func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				prog := s.program()
				holder := s.start("run", "--lease", "10s", "job", "--", "sleep", "600")
				s.await("a holder", func() bool { return len(s.holders(1)) > 0 })
				p := s.start("lead", "--json", "--pause", "50ms", "--lease", "10s", "job", "--", prog)
				s.await("a candidate", func() bool { return strings.Contains(p.stderr.String(), `"event":"waiting"`) })
				back := r.away(t, prog)
				holder.signal(syscall.SIGTERM)
				testReplacement(s, p, back, r.said, r.optional)
			})
		})
	}
}

func testReplacement(s *scene, p *process, back func(), said string, optional bool) {
	t := s.t
	terms := 0
	s.await("a start that fails", func() bool {
		if optional && s.terms() > terms+1 {
			return true
		}
		select {
		case <-p.done:
			t.Fatal("the candidate has ended")
		default:
		}
		return strings.Contains(p.stderr.String(), said)
	})
	// Others can have the lock while it waits.
	if other := s.start("run", "--wait", "30s", "--lease", "10s", "job", "--", "true"); other.status() != 0 {
		t.Error("nobody else gets the lock")
	}
	terms = s.terms()
	s.write("stay", "")
	back()
	s.await("another term", func() bool { return s.terms() > terms })
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
}

// limit sets how many files a running tenure may open, which makes every start
// fail with "too many open files", and returns what undoes it.
func (p *process) limit() (undo func()) {
	p.s.t.Helper()
	var old unix.Rlimit
	none := unix.Rlimit{Cur: 3}
	check(p.s.t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &old))
	none.Max = old.Max
	check(p.s.t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &none, nil))
	return func() {
		p.s.t.Helper()
		check(p.s.t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &old, nil))
	}
}

// TestFullSystem takes from a candidate, and from a holder, what a start needs,
// and gives it back.
func TestFullSystem(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"lead", "run"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.write("stay", "")
			prog := s.program()
			holder := s.start("run", "--lease", "10s", "job", "--", "sleep", "600")
			s.await("a holder", func() bool { return len(s.holders(1)) > 0 })
			p := s.start(command, "--json", "--lease", "10s", "job", "--", prog)
			s.await("one who waits", func() bool { return strings.Contains(p.stderr.String(), `"event":"waiting"`) })
			undo := p.limit()
			holder.signal(syscall.SIGTERM)
			want := map[string]string{"lead": `"event":"pausing"`, "run": `"event":"command_not_started"`}[command]
			s.await("a start that fails", func() bool {
				return strings.Contains(p.stderr.String(), want) && strings.Contains(p.stderr.String(), "too many open files")
			})
			undo()
			s.await("the command", func() bool { return s.terms() > 0 })
			p.signal(syscall.SIGTERM)
			if status := p.status(); status != 143 {
				t.Errorf("status %d, want 143", status)
			}
		})
	}
}

// TestFullSystemForGood gives nothing back: run gives up with the status of a
// command that cannot be run, and a signal ends it at once.
func TestFullSystemForGood(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"given up": 126, "signal": 143} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			holder := s.start("run", "--lease", "10s", "job", "--", "sleep", "600")
			s.await("a holder", func() bool { return len(s.holders(1)) > 0 })
			p := s.start("run", "--json", "--lease", "10s", "job", "--", "true")
			s.await("one who waits", func() bool { return strings.Contains(p.stderr.String(), `"event":"waiting"`) })
			p.limit()
			holder.signal(syscall.SIGTERM)
			s.await("a start that fails", func() bool { return strings.Contains(p.stderr.String(), `"event":"command_not_started"`) })
			if name == "signal" {
				p.signal(syscall.SIGTERM)
			}
			if got := p.status(); got != status {
				t.Errorf("status %d, want %d", got, status)
			}
			if p := s.start("run", "--wait", "0", "job", "--", "true"); p.status() != 0 {
				t.Error("the lock was not released")
			}
		})
	}
}
