// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/once"
)

// A month in the crontabs of three hosts, with the line "* * * * *". The tests run as many
// days of it as TENURE_TEST_DAYS says; without it a week, or a day with -short. Their wall
// clocks are functions, which run up to 8 % too fast or too slow; so do their
// elapsed clocks. The hosts are killed and cut off at random.

// crontab is a month on several hosts, and what has become of each slot.
type crontab struct {
	s       *stage
	epoch   time.Time // true time, at which the month begins
	until   time.Time
	options once.Options
	peers   []peer

	mu      sync.Mutex
	marked  map[int64]bool   // slots that were begun
	refused map[int64]string // by whom, though nothing had happened to it
	told    map[int64]bool   // slots of which somebody was told that they were left out
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
	h.up = h.c.s.newHost(h.owner, h.rate)
	h.ctx, h.stop = context.WithCancel(h.c.s.t.Context())
	h.hurt, h.down = h.hurt+1, false
}

func (h *cronhost) cut(off bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up.faults.SetBlackHole(off)
	h.hurt, h.down = h.hurt+1, off
}

// kill ends all that the host does. Nothing that it has under way gets anywhere.
func (h *cronhost) kill() {
	h.cut(true)
	h.stop()
	h.working.Wait()
	h.up.discard()
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
	h.up.close()
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
		_, err := up.onceIn(ctx, slot, &o, takes(took))
		h.mu.Lock()
		hurt = h.hurt - hurt
		h.mu.Unlock()
		h.c.ended(h.owner, slot, missed, err, down || hurt != 0)
	})
	for _, p := range h.c.peers {
		if !down {
			h.working.Go(func() { p.run(ctx, h.wall, slot, took) })
		}
	}
}

// ended notes what a host was told of a slot. Hurt says that something has happened
// to it meanwhile.
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
	for _, p := range c.peers {
		n, twice := p.counts()
		c.s.t.Logf("%s: %d slots begun, %d of them more than once", p.name(), n, twice)
	}
}

func newCrontab(t *testing.T, o once.Options) *crontab {
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
	s := newStage(t)
	s.unordered = o.OutOfOrder
	return &crontab{
		s: s, epoch: time.Now(), until: time.Now().Add(time.Duration(days) * 24 * time.Hour), options: o,
		peers: []peer{&shedlock{}, &gocron{}},
	}
}

// With wall clocks that are right within half a period no slot is begun twice, and
// none is left out that a host could have run: one to which nothing happened between
// its start by cron and the answer.
func TestMonthWithinHalfAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrontab(t, once.Options{OutOfOrder: true, Wait: true, StoreTimeout: -1, MaxAhead: 60})
		c.run(
			&cronhost{rate: 1.08, now: sways(0, 27*time.Second, 0)},
			&cronhost{rate: 0.92, now: sways(0, 27*time.Second, 11*time.Minute)},
			&cronhost{rate: 1, now: sways(0, 27*time.Second, 5*time.Minute)},
		)
		for slot, owner := range c.refused {
			if !c.marked[slot] {
				t.Errorf("slot %d was not begun, and %s could have run it", slot, owner)
			}
		}
		first, last := once.Minute(c.epoch)+2, once.Minute(c.until)-2
		left := 0
		for slot := first; slot < last; slot++ {
			if !c.marked[slot] {
				left++
			}
		}
		if most := int(last-first) / 100; left > most {
			t.Errorf("%d slots of %d were left out: more than 1 in 100 is more than the faults explain", left, last-first)
		}
		t.Logf("%d slots of %d were left out", left, last-first)
	})
}

// With wall clocks that are hours apart no slot is begun twice either. Where slots begin out
// of order, a host that is ahead takes none from the others but those that it runs: what it
// leaves out they run, and so fewer are left out than by clocks that are right. Where slots
// rise, somebody was told of each that is left out.
func TestMonthHoursApart(t *testing.T) {
	for _, outOfOrder := range []bool{true, false} {
		t.Run(fmt.Sprintf("out of order %v", outOfOrder), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { monthHoursApart(t, outOfOrder) })
		})
	}
}

func monthHoursApart(t *testing.T, outOfOrder bool) {
	c := newCrontab(t, once.Options{OutOfOrder: outOfOrder, Wait: true, StoreTimeout: -1, MaxAhead: -1})
	if !outOfOrder {
		c.options.MaxAhead = 60
	}
	c.run(
		&cronhost{rate: 1.08, now: sways(0, 27*time.Second, 0)},
		&cronhost{rate: 0.92, now: sways(3*time.Hour, time.Hour, 11*time.Minute)},
		&cronhost{rate: 1, now: sways(-2*time.Hour, time.Hour, 5*time.Minute)},
	)
	first, last := int64(1)<<62, int64(0)
	for slot := range c.marked {
		first, last = min(first, slot), max(last, slot)
	}
	left := 0
	for slot := first; slot <= last; slot++ {
		if c.marked[slot] {
			continue
		}
		left++
		if !outOfOrder && !c.told[slot] {
			t.Errorf("slot %d was left out, and nobody was told", slot)
		}
		// At both ends of the month there are hosts that do not get there.
		if owner, ok := c.refused[slot]; ok && outOfOrder {
			t.Errorf("slot %d was not begun, and %s could have run it", slot, owner)
		}
	}
	t.Logf("%d slots of %d were left out", left, last-first+1)
	middle := 0
	for slot := first + 360; slot <= last-360; slot++ {
		if !c.marked[slot] {
			middle++
		}
	}
	if most := int(last-first) / 1000; outOfOrder && middle > most {
		t.Errorf("%d slots of %d were left out, though three hosts came by each", middle, last-first)
	}
}

// peer is the rule of another lock, as a model of a few lines: what it would have run
// in the same month.
type peer interface {
	name() string
	run(ctx context.Context, wall func() time.Time, slot int64, took time.Duration)
	counts() (slots, twice int)
}

type counted struct {
	mu     sync.Mutex
	starts map[int64]int
}

func (c *counted) began(slot int64) {
	if c.starts == nil {
		c.starts = map[int64]int{}
	}
	c.starts[slot]++
}

func (c *counted) counts() (slots, twice int) {
	for _, n := range c.starts {
		if n > 1 {
			twice++
		}
	}
	return len(c.starts), twice
}

// shedlock is a model of ShedLock's rule: a row says until when the job is locked, by
// the wall clock of the host that wrote it, and each host compares that with its own.
// The lock is kept for 50 s at most and 30 s at least.
type shedlock struct {
	counted
	until time.Time
}

func (*shedlock) name() string { return "ShedLock's rule (a model)" }

func (p *shedlock) run(ctx context.Context, wall func() time.Time, slot int64, took time.Duration) {
	p.mu.Lock()
	begun := wall()
	if p.until.After(begun) {
		p.mu.Unlock()
		return
	}
	p.until = begun.Add(50 * time.Second)
	p.began(slot)
	p.mu.Unlock()
	if takes(took)(ctx, nil) != nil {
		return // killed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, least := wall(), begun.Add(30*time.Second); now.After(least) {
		p.until = now
	} else {
		p.until = least
	}
}

// gocron is a model of the rule of gocron's distributed locker with a lock that has a
// time to live at its server, of a minute: the lock is that of the job and not of the
// occurrence, a host that does not get it leaves the occurrence out, and it is
// unlocked when the job has returned.
type gocron struct {
	counted
	until time.Time
}

func (*gocron) name() string { return "gocron's lock (a model)" }

func (p *gocron) run(ctx context.Context, _ func() time.Time, slot int64, took time.Duration) {
	p.mu.Lock()
	if p.until.After(time.Now()) {
		p.mu.Unlock()
		return
	}
	mine := time.Now().Add(time.Minute)
	p.until = mine
	p.began(slot)
	p.mu.Unlock()
	if takes(took)(ctx, nil) != nil {
		return // killed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.Equal(mine) {
		p.until = time.Time{}
	}
}
