// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"time"
)

// Election is a lock that candidates campaign for again and again; its holder
// is the leader. All methods may be called concurrently. It holds nothing that
// needs closing.
type Election struct {
	c       *Client
	under   *parent // nil: the leader's lock is its own lease
	name    string
	options ElectionOptions
}

// ElectionOptions are for one election. Nil means the defaults.
type ElectionOptions struct {
	// Data is written into the record by each new leader: its address, say. If nil,
	// the data of the former leader stays.
	Data []byte

	// Capacity is as in [AcquireOptions].
	Capacity int

	// Priority makes this candidate preferred to those with a lower one: it asks a
	// leader with a lower priority to hand over to it, as [Client.Transfer] does. A
	// newly seen leader is left alone for one lease duration first. If all are
	// equal, such as 0, nobody asks.
	Priority int

	// PriorityPause is the least time between two such requests by one client
	// for one election, so that leadership does not go to and fro when a
	// preferred candidate is in bad health. If zero, it is ten lease durations.
	PriorityPause time.Duration
}

// Election returns the election of the given name. The name and the options
// are checked when it is used.
func (c *Client) Election(name string, options *ElectionOptions) *Election {
	return c.election(name, options, nil)
}

func (c *Client) election(name string, options *ElectionOptions, under *parent) *Election {
	e := &Election{c: c, name: name, under: under}
	if options != nil {
		e.options = *options
		if e.options.Data != nil {
			e.options.Data = append([]byte{}, e.options.Data...)
		}
	}
	return e
}

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
// led or not. It also returns nil if work returned the error of its context, or the
// cause, wrapped or not, and if the client was closed meanwhile. Run returns any
// other error of work, and reports a lease that was lost before work had returned
// by an error that matches [ErrLost].
func (e *Election) Run(ctx context.Context, work func(context.Context, *Lease) error) error {
	if err := checkWork("lead", e.name, work == nil); err != nil {
		return err
	}
	for {
		l, err := e.c.acquire(ctx, "acquire", e.name, &AcquireOptions{
			Data: e.options.Data, StoreTimeout: -1, History: true, WatchRequests: true, Capacity: e.options.Capacity,
			Priority: e.options.Priority, PriorityPause: e.options.PriorityPause,
		}, e.under, false)
		if errors.Is(err, ErrExpired) && !errors.Is(err, ErrSessionClosed) {
			continue // paused while it was won
		}
		if err != nil {
			return endOf(ctx, err, ErrClosed)
		}
		lost, err := l.run(ctx, work)
		stepped := errors.Is(lost, ErrSteppedDown)
		switch {
		case lost == nil, stepped && ctx.Err() != nil: // released
			return endOf(ctx, err, ErrClosed, ErrSteppedDown)
		case ctx.Err() != nil, e.c.isClosed(), errors.Is(lost, ErrReplaced):
			return lostWith(&Error{"lead", e.name, lost}, endOf(ctx, err))
		case stepped:
			if err := e.c.StandBack(ctx, e.name); err != nil {
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
// is absent or released, or this client has seen no sign of life in it for a
// lease. A leader that it sees for the first time counts as alive.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := checkKey(e.name); err != nil {
		return Leader{}, wrap("leader", e.name, err)
	}
	s, err := e.c.look(ctx, e.name)
	if err != nil {
		return Leader{}, wrap("leader", e.name, err)
	}
	if l := s.leader(); !l.None() {
		return l, nil
	}
	return Leader{}, wrap("leader", e.name, ErrNoLeader)
}

func (s sighting) leader() Leader {
	if !s.alive {
		return Leader{}
	}
	r := s.rec
	return Leader{Owner: r.Owner, Token: r.Token, Host: r.Host, Label: r.Label, Since: r.Since, Data: r.Data}
}
