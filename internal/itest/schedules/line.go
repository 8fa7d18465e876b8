// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/tenuretest"
)

// How many calls one client may make for one key in a second, reads or writes. With
// the shortest lease here a client in trouble makes some tens. Acquires that give up at
// a sign of life, and requesters, poll separately.
const (
	perSecond = 60
	perAct    = 20 // more for each act under way but the first
)

// line is one life of a process: its client, and its view of the store. It notes what
// the client sends and receives, counts the calls, and decides their faults.
type line struct {
	driver.Store
	p      *process
	life   int // of the process, from 1
	client *tenuretest.Client

	mu     sync.Mutex
	counts map[string]int    // calls by kind and key
	recent map[string][]sent // calls of the last second, by kind and key
	seen   []seen
	writes map[string]time.Duration // by version: when it was sent first, by the holder's clock
}

// sent is a call, and how many there may be in its second.
type sent struct {
	at   time.Time
	most int
}

// seen is what an answer showed the client.
type seen struct {
	at     time.Time
	key    string
	rec    driver.Record
	found  bool
	strong bool
}

// over returns the client's store, with the features that the plan says.
func (l *line) over(s driver.Store) driver.Store {
	l.Store = s
	switch plan := l.p.w.plan; {
	case plan.Watches && plan.Batches:
		return struct {
			batching
			driver.Watcher
		}{batching{l}, s.(driver.Watcher)}
	case plan.Watches:
		return struct {
			*line
			driver.Watcher
		}{l, s.(driver.Watcher)}
	case plan.Batches:
		return batching{l}
	}
	return l
}

func (l *line) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	rec, err := l.Store.Get(ctx, key, c)
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		l.saw(key, rec, err == nil, c == driver.Strong)
	}
	l.told("read", key, err)
	return rec, err
}

func (l *line) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	l.send(next)
	now, prev, err = l.Store.Claim(ctx, next)
	l.told("claim", next.Key, err)
	return now, prev, err
}

func (l *line) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	l.send(next)
	now, err := l.Store.Swap(ctx, prev, next)
	l.told(faultstore.Classify(prev, next), next.Key, err)
	return now, err
}

// told notes the result of a call.
func (l *line) told(what faultstore.Op, key string, err error) {
	said := "ok"
	if err != nil {
		said = short(err)
	}
	var conflict *driver.ConflictError
	if errors.As(err, &conflict) && !conflict.Absent {
		l.saw(key, conflict.Current, true, true)
	}
	l.p.w.logf("  p%d %s %s: %s", l.p.n, what, l.p.w.name(key), said)
}

// batching reads one by one what an engine would read together.
type batching struct{ *line }

func (b batching) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	found := make([]driver.Lookup, len(keys))
	for i, key := range keys {
		rec, err := b.Get(ctx, key, c)
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return nil, err
		}
		found[i] = driver.Lookup{Record: rec, Err: err}
	}
	return found, nil
}

func (l *line) send(next driver.Record) {
	at := l.client.Options().Clock.Holder()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.writes[next.Version]; !again {
		l.writes[next.Version] = at
	}
}

// sentAt returns when the write of a version was sent, by the holder's clock.
func (l *line) sentAt(version string) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.writes[version]
	return at, ok
}

func (l *line) saw(key string, rec driver.Record, found, strong bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, seen{time.Now(), key, rec, found, strong})
}

// since returns what the client was shown since an instant.
func (l *line) since(from time.Time) []seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.seen), func(s seen) bool { return s.at.Before(from) })
}

// count counts a call. A client that makes too many calls is at fault; its calls are
// delayed, so that the schedule ends.
func (l *line) count(call faultstore.Call) {
	what := "reads"
	if call.Op.IsWrite() {
		what = "writes"
	}
	busy := 0
	l.p.set(func() { busy = l.p.busy })
	l.mu.Lock()
	calls := append(l.recent[what+call.Key], sent{time.Now(), perSecond + perAct*max(0, busy-1)})
	for time.Since(calls[0].at) >= time.Second {
		calls = calls[1:]
	}
	l.recent[what+call.Key] = calls
	l.mu.Unlock()
	most := slices.MaxFunc(calls, func(a, b sent) int { return a.most - b.most }).most
	if len(calls) > most {
		l.p.w.referee.wrong("p%d makes more than %d %s of %s in a second", l.p.n, most, what, l.p.w.name(call.Key))
		sleep(context.Background(), time.Second)
	}
}

// decide chooses the fault of a call by what the call is.
func (l *line) decide(call faultstore.Call) faultstore.Fault {
	if call.Op == faultstore.OpWatch {
		return faultstore.Fault{}
	}
	p, w, weather := l.p, l.p.w, l.p.w.plan.Weather
	what := string(call.Op) + " " + w.name(call.Key)
	l.mu.Lock()
	l.counts[what]++
	n := l.counts[what]
	l.mu.Unlock()
	id := fnv.New64a()
	fmt.Fprint(id, p.n, l.life, what, n)
	r := rand.New(rand.NewPCG(w.plan.Seed, id.Sum64()))
	soon := func() time.Duration { return time.Millisecond/10 + time.Duration(r.Int64N(int64(5*time.Millisecond))) }
	f := faultstore.Fault{Before: soon(), After: soon()}
	if call.Op == faultstore.OpHint {
		return f
	}
	l.count(call)
	if w.over.Load() {
		return f
	}
	if r.Float64() < weather.Stale {
		f.Stale = []int{1, 1, 2, 3, faultstore.MaxStale}[r.IntN(5)]
	}
	var stormy, cutOff bool
	p.set(func() { stormy, cutOff = p.stormy, p.cutOff })
	if cutOff {
		return faultstore.BlackHole()
	}
	if !stormy || len(weather.Kinds) == 0 || r.Float64() >= weather.Chance {
		return f
	}
	d := time.Duration(r.Int64N(int64(weather.Slow)))
	fault := kinds[weather.Kinds[r.IntN(len(weather.Kinds))]](d)
	fault.Before, fault.After, fault.Stale = fault.Before+f.Before, fault.After+f.After, f.Stale
	w.happened("fault of a call")
	return fault
}
