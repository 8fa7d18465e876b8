// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/tenuretest"
)

// seedsVariable says how many random schedules TestSchedules runs, otherwise it runs few;
// and firstVariable which is the first.
const (
	seedsVariable = "TENURE_RWLOCK_SEEDS"
	firstVariable = "TENURE_RWLOCK_FIRST_SEED"
)

// Under random schedules of lost, late, doubled and slow requests, cheap reads that are
// behind, clocks that run wrong, pauses and crashes, no process writes beside another,
// no late access that the fence has let in disturbs a holder, the fence refuses no
// holder that may act, no lease says that the last writer ended well if it did not, and
// when the faults stop a writer comes.
func TestSchedules(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 10
	}
	first := 0
	for variable, n := range map[string]*int{seedsVariable: &seeds, firstVariable: &first} {
		if v := os.Getenv(variable); v != "" {
			var err error
			if *n, err = strconv.Atoi(v); err != nil || *n < 0 {
				t.Fatalf("%s is %q: it must be a whole number", variable, v)
			}
		}
	}
	var total resource
	for seed := first; seed < first+seeds; seed++ {
		r := schedule(t, uint64(seed))
		if r.found != "" {
			t.Fatalf("seed %d: %s", seed, r.found)
		}
		total.reads, total.writes, total.refused = total.reads+r.reads, total.writes+r.writes, total.refused+r.refused
	}
	t.Logf("%d schedules: %d accesses of readers and %d of writers let in, %d refused", seeds, total.reads, total.writes, total.refused)
	if total.reads < seeds || total.writes < seeds || total.refused < seeds/10 {
		t.Error("too little has happened")
	}
}

// plays is one schedule.
type plays struct {
	t      *testing.T
	world  *tenuretest.World
	r      *resource
	mu     sync.Mutex
	random *rand.Rand
	late   sync.WaitGroup // accesses under way
}

// chance is true once in n times.
func (w *plays) chance(n int) bool { return w.intN(n) == 0 }

func (w *plays) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *plays) upTo(d time.Duration) time.Duration {
	return time.Duration(w.intN(int(d/time.Millisecond)+1)) * time.Millisecond
}

func (w *plays) writes(stepDown bool) *rwlock.WriteOptions {
	return &rwlock.WriteOptions{AcquireOptions: tenure.AcquireOptions{History: true}, StepDown: stepDown}
}

// player is one process of a schedule. After a crash there is another one in its place.
type player struct {
	w       *plays
	owner   string
	client  *tenuretest.Client
	lock    *rwlock.Lock
	stopped atomic.Bool
	doing   chan bool // a pause, or a kill; a channel, because a bubble does not count a mutex as waiting
	dead    bool
}

func schedule(t *testing.T, seed uint64) *resource {
	t.Helper()
	r := newResource()
	synctest.Test(t, func(t *testing.T) {
		w := &plays{t: t, world: tenuretest.New(t), r: r, random: rand.New(rand.NewPCG(seed, 410))}
		w.run()
	})
	return r
}

func (w *plays) run() {
	ctx, stop := context.WithTimeout(w.t.Context(), 90*time.Second)
	defer stop()
	// One slot at first, so that readers make more of them.
	first := w.start("first", false)
	l, err := first.client.Acquire(ctx, rwlock.SizeName(name), &tenure.AcquireOptions{Data: []byte(`{"slots":1}`)})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		w.t.Fatal(err)
	}
	var going sync.WaitGroup
	for i := range 4 {
		going.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				w.start(fmt.Sprintf("p%d.%d", i, life), true).live(ctx)
			}
		})
	}
	going.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			w.r.tick()
		}
	})
	going.Wait()
	w.late.Wait()
	history, err := first.client.History(w.t.Context(), rwlock.GateName(name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.r.appeal(history)
	begun := time.Now()
	if l, err := first.lock.AcquireWrite(w.t.Context(), nil); err != nil {
		w.r.broken("writer comes: %v", err)
	} else if err := l.Release(w.t.Context()); err != nil || time.Since(begun) > 4*lease {
		w.r.broken("writer comes: after %v, %v", time.Since(begun), err)
	}
}

func (w *plays) start(owner string, faulty bool) *player {
	p := &player{w: w, owner: owner, doing: make(chan bool, 1)}
	p.client = w.world.Client(owner)
	var err error
	if p.lock, err = rwlock.New(p.client.Client, name, nil); err != nil {
		w.t.Fatal(err)
	}
	if !faulty {
		return p
	}
	p.client.SetRate(1 + float64(w.intN(17)-8)/100)
	p.client.Faults().Inject(faultstore.Rule{Decide: func(c faultstore.Call) faultstore.Fault {
		slow := w.upTo(400 * time.Millisecond)
		switch w.intN(24) {
		case 0:
			return faultstore.LoseReply()
		case 1:
			return faultstore.LoseRequest()
		case 2:
			return faultstore.Late(w.upTo(10 * time.Second))
		case 3:
			return faultstore.Duplicate(w.upTo(10 * time.Second))
		case 4, 5, 6, 7:
			if c.Op == faultstore.OpGet && c.Consistency == driver.Eventual {
				return faultstore.Stale(1 + w.intN(2))
			}
		case 8, 9, 10, 11, 12:
			return faultstore.Fault{}
		}
		return faultstore.Slow(slow/2, slow/2)
	}})
	return p
}

// live runs the process until it crashes, or ctx ends.
func (p *player) live(ctx context.Context) {
	w := p.w
	life, crash := context.WithCancel(ctx)
	defer crash()
	var going sync.WaitGroup
	for range 1 + w.intN(2) {
		going.Go(func() {
			for life.Err() == nil {
				p.act(life)
				time.Sleep(w.upTo(2 * time.Second))
			}
		})
	}
	for life.Err() == nil {
		select {
		case <-life.Done():
		case <-time.After(w.upTo(20 * time.Second)):
			if w.chance(5) {
				crash()
				p.kill()
			} else {
				p.stop(w.chance(2), w.upTo(2*lease))
			}
		}
	}
	going.Wait()
	p.doing <- true
	defer func() { <-p.doing }()
	if !p.dead {
		p.client.Heal()
	}
}

// stop stops the process for a while, or cuts it off from the store.
func (p *player) stop(paused bool, d time.Duration) {
	p.doing <- true
	defer func() { <-p.doing }()
	switch {
	case p.dead:
	case paused:
		p.stopped.Store(true)
		p.client.Pause()
		time.Sleep(d)
		p.client.Resume()
		p.stopped.Store(false)
	default:
		p.client.Partition()
		time.Sleep(d)
		p.client.Heal()
	}
}

func (p *player) kill() {
	p.doing <- true
	defer func() { <-p.doing }()
	p.dead = true
	p.stopped.Store(true)
	p.client.Kill()
}

// act acquires a lease, in one of the ways that there are, and works under it.
func (p *player) act(ctx context.Context) {
	w := p.w
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	var l *rwlock.Lease
	var err error
	switch w.intN(8) {
	case 0, 1, 2:
		l, err = p.lock.AcquireRead(ctx, nil)
	case 3:
		l, err = p.lock.TryAcquireRead(ctx, nil)
	case 4, 5:
		l, err = p.lock.AcquireWrite(ctx, w.writes(w.chance(3)))
	case 6:
		l, err = p.lock.TryAcquireWrite(ctx, w.writes(false))
	case 7:
		if l, err = p.lock.AcquireWrite(ctx, w.writes(false)); err == nil {
			p.work(ctx, l, p.w.upTo(time.Second))
			if w.chance(2) {
				go p.stop(w.chance(2), lease/2+w.upTo(lease))
			}
			err = l.Downgrade(context.WithoutCancel(ctx)) // which the pause outlasts
		}
	}
	if err == nil {
		p.work(ctx, l, w.upTo(8*time.Second))
	} else if errors.Is(err, tenure.ErrUnreadable) {
		w.t.Errorf("%s: %v", p.owner, err)
	}
	if l != nil {
		_ = l.Release(context.WithoutCancel(ctx)) // its process may be dead
	}
}

// work shows the lease's token, and reads or writes for a while. Some accesses arrive
// late, some again.
func (p *player) work(ctx context.Context, l *rwlock.Lease, d time.Duration) {
	w := p.w
	a := w.r.enter(p, l)
	defer w.r.leave(a)
	end := time.After(d)
	if l.Check() == nil {
		w.r.access(a)
	}
	for {
		select {
		case <-end:
			return
		case <-ctx.Done():
			return
		case <-l.Context().Done():
			return
		case <-time.After(w.upTo(time.Second)):
		}
		if l.Check() != nil {
			return
		}
		for range 1 + w.intN(2) {
			delay := w.upTo(200 * time.Millisecond)
			if w.chance(3) {
				delay = w.upTo(15 * time.Second)
			}
			w.late.Go(func() {
				time.Sleep(delay)
				w.r.access(a)
			})
		}
	}
}
