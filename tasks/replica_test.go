// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/tasks"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	lease       = 15 * time.Second // the default
	stopTimeout = 10 * time.Second // the default
	election    = "x"
	drain       = 100 * time.Millisecond // that a task takes to stop
)

var errTask = errors.New("task failed")

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, test func(t *testing.T, s *world)) {
	t.Helper()
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		test(t, &world{World: w, t: t, running: map[string]int{}})
	})
}

// note adds an entry to the journal.
func (s *world) note(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = append(s.journal, fmt.Sprintf(format, a...))
}

// story returns the journal from the entry on that it was last asked for.
func (s *world) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.journal = nil }()
	return strings.Join(s.journal, ", ")
}

// expect compares the journal since the last time. Pairs of texts say what is replaced in it
// before, for what may be missing, or in another order.
func (s *world) expect(want string, replace ...string) {
	s.t.Helper()
	if got := strings.NewReplacer(replace...).Replace(s.story()); got != want {
		s.t.Errorf("journal:\n got %s\nwant %s", got, want)
	}
}

// rival takes the lock by the hand of a client without a group.
func (s *world) rival() *tenure.Lease {
	s.t.Helper()
	return testutil.Must(s.Client("rival").Acquire(s.t.Context(), election, nil))(s.t)
}

// replica is one process: a client with a group.
type replica struct {
	*tasks.Group
	*world
	slog.Handler // Handle and Enabled are all that a group's log needs
	owner        string
	client       *tenuretest.Client
	signals      chan<- os.Signal // set while the group runs
	started      func(task string)
	quiet        bool // starts and stops of its tasks are not for the journal
}

// replica returns a replica without tasks.
func (s *world) replica(owner string, edit ...func(*tasks.Options)) *replica {
	r := &replica{world: s, owner: owner, client: s.Client(owner), started: func(string) {}}
	seen := func(faultstore.Call) faultstore.Fault { r.release(); return faultstore.Fault{} }
	r.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Decide: seen})
	o := tasks.Options{Logger: slog.New(r)}
	for _, e := range edit {
		e(&o)
	}
	r.Group = tasks.New(r.client.Election(election, &tenure.ElectionOptions{Data: []byte("from " + owner)}), &o)
	r.Notify(func(c chan<- os.Signal, _ ...os.Signal) { r.signals = c })
	return r
}

func (r *replica) note(entry string) {
	if !r.quiet {
		r.world.note("%s", entry)
	}
}

func (r *replica) Enabled(context.Context, slog.Level) bool { return true }

// Handle notes the starts, in their order.
func (r *replica) Handle(_ context.Context, rec slog.Record) error {
	rec.Attrs(func(a slog.Attr) bool {
		if rec.Message == "task started" && a.Key == "task" {
			r.note(a.Value.String())
			r.started(a.Value.String())
		}
		return true
	})
	return nil
}

// act is what a task does. The zero act waits for its context, drains, and
// returns the context's error.
type act struct {
	after time.Duration // it ends by itself, if it does
	how   func() error  // by this
	drain time.Duration // that it takes to stop; drain if zero
	late  error         // that it returns when it was told to stop
}

func done() error { return nil }

// act runs a task: it notes when it is told to stop, and when it has ended.
func (r *replica) act(ctx context.Context, kind, name string, a act) error {
	defer r.enter(kind, name)()
	var by <-chan time.Time
	if a.how != nil {
		by = time.After(a.after)
	}
	select {
	case <-by:
		r.note(name + "!")
		return a.how()
	case <-ctx.Done():
	}
	r.note("-" + name)
	time.Sleep(cmp.Or(a.drain, drain))
	r.note(name + ".")
	return cmp.Or(a.late, ctx.Err())
}

// add adds a task. The first letter of its name says its kind.
func (r *replica) add(name string, a act) {
	switch name[0] {
	case 'a':
		r.Always(name, func(ctx context.Context) error { return r.act(ctx, "always", name, a) })
	case 'l':
		r.Leading(name, func(ctx context.Context, l *tenure.Lease) error {
			defer r.checkHeld(name, l)
			return r.act(ctx, "leading", name, a)
		})
	case 'f':
		r.Following(name, func(ctx context.Context, _ *tasks.Followed) error { return r.act(ctx, "following", name, a) })
	}
}

// cast adds two tasks of each kind. Those that are named act as given.
func (r *replica) cast(acts map[string]act) *replica {
	for _, name := range []string{"l1", "a1", "f1", "a2", "f2", "l2"} { // kinds are independent
		r.add(name, acts[name])
	}
	return r
}

// panicked is the error of a Run that has panicked. It matches no other.
type panicked struct{ *tasks.PanicError }

func (panicked) Unwrap() error { return nil }

// run runs the group, and returns a channel with how that ended.
func (r *replica) run(ctx context.Context) <-chan error {
	return testutil.Go(func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = panicked{v.(*tasks.PanicError)}
			}
		}()
		return r.Run(ctx)
	})
}
