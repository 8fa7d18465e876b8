// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/internal/wire"
)

const (
	// followPeriod is how often the locks that streams follow are looked at. What a watch or
	// a poll of the client shows before comes at once.
	followPeriod = 2 * time.Second
	// maxFollowed is how many locks one stream follows.
	maxFollowed = 10_000
)

// feeds look at locks for all streams that follow them: any number of streams of one prefix
// cost as many reads as one. A feed lives for as long as it has a stream.
type feeds struct {
	client *tenure.Client

	mu  sync.Mutex
	all map[feedOf]*feed
}

// feedOf is what a feed follows: one lock, or all below a prefix.
type feedOf struct{ name, prefix string }

// feed is what is known of some locks.
type feed struct {
	streams int // guarded by the feeds
	stop    context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	latest  *snapshot
	changed chan struct{} // closed when there is another one
}

// snapshot is the locks of a feed at one time, in the order of their names. It does not
// change.
type snapshot struct {
	locks []wire.Status
	err   error // instead
}

func newFeeds(client *tenure.Client) *feeds {
	return &feeds{client: client, all: map[feedOf]*feed{}}
}

// follow returns a feed, until leave is called.
func (s *feeds) follow(of feedOf) (f *feed, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.all[of]
	if f == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f = &feed{stop: cancel, ended: make(chan struct{}), changed: make(chan struct{})}
		s.all[of] = f
		go s.run(ctx, of, f)
	}
	f.streams++
	return f, func() { s.leave(of, f) }
}

// leave ends a feed with its last stream, and waits until it has ended.
func (s *feeds) leave(of feedOf, f *feed) {
	s.mu.Lock()
	f.streams--
	last := f.streams == 0
	if last {
		delete(s.all, of)
	}
	s.mu.Unlock()
	if last {
		f.stop()
		<-f.ended
	}
}

// run looks at the locks of a feed until it is left.
func (s *feeds) run(ctx context.Context, of feedOf, f *feed) {
	defer close(f.ended)
	hint := make(chan struct{}, 1)
	var observing sync.WaitGroup
	if of.name != "" {
		observing.Go(func() {
			for range s.client.Election(of.name, nil).Observe(ctx) { //nolint:errcheck // an error is a reason to look, too
				select {
				case hint <- struct{}{}:
				default:
				}
			}
		})
	}
	defer observing.Wait()
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		next := s.look(ctx, of)
		if ctx.Err() != nil {
			return
		}
		f.publish(next)
		select {
		case <-hint:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// look reads the locks of a feed.
func (s *feeds) look(parent context.Context, of feedOf) *snapshot {
	ctx, cancel := context.WithTimeout(parent, lookTimeout)
	defer cancel()
	if of.name != "" {
		st, err := s.client.Status(ctx, of.name)
		switch {
		case err != nil:
			return &snapshot{err: err}
		case st.State == "":
			return &snapshot{}
		}
		return &snapshot{locks: []wire.Status{statusOf(&st)}}
	}
	next := &snapshot{}
	for st, err := range s.client.Locks(ctx, of.prefix) {
		switch {
		case err != nil && st.Name == "":
			return &snapshot{err: err}
		case err != nil: // one that cannot be read; a list names it
		case len(next.locks) == maxFollowed:
			return &snapshot{err: problemf(tooLarge, "more than %d locks begin with %.200q: follow a longer prefix", maxFollowed, of.prefix)}
		default:
			next.locks = append(next.locks, statusOf(&st))
		}
	}
	return next
}

// publish hands a snapshot to the streams, if it says anything new.
func (f *feed) publish(next *snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.latest != nil && f.latest.same(next) {
		return
	}
	f.latest = next
	close(f.changed)
	f.changed = make(chan struct{})
}

// now returns the latest snapshot, nil if there is none yet, and a channel that is closed
// when there is another one.
func (f *feed) now() (*snapshot, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}

func (s *snapshot) same(next *snapshot) bool {
	if s.err != nil || next.err != nil {
		return s.err != nil && next.err != nil && fmt.Sprint(s.err) == fmt.Sprint(next.err)
	}
	return slices.EqualFunc(s.locks, next.locks, alike)
}

// since yields what differs from an earlier snapshot, nil for none: each lock that is new or
// another, and the names of those that are gone.
func (s *snapshot) since(before *snapshot, changed func(wire.Status) error, gone func(name string) error) error {
	var old []wire.Status
	if before != nil {
		old = before.locks
	}
	for _, lock := range s.locks {
		for len(old) > 0 && old[0].Name < lock.Name {
			if err := gone(old[0].Name); err != nil {
				return err
			}
			old = old[1:]
		}
		known := len(old) > 0 && old[0].Name == lock.Name
		if known && alike(old[0], lock) {
			old = old[1:]
			continue
		}
		if known {
			old = old[1:]
		}
		if err := changed(lock); err != nil {
			return err
		}
	}
	for _, lock := range old {
		if err := gone(lock.Name); err != nil {
			return err
		}
	}
	return nil
}

// alike says whether two states of a lock are the same but for what each heartbeat changes.
func alike(a, b wire.Status) bool {
	return a.Name == b.Name && a.State == b.State && a.Token == b.Token && a.InDoubt == b.InDoubt &&
		a.Holder == b.Holder && a.Host == b.Host && a.Label == b.Label && a.Session == b.Session && a.Priority == b.Priority &&
		a.ReservedFor == b.ReservedFor && a.ReservedForLabel == b.ReservedForLabel && a.End == b.End && a.EndedBy == b.EndedBy &&
		a.DataBytes == b.DataBytes && slices.Equal(a.Requests, b.Requests)
}
