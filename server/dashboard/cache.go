// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// lookPace is for how long an answer is shown before the store is asked again, farPace the same where that
	// takes many reads, and paceOverTook for how many times as long as it took: a store is asked for a fifth of
	// the time at most.
	lookPace     = time.Second
	farPace      = 5 * time.Second
	paceOverTook = 5
	mostPace     = time.Minute
	// loadTimeout bounds a question to the store. A visitor waits for its answer for patience, and for
	// oldPatience where there is an older one to show.
	loadTimeout = 30 * time.Second
	patience    = 10 * time.Second
	oldPatience = 2 * time.Second
	// maxEntries bounds how many answers are kept, and maxWork what goes on at once in the background.
	maxEntries = 512
	maxWork    = 256
)

var (
	// errSlow says that the store has not answered for as long as a visitor waits.
	errSlow = errors.New("the store has not answered yet")
	// errClosed says that the dashboard was shut down.
	errClosed = errors.New("the server is shutting down")
)

// cache asks the store for all visitors at once: while an answer is fresh nobody asks again, and while a
// question is under way all wait for its answer. It keeps the last good answer, to show it while the store
// is away. All methods may be called concurrently.
type cache struct {
	work *work

	mu      sync.Mutex
	entries map[string]*entry
}

func newCache(w *work) *cache { return &cache{work: w, entries: map[string]*entry{}} }

// entry is what is known of one question.
type entry struct {
	answer
	fresh time.Time
	done  chan struct{} // closed when the question under way is answered; nil if there is none
}

// answer is the last good answer to a question.
type answer struct {
	reading
	value any
}

// reading says how an answer was come by.
type reading struct {
	good bool      // there is an answer
	at   time.Time // when it was given
	took time.Duration
	err  error // of a later question: the answer is old
}

// ask returns the answer to the question that key stands for: one that is fresh, if the store gives it in
// time. load asks the store.
func ask[T any](
	ctx context.Context, c *cache, pace time.Duration, key string, load func(context.Context) (T, error),
) (T, reading) {
	e, a, done := c.begin(key, pace, func(ctx context.Context) (any, error) { return load(ctx) })
	if done != nil {
		wait := patience
		if a.good {
			wait = oldPatience
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		select {
		case <-done:
			c.mu.Lock()
			a = e.answer
			c.mu.Unlock()
		case <-ctx.Done():
			a.err = cmp.Or(a.err, errSlow)
		}
	}
	value, _ := a.value.(T)
	return value, a.reading
}

// begin has the store asked if there is no fresh answer. The channel is closed when there is one.
func (c *cache) begin(
	key string, pace time.Duration, load func(context.Context) (any, error),
) (*entry, answer, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		if len(c.entries) >= maxEntries {
			clear(c.entries) // all, rather than no bound
		}
		e = &entry{}
		c.entries[key] = e
	}
	if e.done != nil || time.Now().Before(e.fresh) {
		return e, e.answer, e.done
	}
	done := make(chan struct{})
	started := c.work.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, loadTimeout)
		defer cancel()
		asked := time.Now()
		value, err := load(ctx)
		c.end(e, pace, value, err, asked)
		close(done)
	})
	if !started {
		e.err = errClosed
		return e, e.answer, nil
	}
	e.done = done
	return e, e.answer, done
}

func (c *cache) end(e *entry, pace time.Duration, value any, err error, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	took := now.Sub(asked)
	if e.err = err; err == nil {
		e.answer = answer{reading{good: true, at: now, took: took}, value}
	}
	e.fresh, e.done = now.Add(min(max(pace, paceOverTook*took), mostPace)), nil
}

// stale has the store asked again by the next visitor: something was done.
func (c *cache) stale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.fresh = time.Time{}
	}
}

// work is what goes on in the background: questions to the store, and acts that outlast the request by
// which they came.
type work struct {
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	running sync.WaitGroup
	n       int
}

func newWork() *work {
	w := &work{}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// start runs f in a goroutine, unless there is too much already, or the end has come. The context of f ends
// with the work.
func (w *work) start(f func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || w.n >= maxWork {
		return false
	}
	w.n++
	w.running.Go(func() {
		f(w.ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n--
	})
	return true
}

// close ends it all, and waits for that.
func (w *work) close() {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.running.Wait()
}
