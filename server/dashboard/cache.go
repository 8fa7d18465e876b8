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
	// maxEntries bounds how many answers are kept, and maxRunning what goes on at once in the background.
	maxEntries = 512
	maxRunning = 256
)

var (
	// errSlow says that the store has not answered for as long as a visitor waits.
	errSlow = errors.New("the store has not answered yet")
	// errClosed says that the dashboard was shut down.
	errClosed = errors.New("the server is shutting down")
)

// cache asks the store for all visitors at once: while an answer is fresh nobody asks again, and while a
// question is under way all wait for its answer. It keeps the last good answer, to show it while the store
// is away. Acts that outlast their request run in it as well. All methods may be called concurrently.
type cache struct {
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	running int
	entries map[string]*entry
}

func newCache() *cache {
	c := &cache{entries: map[string]*entry{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// entry is what is known of one question.
type entry struct {
	reading
	value any
	fresh time.Time
	done  chan struct{} // closed when the question under way is answered; nil if there is none
}

// reading says how an answer was come by.
type reading struct {
	at  time.Time // when the last good one was given; zero: never
	err error     // of a later question: the answer is old
}

// good says that there is an answer.
func (r reading) good() bool { return !r.at.IsZero() }

// ask returns the answer to the question that key stands for: one that is fresh, if the store gives it in
// time. load asks the store.
func ask[T any](
	ctx context.Context, c *cache, pace time.Duration, key string, load func(context.Context) (T, error),
) (T, reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(key)
	if e.done == nil && !time.Now().Before(e.fresh) {
		e.done = make(chan struct{})
		if !c.start(func(ctx context.Context) {
			c.load(ctx, e, pace, func(ctx context.Context) (any, error) { return load(ctx) })
		}) {
			e.done, e.err = nil, errClosed
		}
	}
	var late error
	if done := e.done; done != nil {
		wait := patience
		if e.good() {
			wait = oldPatience
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, wait)
		select {
		case <-done:
		case <-ctx.Done():
			late = errSlow
		}
		cancel()
		c.mu.Lock()
	}
	value, _ := e.value.(T)
	return value, reading{e.at, cmp.Or(e.err, late)}
}

// entry returns that of a question. The caller holds the mutex.
func (c *cache) entry(key string) *entry {
	e := c.entries[key]
	if e == nil {
		if len(c.entries) >= maxEntries {
			clear(c.entries) // all, rather than no bound
		}
		e = &entry{}
		c.entries[key] = e
	}
	return e
}

// load asks the store.
func (c *cache) load(ctx context.Context, e *entry, pace time.Duration, ask func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	asked := time.Now()
	value, err := ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if e.err = err; err == nil {
		e.value, e.at = value, now
	}
	close(e.done)
	e.fresh, e.done = now.Add(min(max(pace, paceOverTook*now.Sub(asked)), mostPace)), nil
}

// stale has the store asked again by the next visitor: something was done.
func (c *cache) stale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if key != programKey {
			e.fresh = time.Time{}
		}
	}
}

// run runs f in a goroutine, unless there is too much already, or the end has come. The context ends with the
// cache.
func (c *cache) run(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(f)
}

// start is run for a caller that holds the mutex.
func (c *cache) start(f func(context.Context)) bool {
	if c.ctx.Err() != nil || c.running >= maxRunning {
		return false
	}
	c.running++
	c.all.Go(func() {
		f(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
	})
	return true
}

// close ends it all, and waits for that.
func (c *cache) close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.all.Wait()
}
