// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// family starts everything that is hard to find again, and has all of it write
// to one file without end: a job in the background, a session of its own, an
// orphan by double fork, and a process that ignores SIGTERM.
const family = `
beat() { while :; do echo "$1" >>"$DIR/log"; sleep 0.1; done; }
if [ -n "$1" ]; then beat "$1"; fi
beat job &
setsid sh "$0" session &
( (beat orphan &) & )
(trap "" TERM HUP INT; beat deaf) &
beat main
`

// successor is the command of the next holder. It writes down who of the family lives, and
// whether the file still grows.
const successor = `
living=$(grep -lsz "^FAMILY=$TENURE_TEST_HARNESS$" /proc/[0-9]*/environ | tr '\n' ' ')
before=$(wc -c <"$DIR/log")
sleep 0.5
after=$(wc -c <"$DIR/log")
echo "$before $after $living" >"$DIR/verdict.new"
mv "$DIR/verdict.new" "$DIR/verdict"
`

// TestFamilyIsGoneBeforeSuccessor does away with a holder in every way, and
// has the successor look whether anything of it lives.
func TestFamilyIsGoneBeforeSuccessor(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	stop := func(p *process) { p.signal(syscall.SIGSTOP) }
	kill := func(p *process) { p.signal(syscall.SIGKILL) }
	for _, tc := range []struct {
		name    string
		contain bool
		do      func(*process)
		status  int
	}{
		{"tenure killed", false, kill, 137},
		{"tenure stopped", false, stop, 73},
		{"guardian killed", false, func(p *process) { _ = syscall.Kill(p.guardian(), syscall.SIGKILL) }, 137},
		{"contained, tenure stopped", true, stop, 73},
		{"contained, both killed", true, func(p *process) {
			guardian := p.guardian()
			p.signal(syscall.SIGKILL)
			_ = syscall.Kill(guardian, syscall.SIGKILL)
		}, 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *harness) {
				if tc.contain {
					s.needContain()
				}
				s.write("family.sh", family)
				first := s.start("run", "--lease", "4s", fmt.Sprintf("--contain=%t", tc.contain), "job", "--",
					"env", "FAMILY="+s.mark, "sh", s.path("family.sh"))
				after := s.succeed(func() { tc.do(first) })
				first.signal(syscall.SIGCONT)
				if status := first.status(); status != tc.status {
					t.Errorf("the first one ended with status %d, want %d", status, tc.status)
				}
				time.Sleep(300 * time.Millisecond) // for processes that might still write
				if now := len(s.read("log")); now != after {
					t.Errorf("the file grew from %d to %d bytes after all", after, now)
				}
			})
		})
	}
}

// succeed has a successor wait for the lock of the family, which is done away with then. Nothing
// of it may live when the successor begins. It returns how long the family's file is.
func (s *harness) succeed(do func()) (after int) {
	s.t.Helper()
	s.write("successor.sh", successor)
	s.await("the family", func() bool {
		log := s.read("log")
		return !slices.ContainsFunc([]string{"job", "session", "orphan", "deaf", "main"}, func(member string) bool {
			return !strings.Contains(log, member)
		})
	})
	second := s.start("run", "--json", "--lease", "15s", "job", "--", "sh", s.path("successor.sh"))
	s.await("a waiting successor", func() bool { return strings.Contains(second.stderr.String(), `"event":"waiting"`) })
	do()
	if status := second.status(); status != 0 {
		s.t.Errorf("the successor ended with status %d", status)
	}
	before, verdict := 0, s.read("verdict")
	if n, err := fmt.Sscan(verdict, &before, &after); n != 2 {
		s.t.Fatalf("verdict %q: %v", verdict, err)
	}
	if before != after {
		s.t.Errorf("the file grew from %d to %d bytes beside the successor", before, after)
	}
	if living := strings.Fields(verdict)[2:]; len(living) > 0 {
		s.t.Errorf("alive when the successor began: %v", living)
	}
	return after
}

// needContain skips the test where the kernel allows no namespaces.
func (s *harness) needContain() {
	p := s.start("run", "--contain", "try", "--", "true")
	if p.status() != 0 {
		enginetest.Missing(s.t, "a pid namespace", "a system that allows them does: "+p.stderr.String())
	}
}

// TestClosedReader holds a lock while standard error is a pipe that nobody can
// read any more.
func TestClosedReader(t *testing.T) { eachStore(t, closedReader) }

func closedReader(t *testing.T, s *harness) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	p := s.startWith(w, "run", "--verbose", "--lease", "15s", "--heartbeat", "100ms", "job", "--", "sh", "-c",
		"sleep 0.5; exit 4")
	w.Close()
	if status := p.status(); status != 4 {
		t.Errorf("status %d, want 4", status)
	}
}

// A guardian knows processes only from /proc, which has the numbers of one pid
// namespace.

// startUnder runs tenure under another program.
func (s *harness) startUnder(wrapper []string, args ...string) *process {
	s.t.Helper()
	tenure, err := exec.LookPath("tenure")
	if err != nil {
		s.t.Fatal(err)
	}
	return s.run(exec.Command(wrapper[0], slices.Concat(wrapper[1:], []string{tenure}, args)...))
}

// needUnshare skips the test where unshare cannot make the namespaces.
func needUnshare(t *testing.T, flags ...string) {
	t.Helper()
	out, err := exec.Command("unshare", append(flags, "true")...).CombinedOutput()
	if err != nil {
		enginetest.Missing(t, "unshare", fmt.Sprintf("a system that allows %q does: %v: %s", flags, err, out))
	}
}

// TestForeignProcIsRefused runs tenure in a pid namespace with the /proc of
// another one: it would not find what its command starts, and end strangers.
func TestForeignProcIsRefused(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"-pf"}, {"-Urpf"}} {
		for _, args := range [][]string{{"run"}, {"run", "--contain"}, {"lead"}} {
			t.Run(fmt.Sprint(flags, args), func(t *testing.T) {
				t.Parallel()
				needUnshare(t, flags...)
				s := newHarness(t)
				p := s.startUnder(append([]string{"unshare"}, flags...), append(args, "job", "--", "touch", s.path("ran"))...)
				if status := p.status(); status != 126 {
					t.Errorf("status %d, want 126", status)
				}
				const want = "tenure: no usable /proc: it belongs to another pid namespace, where this process "
				if said := p.stderr.String(); !strings.HasPrefix(said, want) || strings.Count(said, "\n") != 1 {
					t.Errorf("said %q, want %q", said, want)
				}
				if _, err := os.Stat(s.path("ran")); err == nil {
					t.Error("the command was run")
				}
				if _, err := os.Stat(s.path("locks.db")); err == nil {
					t.Error("the lock was asked for")
				}
			})
		}
	}
}

// nested runs a holder, and around it processes that are not its own.
const nested = `
i=0
while [ $i -lt 60 ]; do FAMILY= BYSTANDER=$TENURE_TEST_HARNESS sleep 600 & i=$((i+1)); done
tenure run --lease 12s job -- env FAMILY=$TENURE_TEST_HARNESS sh "$DIR/family.sh" 2>"$DIR/said"
echo $? >"$DIR/status"
wait
`

// TestNested does away with a holder, or its guardian, inside of the namespace
// of another command under tenure run, which does not own it.
func TestNested(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	contain := []string{"tenure", "run", "--contain"}
	for _, tc := range []struct {
		name    string
		wrapper []string
	}{
		{"contain", slices.Concat(contain, []string{"outer", "--"})},
		{"contain twice", slices.Concat(contain, []string{"outer", "--"}, contain, []string{"inner", "--"})},
		{"unshare", []string{"unshare", "-pf", "--mount-proc"}},
		{"unshare with a user namespace", []string{"unshare", "-Urpf", "--mount-proc"}},
	} {
		for _, victim := range []string{"tenure", "guardian"} {
			t.Run(tc.name+", "+victim, func(t *testing.T) {
				t.Parallel()
				s := newHarness(t)
				if tc.wrapper[0] == "tenure" {
					s.needContain()
				} else {
					needUnshare(t, tc.wrapper[1:]...)
				}
				testNested(s, tc.wrapper, victim)
			})
		}
	}
}

func testNested(s *harness, wrapper []string, victim string) {
	t := s.t
	s.write("family.sh", family)
	s.write("nested.sh", nested)
	bystanders := func() int { return len(s.left("BYSTANDER=" + s.mark)) }
	outer := s.run(exec.Command(wrapper[0], append(wrapper[1:], "sh", s.path("nested.sh"))...))
	s.await("the others", func() bool { return bystanders() == 60 })
	s.succeed(func() {
		// By their names in the table of this namespace, from which they are killed.
		holder, guardian := 0, 0
		for _, pid := range s.left(markName + "=" + s.mark) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			switch line := strings.ReplaceAll(string(b), "\x00", " "); {
			case strings.HasPrefix(line, "tenure run --lease 12s job "):
				holder = pid
			case strings.HasPrefix(line, "tenure-guardian ") && strings.Contains(line, " env FAMILY="):
				guardian = pid
			}
		}
		if holder == 0 || guardian == 0 || !slices.Contains(childrenOf(holder), guardian) {
			t.Fatalf("holder %d, guardian %d", holder, guardian)
		}
		_ = syscall.Kill(map[string]int{"tenure": holder, "guardian": guardian}[victim], syscall.SIGKILL)
	})
	s.await("the holder's end", func() bool { return s.read("status") != "" })
	if status := s.read("status"); status != "137\n" { // in both cases: tenure was killed, or its command
		t.Errorf("the holder ended with status %q; it said %s", status, s.read("said"))
	}
	if n := bystanders(); n != 60 {
		t.Errorf("%d of 60 processes are left that do not belong to the holder", n)
	}
	for _, pid := range s.left("BYSTANDER=" + s.mark) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	outer.status()
}
