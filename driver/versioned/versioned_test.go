// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package versioned_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// state is a state of an engine that counts its writes.
type state struct {
	rec driver.Record
	rev int
	err error
}

func (s state) View() versioned.View {
	return versioned.View{Record: s.rec, Found: s.rev != 0, Err: s.err}
}

func (s state) Kept() (state, bool) {
	s.rec = s.rec.Clone()
	return s, true
}

func (s state) Overtakes(other state) bool { return s.rev > other.rev }

// engine has the objects of a store, and counts its requests.
type engine struct {
	mu     sync.Mutex
	now    map[string]state
	rev    int
	reads  int
	writes int
	// before is called before each write.
	before func()
	// lost is the error of each write, which is applied.
	lost error
}

func (e *engine) read(_ context.Context, key string) (state, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reads++
	return e.now[key], nil
}

func (e *engine) write(_ context.Context, key string, was state, step versioned.Step) (state, bool, error) {
	if e.before != nil {
		e.before()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	if is := e.now[key]; is.rev != was.rev {
		return is, true, nil
	}
	if step.Remove {
		delete(e.now, key)
		return state{}, false, nil
	}
	e.rev++
	e.now[key] = state{rec: step.Record.Clone(), rev: e.rev}
	return e.now[key], false, e.lost
}

func newWriter(e *engine) versioned.Writer[state] {
	return versioned.Writer[state]{
		Known: &versioned.Memory[state]{},
		Ready: func(ctx context.Context) error { return ctx.Err() },
		Read:  e.read, Write: e.write,
	}
}

func held(version string) driver.Record {
	return driver.Record{Key: "lock", Version: version, State: driver.Held, Owner: "owner", Lease: 10 * time.Second}
}

// TestForgetful: a memory is bounded, an answer that was overtaken does not count, and a
// deleted record is not remembered.
func TestForgetful(t *testing.T) {
	const most = 1 << 14
	var m versioned.Memory[state]
	for i := range 2 * most {
		m.Note(fmt.Sprint(i), state{rev: 1})
	}
	remembered := 0
	for i := range 2 * most {
		if _, ok := m.Of(fmt.Sprint(i)); ok {
			remembered++
		}
	}
	if remembered > most || remembered == 0 {
		t.Errorf("%d records are remembered", remembered)
	}
	m.Note("k", state{rec: driver.Record{Version: "new"}, rev: 7})
	m.Note("k", state{rec: driver.Record{Version: "old"}, rev: 5})
	if is, ok := m.Of("k"); !ok || is.rec.Version != "new" {
		t.Errorf("an answer that was overtaken counts: %+v", is)
	}
	m.Note("k", state{})
	if _, ok := m.Of("k"); ok {
		t.Error("a deleted record is remembered")
	}
}

// TestWrites: a known state saves a read, and a write of another store conflicts
// with it.
func TestWrites(t *testing.T) {
	e := &engine{now: map[string]state{}}
	one, other := newWriter(e), newWriter(e)
	first, _, err := one.Claim(t.Context(), held("1"))
	if err != nil || first.Token != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	next := first
	next.Version = "2"
	if next, err = one.Swap(t.Context(), first, next); err != nil || e.reads != 0 {
		t.Fatalf("%v, after %d reads", err, e.reads)
	}
	_, _, err = other.Claim(t.Context(), held("3"))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != "2" {
		t.Errorf("a claim of a held lock: %v", err)
	}
	_, err = other.Swap(t.Context(), first, next)
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != "2" {
		t.Errorf("a write in the place of a former version: %v", err)
	}
	if err := other.Delete(t.Context(), first); err == nil {
		t.Error("a former version was deleted")
	}
	if err := other.Delete(t.Context(), next); err != nil {
		t.Error(err)
	}
	if err := other.Delete(t.Context(), next); err != nil {
		t.Errorf("deleted twice: %v", err)
	}
	// One store still believes that the record exists.
	beat := next
	beat.Version = "4"
	_, err = one.Swap(t.Context(), next, beat)
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || !conflict.Absent {
		t.Errorf("a write of a record that is gone: %v", err)
	}
}

// TestRefused: a write in the place of another token, of a record that cannot be
// understood, and of a token that cannot rise, is not made.
func TestRefused(t *testing.T) {
	e := &engine{now: map[string]state{}}
	w := newWriter(e)
	rec, _, err := w.Claim(t.Context(), held("1"))
	if err != nil {
		t.Fatal(err)
	}
	ahead, beat := rec, rec
	ahead.Token++
	beat.Token, beat.Version = ahead.Token, "2"
	_, err = w.Swap(t.Context(), ahead, beat)
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != "1" {
		t.Errorf("a write in the place of another token: %v", err)
	}
	full := rec
	full.State, full.Token = driver.Released, driver.MaxToken
	for name, is := range map[string]state{"unreadable": {rev: 7, err: driver.ErrUnreadable}, "token": {rev: 7, rec: full}} {
		other := newWriter(e)
		e.now["lock"] = is
		if _, _, err := other.Claim(t.Context(), held("3")); !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestForgets: after a write of unknown outcome nothing is believed of its record.
func TestForgets(t *testing.T) {
	e := &engine{now: map[string]state{}}
	w := newWriter(e)
	rec, _, err := w.Claim(t.Context(), held("1"))
	if err != nil {
		t.Fatal(err)
	}
	next := rec
	next.Version, e.lost = "2", errors.New("no answer")
	if _, err := w.Swap(t.Context(), rec, next); !errors.Is(err, e.lost) {
		t.Error(err)
	}
	if is, ok := w.Known.Of("lock"); ok {
		t.Errorf("it is remembered as %+v", is)
	}
}

// TestChanging: a call does not write for ever where others write each time before it.
func TestChanging(t *testing.T) {
	e := &engine{now: map[string]state{}}
	w := newWriter(e)
	e.before = func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.rev++
		free := held(fmt.Sprint(e.rev))
		free.State, free.Token = driver.Released, 7
		e.now["lock"] = state{rec: free, rev: e.rev}
	}
	_, _, err := w.Claim(t.Context(), held("mine"))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || e.writes != 3 {
		t.Errorf("%v after %d writes", err, e.writes)
	}
}

// TestWatchAgain: a watch that has ended is made again, and hints then. The end of the
// store ends it, and waits for it.
func TestWatchAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := versioned.NewLife()
		broken := errors.New("broken")
		if _, err := life.Watch(t.Context(), func() {}, func(context.Context, func()) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("a watch that does not stand: %v", err)
		}
		hints, watches, ended := 0, 0, false
		stop, err := life.Watch(t.Context(), func() { hints++ }, func(ctx context.Context, standing func()) error {
			watches++
			standing()
			if watches == 3 {
				<-ctx.Done()
				time.Sleep(time.Second)
				ended = true
			}
			return broken
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if hints != 2 || watches != 3 {
			t.Errorf("%d hints by %d watches, want 2 by 3", hints, watches)
		}
		if !life.End() || !ended || life.End() {
			t.Errorf("it ends once, and when the watch has ended: %t", ended)
		}
		if _, err := life.Watch(t.Context(), func() {}, nil); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a watch of a closed store: %v", err)
		}
		ctx, done := life.Bound(t.Context())
		defer done()
		if synctest.Wait(); ctx.Err() == nil {
			t.Error("a call outlives the store")
		}
	})
}
