// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// What the lockers and the elector of gocron's own organisation do, as their source says:
// models of a few lines, because their modules are not to be had here, and want engines.
// Each stands on a server of its own that has no faults of its own.

var errTaken = errors.New("taken")

// keys is a server of keys that expire: Redis, as far as a lock needs it.
type keys struct {
	mu   sync.Mutex
	held map[string]key
	last int
}

type key struct {
	value int
	until time.Time
}

// set is SET NX PX. The value tells who has set it.
func (k *keys) set(name string, expiry time.Duration) (int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if held, ok := k.held[name]; ok && time.Now().Before(held.until) {
		return 0, false
	}
	k.last++
	k.held[name] = key{k.last, time.Now().Add(expiry)}
	return k.last, true
}

// alter extends the key, or deletes it, if it has the value.
func (k *keys) alter(name string, value int, until time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if held, ok := k.held[name]; !ok || held.value != value || !time.Now().Before(held.until) {
		return false
	}
	k.held[name] = key{value, until}
	return true
}

// redisLocker is that of gocron-redis-lock v2 (redislock.go) on redsync v4: 32 tries, each 50
// to 250 ms after the one before, an expiry of 8 s, and no renewal but with extend.
type redisLocker struct {
	*keys
	h      *host
	tries  int
	expiry time.Duration
	extend time.Duration
}

func (r *redisLocker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	for range r.tries {
		if !r.h.cut() {
			if value, ok := r.set(name, r.expiry); ok {
				l := &redisLock{r, name, value, make(chan struct{})}
				if r.extend > 0 {
					go l.extends()
				}
				return l, nil
			}
		}
		select {
		case <-time.After(50*time.Millisecond + rand.N(200*time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, errTaken
}

type redisLock struct {
	locker *redisLocker
	name   string
	value  int
	done   chan struct{}
}

// extends ends at its first error, and tells nobody.
func (l *redisLock) extends() {
	ticker := time.NewTicker(l.locker.extend)
	for {
		select {
		case <-l.done:
			return
		case <-ticker.C:
			if l.locker.h.cut() || !l.locker.alter(l.name, l.value, time.Now().Add(l.locker.expiry)) {
				return
			}
		}
	}
}

func (l *redisLock) Unlock(context.Context) error {
	close(l.done)
	if l.locker.h.cut() || !l.locker.alter(l.name, l.value, time.Time{}) {
		return errTaken
	}
	return nil
}

// rows is a table with a unique index over job and identifier: that of gocron-gorm-lock.
type rows struct {
	mu   sync.Mutex
	rows map[string]bool
}

// gormLocker is that of gocron-gorm-lock v2 (gorm_lock.go): the occurrence is the time at
// which a process comes by, cut to the precision.
type gormLocker struct {
	*rows
	h         *host
	precision time.Duration
}

func (g *gormLocker) Lock(_ context.Context, name string) (gocron.Lock, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := name + g.h.clock.Now().Truncate(g.precision).Format("2006-01-02 15:04:05.000")
	if g.h.cut() || g.rows.rows[id] {
		return nil, errTaken
	}
	g.rows.rows[id] = true
	return unlocked{}, nil
}

type unlocked struct{}

func (unlocked) Unlock(context.Context) error { return nil }

// ballot is an election of etcd: each candidate has a session with a time to live, and the
// oldest candidate whose session lives is the leader.
type ballot struct {
	candidates []*etcdElector
	ttl        time.Duration
}

// etcdElector is that of gocron-etcd-elector v2 (elector.go): what IsLeader says changes with
// what is observed, and with nothing else.
type etcdElector struct {
	h     *host
	alive time.Time // when the server has heard of its session
	gone  bool      // the server has ended the session

	mu     sync.Mutex
	leader bool
}

// elect does what the server and the candidates do each 100 ms.
func (b *ballot) elect(ctx context.Context) {
	for range time.Tick(100 * time.Millisecond) {
		if ctx.Err() != nil {
			return
		}
		var leader *etcdElector
		for _, c := range b.candidates {
			switch {
			case c.gone:
			case !c.h.cut():
				c.alive = time.Now()
			case time.Since(c.alive) > b.ttl:
				c.gone = true
			}
			if leader == nil && !c.gone {
				leader = c
			}
		}
		for _, c := range b.candidates {
			if !c.h.cut() { // it observes
				c.mu.Lock()
				c.leader = c == leader
				c.mu.Unlock()
			}
		}
	}
}

func (e *etcdElector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader {
		return nil
	}
	return errTaken
}
