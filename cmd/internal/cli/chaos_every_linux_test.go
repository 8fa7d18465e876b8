// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/once"
)

// chaosTime names the variable of the environment with the time for which
// TestEveryThroughKills goes on: "10m" for a long run.
const chaosTime = "TENURE_TEST_CHAOS"

// oneRun is what a command of tenure every does. It takes a lock of the kernel, which must
// always be free if no two of them run at once.
const oneRun = `
exec 9>"$DIR/flock"
if ! flock -n 9; then
	echo "run $TENURE_SLOT of $TENURE_OWNER beside run $(cat "$DIR/holder")" >>"$DIR/failures"
	exit 99
fi
echo "$TENURE_SLOT of $TENURE_OWNER" >"$DIR/holder"
echo "$TENURE_SLOT" >>"$DIR/begun"
sleep 0.2
echo "$TENURE_SLOT" >>"$DIR/ended"
`

// everyHost is a host on which tenure every is kept running.
type everyHost struct {
	number  int
	p       *process
	starts  int
	killed  bool      // by the test, in a way that cannot be caught
	stopped bool      // it has SIGSTOP
	asked   bool      // it has SIGTERM
	next    time.Time // when it is started, or continued
}

// everyWatch is what was seen of a ledger of tenure every.
type everyWatch struct {
	s      *scene
	client *tenure.Client
	number int64               // of the newest period
	came   time.Time           // when that was seen
	begun  map[int64]time.Time // of each period, by the clock of this machine
	gap    time.Duration       // the longest time without a new period
}

const (
	chaosPeriod = time.Second
	chaosName   = "job"
)

// Three hosts keep tenure every running, while it is killed, stopped for longer than its
// lease, ended in order, and loses its guardian, at random. No two commands run at once;
// periods are begun at least a period apart, but for the drift that clocks may have; each
// of them is run at most once, in their order; and they go on coming.
func TestEveryThroughKills(t *testing.T) {
	t.Parallel()
	lasts := 15 * time.Second
	if testing.Short() {
		lasts = 6 * time.Second
	}
	if text := os.Getenv(chaosTime); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newScene(t)
	s.write("run.sh", oneRun)
	client, err := tenure.New(s.store(), &tenure.Options{Owner: "looks"})
	if err != nil {
		t.Fatal(err)
	}
	w := &everyWatch{s: s, client: client, came: time.Now(), begun: map[int64]time.Time{}}
	hosts := []*everyHost{{number: 0}, {number: 1}, {number: 2}}
	faults := map[string]int{}
	const least = 5
	for end := time.Now().Add(lasts); time.Now().Before(end) || w.number < least; time.Sleep(50 * time.Millisecond) {
		for _, h := range hosts {
			h.tend(s)
			if !h.killed && !h.stopped && !h.asked && rand.IntN(30) == 0 { // each second and a half
				faults[h.fault(s)]++
			}
		}
		w.look()
	}
	for _, h := range hosts {
		h.next = time.Time{}
		h.tend(s)
	}
	number := w.number
	s.await("periods after the faults", func() bool {
		for _, h := range hosts {
			h.tend(s)
		}
		w.look()
		return w.number >= number+3
	})
	starts := 0
	for _, h := range hosts {
		if h.p != nil {
			h.p.signal(syscall.SIGTERM)
			h.asked = true
			h.ended(s)
		}
		starts += h.starts
	}
	w.look()
	if text := s.read("failures"); text != "" {
		t.Errorf("two at once:\n%s", text)
	}
	ran, last := strings.Fields(s.read("begun")), int64(0)
	for _, line := range ran {
		var n int64
		if _, err := fmt.Sscan(line, &n); err != nil || n <= last {
			t.Errorf("run %q after run %d, %v", line, last, err)
		}
		if last = n; w.begun[n].IsZero() {
			t.Errorf("run %d is not in the ledger", n)
		}
	}
	if len(ran) == 0 {
		t.Error("nothing ran")
	}
	t.Logf("%v, %d starts: %d periods begun, %d commands run, %d to their end; the longest gap was %v",
		faults, starts, w.number, len(ran), len(strings.Fields(s.read("ended"))), w.gap.Round(time.Millisecond))
}

// tend starts what has ended, and continues what was stopped, when it is time.
func (h *everyHost) tend(s *scene) {
	if h.p != nil {
		select {
		case <-h.p.done:
			h.ended(s)
			h.p, h.killed, h.stopped, h.asked = nil, false, false, false
			h.next = time.Now().Add(rand.N(time.Second))
		default:
		}
	}
	switch {
	case time.Now().Before(h.next):
	case h.p == nil:
		h.p = s.run(exec.Command("env", hostEntry(h.number), "tenure", "every", "--lease", "2s", "--owner", fmt.Sprintf("host-%d-%d", h.number, h.starts),
			chaosPeriod.String(), chaosName, "--", "sh", s.path("run.sh")))
		h.starts++
	case h.stopped:
		h.stopped = false
		h.p.signal(syscall.SIGCONT)
	}
}

// ended checks how a process has ended.
func (h *everyHost) ended(s *scene) {
	switch status := h.p.status(); {
	case h.killed && status == 137, h.asked && (status == 143 || status == 0):
	default:
		s.t.Errorf("host %d ended with status %d: killed %v, asked %v", h.number, status, h.killed, h.asked)
	}
}

// fault does something to a host, and returns what.
func (h *everyHost) fault(s *scene) string {
	if h.p == nil {
		return "none"
	}
	switch rand.IntN(6) {
	case 0:
		h.killed = true
		h.p.signal(syscall.SIGKILL)
		return "killed"
	case 1:
		h.killed = true
		s.crash(h.number)
		return "crashed"
	case 2, 3:
		h.stopped, h.next = true, time.Now().Add(rand.N(4*time.Second))
		h.p.signal(syscall.SIGSTOP)
		return "stopped"
	case 4:
		h.asked = true
		h.p.signal(syscall.SIGTERM)
		return "ended"
	}
	for _, pid := range childrenOf(h.p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is gone
	}
	return "guardian killed"
}

// look reads the ledger.
func (w *everyWatch) look() {
	t := w.s.t
	t.Helper()
	st, err := once.ShowEvery(t.Context(), w.client, chaosName)
	switch {
	case errors.Is(err, driver.ErrUnreadable):
		t.Fatal(err)
	case err != nil: // the file is locked: later
		t.Log(err)
		return
	}
	if st.Number < w.number {
		t.Fatalf("period %d after period %d", st.Number, w.number)
	}
	gap := time.Since(w.came)
	if gap > awaited {
		t.Fatalf("no period has begun for %v", gap)
	}
	if st.Number > w.number {
		w.number, w.came, w.gap = st.Number, time.Now(), max(w.gap, gap)
	}
	for _, r := range st.Runs {
		if at, ok := w.begun[r.Slot]; ok && !at.Equal(r.Begun) {
			t.Errorf("period %d was begun at %v, and again at %v", r.Slot, at, r.Begun)
		}
		w.begun[r.Slot] = r.Begun
		// When its claim was sent, which was a period after the one before was confirmed.
		if before, ok := w.begun[r.Slot-1]; ok && r.Begun.Sub(before) < chaosPeriod*100/109 {
			t.Errorf("period %d was begun %v after the one before", r.Slot, r.Begun.Sub(before))
		}
	}
}
