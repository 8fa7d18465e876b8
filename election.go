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
	name    string
	options ElectionOptions
}

// ElectionOptions are for one election. Nil means the defaults.
type ElectionOptions struct {
	// Data is laid down in the record by each new leader: its address, say. If
	// nil, the data of the former leader stays.
	Data []byte
}

// Election returns the election of the given name. The name and the options
// are checked when it is used.
func (c *Client) Election(name string, options *ElectionOptions) *Election {
	e := &Election{c: c, name: name}
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

// Run campaigns, and runs work at every election won, as [Client.Run] does.
// When work returns, with nil or an error, Run releases the lock and returns
// that. When the lease is lost, Run waits for work to return, drops its error,
// and campaigns again. A store that gives no answer is asked again for as long
// as ctx lasts; one that cannot be used at all is an error.
//
// When ctx ends, Run returns what work returned; without work under way, an
// error that matches the context's.
func (e *Election) Run(ctx context.Context, work func(context.Context, *Lease) error) error {
	for {
		l, err := e.c.Acquire(ctx, e.name, &AcquireOptions{Data: e.options.Data, StoreTimeout: -1})
		if errors.Is(err, ErrExpired) {
			continue // paused while it was won
		}
		if err != nil {
			return err
		}
		lost, err := l.run(ctx, work)
		if lost == nil {
			return err
		}
		if ctx.Err() != nil || e.c.isClosed() {
			return errors.Join(wrap("lead", e.name, lost), err)
		}
	}
}

// Leader is who leads an election, as far as one process can know.
type Leader struct {
	// Owner and Token are the leader's; both are zero if nobody leads.
	Owner string
	Token uint64
	Host  string
	Label string
	Since time.Time // by the leader's wall clock
	Data  []byte
}

// None says that nobody leads.
func (l Leader) None() bool { return l.Token == 0 }

// Leader reads who leads. It returns [ErrNoLeader] if nobody does: the record
// is absent or released, or this client has seen no sign of life in it for a
// lease. A leader that it sees for the first time counts as alive.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := checkName(e.name); err != nil {
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
