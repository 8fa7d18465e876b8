// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/tenuretest"
)

const (
	name    = "catalog"
	lease   = 15 * time.Second // the default
	refresh = time.Second      // the default
)

// process is a client with a lock.
type process struct {
	*rwlock.Lock
	s      *world
	client *tenuretest.Client
}

func (s *world) process(owner string, edit ...func(*tenure.Options)) *process {
	s.t.Helper()
	client := s.Client(owner, edit...)
	return &process{testutil.Must(rwlock.New(client.Client, name, nil))(s.t), s, client}
}

func (p *process) read(ctx context.Context) *rwlock.Lease {
	p.s.t.Helper()
	return p.s.got(p.AcquireRead(ctx, nil))
}

func (p *process) write(ctx context.Context) *rwlock.Lease {
	p.s.t.Helper()
	return p.s.got(p.AcquireWrite(ctx, nil))
}

func (p *process) release(l *rwlock.Lease) {
	p.s.t.Helper()
	testutil.Want(p.s.t, l.Release(p.s.t.Context()), nil)
}

// busy expects an error that names a holder in the way.
func (p *process) busy(_ *rwlock.Lease, err error) *rwlock.BusyError {
	p.s.t.Helper()
	var busy *rwlock.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, tenure.ErrHeld) || !errors.Is(err, rwlock.ErrBusy) {
		p.s.t.Fatal(err)
	}
	return busy
}
