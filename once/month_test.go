// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenuretest"
)

// A month in the crontabs of three hosts, with the line "* * * * *". The tests run as many
// days of it as TENURE_TEST_DAYS says; without it a week, or a day with -short. Their wall
// clocks are functions, which run up to 8 % too fast or too slow; so do their
// elapsed clocks. The hosts are killed and cut off at random.

// crontab is a month on several hosts, and what has become of each slot.
type crontab struct {
	s       *world
	epoch   time.Time // true time, at which the month begins
	until   time.Time
	options once.Options

	mu      sync.Mutex
	marked  map[int64]bool   // slots that were begun
	refused map[int64]string // by whom, though nothing had happened to it
	told    map[int64]bool   // slots that were reported as left out
	kinds   map[string]int   // how often a call ended in which way
}

// cronhost is a host of the crontab, over its restarts.
type cronhost struct {
	c       *crontab
	owner   string
	rate    float64 // of the elapsed clock
	now     wallclock
	random  *rand.Rand
	working sync.WaitGroup

	mu   sync.Mutex
	up   *host
	ctx  context.Context
	stop context.CancelFunc
	hurt int  // changes when the host is killed, cut off or connected again
	down bool // it is killed or cut off
}

// wallclock tells by how much a wall clock is wrong, at a true time since the epoch.
type wallclock func(time.Duration) time.Duration

// sways returns a wall clock that goes to and fro around an offset: 8 % too fast, and
// then as much too slow.
func sways(offset, by, phase time.Duration) wallclock {
	return func(t time.Duration) time.Duration {
		leg := by * 25 / 2 // from the middle to one end, at 8 %
		at := (t + phase) % (4 * leg)
		switch {
		case at < leg:
			return offset + at*2/25
		case at < 3*leg:
			return offset + (2*leg-at)*2/25
		}
		return offset + (at-4*leg)*2/25
	}
}

func (h *cronhost) wall() time.Time {
	now := time.Now()
	return now.Add(h.now(now.Sub(h.c.epoch)))
}

func (h *cronhost) boot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up = h.c.s.host(h.owner)
	h.up.SetRate(h.rate)
	h.ctx, h.stop = context.WithCancel(h.c.s.t.Context())
	h.hurt, h.down = h.hurt+1, false
}

func (h *cronhost) cut(off bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if off {
		h.up.Partition()
	} else {
		h.up.Heal()
	}
	h.hurt, h.down = h.hurt+1, off
}

// kill ends all that the host does. Nothing that it has under way gets anywhere.
func (h *cronhost) kill() {
	h.cut(true)
	h.stop()
	h.working.Wait()
	h.up.Kill()
	h.up.Faults().ResetLog()
}

// live is the host until the end of the month: at each minute of its wall clock cron
// starts the job.
func (h *cronhost) live() {
	some := func(d time.Duration) time.Duration { return time.Duration(h.random.Int64N(int64(d))) }
	h.boot()
	minute := h.minute(once.Minute(h.wall()) + 1)
	for h.c.until.After(time.Now()) {
		h.start(minute, time.Second+some(19*time.Second))
		switch h.random.IntN(80) {
		case 0:
			time.Sleep(some(25 * time.Second))
			h.kill()
			time.Sleep(some(5 * time.Minute))
			h.boot()
		case 1:
			time.Sleep(some(25 * time.Second))
			h.cut(true)
			time.Sleep(some(2 * time.Minute))
			h.cut(false)
		}
		minute = h.minute(max(minute, once.Minute(h.wall())) + 1)
	}
	h.working.Wait()
}

// minute waits until the wall clock shows that minute.
func (h *cronhost) minute(m int64) int64 {
	for {
		left := once.MinuteTime(m).Sub(h.wall())
		if left <= 0 {
			return m
		}
		time.Sleep(left - left/8 + time.Millisecond) // it may be fast
	}
}

// start is what cron does.
func (h *cronhost) start(slot int64, took time.Duration) {
	h.mu.Lock()
	up, ctx, hurt, down := h.up, h.ctx, h.hurt, h.down
	h.mu.Unlock()
	h.working.Go(func() {
		var missed []int64
		o := h.c.options
		o.Between = func(last, slot int64) ([]int64, int) {
			for s := last + 1; s < slot; s++ {
				missed = append(missed, s)
			}
			return missed, 0
		}
		_, err := once.Once(ctx, up.Client.Client, name, slot, &o, h.c.s.work(takes(took)))
		h.mu.Lock()
		hurt = h.hurt - hurt
		h.mu.Unlock()
		h.c.ended(h.owner, slot, missed, err, down || hurt != 0)
	})
}

// ended records what Once returned to a host for a slot. Hurt says that something has
// happened to it meanwhile.
func (c *crontab) ended(owner string, slot int64, missed []int64, err error, hurt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range missed {
		c.told[m] = true
	}
	done, _ := errors.AsType[*once.DoneError](err)
	kind := "done"
	switch {
	case err == nil:
		c.marked[slot] = true
	case done != nil:
		kind = "done before"
		c.marked[done.Run.Slot] = true
	case errors.Is(err, once.ErrPassed):
		kind = "passed"
		c.told[slot] = true
		if !hurt {
			c.refused[slot] = owner
		}
	case errors.Is(err, once.ErrSlotAhead):
		kind = "ahead"
		c.told[slot] = true
		if !hurt {
			c.refused[slot] = owner
		}
	case errors.Is(err, once.ErrNotRun):
		kind = "not run"
		c.told[slot] = true
		fallthrough
	default:
		if kind == "done" {
			kind = "failed"
		}
		if !hurt {
			c.s.t.Errorf("slot %d on %s, to which nothing has happened: %v", slot, owner, err)
		}
	}
	c.kinds[kind]++
}

// run runs the month, and returns the first and the last slot that hosts were to run.
func (c *crontab) run(hosts ...*cronhost) {
	c.marked, c.refused, c.told, c.kinds = map[int64]bool{}, map[int64]string{}, map[int64]bool{}, map[string]int{}
	var all sync.WaitGroup
	for i, h := range hosts {
		h.c, h.owner, h.random = c, fmt.Sprintf("host-%d", i+1), rand.New(rand.NewPCG(uint64(i), 4))
		all.Go(h.live)
	}
	all.Wait()
	for slot := range c.s.starts {
		c.marked[slot] = true
	}
	c.s.t.Logf("calls %v, %d slots begun", c.kinds, len(c.s.starts))
}

func newCrontab(t *testing.T, outOfOrder bool, maxAhead int64) *crontab {
	days := 7
	if testing.Short() {
		days = 1
	}
	if text := os.Getenv("TENURE_TEST_DAYS"); text != "" {
		var err error
		if days, err = strconv.Atoi(text); err != nil || days < 1 {
			t.Fatalf("TENURE_TEST_DAYS=%q is no number from 1 on", text)
		}
	}
	s := newWorld(t, tenuretest.New(t, quiet))
	s.unordered = outOfOrder
	return &crontab{
		s: s, epoch: time.Now(), until: time.Now().Add(time.Duration(days) * 24 * time.Hour),
		options: once.Options{OutOfOrder: outOfOrder, Wait: true, StoreTimeout: -1, MaxAhead: maxAhead},
	}
}

// judge fails the test for each slot from first to last that was left out against a rule, and
// if more were than the faults explain. Those at the edges do not count.
func (c *crontab) judge(first, last, edge int64, most int) {
	left := 0
	for slot := first; slot <= last; slot++ {
		if c.marked[slot] {
			continue
		}
		if owner, ok := c.refused[slot]; ok && c.options.OutOfOrder {
			c.s.t.Errorf("slot %d was not begun, and %s could have run it", slot, owner)
		}
		if !c.options.OutOfOrder && !c.told[slot] {
			c.s.t.Errorf("slot %d was left out, but not reported", slot)
		}
		if slot >= first+edge && slot <= last-edge {
			left++
		}
	}
	c.s.t.Logf("%d slots of %d were left out", left, last-first)
	if left > most {
		c.s.t.Errorf("%d slots of %d were left out: %d at most", left, last-first, most)
	}
}

// No slot is begun twice. With wall clocks that are right within half a period none is left out
// that a host could have run: one to which nothing happened between its start by cron and
// the answer.
func TestMonthWithinHalfAPeriod(t *testing.T) {
	enginetest.MakeVerify(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCrontab(t, true, 60)
		c.run(
			&cronhost{rate: 1.08, now: sways(0, 27*time.Second, 0)},
			&cronhost{rate: 0.92, now: sways(0, 27*time.Second, 11*time.Minute)},
			&cronhost{rate: 1, now: sways(0, 27*time.Second, 5*time.Minute)},
		)
		first, last := once.Minute(c.epoch), once.Minute(c.until)
		c.judge(first, last, 2, int(last-first)/100)
	})
}

// With wall clocks that are hours apart a host that is ahead takes none from the others but
// those that it runs: what it leaves out they run, and so fewer are left out than by clocks that
// are right. Where slots rise, each slot that is left out is reported.
func TestMonthHoursApart(t *testing.T) {
	enginetest.MakeVerify(t)
	for _, outOfOrder := range []bool{true, false} {
		t.Run(fmt.Sprintf("out of order %v", outOfOrder), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ahead := int64(60)
				if outOfOrder {
					ahead = -1
				}
				c := newCrontab(t, outOfOrder, ahead)
				c.run(
					&cronhost{rate: 1.08, now: sways(0, 27*time.Second, 0)},
					&cronhost{rate: 0.92, now: sways(3*time.Hour, time.Hour, 11*time.Minute)},
					&cronhost{rate: 1, now: sways(-2*time.Hour, time.Hour, 5*time.Minute)},
				)
				slots := slices.Sorted(maps.Keys(c.marked))
				first, last := slots[0], slots[len(slots)-1]
				most := int(last - first)
				if outOfOrder {
					most /= 1000 // three hosts come by each
				}
				c.judge(first, last, 360, most) // at both ends there are hosts that do not get there
			})
		})
	}
}
