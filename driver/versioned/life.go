// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package versioned

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// The pause before a watch that has ended is made again grows from the first to the
// last.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Life is the life of a store: calls and watches that the store has begun end with it. Create
// it with [NewLife].
type Life struct {
	ctx      context.Context // ends with the store
	cancel   context.CancelFunc
	mu       sync.Mutex
	ended    bool
	watchers sync.WaitGroup
}

// NewLife returns the life of a store that is opened.
func NewLife() *Life {
	l := &Life{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// End ends the contexts of calls and all watches, and waits for the watches. It returns
// false if it was called before.
func (l *Life) End() bool {
	l.mu.Lock()
	ended := l.ended
	l.ended = true
	l.mu.Unlock()
	if ended {
		return false
	}
	l.cancel()
	l.watchers.Wait()
	return true
}

// Ended reports whether the store is closed.
func (l *Life) Ended() bool { return l.ctx.Err() != nil }

// Ready returns [driver.ErrClosed] after the end of the store, or the error of ctx.
func (l *Life) Ready(ctx context.Context) error {
	if l.Ended() {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// Bound returns a context that ends with the store as well. Otherwise an engine's client
// could retry for as long as the caller's context lasts.
func (l *Life) Bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(l.ctx, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

// Watch calls once, which watches until the engine ends the watch, again and again in a
// goroutine, until the store ends or stop is called. once calls standing as soon as its
// watch is set, and hint after each change. Watch returns when the first watch is set,
// with the error of the first one if that fails, or with the error of ctx if it ends
// before. After a pause between two watches, hint is called when the next one is set.
func (l *Life) Watch(ctx context.Context, hint func(), once func(ctx context.Context, standing func()) error) (stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, driver.ErrClosed
	}
	watching, cancel := context.WithCancel(l.ctx)
	stands := make(chan error, 1)
	l.watchers.Go(func() { keepWatching(watching, hint, once, stands) })
	l.mu.Unlock()
	select {
	case err = <-stands:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// keepWatching watches until ctx ends. It reports once whether the first watch was set.
func keepWatching(ctx context.Context, hint func(), once func(context.Context, func()) error, stands chan<- error) {
	stood, pause := false, firstPause
	for {
		watching, end := context.WithCancel(ctx)
		err := once(watching, func() {
			if stood {
				hint() // changes of the meantime are unknown
			} else {
				stands <- nil
			}
			stood, pause = true, firstPause
		})
		end()
		switch {
		case ctx.Err() != nil:
			if !stood {
				stands <- driver.ErrClosed
			}
			return
		case !stood:
			stands <- err
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, lastPause)
	}
}
