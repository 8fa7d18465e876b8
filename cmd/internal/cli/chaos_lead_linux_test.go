// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestLeadersFailOver has three processes campaign, kills the leader, and ends
// the next one politely.
func TestLeadersFailOver(t *testing.T) { eachStore(t, leadersFailOver) }

func leadersFailOver(t *testing.T, s *harness) {
	candidates := map[string]*process{}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		candidates[name] = s.start("lead", "--lease", "5s", "--owner", name, "job", "--",
			"sh", "-c", `echo "$TENURE_TOKEN $TENURE_OWNER" >>"$DIR/leaders"; exec sleep 60`)
	}
	last := 0
	// On a machine that is very busy a term may end before its command has begun:
	// tokens rise, but not by one.
	leader := func(term int) *process {
		var lines []string
		s.await(fmt.Sprintf("leader %d", term), func() bool {
			lines = strings.SplitAfter(s.read("leaders"), "\n")
			return len(lines) > term
		})
		token, name := 0, ""
		if _, err := fmt.Sscan(lines[term-1], &token, &name); err != nil || token <= last {
			t.Fatalf("leader %d is %q after token %d: %v", term, lines[term-1], last, err)
		}
		last = token
		p := candidates[name]
		if p == nil {
			t.Fatalf("leader %d is %q, who is gone", term, name)
		}
		delete(candidates, name)
		return p
	}
	first := leader(1)
	first.signal(syscall.SIGKILL)
	second := leader(2)
	second.signal(syscall.SIGTERM)
	if status := second.status(); status != 143 {
		t.Errorf("the leader that was ended politely has status %d, want 143", status)
	}
	third := leader(3)
	third.signal(syscall.SIGTERM)
	third.status()
	if n := strings.Count(s.read("leaders"), "\n"); n != 3 {
		t.Errorf("%d terms, want 3:\n%s", n, s.read("leaders"))
	}
}

// TestTenRequestersByCommand has ten processes ask at once: one request is written, and
// the others are reported as already made.
func TestTenRequestersByCommand(t *testing.T) { eachStore(t, tenRequestersByCommand) }

func tenRequestersByCommand(t *testing.T, s *harness) {
	enginetest.MakeVerify(t)
	holder := s.start("run", "--lease", "15s", "--heartbeat", "1s", "--owner", "n0", "job", "--", "sh", "-c",
		`trap 'while [ ! -e "$DIR/told" ]; do sleep 0.02; done; exit 0' TERM; echo >"$DIR/up"; while :; do sleep 0.02; done`)
	s.await("the command", func() bool { return s.read("up") != "" })
	requester := make([]*process, 10)
	for i := range requester {
		requester[i] = s.start("step-down", "job", "--reason", fmt.Sprint("reason ", i), "--by", fmt.Sprint("requester-", i))
	}
	ended := make(chan int)
	for i, p := range requester {
		go func() {
			if p.status() == 75 {
				ended <- i
			} else {
				ended <- -1
			}
		}()
	}
	for n := range 9 {
		i := <-ended
		if i < 0 {
			t.Fatalf("after %d that were refused another one ended otherwise", n)
		}
		text := requester[i].stderr.String()
		if !strings.Contains(text, `"n0" (token 1) was already asked, by requester-`) ||
			!strings.Contains(text, "reason ") {
			t.Errorf("requester %d was told %q", i, text)
		}
	}
	s.write("told", "yes")
	if <-ended != -1 {
		t.Error("the tenth was refused, too")
	}
	if status := holder.status(); status != 0 {
		t.Errorf("the holder ended with %d: %s", status, holder.stderr.String())
	}
}

// A command that cannot be started for the moment.

// leadProgram records that it leads, and keeps running when it is asked to.
const leadProgram = `#!/bin/sh
echo $TENURE_TOKEN >>"$DIR/terms"
[ ! -e "$DIR/stay" ] || exec sleep 600
`

func (s *harness) program() string {
	s.t.Helper()
	s.write("prog", leadProgram)
	if err := os.Chmod(s.path("prog"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return s.path("prog")
}

func (s *harness) terms() int { return strings.Count(s.read("terms"), "\n") }

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
// before, and of a candidate that has only waited so far.
func TestLeadOutlivesAReplacement(t *testing.T) {
	t.Parallel()
	for _, r := range replacements {
		t.Run(r.name, func(t *testing.T) {
			if r.name != "missing" {
				enginetest.MakeVerify(t)
			}
			t.Parallel()
			t.Run("led before", func(t *testing.T) {
				t.Parallel()
				s := newHarness(t)
				prog := s.program()
				p := s.start("lead", "--pause", "50ms", "--lease", "10s", "job", "--", prog)
				s.await("a term", func() bool { return s.terms() > 0 })
				testReplacement(s, p, r.away(t, prog), r.said, r.optional)
			})
			t.Run("only waited", func(t *testing.T) {
				t.Parallel()
				s := newHarness(t)
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

func testReplacement(s *harness, p *process, back func(), said string, optional bool) {
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

// TestFullSystem takes from a candidate, and from a holder, what a start needs. If it is given
// back they go on; else run gives up with the status of a command that cannot be run, and a
// signal ends it at once.
func TestFullSystem(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	for _, tc := range []struct {
		name, command, said string
		undone              bool
		status              int
	}{
		{"lead", "lead", `"event":"pausing"`, true, 143},
		{"run", "run", `"event":"command_not_started"`, true, 143},
		{"given up", "run", `"event":"command_not_started"`, false, 126},
		{"signal", "run", `"event":"command_not_started"`, false, 143},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newHarness(t)
			s.write("stay", "")
			prog := s.program()
			holder := s.start("run", "--lease", "10s", "job", "--", "sleep", "600")
			s.await("a holder", func() bool { return len(s.holders(1)) > 0 })
			p := s.start(tc.command, "--json", "--lease", "10s", "job", "--", prog)
			s.await("one who waits", func() bool { return strings.Contains(p.stderr.String(), `"event":"waiting"`) })
			undo := p.limit()
			holder.signal(syscall.SIGTERM)
			s.await("a start that fails", func() bool {
				return strings.Contains(p.stderr.String(), tc.said) && strings.Contains(p.stderr.String(), "too many open files")
			})
			if tc.undone {
				undo()
				s.await("the command", func() bool { return s.terms() > 0 })
			}
			if tc.status == 143 {
				p.signal(syscall.SIGTERM)
			}
			if status := p.status(); status != tc.status {
				t.Errorf("status %d, want %d", status, tc.status)
			}
			if p := s.start("run", "--wait", "0", "job", "--", "true"); p.status() != 0 {
				t.Error("the lock was not released")
			}
		})
	}
}
