// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// watches calls the hints of a store's watches.
//
// One goroutine waits for changes by whatever means there is, as long as there
// is a watch. It is the one part of the store that reads a clock, and only
// where the kernel does not tell of changes.
type watches struct {
	store  *Store
	period time.Duration
	// noEvents has the store poll, for tests.
	noEvents bool

	mu     sync.Mutex
	closed bool
	hints  map[string][]*watch
	source source // nil while there is no watch
}

type watch struct{ hint func() }

// source tells of changes that were made after it was opened.
type source interface {
	// wait returns at the next change, with a function that tells whether a key
	// may have changed. An error ends the source.
	wait() (changed func(key string) bool, err error)
	// close ends wait. It may be called at the same time, and more than once.
	close()
}

func (w *watches) init(s *Store, period time.Duration) {
	w.store, w.period, w.hints = s, period, map[string][]*watch{}
}

// Watch has hint called soon after key was released, reserved or deleted, or a
// request was laid for its holder, by any process.
//
// On Linux the kernel tells of it. Elsewhere, and if that fails, the file is
// looked at every [Options.PollPeriod]; any change of any record is taken for
// one of key then.
func (s *Store) Watch(key string, hint func()) (stop func(), err error) {
	w := &s.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, driver.ErrClosed
	}
	if w.source == nil {
		source, err := w.open()
		if err != nil {
			return nil, err
		}
		w.source = source
		s.running.Add(1)
		go w.run(source)
	}
	this := &watch{hint: hint}
	w.hints[key] = append(w.hints[key], this)
	return func() { w.remove(key, this) }, nil
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
	if len(w.hints) == 0 && w.source != nil {
		w.source.close()
		w.source = nil
	}
}

func (w *watches) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	clear(w.hints)
	if w.source != nil {
		w.source.close()
		w.source = nil
	}
}

// open opens the best source that works.
func (w *watches) open() (source, error) {
	if !w.noEvents {
		if source, err := openEvents(w.store.file); err == nil {
			return source, nil
		}
	}
	return openPoll(w.store, w.period)
}

// run calls the hints as mine tells until it is closed. Should it fail, polling
// takes its place.
func (w *watches) run(mine source) {
	defer w.store.running.Done()
	for {
		changed, err := mine.wait()
		if err == nil {
			w.call(changed)
			continue
		}
		mine.close()
		w.mu.Lock()
		if w.source != mine {
			w.mu.Unlock()
			return
		}
		mine, err = openPoll(w.store, w.period)
		if err != nil {
			w.source = nil // the next Watch tries again; hints may be missed
			w.mu.Unlock()
			return
		}
		w.source = mine
		w.mu.Unlock()
		w.call(anyKey)
	}
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
