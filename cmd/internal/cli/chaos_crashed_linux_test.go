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

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// What becomes of the lock of a tenure that was killed.

// solitary works beside nobody: the kernel's lock must be free when it begins. What of a
// killed one lives on would still have that.
const solitary = `
exec 9>"$DIR/flock"
flock -n 9 || echo "token $TENURE_TOKEN runs beside another" >>"$DIR/failures"
echo "$TENURE_TOKEN" >>"$DIR/begun"
[ -e "$DIR/quick" ] || { trap "" TERM; setsid sleep 600 & sleep 600; }
`

// client returns a client on the store of the scene, by which the test looks.
func (s *scene) client() *tenure.Client {
	s.t.Helper()
	c, err := tenure.New(s.store(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// past returns the tenure of the lock with the token, as the history has it.
func (s *scene) past(c *tenure.Client, name string, token uint64) tenure.Tenure {
	s.t.Helper()
	list, err := c.History(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(t tenure.Tenure) bool { return t.Token == token })
	if i < 0 {
		s.t.Fatalf("no token %d in the history: %+v", token, list)
	}
	return list[i]
}

// TestKilledTenureIsFreed: nobody waits for the lease of a tenure that was killed, where its
// guardian knows that nothing is left. The lease is longer than the test lasts.
func TestKilledTenureIsFreed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		words []string
	}{
		{"run", []string{"run"}},
		{"lead", []string{"lead"}},
		{"contained", []string{"run", "--contain"}},
		{"slot", []string{"run", "--slots", "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *scene) {
				if tc.name == "contained" {
					s.needContain()
				}
				s.write("alone.sh", solitary)
				args := append(slices.Clone(tc.words), "--lease", "10m", "--heartbeat", "500ms", "--refresh", "200ms", "--grace", "1s")
				args = append(args, "job", "--", "sh", s.path("alone.sh"))
				first := s.start(args...)
				s.await("the command", func() bool { return s.read("begun") != "" })
				store := s.store()
				time.Sleep(700 * time.Millisecond) // for a heartbeat
				second := s.start(append(append([]string{"run", "--json"}, tc.words[1:]...), args[len(tc.words):]...)...)
				if tc.name != "slot" {
					s.await("a waiting successor", func() bool { return strings.Contains(second.stderr.String(), `"event":"waiting"`) })
				}
				guardian := first.guardian()
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guardian))
				if err != nil || strings.Contains(string(line), s.url) {
					t.Errorf("the guardian's arguments, which anybody may read, have the store in them: %q, %v", line, err)
				}
				killed := time.Now()
				first.signal(syscall.SIGKILL)
				s.await("the successor's command", func() bool { return strings.Count(s.read("begun"), "\n") == 2 })
				if took := time.Since(killed); took < time.Second {
					t.Errorf("the successor began %v after the death: the last requests of the dead had no second", took)
				}
				if f := s.read("failures"); f != "" {
					t.Error(f)
				}
				name := "job"
				if tc.name == "slot" {
					locks, err := store.List(t.Context(), "job", "")
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range locks.Records {
						if r.State == driver.Held {
							name = r.Key
						}
					}
				}
				if p := s.past(s.client(), name, 1); p.End != tenure.EndCrashed || p.Until.Before(killed) {
					t.Errorf("the history has %+v", p)
				}
				second.signal(syscall.SIGKILL) // its guardian frees the lock, and ends
				second.status()
				s.await("the end of its guardian", func() bool { return len(s.left(markName+"="+s.mark)) == 0 })
			})
		})
	}
}
