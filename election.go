// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/terms"
)

// Election is a lock that candidates campaign for again and again; its holder
// is the leader. All methods may be called concurrently. It needs no closing.
type Election struct {
	c       *Client
	under   *engine.SessionHolder // nil: the leader's lock has its own lease
	name    string
	options ElectionOptions
}

// ElectionOptions are the options of one election. Nil means the defaults.
type ElectionOptions struct {
	// Data is written into the record by each new leader, for example its address. If nil,
	// the data of the former leader stays.
	Data []byte

	// Capacity and Timing are as in [AcquireOptions].
	Capacity int
	Timing   Timing

	// Priority makes this candidate preferred to those with a lower one: it asks a
	// leader with a lower priority to hand over to it, as by [Client.StepDown]. A
	// newly seen leader is left alone for one lease duration first, and is asked again
	// after one lease duration at the earliest. If all priorities are equal, no candidate
	// asks.
	Priority int

	// CoolDown delays a version whose own work has failed, so that any other running
	// version wins, and this one leads again only without competition. The version is
	// [Options.Label], which must not be empty. If zero, candidates do not wait.
	//
	// The candidate counts the latest terms of its own label in a row that ended
	// badly: [EndFailed], [EndStalled], [EndStopTimeout], [EndCrashed]. It ignores terms
	// of other labels, and ends that do not depend on the version, such as EndExpired: one
	// outage of the store would blame every version. A term that was released, or ended at
	// a request, ends the count. After k failures the candidate waits for
	// CoolDown·2^(k−1), at most CoolDownMax, from the instant at which it could have taken
	// the lock. Meanwhile it does not ask a leader to hand over for its Priority. A
	// hand-over to the candidate is never delayed.
	//
	// Such a candidate observes the lock until it may take it. That costs one more read
	// before the lock is taken, and one batch read of the last 16 terms if the record
	// itself does not settle the count. With a negative [Options.HistoryLimit] only the
	// record counts, which shows two terms.
	CoolDown time.Duration

	// CoolDownMax is the longest delay by CoolDown. If zero, it is two lease durations. It
	// must not be less than CoolDown.
	CoolDownMax time.Duration

	// Health checks the health of the leader while the work runs: once each HealthPeriod,
	// never twice at once. After HealthFailures errors in a row the context of the work
	// ends with an error that matches [ErrUnhealthy]. When the work has returned, the term
	// ends as [EndFailed], and Run returns that error. The context of a check ends with
	// the context of the work, and after a HealthPeriod. A check that ignores its context
	// delays further checks, and Run. If nil, the leader is not checked. A panic of Health
	// is not recovered.
	Health func(context.Context, *Lease) error

	// HealthPeriod is the time between two checks; the first one comes after it. If
	// zero, it is the lease duration. HealthFailures is how many failures in a row end the
	// term. If zero, it is 3.
	HealthPeriod   time.Duration
	HealthFailures int
}

// Election returns the election of the given name. The name and the options are checked
// when the election is used.
func (c *Client) Election(name string, options *ElectionOptions) *Election {
	return c.election(name, options, nil)
}

func (c *Client) election(name string, options *ElectionOptions, under *engine.SessionHolder) *Election {
	e := &Election{c: c, name: name, under: under}
	if options != nil {
		e.options = *options
		if e.options.Data != nil {
			e.options.Data = append([]byte{}, e.options.Data...)
		}
	}
	return e
}

// Client returns the client of the election.
func (e *Election) Client() *Client { return e.c }

// Name returns the name of the election, which is also the name of its lock.
func (e *Election) Name() string { return e.name }

// Run campaigns, and runs work at every election won, as [Client.Run] does. When
// work returns, with nil or an error, Run releases the lock and returns what work
// returned. When the lease is lost, Run waits for work to return, drops its error,
// and campaigns again. It does the same when the leader is asked to step down or to
// hand over (see [StepDownError]), but first lets the other candidates try for a
// moment. If the store gives no answer, Run retries as long as ctx lasts; an unusable
// store is an error: see [ErrPermanent].
//
// To end a campaign in order, end ctx. Run then returns nil, whether this client led or
// not, also if work returned the error of its context, or the cause, wrapped or not,
// and if the client was closed meanwhile. If the client is closed and ctx goes on, Run
// returns an error that matches [ErrClosed], whether this client led or not. Run
// returns any other error of work. If a lease was lost before work had returned, the
// error also matches [ErrLost].
//
// If work returns an error, or panics, without having been asked to stop, the term ends
// as [EndFailed], with the error's text as the reason.
func (e *Election) Run(ctx context.Context, work func(context.Context, *Lease) error) error {
	if err := checkWork("lead", e.name, work == nil); err != nil {
		return err
	}
	checks := health{e.name, e.options.Health, e.options.HealthPeriod, e.options.HealthFailures}
	t, err := e.c.timingOf(e.options.Timing, e.under)
	if err == nil {
		work, err = checks.beside(t.Lease, work)
	}
	if err != nil {
		return wrap("lead", e.name, err)
	}
	for {
		l, err := e.c.acquire(ctx, "acquire", e.name, &AcquireOptions{
			Data: e.options.Data, StoreTimeout: -1, History: true, WatchRequests: true, Capacity: e.options.Capacity, Timing: e.options.Timing,
			Priority: e.options.Priority, CoolDown: e.options.CoolDown, CoolDownMax: e.options.CoolDownMax,
		}, e.under, false)
		if errors.Is(err, ErrExpired) && !errors.Is(err, ErrSessionClosed) {
			continue // the process was paused while it won
		}
		if err != nil {
			return endOf(ctx, err, ErrClosed)
		}
		lost, err := l.run(ctx, work)
		stepped := errors.Is(lost, ErrSteppedDown)
		ended := lost == nil && errors.Is(context.Cause(l.Context()), ErrClosed) || stepped && e.c.engine.Closed()
		switch {
		case ended && ctx.Err() == nil: // the error of work may not say so
			return lostWith(&Error{"lead", e.name, ErrClosed}, endOf(l.Context(), err))
		case lost == nil, stepped && ctx.Err() != nil: // released
			return endOf(ctx, err, ErrClosed, ErrSteppedDown)
		case ctx.Err() != nil, e.c.engine.Closed(), errors.Is(lost, ErrReplaced):
			return lostWith(&Error{"lead", e.name, lost}, endOf(ctx, err))
		case stepped:
			if err := e.c.standBack(ctx, e.name, t); err != nil {
				return endOf(ctx, err, ErrClosed)
			}
		}
	}
}

// Leader is the leader of an election, as far as one process can know.
type Leader struct {
	// Owner and Token are the leader's; both are zero without a leader.
	Owner string
	Token uint64
	Host  string
	Label string
	Since time.Time // by the leader's wall clock
	Data  []byte
}

// None reports whether there is no leader.
func (l Leader) None() bool { return l.Token == 0 }

// Leader reads who leads. It returns [ErrNoLeader] without a leader: the record is
// absent or released, or its sign of life has not changed for a lease, as far as this
// client has observed it. A leader that the client reads for the first time counts as
// alive.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := checkKey(e.name); err != nil {
		return Leader{}, wrap("leader", e.name, err)
	}
	s, err := e.c.engine.Status(ctx, e.name)
	if err != nil {
		return Leader{}, wrap("leader", e.name, err)
	}
	if l := leaderOf(s); !l.None() {
		return l, nil
	}
	return Leader{}, wrap("leader", e.name, ErrNoLeader)
}

func leaderOf(s engine.Snapshot) Leader {
	if !s.Alive {
		return Leader{}
	}
	r := s.Record
	return Leader{Owner: r.Owner, Token: r.Token, Host: r.Host, Label: r.Label, Since: r.Since, Data: bytes.Clone(r.Data)}
}

// Observe yields the leader, now and after every change, until ctx ends or the loop
// is left. Without a leader, it yields a Leader for which None is true. It yields the
// latest state: a slow loop skips terms, which shows in the tokens, and delays no
// process. An error of the store is yielded once, and observing goes on: the leader
// stays the same until the store answers. When ctx ends, so does the loop, without an
// error. When the client is closed, the last error is [ErrClosed].
//
// All observers and contenders of a process share the polls of a record.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := checkKey(e.name); err != nil {
			yield(Leader{}, wrap("observe", e.name, err))
			return
		}
		o, err := e.c.engine.Observe(e.name)
		if err != nil {
			yield(Leader{}, wrap("observe", e.name, err))
			return
		}
		defer o.Close()

		var last Leader
		first := true
		for {
			s, fresh, err := o.Latest()
			switch l := leaderOf(s); {
			case err != nil:
				if !yield(Leader{}, wrap("observe", e.name, err)) {
					return
				}
				continue // the state may have changed as well
			case fresh && (first || !l.same(last)):
				first, last = false, leaderOf(s) // the caller may have changed l
				if !yield(l, nil) {
					return
				}
				continue // the state may have changed meanwhile
			}
			if err := o.Wait(ctx, s); err != nil {
				if ctx.Err() == nil { // without an error if ctx has ended
					yield(Leader{}, wrap("observe", e.name, err))
				}
				return
			}
		}
	}
}

func (l Leader) same(m Leader) bool {
	return l.Token == m.Token && l.Owner == m.Owner && string(l.Data) == string(m.Data)
}

// standBack lets others take the lock first, after a step-down. A contender on another
// machine polls only now and then, and needs time to find the lock free. standBack
// returns when another owner has the lock, or when the lock is reserved for this
// client; otherwise after twice the time of a poll and a write.
func (c *Client) standBack(ctx context.Context, name string, t *protocol.Timing) error {
	o, err := c.engine.Observe(name)
	if err != nil {
		return wrap("stand back", name, err)
	}
	defer o.Close()
	bound, stop := context.WithTimeoutCause(ctx, t.Reservation(), errWaited)
	defer stop()
	for {
		s, fresh, _ := o.Latest() // after a store error, the observer reads again
		if mine := s.Record.Owner == c.options.Owner; fresh && s.Found &&
			(s.Record.State == driver.Held && !mine || protocol.ReservedFor(s.Record, c.options.Owner, c.options.Label)) {
			return nil
		}
		switch err := o.Wait(bound, s); {
		case errors.Is(err, errWaited):
			return nil
		case err != nil:
			return wrap("stand back", name, err)
		}
	}
}

var errWaited = errors.New("waited long enough")

// A candidate with a cool-down lets others go first when its own label has recently failed.
// It does not use a waiting acquire, which would take the lock as soon as possible. It
// observes the lock. When the lock is free, or its holder is dead, the candidate counts the
// terms of its own label that ended badly, newest first, until the first that ended well.
// After k bad terms it waits for CoolDown·2^(k−1), at most CoolDownMax, from the instant at
// which it could have taken the lock, and then takes it. A new term in between starts all
// of this again. So a failing version loses to any other running version, and leads again
// only without competition. The candidate writes nothing, compares no wall clocks, and
// excludes no other candidate.
//
// How the end of a term counts for its label:
//
//   - badly: the work failed, stalled, or did not stop in time, or its process is
//     known to have crashed
//   - well: the work returned, or was asked to make way
//   - not at all: everything else. One outage of the store lets the leases of good
//     versions expire.
//
// The record of a lock shows its latest two terms. Earlier terms are read from the
// history: in one batch, once for each term, and only if those two do not settle the
// count.
//
// A lock that is reserved for the candidate was handed over to it on purpose, so it does
// not wait. A candidate whose label has failed does not ask a leader to hand over for its
// priority: the leader may be the version to which its failures were rolled back.

// countedTerms is how many of the newest terms count.
const countedTerms = 16

// candidate is one acquire with a cool-down.
type candidate struct {
	c              *Client
	options        engine.AcquireOptions
	coolDown, most time.Duration
	lock           *engine.Candidate
	begun          time.Time

	free  termState // the state that it could take, since the time below
	since time.Time // zero: it could not take the lock
	past  []terms.Entry
	below termState // of the record for which past was read, without its sign of life
	mute  uint64    // the token of a leader below which the history could not be read
	retry time.Time // when to try again, after a refusal
	late  time.Time // when AdditionalWait is over; zero: not begun
}

// termState is the part of a record that changes with each term and each sign of life.
type termState struct {
	token uint64
	state driver.State
	sign  string
}

func termOf(rec driver.Record) termState { return termState{rec.Token, rec.State, rec.Sign()} }

// coolDown acquires a lock with a cool-down.
func (c *Client) coolDown(ctx context.Context, o engine.AcquireOptions, coolDown, most time.Duration) (*engine.LeaseHolder, error) {
	lock, err := c.engine.Candidate(o.Want.Key, *o.Timing, o.Want.Patience)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	k := &candidate{c: c, options: o, coolDown: coolDown, most: most, lock: lock, begun: time.Now()}
	bounded, stop, over := engine.Within(ctx, o.Wait)
	defer stop()
	waiting, end := context.WithCancel(bounded)
	defer end()
	if o.Under != nil {
		defer context.AfterFunc(o.Under.Context(), end)()
	}
	held, err := k.acquire(waiting)
	if err != nil && bounded.Err() == nil && waiting.Err() != nil {
		return k.try(ctx) // its error says why the session has ended
	}
	return held, over(err)
}

func (k *candidate) acquire(ctx context.Context) (*engine.LeaseHolder, error) {
	for {
		s, fresh, err := k.lock.Latest(ctx)
		if err != nil {
			return nil, err
		}
		at, takes := time.Time{}, false
		if fresh {
			at, takes = k.next(ctx, s)
		}
		now := time.Now()
		switch {
		case takes && !at.After(now):
			held, err := k.try(ctx)
			if !errors.Is(err, ErrHeld) {
				return held, err
			}
			k.retry = time.Now().Add(k.options.Timing.MinPollInterval())
			continue
		case !k.late.IsZero() && !k.late.After(now):
			return nil, k.lock.Held()
		case !k.late.IsZero() && (at.IsZero() || at.After(k.late)):
			at = k.late
		}
		if err := k.lock.Wait(ctx, at); err != nil {
			return nil, err
		}
	}
}

func (k *candidate) try(ctx context.Context) (*engine.LeaseHolder, error) {
	return k.lock.Try(ctx, k.options, time.Since(k.begun))
}

// next returns when the candidate acts next, zero for never, and whether it then takes
// the lock.
func (k *candidate) next(ctx context.Context, s engine.Snapshot) (at time.Time, takes bool) {
	rec := s.Record
	if bound := k.options.AdditionalWait; s.Alive && bound > 0 && k.late.IsZero() {
		k.late = time.Now().Add(rec.Lease + bound)
	}
	switch under := k.options.Under; {
	case protocol.ReservedFor(rec, k.c.options.Owner, k.c.options.Label):
		return k.retry, true
	case s.Alive && under != nil && rec.Session == under.ID():
		// Another part of the program has the lock; or the record is an orphan, which only an
		// acquire releases.
		return k.retry.Add(k.options.Timing.Lease), true
	case s.Alive:
		k.since = time.Time{}
		return k.wish(ctx, s), false
	case rec.State == driver.Reserved && s.FreeIn > 0:
		k.since = time.Time{}
		return time.Time{}, false
	}
	if is := termOf(rec); k.since.IsZero() || k.free != is {
		k.free, k.since = is, time.Now()
	}
	end := k.since.Add(k.most)
	bounded, stop := context.WithDeadline(ctx, end)
	defer stop()
	failures, known := k.failures(bounded, rec)
	if known {
		return later(k.since.Add(k.delay(failures)), k.retry), true
	}
	// A failing read of the history must not keep the lock free for longer than the
	// cool-down could.
	if again := time.Now().Add(k.options.Timing.MinPollInterval()); again.Before(end) {
		return again, false
	}
	return later(end, k.retry), true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// wish asks the leader to hand over if that is due and the candidate has a higher priority.
// It returns when to ask, zero for never.
func (k *candidate) wish(ctx context.Context, s engine.Snapshot) time.Time {
	in, ok := k.lock.RequestDue(k.options.Want.Priority)
	switch {
	case !ok || k.mute == s.Record.Token:
		return time.Time{}
	case in > 0:
		return time.Now().Add(in)
	}
	switch failures, known := k.failures(ctx, s.Record); {
	case !known:
		k.mute = s.Record.Token
	case failures == 0:
		k.lock.Prefer(k.options.Want.Priority)
		return time.Now().Add(k.options.Timing.Lease)
	}
	return time.Time{}
}

// delay returns how long a candidate waits after that many failures.
func (k *candidate) delay(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	d := k.coolDown
	for ; failures > 1 && d < k.most; failures-- {
		d *= 2
	}
	return min(d, k.most)
}

// failures returns how many terms of the candidate's label in a row have ended badly, and
// false if the history that shows them could not be read.
func (k *candidate) failures(ctx context.Context, rec driver.Record) (n int, known bool) {
	list := terms.Of(rec)
	if rec.State == driver.Held {
		list[0].End = k.endOf(rec)
	}
	n, settled := failuresOf(k.c.options.Label, list)
	from, to := terms.Older(list, countedTerms)
	if settled || from == to {
		return n, true
	}
	if is := (termState{token: rec.Token, state: rec.State}); k.below != is {
		past, err := k.c.past(ctx, k.options.Want.Key, from, to)
		if err != nil {
			k.lock.Failed(err)
			return n, false
		}
		k.past, _ = terms.UpToGap(past)
		k.below = is
	}
	n, _ = failuresOf(k.c.options.Label, append(list, k.past...))
	return n, true
}

// endOf returns how a term ends that its record still shows as held.
func (k *candidate) endOf(rec driver.Record) driver.EndReason {
	if rec.Session != "" {
		if u := k.c.engine.Session(rec.Session); u.Found && u.Record.State == driver.Closed && u.Record.End != "" {
			return u.Record.End
		}
	}
	return driver.EndExpired
}

// failuresOf counts the terms of a label that ended badly, newest first, until the first
// that ended well. It returns settled if there was one.
func failuresOf(label string, list []terms.Entry) (n int, settled bool) {
	for _, e := range list {
		if e.Unknown || e.Label != label {
			continue
		}
		switch e.End {
		case driver.EndFailed, driver.EndStalled, driver.EndStopTimeout, driver.EndCrashed:
			n++
		case driver.EndReleased, driver.EndSteppedDown, driver.EndHandedOver:
			return n, true
		}
	}
	return n, false
}
