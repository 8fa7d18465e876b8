// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tasks"
)

func describe(l tenure.Leader) string {
	if l.None() {
		return "nobody"
	}
	return fmt.Sprintf("%s%d %q", l.Owner, l.Token, l.Data)
}

// watcher adds a following task that notes what it sees.
func (r *replica) watcher(see func(context.Context, *tasks.Followed)) {
	r.quiet = true
	r.Following("watcher", func(ctx context.Context, f *tasks.Followed) error {
		defer r.enter("following", "watcher")()
		see(ctx, f)
		return ctx.Err()
	})
}

func (r *replica) noteChanges() {
	r.watcher(func(ctx context.Context, f *tasks.Followed) {
		for l := range f.Changes(ctx) {
			r.world.note("%s sees %s", r.owner, describe(l))
			if now := f.Leader(); now.Token < l.Token {
				r.t.Errorf("the leader is %v after %v was seen", now, l)
			}
		}
	})
}

// A leader tells its followers things through its data; the next one goes on,
// and no replica sees its own term.
func TestFollowersSeeTheLeaderAndItsData(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		replicas := map[string]*replica{}
		stops := map[string]context.CancelFunc{}
		ended := map[string]<-chan error{}
		for _, owner := range []string{"a", "b", "c"} {
			r := s.replica(owner)
			replicas[owner] = r
			r.noteChanges()
			r.Leading("leader", func(ctx context.Context, l *tenure.Lease) error {
				defer r.enter("leading", "leader")()
				s.note("%s leads", owner)
				select {
				case <-time.After(lease):
				case <-ctx.Done():
					return ctx.Err()
				}
				if err := l.SetData(ctx, []byte("news of "+owner)); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}
		start := func(owner string) {
			ctx, stop := context.WithCancel(t.Context())
			stops[owner], ended[owner] = stop, replicas[owner].run(ctx)
			time.Sleep(3 * time.Second)
		}
		start("a")
		s.expect("a leads")
		start("b")
		s.expect(`b sees a1 "from a"`)
		time.Sleep(lease)
		s.expect(`b sees a1 "news of a"`)
		stops["a"]()
		testutil.Want(t, <-ended["a"], nil)
		time.Sleep(3 * time.Second)
		s.expect("release, b leads", "b sees nobody, ", "") // who is elected at once has no time to see it
		start("c")
		s.expect(`c sees b2 "from b"`)

		// The leader is cut off.
		replicas["b"].client.Partition()
		time.Sleep(2 * lease)
		s.expect("c leads", "c sees nobody, ", "")
		replicas["b"].client.Heal()
		time.Sleep(lease)
		story := strings.TrimPrefix(strings.ReplaceAll(s.story(), "release, ", ""), `b sees c3 "from c", `)
		if story != `b sees c3 "news of c"` {
			t.Errorf("journal %q", story)
		}
		for owner, stop := range stops {
			stop()
			if owner != "a" {
				testutil.Want(t, <-ended[owner], nil)
			}
		}
	})
}

// A leader whose writes are lost begins to follow while the record still shows
// its own term: that counts as no leader.
func TestNobodyFollowsItself(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		r := s.replica("a")
		r.noteChanges()
		r.add("l1", act{})
		ctx, stop := context.WithCancel(t.Context())
		ended := r.run(ctx)
		time.Sleep(lease)
		remove := r.client.Faults().Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return c.Op.IsWrite() },
			Fault: faultstore.LoseRequest(),
		})
		time.Sleep(4 * lease)
		s.expect("a sees nobody", "release, ", "")
		remove()
		stop()
		testutil.Want(t, <-ended, nil)
	})
}

// A following task that takes its time to stop does not see the term that it
// makes way for.
func TestStoppingFollowerDoesNotSeeItself(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		rival := s.rival()
		r := s.replica("a")
		r.watcher(func(ctx context.Context, f *tasks.Followed) {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			s.note("sees %s", describe(f.Leader()))
		})
		r.add("l1", act{})
		ctx, stop := context.WithCancel(t.Context())
		ended := r.run(ctx)
		time.Sleep(lease)
		testutil.Want(t, rival.Release(t.Context()), nil)
		time.Sleep(lease)
		s.expect("sees nobody")
		stop()
		testutil.Want(t, <-ended, nil)
	})
}

// An error of the store does not change the followed leader, however long it lasts: that no
// process leads is what the store says, not what its silence says. When a leader has died
// meanwhile, that is seen a lease after the store answers again at the latest.
func TestFollowedWhileTheStoreIsAway(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		rival := s.Client("rival")
		testutil.Must(rival.Acquire(t.Context(), election, nil))(t)
		r := s.replica("b")
		r.noteChanges() // no leading task: it does not campaign
		ctx, stop := context.WithCancel(t.Context())
		ended := r.run(ctx)
		time.Sleep(lease)
		s.expect(`b sees rival1 ""`)
		r.client.Partition()
		time.Sleep(2 * lease)
		r.client.Heal()
		time.Sleep(lease)
		s.expect("")
		r.client.Partition()
		time.Sleep(lease / 2)
		rival.Partition()
		time.Sleep(lease)
		r.client.Heal()
		time.Sleep(2 * lease)
		s.expect("b sees nobody")
		stop()
		testutil.Want(t, <-ended, nil)
	})
}

// A slow loop over the changes skips states and delays nothing else; the handle ends
// with the following, and its data is the caller's own.
func TestChangesSkipAndEnd(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		rival := s.rival()
		r := s.replica("b")
		var seen []string
		over := make(chan string, 1)
		r.watcher(func(ctx context.Context, f *tasks.Followed) {
			go func() {
				for range f.Changes(context.WithoutCancel(ctx)) {
				}
				over <- describe(f.Leader())
			}()
			for l := range f.Changes(ctx) {
				seen = append(seen, string(l.Data))
				clear(l.Data)
				if got := f.Leader().Data; bytes.IndexByte(got, 0) >= 0 {
					t.Errorf("data %q: it is shared", got)
				}
				select {
				case <-time.After(5 * lease):
				case <-ctx.Done():
				}
			}
		})
		ended := r.run(t.Context())
		for i := range 20 {
			time.Sleep(lease)
			testutil.Want(t, rival.SetData(t.Context(), fmt.Append(nil, i)), nil)
		}
		time.Sleep(8 * lease) // the loop's pause, and until the stored data are seen
		r.signals <- syscall.SIGTERM
		testutil.Want(t, <-ended, nil)
		if len(seen) < 4 || len(seen) > 7 {
			t.Errorf("saw %q", seen)
		}
		if last := seen[len(seen)-1]; last != "19" {
			t.Errorf("saw %q last", last)
		}
		if last := <-over; last != `rival1 "19"` {
			t.Errorf("leader at the end: %s", last)
		}
	})
}

// Each runs its work once for each leader, and never twice at once.
func TestEach(t *testing.T) {
	onWorld(t, func(t *testing.T, s *world) {
		b := s.replica("b")
		b.watcher(func(ctx context.Context, f *tasks.Followed) {
			working := 0
			err := f.Each(ctx, func(ctx context.Context, l tenure.Leader) error {
				if working++; working != 1 {
					t.Error("work runs twice at once")
				}
				defer func() { working-- }()
				s.note("serve %s", l.Owner)
				switch l.Token {
				case 2:
					return nil // done with this leader
				case 4:
					return errTask
				}
				<-ctx.Done()
				s.note("%v", context.Cause(ctx))
				time.Sleep(time.Second)
				return errors.New("dropped")
			})
			s.note("each: %v", err)
		})
		ended := b.run(t.Context())
		for _, owner := range []string{"r1", "r2", "r3", "r4"} {
			l := testutil.Must(s.Client(owner).Acquire(t.Context(), election, nil))(t)
			time.Sleep(lease)
			testutil.Want(t, l.SetData(t.Context(), []byte("still "+owner)), nil)
			time.Sleep(lease)
			testutil.Want(t, l.Release(t.Context()), nil)
			time.Sleep(lease)
		}
		// The group was done when Each was: there is nothing else in it.
		testutil.Want(t, <-ended, nil)
		s.expect("serve r1, leader changed, serve r2, serve r3, leader changed, serve r4, each: task failed")
	})
}
