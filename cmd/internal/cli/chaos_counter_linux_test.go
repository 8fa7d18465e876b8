// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// raise is what each of many children does. It takes a lock of the kernel,
// which must always be free if no two of them run at once and nothing of a
// killed one lives on; then it raises a counter in the careless way: read,
// wait, write. A line of the counter is its number and the token under which it
// was written; the file is replaced in one step, and after that the child
// records that it has completed its turn.
const raise = `
exec 9>"$DIR/flock"
if ! flock -n 9; then
	echo "token $TENURE_TOKEN runs beside another" >>"$DIR/failures"
	exit 99
fi
echo "$ME $TENURE_TOKEN" >"$DIR/holder"
n=$(wc -l <"$DIR/counter")
sleep 0.05
{ cat "$DIR/counter"; echo "$((n + 1)) $TENURE_TOKEN"; } >"$DIR/next"
mv "$DIR/next" "$DIR/counter"
echo "$TENURE_TOKEN" >>"$DIR/done"
`

const contenders = 20

func (s *scene) contend(lease string) []*process {
	s.write("raise.sh", raise)
	s.write("counter", "")
	var all []*process
	for i := range contenders {
		all = append(all, s.start("run", "--quiet", "--lease", lease, "job", "--",
			"env", fmt.Sprintf("ME=%d", i), "sh", s.path("raise.sh")))
	}
	return all
}

// checkCounter holds the counter against what must be true of it, and returns
// how high it is.
func (s *scene) checkCounter() int {
	s.t.Helper()
	if f := s.read("failures"); f != "" {
		s.t.Errorf("two at once:\n%s", f)
	}
	token, lines := 0, strings.Split(strings.TrimSuffix(s.read("counter"), "\n"), "\n")
	written := map[string]bool{}
	for i, line := range lines {
		var n, t int
		if _, err := fmt.Sscanf(line, "%d %d", &n, &t); err != nil || n != i+1 {
			s.t.Errorf("line %d of the counter is %q: an update was lost", i+1, line)
		}
		if t <= token {
			s.t.Errorf("token %d comes after token %d", t, token)
		}
		token = t
		written[fmt.Sprint(t)] = true
	}
	for _, t := range strings.Fields(s.read("done")) {
		if !written[t] {
			s.t.Errorf("what was done under token %s is not in the counter", t)
		}
	}
	return len(lines)
}

func TestTwentyAtOnce(t *testing.T) { eachStore(t, twentyAtOnce) }

func twentyAtOnce(t *testing.T, s *scene) {
	for i, p := range s.contend("30s") { // no lease runs out here
		if status := p.status(); status != 0 {
			t.Errorf("process %d ended with status %d", i, status)
		}
	}
	if n := s.checkCounter(); n != contenders {
		t.Errorf("the counter is %d, want %d", n, contenders)
	}
}

func TestTwentyAtOnceFiveKilled(t *testing.T) { eachStore(t, twentyAtOnceFiveKilled) }

func twentyAtOnceFiveKilled(t *testing.T, s *scene) {
	all := s.contend("6s")
	killed := map[int]bool{}
	done := func(i int) bool {
		select {
		case <-all[i].done:
			return true
		default:
			return false
		}
	}
	for len(killed) < 5 {
		// Three of them while they hold the lock, two whatever they do.
		victim := rand.IntN(contenders)
		if len(killed) < 3 {
			s.await("a holder at work", func() bool {
				token := ""
				_, err := fmt.Sscan(s.read("holder"), &victim, &token)
				return err == nil && !killed[victim] && !slices.Contains(strings.Fields(s.read("done")), token)
			})
		}
		time.Sleep(rand.N(50 * time.Millisecond))
		if done(victim) {
			continue
		}
		all[victim].signal(syscall.SIGKILL)
		killed[victim] = true
	}
	ended := 0
	for i, p := range all {
		switch status := p.status(); {
		case status == 0:
			ended++
		case status == 137 && killed[i]:
		default:
			t.Errorf("process %d ended with status %d", i, status)
		}
	}
	if ended == contenders {
		t.Error("nobody was killed")
	}
	n, recorded := s.checkCounter(), len(strings.Fields(s.read("done")))
	t.Logf("%d ended by themselves, %d recorded their turn, the counter is %d", ended, recorded, n)
	// Whoever was killed may have written without recording it; nobody else.
	if recorded < ended || n < recorded || n > recorded+len(killed) {
		t.Errorf("the counter is %d after %d recorded turns of %d children", n, recorded, ended)
	}
}
