// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// watches calls the hints of a store's watches, and detects that the store was replaced.
//
// One goroutine receives the kernel's events, until Close. If the kernel sends
// no events, another goroutine polls as long as there is a watch: it is the only
// part of the store that reads a clock.
type watches struct {
	store  *Store
	period time.Duration
	// noEvents has the watches poll, for tests.
	noEvents bool
	asked    chan struct{} // closed when the kernel was asked for events

	mu     sync.Mutex
	closed bool
	hints  map[string][]*watch
	kernel kernel // nil if it sends no events
	hears  bool   // the kernel reports keys
	poll   *poll  // if it does not, while there is a watch
}

// hearAfter is how long after Open the store asks the kernel for events. Closing an inotify
// instance takes 10 ms, which short programs avoid so. Tests with short times change it.
var hearAfter = 100 * time.Millisecond

type watch struct{ hint func() }

// kernel reports changes, by inotify.
type kernel interface {
	// listen makes wait report keys as well, of changes after it returned, and
	// unlisten ends that.
	listen() error
	unlisten()
	// wait returns at the next change. After an error it must not be called again, and
	// everything is given back without a wait.
	wait() (news, error)
	// close ends wait. It may be called at the same time, and more than once.
	close()
}

type news struct {
	// files says that the store may have been replaced.
	files bool
	// changed reports whether a key may have changed; it may be nil.
	changed func(key string) bool
	// overflown says that it cannot report keys any more.
	overflown bool
}

func (w *watches) init(s *Store, period time.Duration) {
	w.store, w.period, w.hints, w.asked = s, period, map[string][]*watch{}, make(chan struct{})
}

// begin receives the kernel's events, if there are any, from hearAfter on.
func (w *watches) begin() {
	w.store.running.Go(func() {
		timer := time.NewTimer(hearAfter)
		defer timer.Stop()
		select {
		case <-w.store.closing:
		case <-timer.C:
			w.hear()
		}
	})
}

// hear receives the kernel's events until it is closed. Earlier changes are unknown.
func (w *watches) hear() {
	kernel, err := openKernel(w.store.files)
	w.mu.Lock()
	close(w.asked)
	if err == nil {
		w.kernel = kernel
		if w.closed {
			kernel.close() // and so it is attended in vain
		}
	}
	if len(w.hints) > 0 && !w.hears && w.poll == nil {
		_ = w.listen() // if it fails the next Watch tries again; hints may be missed
	}
	w.mu.Unlock()
	_ = w.store.check() // the next read reports it
	w.call(anyKey)
	if err == nil {
		w.attend(kernel)
	}
}

func (w *watches) hasAsked() bool {
	select {
	case <-w.asked:
		return true
	default:
		return false
	}
}

// listen hears of keys, from the kernel or by polling. The mutex is locked.
func (w *watches) listen() error {
	if w.hears = w.kernel != nil && !w.noEvents && w.kernel.listen() == nil; w.hears {
		return nil
	}
	return w.beginPoll()
}

// Watch has hint called soon after key was released, reserved or deleted, or a
// request was written for its holder, by any process.
//
// On Linux the kernel reports changes, once the store has been open for 100 ms; earlier
// changes are reported then. Elsewhere, and if that fails, the file is checked every
// [Options.PollPeriod]; any change of any record then counts as a change of key.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	// In a goroutine, so that a disk that does not answer blocks no caller for
	// longer than ctx.
	this := &watch{hint: hint}
	done := make(chan error, 1)
	go func() { done <- s.watches.add(ctx, key, this) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
		go func() {
			if <-done == nil {
				s.watches.remove(key, this)
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	return func() { s.watches.remove(key, this) }, nil
}

// add returns when hints come, or will come of all that changes from then on.
func (w *watches) add(ctx context.Context, key string, this *watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err // it has waited for the set-up of another watch
	}
	if (w.noEvents || w.hasAsked()) && !w.hears && w.poll == nil {
		if err := w.listen(); err != nil {
			return err
		}
	}
	w.hints[key] = append(w.hints[key], this)
	return nil
}

func (w *watches) remove(key string, this *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.hints[key], func(other *watch) bool { return other == this })
	if len(left) > 0 {
		w.hints[key] = left
		return
	}
	delete(w.hints, key)
	if len(w.hints) == 0 {
		w.rest()
	}
}

// rest ends what only watches need. The mutex is locked.
func (w *watches) rest() {
	if w.hears {
		w.kernel.unlisten()
		w.hears = false
	}
	if w.poll != nil {
		w.poll.close()
		w.poll = nil
	}
}

func (w *watches) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	clear(w.hints)
	w.rest()
	if w.kernel != nil {
		w.kernel.close()
	}
}

// attend does what the kernel's news ask for, until it is closed.
func (w *watches) attend(k kernel) {
	for {
		news, err := k.wait()
		if err != nil {
			w.overflow(true)
			return
		}
		if news.files && errors.Is(w.store.check(), driver.ErrReplaced) {
			news.changed = anyKey // the next read reports it
		}
		if news.overflown {
			w.overflow(false)
		}
		if news.changed != nil {
			w.call(news.changed)
		}
	}
}

// overflow has polling take the kernel's place.
func (w *watches) overflow(forGood bool) {
	w.mu.Lock()
	if forGood {
		w.kernel = nil
	}
	w.hears = false
	if len(w.hints) > 0 && w.poll == nil {
		_ = w.beginPoll() // if it fails the next Watch tries again; hints may be missed
	}
	w.mu.Unlock()
	w.call(anyKey)
}

// beginPoll polls until there is no watch any more. The mutex is locked.
func (w *watches) beginPoll() error {
	p, err := openPoll(w.store, w.period)
	if err != nil {
		return err
	}
	w.poll = p
	w.store.running.Go(func() {
		for p.wait() {
			w.call(anyKey)
		}
	})
	return nil
}

// call calls the hints of the keys that changed, outside the mutex.
func (w *watches) call(changed func(key string) bool) {
	var due []*watch
	w.mu.Lock()
	for key, list := range w.hints {
		if changed(key) {
			due = append(due, list...)
		}
	}
	w.mu.Unlock()
	for _, watch := range due {
		watch.hint()
	}
}

// anyKey says that every key may have changed.
func anyKey(string) bool { return true }
