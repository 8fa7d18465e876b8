// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/protocol"
)

// failedOver describes a failover.
type failedOver struct {
	After time.Duration // from the crash of the holder to the grant of its successor
	Wait  time.Duration // for how long the waiters had been waiting when it crashed
	Reads float64       // of each waiter, per second, until the crash
	Sent  int           // requests of all waiters from the crash to the grant
}

// failover lets the first process hold, the others wait, the first crash at a
// random moment, and another take over. Nothing else fails.
func failover(src Source, cfg Config) (failedOver, error) {
	l := newLock(src, cfg)
	l.final = true // no process only tries, or gives up
	l.after(0, l.procs[0].acquire)
	for _, p := range l.procs[1:] {
		l.after(l.t.Lease+l.upTo(l.t.Heartbeat), p.acquire)
	}
	begin := 2 * l.t.Lease
	l.run(func() bool { return l.now >= begin })
	reads := l.Reads
	crash := begin + 2*l.t.Lease + l.upTo(l.t.Lease) + l.upTo(l.t.Heartbeat)
	l.after(crash-l.now, func() { l.procs[0].crash() })
	l.run(func() bool { return l.now >= crash && !l.procs[0].up })
	f := failedOver{Wait: crash - begin}
	f.Reads = float64(l.Reads-reads) / f.Wait.Seconds() / float64(len(l.procs)-1)
	sent := l.Reads + l.Writes
	l.run(func() bool { return l.last > 1 || l.now > crash+10*l.t.Lease })
	f.After, f.Sent = l.now-crash, l.Reads+l.Writes-sent
	return f, l.failure()
}

// TestFailover measures in virtual time how long after the crash of a holder
// the lock is held again: the lease, 9/8 of the refresh period, and three calls.
func TestFailover(t *testing.T) {
	enginetest.MakeVerify(t)
	const lease = 15 * time.Second
	for _, tt := range []struct {
		name       string
		refresh    time.Duration
		contenders int
		drift      float64
		p99        time.Duration
		reads      float64 // per second and contender, at most
	}{
		{"one contender", time.Second, 1, 1e-4, lease + 1175*time.Millisecond, 1 + 1.0/3},
		{"ten contenders", time.Second, 10, 1e-4, lease + 200*time.Millisecond, 1 + 1.0/3},
		{"clocks that slew", time.Second, 1, 0.09, lease*110/100 + time.Second, 1 + 2.0/3},
		{"looks every 3 s", 3 * time.Second, 1, 1e-4, lease + 3425*time.Millisecond, 2.0 / 3},
		{"looks once an hour", time.Hour, 1, 1e-4, 2 * lease, 0.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fs []failedOver
			for seed := range uint64(300) {
				f, err := failover(Seed(seed), Config{
					Timing: protocol.Timing{Refresh: tt.refresh}.WithDefaults(), Processes: 1 + tt.contenders,
					Latency: 5 * time.Millisecond, Skew: tt.drift,
				})
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				fs = append(fs, f)
			}
			reads, sent := 0.0, 0.0
			for _, f := range fs {
				reads += f.Reads / float64(len(fs))
				sent += float64(f.Sent) / float64(len(fs)*tt.contenders)
			}
			slices.SortFunc(fs, func(a, b failedOver) int { return cmp.Compare(a.After, b.After) })
			at := func(p int) time.Duration { return fs[(len(fs)-1)*p/100].After.Round(time.Millisecond) }
			t.Logf("p50 %v, p90 %v, p99 %v, max %v; a waiter reads %.2f times a second; from crash to grant it sends %.0f requests",
				at(50), at(90), at(99), at(100), reads, sent)
			if at(99) > tt.p99 {
				t.Errorf("p99 of failover is %v, want at most %v", at(99), tt.p99)
			}
			if reads > tt.reads {
				t.Errorf("a waiter reads %.2f times a second, want at most %.2f", reads, tt.reads)
			}
		})
	}
}

// led is how candidates with different priorities led.
type led struct {
	Leaders []int           // the priorities of the leaders, in order
	Since   []time.Duration // when
	Asks    int             // to make way that were sent
}

// preference has candidates with the given priorities join one after the other,
// and campaign again whenever they lose the lead. With flaky the candidate with
// the highest priority has a bad link as long as it does not lead.
func preference(src Source, cfg Config, priorities []int, gap, length time.Duration, flaky bool) (led, error) {
	cfg.Processes = len(priorities)
	l := newLock(src, cfg)
	l.final = true
	best := l.procs[0]
	for i, p := range l.procs {
		p.priority = priorities[i]
		if p.priority > best.priority {
			best = p
		}
		l.after(time.Duration(i)*gap, func() { l.often(true, 0, l.t.Lease/16, l.t.Lease/2, p.act) })
	}
	best.flaky = flaky
	l.after(length, func() {})
	var led led
	grant := 0
	l.run(func() bool {
		if m, leads := l.holder().(*machine); leads && m.grant > grant {
			grant = m.grant
			led.Leaders, led.Since = append(led.Leaders, m.p.priority), append(led.Since, l.now)
		}
		return l.now >= length
	})
	for _, p := range l.procs {
		led.Asks += p.wished
	}
	return led, l.failure()
}

// orders are all orders in which three candidates can join.
var orders = [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// TestPreference: in the end the candidate with the highest priority leads,
// whatever the order in which they joined. Each change of leader is to a higher
// priority, and no process leads for less than a lease.
func TestPreference(t *testing.T) {
	enginetest.MakeVerify(t)
	timing := protocol.Timing{}.WithDefaults()
	for _, drift := range []float64{1e-9, 0.09} {
		cfg := Config{Timing: timing, Latency: 20 * time.Millisecond, Skew: drift}
		for _, order := range orders {
			t.Run(fmt.Sprintf("%v with drift %g", order, drift), func(t *testing.T) {
				var want []int // each is preferred to all before it
				for _, p := range order {
					if len(want) == 0 || p > want[len(want)-1] {
						want = append(want, p)
					}
				}
				for seed := range uint64(6) {
					// One after the other, when the one before has come to lead.
					led, err := preference(Seed(seed), cfg, order, 4*timing.Lease, 20*timing.Lease, false)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if !slices.Equal(led.Leaders, want) || led.Asks > 2*len(want) {
						t.Errorf("seed %d: led in this order: %v, want %v; %d asks", seed, led.Leaders, want, led.Asks)
					}
					// All at once: who is first leads first.
					led, err = preference(Seed(seed), cfg, order, 0, 20*timing.Lease, false)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if n := len(led.Leaders); !slices.IsSorted(led.Leaders) || len(slices.Compact(led.Leaders)) != n || led.Leaders[n-1] != 2 {
						t.Errorf("seed %d: led in this order: %v", seed, led.Leaders)
					}
					for i := 1; i < len(led.Since); i++ {
						if d := led.Since[i] - led.Since[i-1]; d < time.Duration(float64(timing.Lease)/(1+drift)) {
							t.Errorf("seed %d: a leader had led for %v only", seed, d)
						}
					}
				}
			})
		}
	}
}

// TestPreferenceOfWhoLooksRarely: the view of a preferred candidate is nearly always
// older than the latest heartbeat, so that its request loses to a heartbeat. Such a
// request does not count.
func TestPreferenceOfWhoLooksRarely(t *testing.T) {
	timing := protocol.Timing{Refresh: time.Hour}.WithDefaults()
	cfg := Config{Timing: timing, Latency: 20 * time.Millisecond}
	for seed := range uint64(20) {
		led, err := preference(Seed(seed), cfg, []int{0, 2}, timing.Lease, 5*timing.Lease, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(led.Leaders, []int{0, 2}) {
			t.Errorf("seed %d: led in this order: %v, %d asks", seed, led.Leaders, led.Asks)
		}
	}
}

// TestPreferenceOverABadLink: half of what the preferred candidate sends is
// lost, or its answer is. It asks at most once in a lease (the world sees to
// that), each time costs at most two changes, and it leads in the end.
func TestPreferenceOverABadLink(t *testing.T) {
	enginetest.MakeVerify(t)
	timing := protocol.Timing{}.WithDefaults()
	length := 60 * timing.Lease
	cfg := Config{Timing: timing, Latency: 20 * time.Millisecond}
	most := 0
	for _, order := range orders {
		for seed := range uint64(8) {
			led, err := preference(Seed(seed), cfg, order, timing.Lease, length, true)
			if err != nil {
				t.Fatalf("%v, seed %d: %v", order, seed, err)
			}
			changes := len(led.Leaders) - 1
			if last := led.Leaders[changes]; last != 2 {
				t.Errorf("%v, seed %d: led in this order: %v", order, seed, led.Leaders)
			}
			if changes > 2*led.Asks {
				t.Errorf("%v, seed %d: %d changes after %d asks: %v", order, seed, changes, led.Asks, led.Leaders)
			}
			most = max(most, changes)
		}
	}
	t.Logf("%d changes at most", most)
}
