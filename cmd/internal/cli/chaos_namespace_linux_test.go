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

	"github.com/tenurelock/tenure/internal/enginetest"
)

// What a guardian knows of processes it knows from /proc, where the numbers are
// those of one pid namespace.

// startUnder runs tenure under another program.
func (s *scene) startUnder(wrapper []string, args ...string) *process {
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
				s := newScene(t)
				p := s.startUnder(append([]string{"unshare"}, flags...), append(args, "job", "--", "touch", s.path("ran"))...)
				if status := p.status(); status != 126 {
					t.Errorf("status %d, want 126", status)
				}
				const want = "tenure: no usable /proc: it is another pid namespace's, where this process "
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
while [ $i -lt 60 ]; do FAMILY= BYSTANDER=$TENURE_TEST_SCENE sleep 600 & i=$((i+1)); done
tenure run --lease 12s job -- env FAMILY=$TENURE_TEST_SCENE sh "$DIR/family.sh" 2>"$DIR/said"
echo $? >"$DIR/status"
wait
`

// TestNested does away with a holder, or its guardian, inside of the namespace
// of another tenure, which is none of its own.
func TestNested(t *testing.T) {
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
				s := newScene(t)
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

func testNested(s *scene, wrapper []string, victim string) {
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
		t.Errorf("%d of 60 processes are left that are none of the holder's", n)
	}
	for _, pid := range s.left("BYSTANDER=" + s.mark) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	outer.status()
}
