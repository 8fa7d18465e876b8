// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// dial is a clock that a test moves by hand. It is a tenure.Clock.
type dial struct{ now atomic.Int64 }

func (d *dial) Holder() time.Duration    { return time.Duration(d.now.Load()) }
func (d *dial) Contender() time.Duration { return time.Duration(d.now.Load()) }

// The deadline passes at the very moment at which a heartbeat's reply arrives,
// while several goroutines check, and another releases: a Check that failed
// once never returns nil again, to anybody.
func TestExpiredIsFinalAgainstARacingReply(t *testing.T) {
	now := &dial{}
	now.now.Store(int64(time.Hour))
	faults := faultstore.New(memstore.New(), nil)
	c, err := tenure.New(faults, &tenure.Options{
		LeaseDuration: time.Hour, Heartbeat: tenure.Manual, Clock: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		faults.Close()
	}()
	var gate atomic.Pointer[chan struct{}] // holds the reply of the heartbeat back
	faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Decide: func(faultstore.Call) faultstore.Fault {
		<-*gate.Load()
		return faultstore.Fault{}
	}})

	rounds, lost, kept := 3000, 0, 0
	if testing.Short() {
		rounds = 300
	}
	for i := range rounds {
		l, err := c.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan struct{})
		gate.Store(&opened)
		now.now.Add(int64(time.Minute))
		renewed := make(chan error, 1)
		asked := faults.Count(faultstore.OpHeartbeat)
		go func() { renewed <- l.Renew(context.WithoutCancel(t.Context())) }()
		for faults.Count(faultstore.OpHeartbeat) == asked {
			runtime.Gosched()
		}
		now.now.Add(int64(l.Remaining() - 1)) // the last instant of the lease

		var failed atomic.Bool
		var checkers sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			checkers.Go(func() {
				<-start
				for range 50 {
					before := failed.Load()
					err := l.Check()
					if err == nil && before {
						t.Error("Check returned nil after it had failed")
						return
					}
					if left := l.Remaining(); err != nil && left > 0 {
						t.Errorf("%v remain after Check failed", left)
						return
					}
					if err != nil {
						failed.Store(true)
					}
				}
			})
		}
		checkers.Go(func() { <-start; now.now.Add(1) })
		checkers.Go(func() { <-start; close(opened) })
		if i%3 == 0 {
			checkers.Go(func() { <-start; _ = l.Release(t.Context()) })
		}
		close(start)
		checkers.Wait()
		if err := <-renewed; err != nil && !errors.Is(err, tenure.ErrExpired) && !errors.Is(err, tenure.ErrReleased) {
			t.Errorf("renew: %v", err)
		}
		if l.Check() == nil {
			kept++
			if failed.Load() {
				t.Fatal("Check returned nil after it had failed")
			}
			now.now.Add(int64(l.Remaining()))
			if l.Check() == nil {
				t.Fatal("Check returns nil at the deadline")
			}
		} else {
			lost++
			now.now.Add(int64(2 * time.Hour))
			if l.Check() == nil {
				t.Fatal("Check returned nil after it had failed")
			}
		}
		_ = l.Release(t.Context()) // one that was lost says so
	}
	t.Logf("%d leases kept, %d lost", kept, lost)
	if kept == 0 || lost == 0 {
		t.Errorf("no race: %d leases kept, %d lost", kept, lost)
	}
}

// trap is a clock that lets something happen just after it was read, before
// whoever read it can act on that.
type trap struct {
	dial
	spring atomic.Pointer[func()]
}

func (c *trap) Holder() time.Duration {
	now := c.dial.Holder()
	if spring := c.spring.Swap(nil); spring != nil {
		(*spring)()
	}
	return now
}

// The reply of a heartbeat finds the clock just before the deadline; then the
// deadline passes and somebody is told so; then the reply is taken. It cannot
// extend the lease any more.
func TestExpiredIsFinalAtTheWorstMoment(t *testing.T) {
	now := &trap{}
	now.now.Store(int64(time.Hour))
	faults := faultstore.New(memstore.New(), nil)
	defer faults.Close()
	c, err := tenure.New(faults, &tenure.Options{LeaseDuration: time.Hour, Heartbeat: tenure.Manual, Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var l *tenure.Lease
	sprung := 0
	faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Decide: func(faultstore.Call) faultstore.Fault {
		now.now.Add(int64(l.Remaining() - 1))
		spring := func() {
			now.now.Add(1)
			_ = l.Check() // somebody is told, and it stays so
		}
		now.spring.Store(&spring)
		return faultstore.Fault{}
	}})
	for range 100 {
		if l, err = c.Acquire(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		now.now.Add(int64(time.Minute))
		renewed := l.Renew(t.Context())
		checked := l.Check()
		released := l.Release(t.Context())
		if checked == nil { // a timer has read the clock in the place of the reply
			if renewed != nil || released != nil {
				t.Errorf("renew: %v; check: %v; release: %v", renewed, checked, released)
			}
			continue
		}
		sprung++
		if !errors.Is(renewed, tenure.ErrExpired) || !errors.Is(released, tenure.ErrExpired) {
			t.Errorf("renew: %v; check: %v; release: %v", renewed, checked, released)
		}
	}
	if sprung < 80 {
		t.Errorf("the moment was met %d times of 100", sprung)
	}
}
