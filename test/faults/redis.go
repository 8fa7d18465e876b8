// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// redsyncLibrary is redsync, on one server.
var redsyncLibrary = serve.Library{Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Open: openRedsync}

// redislockLibrary is bsm/redislock.
var redislockLibrary = serve.Library{Name: "redislock", Module: "github.com/bsm/redislock", Open: openRedislock}

// redisClient is a client whose locks the program extends: neither library does so by itself.
type redisClient struct {
	client         *redis.Client
	lease, refresh time.Duration
	closed         atomic.Bool
}

func newRedisClient(r *wire.Request) *redisClient {
	client := redis.NewClient(&redis.Options{Addr: r.Endpoint})
	return &redisClient{client: client, lease: serve.Milliseconds(r.LeaseMs), refresh: serve.Milliseconds(r.RefreshMs)}
}

// Close closes the client of Redis: the libraries have nothing to close.
func (c *redisClient) Close() error {
	c.closed.Store(true)
	return c.client.Close()
}

type redsyncClient struct{ *redisClient }

func openRedsync(r *wire.Request) serve.Client { return redsyncClient{newRedisClient(r)} }

// Acquire calls again after an error, as a program must: the library gives up after 32 tries.
func (c redsyncClient) Acquire(ctx context.Context, r *wire.Request) serve.Lock {
	options := []redsync.Option{redsync.WithExpiry(c.lease)}
	if r.TryOnly {
		options = append(options, redsync.WithTries(1))
	}
	mutex := redsync.New(goredis.NewPool(c.client)).NewMutex(r.Name, options...)
	for {
		err := mutex.LockContext(ctx)
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return c.extends(&extended{
				release: func(ctx context.Context) error { return second(mutex.UnlockContext(ctx)) },
				extend: func(ctx context.Context) (time.Time, bool, error) {
					ok, err := mutex.ExtendContext(ctx)
					return mutex.Until(), errors.As(err, &taken), okay(ok, err)
				},
			}, mutex.Until())
		case r.TryOnly && errors.As(err, &taken):
			must.Do(serve.Refuse(wire.Held, err))
		case c.closed.Load() || ctx.Err() != nil:
			must.Do(err)
		}
		wait.Rest(ctx, 10*time.Millisecond)
	}
}

func second(_ bool, err error) error { return err }

var errRefused = errors.New("it says false")

func okay(ok bool, err error) error {
	if err == nil && !ok {
		err = errRefused
	}
	return err
}

type redislockClient struct{ *redisClient }

func openRedislock(r *wire.Request) serve.Client { return redislockClient{newRedisClient(r)} }

// Acquire calls again after an error, as a program must: the library gives up at the first.
func (c redislockClient) Acquire(ctx context.Context, r *wire.Request) serve.Lock {
	locker, options := redislock.New(c.client), &redislock.Options{}
	if !r.TryOnly {
		options.RetryStrategy = redislock.LinearBackoff(c.refresh)
	}
	for {
		began := time.Now()
		bound, done := context.WithTimeout(ctx, c.lease) // so that the count below does not begin too early
		lock, err := locker.Obtain(bound, r.Name, c.lease, options)
		done()
		switch {
		case err == nil:
			l := &extended{
				release: lock.Release,
				extend: func(ctx context.Context) (time.Time, bool, error) {
					began := time.Now()
					err := lock.Refresh(ctx, c.lease, nil)
					return began.Add(c.lease), errors.Is(err, redislock.ErrNotObtained), err
				},
			}
			// It does not say when the try began that succeeded: so the rest of the lease is asked for.
			asked := time.Now()
			if left, err := lock.TTL(ctx); err == nil {
				return c.extends(l, asked.Add(left))
			}
			return c.extends(l, began.Add(c.lease))
		case r.TryOnly && errors.Is(err, redislock.ErrNotObtained):
			must.Do(serve.Refuse(wire.Held, err))
		case c.closed.Load() || ctx.Err() != nil:
			must.Do(err)
		}
		wait.Rest(ctx, 10*time.Millisecond)
	}
}

// extended is a lock that is extended each third of its lease, and that a program has until a time
// that the library says, or that it counts by itself from before the last call.
type extended struct {
	release func(context.Context) error
	// extend returns until when the lock is held, or whether another one has it.
	extend func(context.Context) (until time.Time, lost bool, err error)

	until   atomic.Pointer[time.Time]
	lost    chan struct{}
	stop    context.CancelFunc
	running sync.WaitGroup
}

// extends extends a lock until it is released, or lost.
func (c *redisClient) extends(l *extended, until time.Time) serve.Lock {
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.lost = make(chan struct{})
	l.until.Store(&until)
	l.running.Go(func() {
		for rest := c.lease / 3; wait.For(ctx, rest) == nil; {
			bound, done := context.WithTimeout(ctx, c.lease/3)
			until, lost, err := l.extend(bound)
			done()
			rest = c.lease / 3
			switch {
			case lost:
				close(l.lost)
				return
			case err != nil:
				rest = c.lease / 30
			default:
				l.until.Store(&until)
			}
		}
	})
	return l
}

func (l *extended) Check() bool {
	select {
	case <-l.lost:
		return false
	default:
		return time.Now().Before(*l.until.Load())
	}
}

func (l *extended) Notice() <-chan struct{} { return l.lost }
func (l *extended) Token() (uint64, bool)   { return 0, false }

func (l *extended) Release(*wire.Request) error {
	l.stop()
	l.running.Wait()
	return l.release(context.Background())
}
