// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errSlow says that the store has not answered for as long as a visitor waits.
var errSlow = errors.New("the store has not answered yet")

const (
	// loadTimeout bounds a question to the store, and patience how long a visitor waits
	// for its answer: for less time where there is an older one to show.
	loadTimeout  = 30 * time.Second
	patience     = 10 * time.Second
	oldPatience  = 2 * time.Second
	memoEntries  = 512
	mostPace     = time.Minute
	paceOverTook = 5 // a store is asked for a fifth of the time at most
)

// memo asks the store for all visitors at once: while an answer is fresh nobody asks
// again, and while a question is under way all wait for its answer. It keeps the last good
// answer, so that there is something to show while the store is away. All methods may be
// called concurrently.
type memo[T any] struct {
	work  *work
	least time.Duration // for which an answer is fresh
	load  func(ctx context.Context, key string) (T, error)

	mu      sync.Mutex
	entries map[string]*entry[T]
}

func newMemo[T any](w *work, least time.Duration, load func(ctx context.Context, key string) (T, error)) *memo[T] {
	return &memo[T]{work: w, least: least, load: load, entries: map[string]*entry[T]{}}
}

// entry is what is known of one question.
type entry[T any] struct {
	answer answer[T]
	fresh  time.Time     // until then nobody asks again
	done   chan struct{} // closed when the question under way is answered; nil if there is none
	used   time.Time
}

// answer is the last good answer to a question.
type answer[T any] struct {
	value T
	good  bool      // there is one
	at    time.Time // when it was given
	took  time.Duration
	err   error // of a later question: the answer is old
}

// ask returns the answer to the question that key stands for: one that is fresh, if the
// store gives it in time.
func (m *memo[T]) ask(ctx context.Context, key string) answer[T] {
	e, done := m.begin(key)
	if done == nil {
		return m.answerOf(e)
	}
	wait := patience
	if m.answerOf(e).good {
		wait = oldPatience
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
		return m.answerOf(e)
	case <-timer.C:
	case <-ctx.Done():
	}
	a := m.answerOf(e)
	if a.err == nil {
		a.err = errSlow
	}
	return a
}

// begin has the store asked if there is no fresh answer. The channel is closed when there
// is one; it is nil if there is one already.
func (m *memo[T]) begin(key string) (*entry[T], <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	e := m.entries[key]
	if e == nil {
		m.thin()
		e = &entry[T]{}
		m.entries[key] = e
	}
	e.used = now
	switch {
	case e.done != nil:
		return e, e.done
	case now.Before(e.fresh):
		return e, nil
	}
	done := make(chan struct{})
	started := m.work.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, loadTimeout)
		defer cancel()
		asked := time.Now()
		value, err := m.load(ctx, key)
		m.end(e, done, value, err, time.Since(asked))
	})
	if !started {
		e.answer.err = errClosed
		return e, nil
	}
	e.done = done
	return e, done
}

func (m *memo[T]) end(e *entry[T], done chan struct{}, value T, err error, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if e.answer.err = err; err == nil {
		e.answer = answer[T]{value: value, good: true, at: now, took: took}
	}
	e.fresh = now.Add(min(max(m.least, paceOverTook*took), mostPace))
	e.done = nil
	close(done)
}

func (m *memo[T]) answerOf(e *entry[T]) answer[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.answer
}

// stale has the store asked again by the next visitor: something was done.
func (m *memo[T]) stale() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.fresh = time.Time{}
	}
}

// thin makes room for one more entry. The caller holds the mutex.
func (m *memo[T]) thin() {
	for len(m.entries) >= memoEntries {
		oldest := ""
		for key, e := range m.entries {
			if o := m.entries[oldest]; o == nil || e.used.Before(o.used) {
				oldest = key
			}
		}
		delete(m.entries, oldest)
	}
}
