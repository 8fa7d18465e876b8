// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package keepers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"cirello.io/dynamolock/v2"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
)

// shelf keeps what was acquired, by number.
type shelf[T any] struct {
	mu  sync.Mutex
	all []T
}

// put keeps the i-th.
func (s *shelf[T]) put(i int, v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.all) <= i {
		var none T
		s.all = append(s.all, none)
	}
	s.all[i] = v
}

// sessionKeeper holds locks under one session.
type sessionKeeper struct {
	*http.Transport // its connections: many at once to take the locks, next to none then
	client          *tenure.Client
	session         *tenure.Session
	leases          shelf[*tenure.Lease]

	mu   sync.Mutex
	told Figures
	due  time.Time // the deadline, by the last heartbeat
}

func openSession(ctx context.Context, o *order) (*sessionKeeper, error) {
	db, connections := dynamo.ConnectWide(o.Endpoint)
	k := &sessionKeeper{Transport: connections}
	store, err := dynamostore.New(db, o.Table, nil)
	if err != nil {
		return nil, err
	}
	k.client, err = tenure.New(store, &tenure.Options{
		LeaseDuration: o.Timing.Lease, HeartbeatPeriod: o.Timing.Heartbeat, RefreshPeriod: o.Timing.Refresh, StopTimeout: time.Minute, OnEvent: k.note,
	})
	if err != nil {
		return nil, err
	}
	k.session, err = k.client.OpenSession(ctx, nil)
	return k, err
}

func (k *sessionKeeper) note(e tenure.Event) {
	if e.Kind == tenure.EventRenewed && e.Lock != "" {
		return // not of the session
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch e.Kind {
	case tenure.EventRenewed:
		slack, left := e.Remaining.Seconds(), e.Remaining.Seconds()
		if !k.due.IsZero() {
			slack = k.due.Sub(e.Time).Seconds()
		}
		if k.told.Renewed == 0 || slack < k.told.LeastSlack {
			k.told.LeastSlack = slack
		}
		if k.told.Renewed == 0 || left < k.told.LeastRemaining {
			k.told.LeastRemaining = left
		}
		k.told.Renewed++
		k.due = e.Time.Add(e.Remaining)
	case tenure.EventJeopardy:
		k.told.Jeopardies++
	case tenure.EventLost:
		k.told.LostEvents++
	}
}

func (k *sessionKeeper) tell(f *Figures) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f.Renewed, f.LeastSlack, f.LeastRemaining = k.told.Renewed, k.told.LeastSlack, k.told.LeastRemaining
	f.Jeopardies, f.LostEvents = k.told.Jeopardies, k.told.LostEvents
	k.told = Figures{}
}

func (k *sessionKeeper) acquire(ctx context.Context, i int, name string) error {
	l, err := k.session.Acquire(ctx, name, nil)
	if err != nil {
		return err
	}
	if i < 0 {
		return l.Release(ctx)
	}
	k.leases.put(i, l)
	return nil
}

func (k *sessionKeeper) held(i int) bool { return k.leases.all[i].Check() == nil }

// close does what users do: each one who holds a lock returns from the work when
// it is told to, and releases it.
func (k *sessionKeeper) close(ctx context.Context) error {
	for _, l := range k.leases.all {
		context.AfterFunc(l.Context(), func() { _ = l.Release(context.WithoutCancel(ctx)) }) // a lease that was lost is counted elsewhere
	}
	return errors.Join(k.session.Close(ctx), k.client.Close(ctx))
}

// dynamolockKeeper holds locks each with a heartbeat of its own.
type dynamolockKeeper struct {
	*http.Transport
	client  *dynamolock.Client
	locks   shelf[*dynamolock.Lock]
	refresh time.Duration
}

func openDynamolock(o *order) (*dynamolockKeeper, error) {
	db, connections := dynamo.ConnectWide(o.Endpoint)
	k := &dynamolockKeeper{Transport: connections, refresh: o.Timing.Refresh}
	var err error
	k.client, err = dynamolock.New(db, o.Table, dynamolock.WithLeaseDuration(o.Timing.Lease), dynamolock.WithHeartbeatPeriod(o.Timing.Heartbeat))
	return k, err
}

func (k *dynamolockKeeper) tell(*Figures) {}

func (k *dynamolockKeeper) acquire(ctx context.Context, i int, name string) error {
	l, err := k.client.AcquireLockWithContext(ctx, name, dynamolock.WithRefreshPeriod(k.refresh))
	if err != nil {
		return err
	}
	if i < 0 {
		_, err = k.client.ReleaseLockWithContext(ctx, l)
		return err
	}
	k.locks.put(i, l)
	return nil
}

func (k *dynamolockKeeper) held(i int) bool { return !k.locks.all[i].IsExpired() }

func (k *dynamolockKeeper) close(ctx context.Context) error { return k.client.CloseWithContext(ctx) }
