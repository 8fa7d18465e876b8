// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// The observer sees each write that was made, also one whose reply was lost, and what
// stood there before.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		var seen []string
		w.Observe(func(w tenuretest.Write) {
			key := w.Prev.Key + w.Next.Key
			if !strings.HasPrefix(key, driver.OwnPrefix) && w.Prev.State != w.Next.State { // else a heartbeat
				seen = append(seen, fmt.Sprintf("%s>%s", w.Prev.State, w.Next.State))
			}
		})
		a := w.Client("a")
		a.LoseReplies(1)
		l := a.MustAcquire("x", nil)
		testutil.Want(t, l.Release(t.Context()), nil)
		rec, err := w.Store().Get(t.Context(), "x", driver.Strong)
		testutil.Want(t, err, nil)
		testutil.Want(t, w.Client("b").Faults().Delete(t.Context(), rec), nil)
		if got := strings.Join(seen, " "); got != ">held held>released released>" {
			t.Errorf("observed %s", got)
		}
	})
}

// telling is a store that cannot watch, and keeps what its client is told.
type telling struct {
	driver.Store
	told []error
}

func (s *telling) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	now, prev, err = s.Store.Claim(ctx, next)
	s.told = append(s.told, err)
	return now, prev, err
}

// What wraps a client's store is asked before all faults, and told after them.
func TestWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tenuretest.New(t)
		stores := map[string]*telling{}
		w.Wrap(func(name string, s driver.Store) driver.Store {
			stores[name] = &telling{Store: s}
			return stores[name]
		})
		a, b := w.Client("a"), w.Client("b")
		a.LoseReplies(1)
		l := a.MustAcquire("x", nil)
		if told := stores["a"].told; len(told) != 1 || told[0] == nil {
			t.Errorf("the claim whose reply is lost ended with %v", told)
		}
		time.AfterFunc(time.Second/4, func() { testutil.Want(t, l.Release(t.Context()), nil) })
		begun := time.Now()
		testutil.Want(t, b.MustAcquire("x", nil).Release(t.Context()), nil)
		if took := time.Since(begun); took < time.Second/2 {
			t.Errorf("a client that cannot watch has the lock after %v", took)
		}
	})
}

// A world can be on any store, here on a store that cannot watch.
func TestOn(t *testing.T) {
	var closed atomic.Int64
	defer func() {
		if closed.Load() != 3 {
			t.Errorf("%d stores of 3 are closed", closed.Load())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		w := tenuretest.On(t, func() driver.Store { return closing{memory.Open(), &closed} })
		a, b := w.Client("a"), w.Client("b")
		campaign(t, a)
		led := w.Leader("x")
		campaign(t, b)
		a.Pause()
		expect(t, w.LeaderAfter(led), b, 2)
		if _, err := memory.Get(t.Context(), "x", driver.Strong); err != nil || w.Store() != nil {
			t.Errorf("%v; the world has a store of its own: %v", err, w.Store())
		}
	})
}

// closing is a store that counts how often it is closed.
type closing struct {
	driver.Store
	closed *atomic.Int64 // the world closes all at once
}

func (c closing) Close() error { c.closed.Add(1); return c.Store.Close() }

// A clock runs as wrong as the test says: a holder whose clock is fast gives up early, and
// one whose clock is ahead at once. Who waits does not count a step.
func TestClockThatRunsWrong(t *testing.T) {
	inBubble(t, func(t *testing.T, w *tenuretest.World, a, b *tenuretest.Client) {
		l := a.MustAcquire("x", nil)
		left := l.Remaining()
		a.SetRate(1.5)
		a.Partition()
		begun := time.Now()
		<-l.Context().Done()
		took(t, begun, left*2/3-time.Millisecond, left*2/3+lease/8/4) // a quarter of Grace

		b.SetRate(0)
		b.Step(lease)
		before := b.Options().Clock.Contender()
		time.Sleep(lease)
		if passed := b.Options().Clock.Contender() - before; passed != 0 {
			t.Errorf("%v have passed by a clock that stands", passed)
		}
		b.SetRate(1)
		led := w.Leader("x")
		begun = time.Now()
		campaign(t, b)
		w.LeaderAfter(led)
		took(t, begun, lease*9/10, lease*3/2)
		k, err := b.TryAcquire(t.Context(), "y", nil)
		testutil.Want(t, err, nil)
		b.Step(lease)
		testutil.Want(t, k.Check(), tenure.ErrLost)
	})
}
