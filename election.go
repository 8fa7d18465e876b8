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
)

// Election is a lock that candidates campaign for again and again; its holder
// is the leader. All methods may be called concurrently. It holds nothing that
// needs closing.
type Election struct {
	c       *Client
	under   *engine.SessionHolder // nil: the leader's lock is its own lease
	name    string
	options ElectionOptions
}

// ElectionOptions are for one election. Nil means the defaults.
type ElectionOptions struct {
	// Data is written into the record by each new leader: its address, say. If nil,
	// the data of the former leader stays.
	Data []byte

	// Capacity and Timing are as in [AcquireOptions].
	Capacity int
	Timing   Timing

	// Priority makes this candidate preferred to those with a lower one: it asks a
	// leader with a lower priority to hand over to it, as by [Client.StepDown]. A
	// newly seen leader is left alone for one lease duration first, and is asked again
	// after one lease duration at the earliest. If all are equal, such as 0, nobody asks.
	Priority int

	// CoolDown slows a version down whose own work has failed, so that it loses to
	// any other version that is there, and leads again where there is none. The
	// version is [Options.Label], which must not be empty. If zero, nobody waits.
	//
	// The candidate counts the latest tenures of its own label in a row that ended
	// badly: [EndFailed], [EndStalled], [EndStopTimeout], [EndCrashed]. It ignores
	// those of other labels, and ends that say nothing of a version, such as
	// EndExpired: one outage of the store would blame every version. One that was
	// released, or was asked to make way, ends the count. After k failures the
	// candidate puts its move off by CoolDown·2^(k−1), and CoolDownMax at most, from
	// the instant at which it could have taken the lock. It does not ask a leader to
	// hand over for its Priority then. A hand-over to it is never put off.
	//
	// Such a candidate observes the lock until it may take it. That costs one more read
	// before the lock is taken, and one batch read of the last 16 tenures where the record
	// itself does not settle the count. A negative [Options.HistoryLimit] leaves the record
	// alone, which knows two tenures.
	CoolDown time.Duration

	// CoolDownMax is the longest that CoolDown puts a move off. If zero, it is two
	// lease durations. It must not be less than CoolDown.
	CoolDownMax time.Duration

	// Health is asked beside the work whether the leader is in good health, each
	// HealthPeriod, never twice at once. After HealthFailures errors in a row the
	// context of the work ends with an error that matches [ErrUnhealthy]. When the work
	// has returned, the tenure ends as [EndFailed], and Run returns that error. The
	// context of a check ends with that of the work, and after a HealthPeriod. One that
	// ignores its context holds up further checks, and Run. If nil, nothing is asked. A
	// panic of Health is not recovered.
	Health func(context.Context, *Lease) error

	// HealthPeriod is the time between two checks; the first one comes after it. If
	// zero, it is the lease duration. HealthFailures is how many in a row end the
	// tenure. If zero, it is 3.
	HealthPeriod   time.Duration
	HealthFailures int
}

// Election returns the election of the given name. The name and the options
// are checked when it is used.
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

// Client returns the client whose election it is.
func (e *Election) Client() *Client { return e.c }

// Name returns the name of the election, which is that of its lock.
func (e *Election) Name() string { return e.name }

// Run campaigns, and runs work at every election won, as [Client.Run] does. When
// work returns, with nil or an error, Run releases the lock and returns what work
// returned. When the lease is lost, Run waits for work to return, drops its error,
// and campaigns again. It does the same when the leader is asked to step down or to
// hand over (see [StepDownError]), but lets the other candidates go first, for a
// moment. If the store gives no answer, Run asks it again for as long as ctx lasts;
// a store that cannot be used at all is an error: see [ErrPermanent].
//
// To end a campaign in order, end ctx. Run then returns nil, whether this client
// led or not, also if work returned the error of its context, or the cause, wrapped
// or not, and if the client was closed meanwhile. Where the client is closed and ctx
// goes on, Run returns an error that matches [ErrClosed], whether this client led or
// not. Run returns any other error of work, and reports a lease that was lost before
// work had returned by an error that matches [ErrLost].
//
// If work returns an error, or panics, while nothing has asked it to stop, the
// tenure ends as [EndFailed], with the error's text as the reason.
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
			continue // paused while it was won
		}
		if err != nil {
			return endOf(ctx, err, ErrClosed)
		}
		lost, err := l.run(ctx, work)
		stepped := errors.Is(lost, ErrSteppedDown)
		ended := lost == nil && errors.Is(context.Cause(l.Context()), ErrClosed) || stepped && e.c.engine.Closed()
		switch {
		case ended && ctx.Err() == nil: // what work has returned may not say so
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

// Leader describes the leader of an election, as far as one process can know.
type Leader struct {
	// Owner and Token are the leader's; both are zero if nobody leads.
	Owner string
	Token uint64
	Host  string
	Label string
	Since time.Time // by the leader's wall clock
	Data  []byte
}

// None reports whether nobody leads.
func (l Leader) None() bool { return l.Token == 0 }

// Leader reads who leads. It returns [ErrNoLeader] if nobody does: the record
// is absent or released, or shows the sign of life that this client has seen in it for a
// lease already. A leader that it sees for the first time counts as alive.
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
// is left. If nobody leads, it yields a Leader for which None is true. It yields
// the latest state: a slow loop skips tenures, which shows in the tokens, and
// delays nobody. An error of the store is yielded once, and observing goes on: the
// leader stays who it was until the store answers. When ctx
// ends, so does the loop, without an error. When the client is closed, the last error is
// [ErrClosed].
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
				continue // something may have been seen besides
			case fresh && (first || !l.same(last)):
				first, last = false, leaderOf(s) // l is the caller's
				if !yield(l, nil) {
					return
				}
				continue // the state may have changed meanwhile
			}
			if err := o.Wait(ctx, s); err != nil {
				if ctx.Err() == nil { // the caller knows that it has ended ctx
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

// standBack lets others take the lock first, after a step-down. A contender on
// another machine polls only now and then, and needs the time to see that the lock
// is free. standBack returns when another owner has the lock, or when the lock is
// reserved for this client; otherwise after twice the time of a poll and a write.
func (c *Client) standBack(ctx context.Context, name string, t protocol.Timing) error {
	o, err := c.engine.Observe(name)
	if err != nil {
		return wrap("stand back", name, err)
	}
	defer o.Close()
	bound, stop := context.WithTimeoutCause(ctx, t.Reservation(), errWaited)
	defer stop()
	for {
		s, fresh, _ := o.Latest() // a store that fails is asked again
		if mine := s.Record.Owner == c.options.Owner; fresh && s.Found &&
			(s.Record.State == driver.Held && !mine || protocol.KeptFor(s.Record, c.options.Owner, c.options.Label)) {
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
