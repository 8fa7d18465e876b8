// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore_test

import (
	"context"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name    = "x"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
)

// process is a client with a semaphore.
type process struct {
	*semaphore.Semaphore
	s      *world
	client *tenuretest.Client
}

func (s *world) process(owner string, slots int, edit ...func(*tenure.Options)) *process {
	s.t.Helper()
	client := s.Client(owner, edit...)
	if s.blind {
		client.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHint}, Fault: faultstore.LoseRequest()})
	}
	return &process{testutil.Must(semaphore.New(client.Client, name, slots, nil))(s.t), s, client}
}

// hold takes a slot. It is noted until release.
func (p *process) hold(ctx context.Context) *semaphore.Lease {
	p.s.t.Helper()
	l := testutil.Must(p.Acquire(ctx, nil))(p.s.t)
	p.enter(l)
	return l
}

// holdAll takes so many slots, and returns their leases by slot.
func (p *process) holdAll(slots int) []*semaphore.Lease {
	all := make([]*semaphore.Lease, slots)
	for range slots {
		l := p.hold(p.s.t.Context())
		all[l.Slot()] = l
	}
	return all
}

func (p *process) release(l *semaphore.Lease) {
	p.s.t.Helper()
	p.leave(l)
	testutil.Want(p.s.t, l.Release(p.s.t.Context()), nil)
}

// work takes slots again and again until ctx ends, and works for a while under each.
func (p *process) work(ctx context.Context, took time.Duration) {
	for ctx.Err() == nil {
		err := p.Run(ctx, nil, func(ctx context.Context, l *semaphore.Lease) error {
			p.enter(l)
			defer p.leave(l)
			select {
			case <-time.After(took):
			case <-ctx.Done():
			}
			return l.Check()
		})
		if err != nil && ctx.Err() == nil {
			p.s.t.Error(err)
			return
		}
	}
}
