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
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// How many calls one client may make for one key in a second, reads or writes. With
// the shortest lease here a client in trouble makes some tens. Acquires that give up at
// a sign of life, and askers, make looks of their own besides.
const (
	perSecond = 60
	perAct    = 20 // more for each act under way but the first
)

// line is the way of one client to the records: it counts the calls, decides
// their faults, holds them up while the process is paused, and swallows them once
// it has crashed.
type line struct {
	p      *process
	life   int // of the process, from 1
	client *tenure.Client
	faults *faultstore.Store
	gone   atomic.Bool // the process has crashed

	mu     sync.Mutex
	counts map[string]int // calls by kind and key
	recent map[string]*second
	seen   []seen
	sent   map[string]time.Duration // by version: when the write was sent first, by the holder's clock
}

// second counts calls.
type second struct {
	from time.Time
	n    int
	most int // that may be
}

// seen is what an answer showed the client.
type seen struct {
	at     time.Time
	key    string
	rec    driver.Record
	found  bool
	strong bool
}

func newLine(p *process, life int, b *book) *line {
	l := &line{
		p: p, life: life, faults: faultstore.New(b, nil),
		counts: map[string]int{}, recent: map[string]*second{}, sent: map[string]time.Duration{},
	}
	l.faults.Inject(faultstore.Rule{Decide: l.decide})
	return l
}

// driver returns the line as a client sees it.
func (l *line) driver() driver.Store {
	switch {
	case l.p.w.plan.Watches && l.p.w.plan.Batches:
		return struct {
			*line
			driver.Watcher
			driver.BatchGetter
		}{l, l.faults.Driver().(driver.Watcher), batch{l}}
	case l.p.w.plan.Watches:
		return struct {
			*line
			driver.Watcher
		}{l, l.faults.Driver().(driver.Watcher)}
	case l.p.w.plan.Batches:
		return struct {
			*line
			driver.BatchGetter
		}{l, batch{l}}
	}
	return l
}

func (l *line) Get(ctx context.Context, key string, c driver.Consistency) (rec driver.Record, err error) {
	err = l.call(ctx, "read", key, func() error {
		rec, err = l.faults.Get(ctx, key, c)
		return err
	})
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		l.saw(key, rec, err == nil, c == driver.Strong)
	}
	return rec, err
}

func (l *line) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	l.send(next)
	err = l.call(ctx, "claim", next.Key, func() error {
		now, prev, err = l.faults.Claim(ctx, next)
		return err
	})
	if rec, ok := conflicting(err); ok {
		l.saw(next.Key, rec, true, true)
	}
	return now, prev, err
}

func (l *line) Swap(ctx context.Context, prev, next driver.Record) (now driver.Record, err error) {
	l.send(next)
	err = l.call(ctx, string(faultstore.Classify(prev, next)), next.Key, func() error {
		now, err = l.faults.Swap(ctx, prev, next)
		return err
	})
	if rec, ok := conflicting(err); ok {
		l.saw(next.Key, rec, true, true)
	}
	return now, err
}

func (l *line) Delete(ctx context.Context, prev driver.Record) error {
	return l.call(ctx, "delete", prev.Key, func() error { return l.faults.Delete(ctx, prev) })
}

func (l *line) List(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	err = l.call(ctx, "list", prefix, func() error {
		page, err = l.faults.List(ctx, prefix, cursor)
		return err
	})
	return page, err
}

func (l *line) Close() error { return nil }

// batch reads one by one what an engine would read together.
type batch struct{ l *line }

func (b batch) GetBatch(ctx context.Context, keys []string, c driver.Consistency) ([]driver.Lookup, error) {
	found := make([]driver.Lookup, len(keys))
	for i, key := range keys {
		rec, err := b.l.Get(ctx, key, c)
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return nil, err
		}
		found[i] = driver.Lookup{Record: rec, Err: err}
	}
	return found, nil
}

// call makes a call, if the process lives, and once it is awake.
func (l *line) call(ctx context.Context, op, key string, do func() error) error {
	l.count(op, key)
	if err := l.awake(ctx); err != nil {
		return driver.NotApplied(err)
	}
	err := do()
	if err := l.awake(ctx); err != nil {
		return err
	}
	if err == nil {
		l.p.w.logf("  p%d %s %s: ok", l.p.n, op, l.p.w.name(key))
	} else {
		l.p.w.logf("  p%d %s %s: %v", l.p.n, op, l.p.w.name(key), l.p.w.short(err))
	}
	return err
}

// awake waits until the process is awake, for ever if it has crashed.
func (l *line) awake(ctx context.Context) error {
	if l.gone.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-l.p.awake():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count counts a call. If a client makes more calls than it has reason for, that is
// its fault; they are held up, so that the schedule ends.
func (l *line) count(op, key string) {
	acts := 1
	l.p.set(func() { acts = max(acts, l.p.busy) })
	l.mu.Lock()
	what := "reads"
	if op != "read" && op != "list" {
		what = "writes"
	}
	s := l.recent[what+key]
	if s == nil || time.Since(s.from) >= time.Second {
		s = &second{from: time.Now()}
		l.recent[what+key] = s
	}
	s.n++
	s.most = max(s.most, perSecond+perAct*(acts-1))
	n, most := s.n, s.most
	l.mu.Unlock()
	if n > most {
		l.p.w.referee.wrong("p%d makes more than %d %s of %s in a second", l.p.n, most, what, l.p.w.name(key))
		sleep(context.Background(), time.Second)
	}
}

func (l *line) send(next driver.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.sent[next.Version]; !again {
		l.sent[next.Version] = l.p.clock.Holder()
	}
}

// sentAt returns when the write of a version was sent, by the holder's clock.
func (l *line) sentAt(version string) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.sent[version]
	return at, ok
}

func (l *line) saw(key string, rec driver.Record, found, strong bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, seen{time.Now(), key, rec, found, strong})
}

// since returns what the client was shown of some keys since an instant.
func (l *line) since(from time.Time) []seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.seen {
		if !s.at.Before(from) {
			return slices.Clone(l.seen[i:])
		}
	}
	return nil
}

// decide chooses the fault of a call by what the call is.
func (l *line) decide(call faultstore.Call) faultstore.Fault {
	if call.Op == faultstore.OpWatch {
		return faultstore.Fault{}
	}
	p, w := l.p, l.p.w
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
	weather := w.plan.Weather
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
	switch weather.Kinds[r.IntN(len(weather.Kinds))] {
	case LoseReply:
		f.Effect = faultstore.ReplyLost
	case LoseReplyHang:
		f.Effect, f.Hang = faultstore.ReplyLost, true
	case LoseRequest:
		f.Effect = faultstore.RequestLost
	case Refuse:
		f.Effect = faultstore.Refused
	case BlackHole:
		f.Effect, f.Hang = faultstore.RequestLost, true
	case SlowBefore:
		f.Before += d
	case SlowAfter:
		f.After += d
	case Late:
		f.Before, f.Late = f.Before+4*d, true
	case LateAfterError:
		f.Effect, f.Again = faultstore.RequestLost, []time.Duration{4 * d}
	case Duplicate:
		f.Again = []time.Duration{4 * d}
	case kinds:
	}
	if f.Effect != faultstore.Applied || len(f.Again) > 0 || f.Late || d > 0 {
		w.happened("fault of a call")
	}
	return f
}
