// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// hour is what TestAnHourOfManyTimings sees of its locks.
type hour struct {
	t       *testing.T
	mu      sync.Mutex
	working map[string]*tenure.Lease // by lock
	tokens  map[string]uint64        // the latest, by lock
	grants  map[string]int           // by lock
	idle    map[string]time.Duration // for how long nobody could act, in all
}

// began judges work that begins.
func (h *hour) began(l *tenure.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.working[l.Name()]; other != nil {
		h.t.Errorf("%s works under %s, token %d, and %s does, token %d", l.Owner(), l.Name(), l.Token(), other.Owner(), other.Token())
	}
	if last := h.tokens[l.Name()]; l.Token() <= last {
		h.t.Errorf("%s has token %d after %d", l.Name(), l.Token(), last)
	}
	h.working[l.Name()], h.tokens[l.Name()] = l, l.Token()
	h.grants[l.Name()]++
}

func (h *hour) ended(l *tenure.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working[l.Name()] == l {
		delete(h.working, l.Name())
	}
}

// work holds a lock until it must not, or for a while.
func (h *hour) work(ctx context.Context, l *tenure.Lease, d time.Duration) error {
	h.began(l)
	defer h.ended(l)
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return nil
}

// badTimes puts faults on the way of a machine to the store, one after the other: what
// networks and stores do to each, and suspends that nothing but the clock shows.
func badTimes(ctx context.Context, r *rand.Rand, m *machine, clock *leapingClock) {
	wait := func(most time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.Int64N(int64(most)))):
		}
	}
	for ctx.Err() == nil {
		wait(40 * time.Second)
		some := func(n int, f faultstore.Fault) {
			m.faults.Inject(faultstore.Rule{Count: 1 + r.IntN(n), Probability: 0.5, Fault: f})
		}
		within := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
		switch r.IntN(10) {
		case 0:
			some(5, faultstore.Refuse())
		case 1:
			some(5, faultstore.LoseReply())
		case 2:
			some(5, faultstore.LoseReplyHang())
		case 3:
			some(5, faultstore.LoseRequest())
		case 4:
			some(20, faultstore.Slow(within(time.Second), within(time.Second)))
		case 5:
			some(3, faultstore.LateAfterError(within(20*time.Second)))
		case 6:
			some(3, faultstore.Duplicate(within(20*time.Second)))
		case 7:
			m.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Count: 10, Fault: faultstore.Stale(1 + r.IntN(4))})
		case 8:
			m.faults.SetBlackHole(true)
			wait([]time.Duration{2 * time.Second, 20 * time.Second, 6 * time.Minute}[r.IntN(3)])
			m.faults.SetBlackHole(false)
		case 9:
			clock.leapt.Add(int64([]time.Duration{2 * time.Second, 20 * time.Second, 6 * time.Minute}[r.IntN(3)]))
		}
	}
}

// TestAnHourOfManyTimings: a leader of 2 s, a job of 5 min and a session of 1,000 locks
// are held by one client, beside a second one that wants the first two and some of the
// locks. For an hour their requests fail in all the usual ways. No lock ever has two
// holders; the work of one ends before that of the next begins; and no lock stays
// without a holder for longer than its own lease makes it. The environment variable
// TENURE_HOURS sets how many hours.
func TestAnHourOfManyTimings(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of a processor: make nightly-race has it")
	}
	hours := 1
	if n := os.Getenv("TENURE_HOURS"); n != "" {
		var err error
		if hours, err = strconv.Atoi(n); err != nil {
			t.Fatalf("TENURE_HOURS %q: %v", n, err)
		}
	}
	for seed := range hours {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { anHour(t, uint64(seed)) })
		})
	}
}

func anHour(t *testing.T, seed uint64) {
	const quick, long, many = 2 * time.Second, 5 * time.Minute, 30 * time.Second
	records := memstore.New()
	w := &world{t: t, records: records, open: func() driver.Store { return records.Open() }}
	h := &hour{t: t, working: map[string]*tenure.Lease{}, tokens: map[string]uint64{}, grants: map[string]int{}, idle: map[string]time.Duration{}}
	faulty, calm := context.WithCancel(t.Context())
	defer calm()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all, troubles sync.WaitGroup
	for i, owner := range []string{"a", "b"} {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		clock := &leapingClock{Clock: tenure.MonotonicClock()}
		m := w.machine(owner, func(o *tenure.Options) { o.Clock = clock })
		m.reads = 1 << 30 // by its waiters of a lock each, and what they retry
		troubles.Go(func() { badTimes(faulty, r, m, clock) })
		for name, lease := range map[string]time.Duration{"leader": quick, "job": long} {
			e := m.Election(name, &tenure.ElectionOptions{Timing: tenure.Timing{LeaseDuration: lease}})
			all.Go(func() {
				_ = e.Run(ctx, func(ctx context.Context, l *tenure.Lease) error { return h.work(ctx, l, time.Hour) })
			})
		}
		mine := names(1000)
		if owner == "b" {
			mine = mine[:20]
		}
		all.Go(func() {
			for ctx.Err() == nil {
				s, err := m.OpenSession(ctx, &tenure.SessionOptions{Timing: tenure.Timing{LeaseDuration: many}})
				if err != nil {
					continue
				}
				var locks sync.WaitGroup
				for k, name := range mine {
					hold := time.Hour
					if k < 20 { // which the other one wants, too
						hold = time.Minute
					}
					locks.Go(func() {
						for s.Context().Err() == nil && ctx.Err() == nil {
							_ = s.Run(ctx, name, nil, func(ctx context.Context, l *tenure.Lease) error { return h.work(ctx, l, hold) })
						}
					})
				}
				select {
				case <-s.Context().Done():
				case <-ctx.Done():
				}
				locks.Wait()
				over, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				_ = s.Close(over)
				cancel()
			}
		})
	}

	// Who may act is asked all the time, whatever has begun.
	const pace = 100 * time.Millisecond
	watch := func(d time.Duration) {
		for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(pace) {
			h.mu.Lock()
			for _, name := range []string{"leader", "job", "lock-00000", "lock-00999"} {
				if l := h.working[name]; l == nil || l.Check() != nil {
					h.idle[name] += pace
				}
			}
			h.mu.Unlock()
		}
	}
	watch(time.Hour)
	t.Logf("grants: leader %d, job %d, lock-00000 %d, lock-00999 %d; nobody could act for %v, %v, %v, %v",
		h.grants["leader"], h.grants["job"], h.grants["lock-00000"], h.grants["lock-00999"],
		h.idle["leader"], h.idle["job"], h.idle["lock-00000"], h.idle["lock-00999"])
	for name, least := range map[string]int{"leader": 20, "job": 2, "lock-00000": 10, "lock-00999": 5} {
		if h.grants[name] < least {
			t.Errorf("%s was granted %d times: the faults are hardly any", name, h.grants[name])
		}
	}
	calm()
	troubles.Wait()

	// Without faults each lock has a holder after its own lease, and keeps it.
	watch(long + many)
	clear(h.idle)
	before := h.grants["leader"]
	watch(2 * time.Minute)
	h.mu.Lock()
	for _, name := range []string{"leader", "job", "lock-00999"} {
		if h.idle[name] > 0 {
			t.Errorf("nobody could act under %s for %v, and nothing fails", name, h.idle[name])
		}
	}
	if h.grants["leader"] != before {
		t.Errorf("%d leaders while nothing fails", h.grants["leader"]-before)
	}
	if n := len(h.working); n < 900 {
		t.Errorf("%d locks have a holder, want most of 1,002", n)
	}
	h.mu.Unlock()
	stop()
	all.Wait()
}
