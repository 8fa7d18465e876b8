// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclientgo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tenurelock/tenure"
)

// Options are for NewLock. Nil means the defaults.
type Options struct {
	// Timing and History are as in [tenure.AcquireOptions]. Each Update of the elector
	// counts as progress for Timing.ProgressTimeout: with it, a lease does not outlive an
	// elector that is stuck.
	Timing  tenure.Timing
	History bool
}

// Lock is a resourcelock.Interface. All methods may be called concurrently, but for those
// that the elector calls, which are of one elector at a time.
type Lock struct {
	client   *tenure.Client
	name     string
	identity string
	options  tenure.AcquireOptions

	mu    sync.Mutex
	term  *term // nil while this process does not lead, by this lock
	leads bool  // Leading was called: it knows when the work has returned
	back  bool  // others go first: the last term ended by a request
	binds map[*context.CancelCauseFunc]struct{}
	last  view
}

var _ resourcelock.Interface = (*Lock)(nil)

// A term is the time from a grant to the end of the elector's run.
type term struct {
	lease   *tenure.Lease
	working int           // functions of Leading that have not returned
	idle    chan struct{} // closed when the last of them has
	over    bool          // the elector has ended: the last call to return releases
}

// ended returns why the lease has ended, or why the work must stop.
func (t *term) ended() error {
	// Check is exact where timers are late.
	if err := t.lease.Check(); err != nil {
		return err
	}
	return context.Cause(t.lease.Context())
}

// view is what the last Get has seen of another holder.
type view struct {
	token uint64
	state string
	at    time.Duration // of the client's elapsed time
	beats int
}

// NewLock returns the lock of that name. Options may be nil; each Update returns an error
// if they or the name are not valid.
func NewLock(client *tenure.Client, name string, options *Options) *Lock {
	var o Options
	if options != nil {
		o = *options
	}
	return &Lock{
		client: client, name: name,
		// An elector goes by the identity alone. The owner's name may be the host name.
		identity: client.Options().Owner + "_" + strings.ToLower(rand.Text()),
		options:  tenure.AcquireOptions{Timing: o.Timing, History: o.History, WatchRequests: true},
		binds:    make(map[*context.CancelCauseFunc]struct{}),
	}
}

// Identity returns the elector's own identity: the client's owner name and a random part.
// Other holders have their owner names.
func (l *Lock) Identity() string { return l.identity }

// Describe names the lock in the elector's log.
func (l *Lock) Describe() string { return "tenure lock " + l.name }

// Lease returns the lease, if this process leads by this lock and its right to act has not
// ended: for its token, say.
func (l *Lock) Lease() (*tenure.Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || l.term.lease.Check() != nil {
		return nil, false
	}
	return l.term.lease, true
}

// Get returns the holder of the lock. Without a record the error is a NotFound. The second
// result changes with each sign of life that the holder shows, and with nothing else. A
// holder that has shown none for its lease is no holder.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if lease, ok := l.Lease(); ok {
		record := &resourcelock.LeaderElectionRecord{
			HolderIdentity: l.identity, LeaseDurationSeconds: seconds(lease.Timing().LeaseDuration),
			RenewTime: metav1.Now(), LeaderTransitions: transitions(lease.Token()),
		}
		return record, fmt.Appendf(nil, "own %d", lease.Token()), nil
	}
	clock := l.client.Options().Clock
	before := clock.Contender()
	status, err := l.client.Status(ctx, l.name)
	if err != nil {
		return nil, nil, err
	}
	if status.State == "" {
		return nil, nil, apierrors.NewNotFound(resource, l.name)
	}
	record := &resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: seconds(status.Lease), AcquireTime: metav1.NewTime(status.Since),
		RenewTime: metav1.NewTime(time.Now().Add(-status.Unchanged)), LeaderTransitions: transitions(status.Token),
	}
	if status.Held {
		// Its own lease is handled above: this is another holder, or a term of its own
		// that it has lost.
		record.HolderIdentity = status.Owner
	}
	raw, err := json.Marshal([]any{status.Token, status.State, l.see(status, before, clock.Contender())})
	return record, raw, err
}

// see counts the observed signs of life.
func (l *Lock) see(status tenure.Status, before, now time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.last
	if status.Token != s.token || status.State != s.state || status.Unchanged < before-s.at {
		s.beats++
	}
	s.token, s.state, s.at = status.Token, status.State, now
	return s.beats
}

// standBack lets others take the lock first: until another holder has it, but for no
// longer than a process on another machine needs to see it free and take it.
func (l *Lock) standBack(ctx context.Context) error {
	o := l.client.Options()
	bound, stop := context.WithTimeout(ctx, 2*(o.RefreshPeriod+o.RequestTimeout))
	defer stop()
	for leader, err := range l.client.Election(l.name, nil).Observe(bound) {
		if err == nil && !leader.None() && leader.Owner != o.Owner { // a store that fails is asked again
			break
		}
	}
	return ctx.Err()
}

// Create is Update: the grant makes the record.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update returns nil if the lock is held by this process, and its right to act has not ended.
// It takes the lock if it is free, without waiting for a holder: that is an error that is a
// Conflict and matches [tenure.ErrHeld]. An elector whose lease has ended, or was asked to
// make way, gets a Conflict until it has stopped: the lock is not taken again while its work
// has yet to stop.
//
// Without a holder's identity it releases the lock when the functions of [Lock.Leading] have
// returned; if ctx ends before, the error says so, and the lock is released later.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch record.HolderIdentity {
	case "":
		return l.release(ctx)
	case l.identity:
		return l.hold(ctx)
	}
	return fmt.Errorf("update %q: the record names holder %q, but this lock acts only for %q", l.name, record.HolderIdentity, l.identity)
}

func (l *Lock) hold(ctx context.Context) error {
	l.mu.Lock()
	t, back := l.term, l.back
	l.back = false
	l.mu.Unlock()
	if t != nil {
		if ended := t.ended(); ended != nil {
			return l.conflict(ended)
		}
		t.lease.Progress()
		return nil
	}
	if back {
		if err := l.standBack(ctx); err != nil {
			return err
		}
	}
	options := l.options
	lease, err := l.client.TryAcquire(ctx, l.name, &options)
	if errors.Is(err, tenure.ErrHeld) {
		return l.conflict(err)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = &term{lease: lease}
	for cancel := range l.binds {
		tie(lease, *cancel)
	}
	return nil
}

// release ends the term in order.
func (l *Lock) release(ctx context.Context) error {
	l.mu.Lock()
	t := l.term
	if t == nil {
		l.mu.Unlock()
		return nil
	}
	if idle := t.idle; t.working > 0 {
		l.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("release %q: the work has not returned: %w", l.name, ctx.Err())
		}
		l.mu.Lock()
	}
	l.close(t)
	l.mu.Unlock()
	err := t.lease.Release(ctx)
	if errors.Is(err, tenure.ErrLost) {
		return nil // the lock is no longer ours
	}
	return err
}

// close ends the term for the elector. mu is held.
func (l *Lock) close(t *term) {
	l.term, t.over = nil, true
	l.back = errors.Is(context.Cause(t.lease.Context()), tenure.ErrSteppedDown)
}

// RecordEvent learns from the elector that its run has ended. A lock that it has not released
// is released when the functions of [Lock.Leading] have returned. Without any such function
// it is not known when the work has ended: heartbeats go on for [tenure.Options.StopTimeout],
// and then the lease expires. No event is sent anywhere: see [tenure.Options.OnEvent].
func (l *Lock) RecordEvent(event string) {
	if event == becameLeader {
		return
	}
	l.mu.Lock()
	t := l.term
	if t == nil {
		l.mu.Unlock()
		return
	}
	l.close(t)
	returned := l.leads && t.working == 0
	l.mu.Unlock()
	// Ends its context, and lets heartbeats go on while the work stops. This changes
	// nothing for a lease that has ended, or that was asked before with another reason.
	_ = t.lease.StepDown(&tenure.StepDownOptions{Reason: "client-go: " + event})
	if returned {
		l.end(t)
	}
}

// becameLeader is the event with which a run of an elector begins; the other one ends it.
const becameLeader = "became leader"

// end releases the lease of a term that is over. It waits for the store, as long as
// Lease.Release does.
func (l *Lock) end(t *term) {
	// Its error is in the client's events: no caller waits for it here.
	_ = t.lease.Release(context.Background())
}

// Leading returns a function for OnStartedLeading: work, with the lease and a context that
// also ends with the lease. Work must return then. The lock is not released before it has,
// but heartbeats go on for [tenure.Options.StopTimeout] at most. If the elector has ended
// before client-go calls the function, work is not called.
func (l *Lock) Leading(work func(context.Context, *tenure.Lease)) func(context.Context) {
	l.mu.Lock()
	l.leads = true
	l.mu.Unlock()
	return func(ctx context.Context) {
		l.mu.Lock()
		t := l.term
		if t == nil || t.ended() != nil {
			l.mu.Unlock()
			return
		}
		if t.working++; t.working == 1 {
			t.idle = make(chan struct{})
		}
		l.mu.Unlock()
		defer l.leave(t)
		bound, stop := t.lease.Bind(ctx)
		defer stop()
		work(bound, t.lease)
	}
}

func (l *Lock) leave(t *term) {
	l.mu.Lock()
	t.working--
	last := t.working == 0
	if last {
		close(t.idle)
	}
	over := t.over
	l.mu.Unlock()
	if last && over {
		l.end(t)
	}
}

// Bind returns a context for elector.Run, or for a manager's Start: it ends with ctx, and
// when the lease of this lock ends or is told to stop, at the deadline at the latest. The
// lease may be taken later. [context.Cause] says why. The function frees what it holds.
func (l *Lock) Bind(ctx context.Context) (bound context.Context, stop context.CancelFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.binds[&cancel] = struct{}{}
	if l.term != nil {
		tie(l.term.lease, cancel)
	}
	return bound, func() {
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.binds, &cancel)
	}
}

// tie has a context end with the lease.
func tie(lease *tenure.Lease, cancel context.CancelCauseFunc) {
	context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
}

// resource is what errors for client-go speak of.
var resource = schema.GroupResource{Group: "tenure", Resource: "locks"}

// conflict makes an error that client-go takes for a conflict, and that matches the cause.
func (l *Lock) conflict(cause error) error {
	return &conflictError{apierrors.NewConflict(resource, l.name, cause), cause}
}

type conflictError struct {
	*apierrors.StatusError
	cause error
}

func (e *conflictError) Unwrap() error { return e.cause }

// seconds rounds up: what client-go counts in.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// transitions are those before the term of the token.
func transitions(token uint64) int { return max(int(token)-1, 0) }
