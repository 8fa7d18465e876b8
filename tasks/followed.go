// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"bytes"
	"context"
	"iter"
	"sync"

	"github.com/tenurelock/tenure"
)

// Followed gives a following task the present leader. All methods may be called
// concurrently.
type Followed struct {
	settle  func()        // closes settled
	settled chan struct{} // closed when following tasks need not wait any longer
	over    chan struct{} // closed when this replica does not follow any more

	mu      sync.Mutex // guards the fields below
	own     uint64     // this replica's own terms have this token or a lower one
	leader  tenure.Leader
	version uint64        // of leader, one higher with each change; 0 if nothing is known
	changed chan struct{} // closed and replaced with each change
}

func newFollowed(own uint64) *Followed {
	f := &Followed{own: own, settled: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{})}
	f.settle = sync.OnceFunc(func() { close(f.settled) })
	return f
}

// Leader returns the leader, as far as is known: a [tenure.Leader.None] if no process
// leads or nothing is known yet. An error of the store changes nothing.
func (f *Followed) Leader() tenure.Leader {
	l, _, _ := f.state()
	return l
}

func (f *Followed) state() (l tenure.Leader, version uint64, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l = f.leader
	l.Data = bytes.Clone(l.Data)
	return l, f.version, f.changed
}

// Changes yields the leader as soon as it is known, and after every change, of its data
// too; a change to no leader included. It ends with ctx, and when this replica no longer
// follows. It yields the latest state: a slow loop skips some, and delays nothing else.
func (f *Followed) Changes(ctx context.Context) iter.Seq[tenure.Leader] {
	return func(yield func(tenure.Leader) bool) {
		seen := uint64(0)
		for ctx.Err() == nil {
			l, version, changed := f.state()
			if version != seen {
				seen = version
				if !yield(l) {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
			case <-f.over:
				return
			}
		}
	}
}

// Each runs work for each leader, one after the other. The context of work
// ends with ctx, and when that leader is not known to lead any more, with
// [ErrLeaderChanged]; Each then waits for it to return, and drops its error.
// New data of the same leader does not end it: see [Followed.Leader].
//
// Work that returns nil before that is not run again for the same leader. An
// error ends Each, which returns it. It returns ctx's error when ctx ends.
func (f *Followed) Each(ctx context.Context, work func(ctx context.Context, leader tenure.Leader) error) error {
	served := uint64(0)
	for l := range f.Changes(ctx) {
		if l.None() || l.Token == served {
			continue
		}
		changed, err := f.serve(ctx, l, work)
		switch {
		case changed:
		case err != nil:
			return err
		default:
			served = l.Token
		}
	}
	return ctx.Err()
}

// serve runs work for one leader, and reports whether that leader has changed
// meanwhile.
func (f *Followed) serve(ctx context.Context, l tenure.Leader, work func(context.Context, tenure.Leader) error) (changed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	defer func() {
		cancel(errEnded)
		<-watched
	}()
	go func() {
		defer close(watched)
		for now := range f.Changes(ctx) {
			if now.Token != l.Token {
				cancel(ErrLeaderChanged)
				return
			}
		}
	}()
	err = work(ctx, l)
	return context.Cause(ctx) == ErrLeaderChanged, err //nolint:errorlint // our own cause, as it is
}

// set records an observed leader.
func (f *Followed) set(l tenure.Leader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Token <= f.own {
		l = tenure.Leader{} // a term of our own, which has ended
	}
	f.put(l)
	if !l.None() {
		f.settle()
	}
}

// exclude says that terms up to this token are this replica's own.
func (f *Followed) exclude(token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = token
	if l := f.leader; !l.None() && l.Token <= token {
		f.put(tenure.Leader{})
	}
}

// put records a leader, and wakes the readers if it is new. The caller holds f.
func (f *Followed) put(l tenure.Leader) {
	if f.version > 0 && l.Token == f.leader.Token && l.Owner == f.leader.Owner && bytes.Equal(l.Data, f.leader.Data) {
		return
	}
	f.leader = l
	f.version++
	close(f.changed)
	f.changed = make(chan struct{})
}
