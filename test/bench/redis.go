// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/redisstore"
	"github.com/tenurelock/tenure/test/harness/must"
)

// redisLease is the lease of locks on Redis that are not left by the dead.
const redisLease = 15 * time.Second

// redisWays are Tenure, its store without a client of the library, and two clients with a SET NX and a
// script. These have no token, no history and no heartbeats, and poll: each as its documentation shows it.
func redisWays(ctx context.Context, r *harness, url string) []way {
	address := strings.TrimPrefix(url, "redis://")
	prefix := "bench-" + rand.Text()
	store := func(lease time.Duration) func() driver.Store {
		option := rueidis.ClientOption{InitAddress: []string{address}, ForceSingleClient: true}
		open := func() *redisstore.Store {
			options := &redisstore.Options{Prefix: fmt.Sprint(prefix, lease), Lease: lease}
			s := must.Have(redisstore.Connect(option, options))
			r.After(func() { _ = s.Close() })
			return s
		}
		must.Have(open().Create(ctx, driver.CreateOptions{}))
		return func() driver.Store { return open() }
	}
	connect := func() *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: address, PoolSize: 32})
		r.After(func() { _ = client.Close() })
		return client
	}
	bySync := func(options ...redsync.Option) take {
		all := redsync.New(goredis.NewPool(connect()))
		return func(ctx context.Context, name string) func(context.Context) error {
			m := all.NewMutex(prefix+"/redsync/"+name, options...)
			must.Do(m.LockContext(ctx))
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}
		}
	}
	byLocker := func(ttl time.Duration) take {
		locker := redislock.New(connect())
		options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		return func(ctx context.Context, name string) func(context.Context) error {
			return must.Have(locker.Obtain(ctx, prefix+"/redislock/"+name, ttl, options)).Release
		}
	}
	open, short := store(redisLease), store(deadLease) // a store takes over no lock before its longest lease
	tenure := r.tenure(true, open)
	tenure.dead = r.tenure(true, short).dead
	return []way{
		tenure,
		{name: "redsync", waits: true, open: func() take { return bySync() }, dead: func() (take, take) {
			expiry := redsync.WithExpiry(deadLease)
			return bySync(expiry), bySync(expiry, redsync.WithTries(100))
		}},
		{name: "redislock", waits: true, open: func() take { return byLocker(redisLease) }, dead: func() (take, take) {
			return byLocker(deadLease), byLocker(redisLease) // its own is for how long it tries
		}},
		{name: "store", open: func() take { return alone(open(), redisLease) }},
	}
}

// alone takes locks by a store's claims, and releases them by its swaps. Nobody sends heartbeats for them.
func alone(store driver.Store, lease time.Duration) take {
	return func(ctx context.Context, name string) func(context.Context) error {
		version := rand.Text()
		now, _, err := store.Claim(ctx, driver.Record{
			Key: name, Version: version, Beat: version, Owner: "bench", Lease: lease, State: driver.Held,
		})
		must.Do(err)
		return func(ctx context.Context) error {
			next := now
			next.Version, next.State, next.End = rand.Text(), driver.Released, driver.EndReleased
			_, err := store.Swap(ctx, now, next)
			return err
		}
	}
}
