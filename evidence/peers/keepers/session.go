// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package keepers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// session is a client of Tenure whose locks are under one session.
type session struct {
	client *tenure.Client
	opened *tenure.Session

	mu   sync.Mutex
	told Figures
	due  time.Time // the deadline, by the last heartbeat
}

func openSession(ctx context.Context, db *dynamodb.Client, o *order) (*session, error) {
	store, err := dynamostore.New(db, o.Table, nil)
	if err != nil {
		return nil, err
	}
	s := &session{}
	options := o.Timing.Options()
	options.StopTimeout, options.OnEvent = time.Minute, s.note
	if s.client, err = tenure.New(store, options); err != nil {
		return nil, err
	}
	s.opened, err = s.client.OpenSession(ctx, nil)
	return s, err
}

func (s *session) Acquire(ctx context.Context, r *wire.Request) (serve.Lock, error) {
	l, err := s.opened.Acquire(ctx, r.Name, nil)
	if err != nil {
		return nil, err
	}
	return serve.TenureLock{Lease: l}, nil
}

func (s *session) Close() error {
	ctx := context.Background()
	return errors.Join(s.opened.Close(ctx), s.client.Close(ctx))
}

// note is told of all that the client says of its own.
func (s *session) note(e tenure.Event) {
	if e.Kind == tenure.EventRenewed && e.Lock != "" {
		return // not of the session
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case tenure.EventRenewed:
		slack, left := e.Remaining.Seconds(), e.Remaining.Seconds()
		if !s.due.IsZero() {
			slack = s.due.Sub(e.Time).Seconds()
		}
		if s.told.Renewed == 0 || slack < s.told.LeastSlack {
			s.told.LeastSlack = slack
		}
		if s.told.Renewed == 0 || left < s.told.LeastRemaining {
			s.told.LeastRemaining = left
		}
		s.told.Renewed++
		s.due = e.Time.Add(e.Remaining)
	case tenure.EventJeopardy:
		s.told.Jeopardies++
	case tenure.EventLost:
		s.told.LostEvents++
	}
}

// tell fills in what the client itself told of the last hold.
func (s *session) tell(f *Figures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Renewed, f.LeastSlack, f.LeastRemaining = s.told.Renewed, s.told.LeastSlack, s.told.LeastRemaining
	f.Jeopardies, f.LostEvents = s.told.Jeopardies, s.told.LostEvents
	s.told = Figures{}
}
