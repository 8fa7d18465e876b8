// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
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

// world keeps what replicas do in a journal, and checks at every entry of a task that its kind
// may run now.
type world struct {
	*tenuretest.World
	t *testing.T

	mu      sync.Mutex
	journal []string
	running map[string]int // tasks by "owner kind"
}

// onWorld runs the test in a bubble, with a world.
func onWorld(t *testing.T, test func(t *testing.T, s *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		quiet := func(o *tenure.Options) { o.Logger = slog.New(slog.DiscardHandler) }
		test(t, &world{World: tenuretest.New(t, quiet), t: t, running: map[string]int{}})
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

// expect compares the journal since the last time.
func (s *world) expect(want string) {
	s.t.Helper()
	if got := s.story(); got != want {
		s.t.Errorf("journal:\n got %s\nwant %s", got, want)
	}
}

// replica is one process: a client with a group.
type replica struct {
	*tasks.Group
	s       *world
	owner   string
	client  *tenuretest.Client
	signals chan<- os.Signal // set while the group runs
	started func(task string)
	plain   bool // its starts are not for the journal
}

// replica returns a replica without tasks.
func (s *world) replica(owner string, edit ...func(*tasks.Options)) *replica {
	s.t.Helper()
	r := &replica{s: s, owner: owner, client: s.Client(owner)}
	r.client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpRelease}, Decide: func(faultstore.Call) faultstore.Fault {
		s.checkRelease(r)
		return faultstore.Fault{}
	}})
	o := tasks.Options{Logger: slog.New(r)}
	for _, e := range edit {
		e(&o)
	}
	r.Group = tasks.New(r.client.Election(election, &tenure.ElectionOptions{Data: []byte("from " + owner)}), &o)
	r.Notify(func(c chan<- os.Signal, _ ...os.Signal) { r.signals = c })
	return r
}

// checkRelease fails the test if anything of the leader's runs when its lock
// is released.
func (s *world) checkRelease(r *replica) {
	if r.signals == nil {
		return // a rival without a group
	}
	s.note("release")
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.running[r.owner+" leading"]; n > 0 {
		s.t.Errorf("%s releases the lock while %d leading tasks run", r.owner, n)
	}
}

// Enabled, Handle, WithAttrs and WithGroup make the replica a handler of log
// records: it notes the starts, in their order.
func (r *replica) Enabled(context.Context, slog.Level) bool { return true }

func (r *replica) Handle(_ context.Context, rec slog.Record) error {
	if rec.Message != "task started" {
		return nil
	}
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "task" {
			if !r.plain {
				r.s.note("%s", a.Value)
			}
			if r.started != nil {
				r.started(a.Value.String())
			}
		}
		return true
	})
	return nil
}

func (r *replica) WithAttrs([]slog.Attr) slog.Handler { return r }
func (r *replica) WithGroup(string) slog.Handler      { return r }

// act is what a task does. The zero act waits for its context, drains, and
// returns the context's error.
type act struct {
	after time.Duration // it ends by itself, if it does
	how   func() error  // by this
	drain time.Duration // that it takes to stop; drain if zero
	late  error         // that it returns when it was told to stop
	quiet bool          // not for the journal
}

// act runs a task: it notes when it is told to stop, and when it has ended.
func (r *replica) act(ctx context.Context, kind, name string, a act) error {
	r.enter(kind, name)
	defer r.leave(kind)
	var by <-chan time.Time
	if a.how != nil {
		timer := time.NewTimer(a.after)
		defer timer.Stop()
		by = timer.C
	}
	select {
	case <-by:
		r.s.note("%s!", name)
		return a.how()
	case <-ctx.Done():
	}
	if !a.quiet {
		r.s.note("-%s", name)
	}
	if a.drain == 0 {
		a.drain = drain
	}
	<-time.After(a.drain)
	if !a.quiet {
		r.s.note("%s.", name)
	}
	if a.late != nil {
		return a.late
	}
	return ctx.Err()
}

// enter checks that nothing runs that must not run beside a task of this kind.
func (r *replica) enter(kind, name string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for k, n := range r.s.running {
		owner, other, _ := strings.Cut(k, " ")
		switch {
		case n == 0:
		case kind == "leading" && other == "leading" && owner != r.owner,
			owner == r.owner && kind != other && kind != "always" && other != "always":
			r.s.t.Errorf("%s of %s is started while %d tasks run: %s", name, r.owner, n, k)
		}
	}
	r.s.running[r.owner+" "+kind]++
}

func (r *replica) leave(kind string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.running[r.owner+" "+kind]--
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

// checkHeld fails the test if the record is released, or another's, when a
// leading task ends whose lease is good.
func (r *replica) checkHeld(name string, l *tenure.Lease) {
	rec, err := r.s.Store().Get(context.Background(), election, driver.Strong)
	if err != nil || l.Check() != nil {
		return
	}
	if rec.State != driver.Held || rec.Token != l.Token() {
		r.s.t.Errorf("when %s of %s ends under token %d, the record is %v under %d", name, r.owner, l.Token(), rec.State, rec.Token)
	}
}

// cast adds two tasks of each kind. Those that are named act as given.
func (r *replica) cast(acts map[string]act) *replica {
	for _, name := range []string{"l1", "a1", "f1", "a2", "f2", "l2"} { // kinds are independent
		r.add(name, acts[name])
	}
	return r
}

// result is how Run ended.
type result struct {
	err      error
	panicked any
}

// run runs the group, and returns a channel with how that ended.
func (r *replica) run(ctx context.Context) <-chan result {
	ended := make(chan result, 1)
	go func() {
		var res result
		defer func() {
			res.panicked = recover()
			ended <- res
		}()
		res.err = r.Run(ctx)
	}()
	return ended
}

// lead takes the lock by another's hand.
func (s *world) lead(owner string) *tenure.Lease {
	s.t.Helper()
	l, err := s.replica(owner).client.Acquire(s.t.Context(), election, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Release(context.WithoutCancel(s.t.Context())) })
	return l
}

// check fails the test if the result is not an error that matches target; nil
// wants none.
func (res result) check(t *testing.T, target error) {
	t.Helper()
	switch {
	case res.panicked != nil:
		t.Errorf("run panicked: %v", res.panicked)
	case target == nil && res.err != nil:
		t.Errorf("run returned %v, want nil", res.err)
	case target != nil && !errors.Is(res.err, target):
		t.Errorf("run returned %v, want what matches %v", res.err, target)
	}
}

func pending(t *testing.T, ended <-chan result) {
	t.Helper()
	select {
	case res := <-ended:
		t.Fatalf("run has ended: %+v", res)
	default:
	}
}

// Ways to end.
func fails() error  { return errTask }
func stops() error  { return fmt.Errorf("done: %w", tasks.ErrStop) }
func panics() error { panic(errTask) }
func exits() error  { runtime.Goexit(); return nil }
func done() error   { return nil }

// sorted returns the entries of a journal in alphabetical order, for what
// happens at once.
func sorted(story string) string {
	entries := strings.Split(story, ", ")
	slices.Sort(entries)
	return strings.Join(entries, ", ")
}
