// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/shard"
)

// attack is a group to which anything is done at random: workers are started, stopped
// alone, together or all, and killed, while others of that go on.
type attack struct {
	*stage
	r       *rand.Rand
	bad     bool // the stores fail as well
	running []*worker
	going   []*worker // stopped, and perhaps not gone yet
	at      map[*worker]time.Time
	born    int
	killed  time.Time // the last one
	log     strings.Builder
}

// do does one thing, and says what.
func (a *attack) do() {
	n := len(a.running)
	switch k := a.r.IntN(10); {
	case n == 0, k < 3 && n < 8:
		for range 1 + a.r.IntN(3) {
			a.start()
		}
	case k < 6:
		a.halt(1)
	case k < 7:
		a.halt(1 + a.r.IntN(n))
	case k < 8:
		a.halt(n)
	default:
		w := a.running[a.r.IntN(n)]
		a.say("kill %s", w.owner)
		a.running = without(a.running, w)
		w.crash()
		a.killed = time.Now()
	}
}

func (a *attack) say(format string, args ...any) {
	fmt.Fprintf(&a.log, "%v "+format+"\n", append([]any{time.Now().Format("04:05.000")}, args...)...)
}

func without(list []*worker, w *worker) []*worker {
	var rest []*worker
	for _, other := range list {
		if other != w {
			rest = append(rest, other)
		}
	}
	return rest
}

func (a *attack) start() {
	a.born++
	w := a.make(fmt.Sprint("w", a.born), func(o *shard.Options) {
		o.Weight = 1 + float64(a.r.IntN(2))
		if a.r.IntN(4) == 0 {
			o.Prepare = func(ctx context.Context, _ string) error {
				select {
				case <-time.After(300 * time.Millisecond):
				case <-ctx.Done():
				}
				return nil
			}
		}
	})
	w.drain.Store(int64(time.Duration(a.r.IntN(1500)) * time.Millisecond))
	if a.bad {
		// What is refused for good is an incident after the first good answer.
		w.faults.Inject(faultstore.Rule{Skip: 3, Decide: func(c faultstore.Call) faultstore.Fault { return a.fault(c) }})
	}
	a.say("start %s", w.owner)
	w.start(w.handle)
	a.running = append(a.running, w)
}

var errThrottled = errors.New("throttled")

// fault is what happens to a call of a bad store.
func (a *attack) fault(faultstore.Call) faultstore.Fault {
	switch rand.N(500) { // a look of the coordinator is some thirty calls, and counts if all succeed
	case 0:
		return faultstore.LoseReply()
	case 1:
		return faultstore.LoseRequest()
	case 2:
		return faultstore.Late(rand.N(10 * time.Second))
	case 3:
		return faultstore.BlackHole()
	case 4:
		return faultstore.Fault{Effect: faultstore.Refused, Err: driver.Permanent(errDenied)}
	case 5:
		return faultstore.Fault{Effect: faultstore.Refused, Err: driver.NotApplied(errThrottled)}
	case 6:
		return faultstore.Duplicate(rand.N(3 * time.Second))
	case 7, 8:
		return faultstore.Stale(1 + rand.N(3))
	}
	return faultstore.Slow(rand.N(50*time.Millisecond), rand.N(50*time.Millisecond))
}

// halt stops n workers at once.
func (a *attack) halt(n int) {
	for range n {
		w := a.running[a.r.IntN(len(a.running))]
		a.say("stop %s", w.owner)
		a.running = without(a.running, w)
		a.going = append(a.going, w)
		a.at[w] = time.Now()
		w.stop()
	}
}

// gone sees which of those that were stopped have gone, and fails the test when one
// takes too long.
func (a *attack) gone() {
	for _, w := range a.going {
		select {
		case err := <-w.done:
			w.done <- err
			a.going = without(a.going, w)
			if err != nil && !a.bad {
				a.t.Errorf("%s: %v", w.owner, err)
			}
			continue
		default:
		}
		since := a.at[w]
		most := 25 * refresh
		if a.bad {
			most = 11 * lease
		} else if since.Sub(a.killed) < 2*lease { // or it was killed later
			most += lease
			if a.killed.After(since) {
				since = a.killed
			}
		}
		if time.Since(since) > most {
			a.t.Errorf("%s was stopped %v ago:\n%s%s", w.owner, time.Since(a.at[w]), &a.log, a.dump())
			a.going = without(a.going, w)
		}
	}
}

// Whatever is done to a group, no partition has two owners, those that are stopped go
// soon, all partitions have an owner soon after, and nothing is left of any worker.
//
// TENURE_SHARD_SEEDS says how many seeds are tried, from TENURE_SHARD_SEED on.
func TestRandomStops(t *testing.T) {
	number := func(key string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(key)); err == nil {
			return n
		}
		return otherwise
	}
	seeds, first := number("TENURE_SHARD_SEEDS", 20), number("TENURE_SHARD_SEED", 1)
	if testing.Short() {
		seeds = 4
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { attacked(t, uint64(seed)) })
		})
	}
}

func attacked(t *testing.T, seed uint64) {
	const partitions = 24
	a := &attack{
		stage: newStage(t, shard.Options{Partitions: partitions}), r: rand.New(rand.NewPCG(seed, 0)),
		bad: seed%4 == 0, at: map[*worker]time.Time{}, killed: time.Now().Add(-time.Hour),
	}
	a.blind = seed%2 == 0
	var unowned time.Duration
	for range 25 {
		for range 1 + a.r.IntN(4) {
			a.do()
			time.Sleep(time.Duration(a.r.IntN(3000)) * time.Millisecond)
			a.gone()
		}
		if len(a.running) == 0 {
			a.start()
		}
		begun := time.Now()
		most := 25 * refresh
		if a.bad {
			most = 8 * lease
		} else if begun.Sub(a.killed) < 2*lease {
			most += lease
		}
		for {
			_, n := a.owned()
			a.gone()
			if n == partitions {
				break
			}
			if time.Since(begun) > most {
				t.Fatalf("%d of %d are owned %v after:\n%s%s", n, partitions, time.Since(begun), &a.log, a.dump())
			}
			time.Sleep(100 * time.Millisecond)
		}
		unowned = max(unowned, time.Since(begun))
		if t.Failed() {
			return
		}
	}
	a.halt(len(a.running))
	for begun := time.Now(); len(a.going) > 0; time.Sleep(100 * time.Millisecond) {
		if a.gone(); time.Since(begun) > 20*lease {
			t.Fatalf("%d have not gone:\n%s", len(a.going), a.dump())
		}
	}
	t.Logf("bad %v, blind %v: all were owned again %v after what was done at most; %d workers", a.bad, a.blind, unowned, a.born)
}
