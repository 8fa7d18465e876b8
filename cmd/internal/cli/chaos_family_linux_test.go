// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// family starts everything that is hard to find again, and has all of it write
// to one file without end: a job in the background, a session of its own, an
// orphan by double fork, and one that takes no notice of SIGTERM.
const family = `
beat() { while :; do echo "$1" >>"$DIR/log"; sleep 0.1; done; }
if [ -n "$1" ]; then beat "$1"; fi
beat job &
setsid sh "$0" session &
( (beat orphan &) & )
(trap "" TERM HUP INT; beat deaf) &
beat main
`

// heir is the successor's command. It writes down who of the family lives, and
// whether the file still grows.
const heir = `
living=$(grep -lsz "^FAMILY=$TENURE_TEST_SCENE$" /proc/[0-9]*/environ | tr '\n' ' ')
before=$(wc -c <"$DIR/log")
sleep 0.5
after=$(wc -c <"$DIR/log")
echo "$before $after $living" >"$DIR/verdict.new"
mv "$DIR/verdict.new" "$DIR/verdict"
`

// TestFamilyIsGoneBeforeSuccessor does away with a holder in every way, and
// has the successor look whether anything of it lives.
func TestFamilyIsGoneBeforeSuccessor(t *testing.T) {
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
			eachStore(t, func(t *testing.T, s *scene) {
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
				time.Sleep(300 * time.Millisecond) // for whoever might still write
				if now := len(s.read("log")); now != after {
					t.Errorf("the file grew from %d to %d bytes after all", after, now)
				}
			})
		})
	}
}

// succeed has a successor wait for the lock of the family, which is done away with then. Nothing
// of it may live when the successor begins. It returns how long the family's file is.
func (s *scene) succeed(do func()) (after int) {
	s.t.Helper()
	s.write("heir.sh", heir)
	s.await("the family", func() bool {
		log := s.read("log")
		return !slices.ContainsFunc([]string{"job", "session", "orphan", "deaf", "main"}, func(member string) bool {
			return !strings.Contains(log, member)
		})
	})
	second := s.start("run", "--json", "--lease", "15s", "job", "--", "sh", s.path("heir.sh"))
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
func (s *scene) needContain() {
	p := s.start("run", "--contain", "try", "--", "true")
	if p.status() != 0 {
		enginetest.Missing(s.t, "a pid namespace", "a system that allows them does: "+p.stderr.String())
	}
}

// TestStalledReader holds a lock while nobody reads what tenure says, until
// the pipe is full: neither heartbeats nor the command may wait for a reader.
func TestStalledReader(t *testing.T) { eachStore(t, stalledReader) }

func stalledReader(t *testing.T, s *scene) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	full := make([]byte, 1<<20)
	_ = w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := w.Write(full); err == nil {
		t.Fatalf("the pipe took %d bytes", n)
	}
	// A heartbeat that waited for the reader would lose each of the leases; a machine
	// that stands still for seconds may lose one.
	defer w.Close()
	const rounds = 3
	for round := range rounds {
		p := s.startWith(w, "run", "--json", "--verbose", "--lease", "8s", "--heartbeat", "200ms", "job", "--", "sh", "-c", "sleep 10; echo yes >\"$DIR/ended\"")
		status := p.status()
		if status == 0 && s.read("ended") == "yes\n" {
			return
		}
		t.Logf("round %d: status %d", round, status)
	}
	t.Errorf("%d leases of %d were lost", rounds, rounds)
}

// TestClosedReader holds a lock while standard error is a pipe that nobody can
// read any more.
func TestClosedReader(t *testing.T) { eachStore(t, closedReader) }

func closedReader(t *testing.T, s *scene) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	p := s.startWith(w, "run", "--verbose", "--lease", "15s", "--heartbeat", "100ms", "job", "--", "sh", "-c", "sleep 0.5; exit 4")
	w.Close()
	if status := p.status(); status != 4 {
		t.Errorf("status %d, want 4", status)
	}
}
