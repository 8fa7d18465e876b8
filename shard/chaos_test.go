// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/shard"
)

const chaosPartitions = 24

// chaos is a group to which anything is done at random: workers are started, stopped
// alone, together or all, cut off and killed, and the group is resized, while others of
// that go on.
type chaos struct {
	*world
	r       *rand.Rand
	bad     bool // the stores fail as well
	running []*worker
	going   []*worker // stopped, and perhaps not gone yet
	stopped map[*worker]time.Time
	born    int
	hurt    time.Time // when a worker was killed or cut off last
	log     strings.Builder
}

// do does one thing, and says what.
func (c *chaos) do() {
	n := len(c.running)
	switch k := c.r.IntN(14); {
	case n == 0, k < 3 && n < 8:
		for range 1 + c.r.IntN(3) {
			c.start()
		}
	case k < 6:
		c.halt(1)
	case k < 7:
		c.halt(1 + c.r.IntN(n))
	case k < 8:
		c.halt(n)
	case k < 10:
		w := c.running[c.r.IntN(n)]
		c.say("kill %s", w.owner)
		c.running = slices.DeleteFunc(c.running, func(other *worker) bool { return other == w })
		w.crash()
		c.hurt = time.Now()
	case k < 12:
		w := c.running[c.r.IntN(n)]
		c.say("cut %s off", w.owner)
		w.client.Partition()
		time.Sleep(time.Duration(c.r.Int64N(int64(2 * lease))))
		w.client.Faults().SetBlackHole(false) // the faults of a bad store stay
		c.hurt = time.Now()
	default:
		to := chaosPartitions - 4*c.r.IntN(2)
		c.say("resize to %d: %v", to, c.running[0].Resize(c.t.Context(), to))
	}
}

func (c *chaos) say(format string, args ...any) {
	fmt.Fprintf(&c.log, "%v "+format+"\n", append([]any{time.Now().Format("04:05.000")}, args...)...)
}

func (c *chaos) start() {
	c.born++
	w := c.make(fmt.Sprint("w", c.born), func(o *shard.Options) {
		o.Weight = 1 + float64(c.r.IntN(2))
		if c.r.IntN(4) == 0 {
			o.Prepare = func(ctx context.Context, _ string) error {
				select {
				case <-time.After(300 * time.Millisecond):
				case <-ctx.Done():
				}
				return nil
			}
		}
	})
	w.drain.Store(int64(time.Duration(c.r.IntN(1500)) * time.Millisecond))
	if c.bad {
		// What is refused for good is an incident after the first good answer.
		w.client.Faults().Inject(faultstore.Rule{Skip: 3, Decide: badStore})
	}
	c.say("start %s", w.owner)
	w.start(w.pausing)
	c.running = append(c.running, w)
}

// pausing is a handler that looks away now and then, checks, and then acts.
func (w *worker) pausing(ctx context.Context, p *shard.Partition) error {
	defer w.enter(p)()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			time.Sleep(time.Duration(w.drain.Load()))
			return nil
		case <-time.After(time.Second + rand.N(20*time.Second)):
		}
		if p.Check() == nil {
			w.s.each(func(id string, d *desk) {
				if id == p.ID() && d.p != p { // nothing passes between the check and the look here
					w.s.t.Errorf("%s may act on partition %s, which %s has", w.owner, id, d.w.owner)
				}
			})
			_ = p.Checkpoint(ctx, fmt.Append(nil, w.owner, n))
		}
	}
}

var errThrottled = errors.New("throttled")

// badStore says what happens to a call of a bad store. A poll by the coordinator is some
// thirty calls, and counts if all succeed.
func badStore(faultstore.Call) faultstore.Fault {
	switch rand.N(500) {
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
func (c *chaos) halt(n int) {
	for range n {
		i := c.r.IntN(len(c.running))
		w := c.running[i]
		c.say("stop %s", w.owner)
		c.running = slices.Delete(c.running, i, i+1)
		c.going = append(c.going, w)
		c.stopped[w] = time.Now()
		w.stop()
	}
}

// soon returns how long what was begun at that time may take.
func (c *chaos) soon(begun time.Time) time.Duration {
	switch {
	case c.bad:
		return 11 * lease
	case c.hurt.After(begun):
		return 25*refresh + lease + c.hurt.Sub(begun)
	case begun.Sub(c.hurt) < 2*lease:
		return 25*refresh + lease
	}
	return 25 * refresh
}

// gone sees which of those that were stopped have gone, and fails the test when one
// takes too long.
func (c *chaos) gone() {
	c.going = slices.DeleteFunc(c.going, func(w *worker) bool {
		at := c.stopped[w]
		select {
		case <-w.done:
			if w.err != nil && !c.bad && c.hurt.Before(at.Add(-2*lease)) {
				c.t.Errorf("%s: %v", w.owner, w.err)
			}
			return true
		default:
		}
		late := time.Since(at) > c.soon(at)
		if late {
			c.t.Errorf("%s was stopped %v ago:\n%s%s", w.owner, time.Since(at), &c.log, c.dump())
		}
		return late
	})
}

// Whatever is done to a group, no partition has two owners, tokens only rise, those that
// are stopped go soon, all partitions have an owner soon after, and nothing is left of any
// worker.
//
// TENURE_SHARD_SEEDS says how many seeds are tried, from TENURE_SHARD_SEED on.
func TestChaos(t *testing.T) {
	enginetest.MakeVerify(t)
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
			onWorld(t, shard.Options{Partitions: chaosPartitions}, func(t *testing.T, s *world) {
				s.blind = seed%2 == 0
				c := &chaos{
					world: s, r: rand.New(rand.NewPCG(uint64(seed), 0)), bad: seed%4 == 0, //nolint:gosec // it is positive
					stopped: map[*worker]time.Time{}, hurt: time.Now().Add(-time.Hour),
				}
				c.run()
			})
		})
	}
}

func (c *chaos) run() {
	for range 25 {
		for range 1 + c.r.IntN(4) {
			c.do()
			time.Sleep(time.Duration(c.r.IntN(3000)) * time.Millisecond)
			c.gone()
		}
		if len(c.running) == 0 {
			c.start()
		}
		for begun, back := time.Now(), false; ; time.Sleep(100 * time.Millisecond) {
			if !back {
				back = c.running[0].Resize(c.t.Context(), chaosPartitions) == nil
			}
			n := c.owned()
			c.gone()
			if back && n == chaosPartitions {
				break
			}
			if took := time.Since(begun); took > c.soon(begun) {
				c.t.Fatalf("%d of %d are owned %v after:\n%s%s", n, chaosPartitions, took, &c.log, c.dump())
			}
		}
		if c.t.Failed() {
			return
		}
	}
	c.halt(len(c.running))
	for begun := time.Now(); len(c.going) > 0; time.Sleep(100 * time.Millisecond) {
		if c.gone(); time.Since(begun) > 20*lease {
			c.t.Fatalf("%d have not gone:\n%s", len(c.going), c.dump())
		}
	}
}
