// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuregocron

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/tenurelock/tenure"
)

// ErrNotLeader is returned by [Elector.IsLeader], and by tasks that gocron has started too
// late, when this process does not lead.
var ErrNotLeader = errors.New("this process does not lead")

// Elector is a gocron.Elector: its process runs jobs while it leads. All methods may be
// called concurrently.
type Elector struct {
	election *tenure.Election

	mu      sync.Mutex
	lease   *tenure.Lease  // nil while this process does not lead, or has to stop
	working sync.WaitGroup // grows while lease is not nil, and mu is held
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector for one scheduler, or for all schedulers of a process. It
// leads only while [Elector.Run] runs.
func NewElector(election *tenure.Election) *Elector {
	return &Elector{election: election}
}

// Run campaigns until ctx ends, and returns when the tasks of this elector have returned and
// the lock is released. Shut the scheduler down first, or have gocron skip what is due
// meanwhile. The errors are those of [tenure.Election.Run].
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
		e.lead(lease)
		<-ctx.Done()
		e.lead(nil)
		e.working.Wait()
		return nil
	})
}

func (e *Elector) lead(lease *tenure.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lease = lease
}

// IsLeader returns nil while this process leads, by its own clock, and has not been
// asked to stop. It sends nothing. Otherwise the error matches [ErrNotLeader].
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.leads()
	return err
}

// leads returns the lease of a leader that may begin something. mu is held.
func (e *Elector) leads() (*tenure.Lease, error) {
	if e.lease == nil {
		return nil, ErrNotLeader
	}
	// Check is exact where timers are late.
	if err := e.lease.Check(); err != nil {
		return nil, errors.Join(ErrNotLeader, err)
	}
	return e.lease, nil
}

// enter returns the lease for work that begins. The lock is not released before done.
func (e *Elector) enter() (lease *tenure.Lease, done func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lease, err = e.leads(); err != nil {
		return nil, nil, err
	}
	e.working.Add(1)
	return lease, e.working.Done, nil
}

// Task returns a function for gocron.NewTask: work, with the lease and a context that ends
// with gocron's and with the lease. Work must return then. Heartbeats go on until it has, for
// [tenure.Options.StopTimeout] at most.
//
// The function returns the error of work, joined with that of [tenure.Lease.Check] if the
// lease was lost before work returned. It returns an error that matches [ErrNotLeader], and
// does nothing, if this process does not lead any more.
func (e *Elector) Task(work func(context.Context, *tenure.Lease) error) func(context.Context) error {
	return func(ctx context.Context) error {
		lease, done, err := e.enter()
		if err != nil {
			return err
		}
		defer done()
		ctx, stop := lease.Bind(ctx)
		defer stop()
		return errors.Join(work(ctx, lease), lease.Check())
	}
}
