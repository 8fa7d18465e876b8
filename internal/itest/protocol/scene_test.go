// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/sim"
)

// TestAskedOfADeadHolder: takeover is not delayed by a single second, nor by a
// nanosecond. Ten ask a holder that has crashed to step down: one request is
// laid, the nine others are told so, and the successor sends its takeover at the
// instant at which it would have without them. It is granted then, too, unless
// a request came after its last look before that: then its first write meets
// the new version, and it needs a second one.
func TestAskedOfADeadHolder(t *testing.T) {
	const latency = 20 * time.Millisecond
	cfg := sim.Config{Timing: protocol.Timing{}.WithDefaults(), Latency: latency}
	for _, tt := range []struct {
		name     string
		from, to time.Duration // when they ask, after the crash
		late     time.Duration // how much later the grant may be
	}{
		{"before the last look", 0, cfg.Timing.Lease * 6 / 10, 0},
		{"just before the takeover", cfg.Timing.Lease * 8 / 10, cfg.Timing.Lease, 2 * latency},
	} {
		t.Run(tt.name, func(t *testing.T) {
			later := 0
			for seed := range uint64(80) {
				alone, err := sim.AskTheDead(seed, cfg, false, tt.from, tt.to)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				asked, err := sim.AskTheDead(seed, cfg, true, tt.from, tt.to)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if asked.Sent != alone.Sent {
					t.Errorf("seed %d: the takeover is sent at %v, without the requests at %v", seed, asked.Sent, alone.Sent)
				}
				if late := asked.Granted - alone.Granted; late < 0 || late > tt.late {
					t.Errorf("seed %d: granted %v later than without the requests", seed, late)
				} else if late > 0 {
					later++
				}
				laid, pending := 0, 0
				for _, a := range asked.Answers {
					switch a {
					case protocol.Laid:
						laid++
					case protocol.Pending:
						pending++
					}
				}
				if tt.late == 0 && (laid != 1 || pending != 9 || !asked.Laid) {
					t.Errorf("seed %d: %d requests laid, %d told of another, in the history: %v", seed, laid, pending, asked.Laid)
				}
			}
			t.Logf("granted later by a round trip in %d of 80", later)
		})
	}
}

// TestHonoured: a request is honoured within a heartbeat, what the work needs to
// stop, and the writes; and a reservation for who never comes lapses.
func TestHonoured(t *testing.T) {
	timing := protocol.Timing{}.WithDefaults()
	for _, tt := range []struct {
		q     driver.Request
		drain time.Duration
	}{
		{driver.Request{Kind: driver.StepDown}, 0},
		{driver.Request{Kind: driver.StepDown}, 7 * time.Second},
		{driver.Request{Kind: driver.HandOver, To: "p2"}, 0},
		{driver.Request{Kind: driver.HandOver, To: "p2"}, 7 * time.Second},
		{driver.Request{Kind: driver.HandOver, To: "absent"}, 0},
	} {
		t.Run(fmt.Sprintf("%s %s after %v", tt.q.Kind, tt.q.To, tt.drain), func(t *testing.T) {
			const latency, drift = 20 * time.Millisecond, 0.09
			slow := func(d time.Duration) time.Duration { return time.Duration(float64(d) / (1 - drift)) }
			// The heartbeat that finds it and the release that answers it; with work to
			// end there are heartbeats meanwhile, one of which the release may await.
			most := slow(timing.Heartbeat) + tt.drain + 5*latency
			back := slow(timing.Refresh*9/8) + 3*latency // a look, and the taking
			if tt.q.To == "absent" {
				back += slow(timing.Reservation())
			}
			var gone, again time.Duration
			for seed := range uint64(100) {
				g, a, err := sim.Honoured(seed, sim.Config{Timing: timing, Latency: latency, Drain: tt.drain}, tt.q)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if g < tt.drain || g > most {
					t.Errorf("seed %d: gone after %v, want from %v to %v", seed, g, tt.drain, most)
				}
				if a > g+back {
					t.Errorf("seed %d: held again %v after that, want at most %v", seed, a-g, back)
				}
				gone, again = max(gone, g), max(again, a-g)
			}
			t.Logf("gone after %v at most, held again %v later at most", gone, again)
		})
	}
}

// orders are all in which three candidates can join.
var orders = [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// TestPreference: in the end the candidate with the highest priority leads,
// whatever the order in which they joined. Each change of leader is to a higher
// priority, and nobody leads less than a lease.
func TestPreference(t *testing.T) {
	timing := protocol.Timing{}.WithDefaults()
	for _, drift := range []float64{1e-9, 0.09} {
		cfg := sim.Config{Timing: timing, Latency: 20 * time.Millisecond, Skew: drift}
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
					led, err := sim.Preference(sim.Seed(seed), cfg, order, 4*timing.Lease, 2*timing.Lease, 20*timing.Lease, false)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					if !slices.Equal(led.Leaders, want) || led.Asks > 2*len(want) {
						t.Errorf("seed %d: led in this order: %v, want %v; %d asks", seed, led.Leaders, want, led.Asks)
					}
					// All at once: who is first leads first.
					led, err = sim.Preference(sim.Seed(seed), cfg, order, 0, 2*timing.Lease, 20*timing.Lease, false)
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

// TestPreferenceOfWhoLooksRarely: what a preferred candidate knows is older than
// the latest heartbeat nearly always, so that its request loses to one. That one
// does not count for the pause.
func TestPreferenceOfWhoLooksRarely(t *testing.T) {
	timing := protocol.Timing{Refresh: time.Hour}.WithDefaults()
	cfg := sim.Config{Timing: timing, Latency: 20 * time.Millisecond}
	for seed := range uint64(20) {
		led, err := sim.Preference(sim.Seed(seed), cfg, []int{0, 2}, timing.Lease, time.Hour, 5*timing.Lease, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(led.Leaders, []int{0, 2}) {
			t.Errorf("seed %d: led in this order: %v, %d asks", seed, led.Leaders, led.Asks)
		}
	}
}

// TestPreferenceOverABadLink: half of what the preferred candidate sends is
// lost, or its answer is. It asks at most once in the pause (the world sees to
// that), each time costs at most two changes, and it leads in the end.
func TestPreferenceOverABadLink(t *testing.T) {
	timing := protocol.Timing{}.WithDefaults()
	pause, length := 4*timing.Lease, 60*timing.Lease
	cfg := sim.Config{Timing: timing, Latency: 20 * time.Millisecond}
	most := 0
	for _, order := range orders {
		for seed := range uint64(8) {
			led, err := sim.Preference(sim.Seed(seed), cfg, order, timing.Lease, pause, length, true)
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
