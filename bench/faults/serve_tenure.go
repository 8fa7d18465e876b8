// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
)

type tenureLibrary struct{ client *tenure.Client }

func openTenure(o order) (library, error) {
	store, err := dynamostore.New(connect(o.Endpoint), o.Table, nil)
	if err != nil {
		return nil, err
	}
	client, err := tenure.New(store, &tenure.Options{
		LeaseDuration: duration(o.LeaseMs), HeartbeatPeriod: duration(o.HeartbeatMs), RefreshPeriod: duration(o.RefreshMs),
	})
	if err != nil {
		return nil, err
	}
	return &tenureLibrary{client}, nil
}

func (l *tenureLibrary) acquire(ctx context.Context, o order) (held, error) {
	acquire := l.client.Acquire
	if o.TryOnly {
		acquire = l.client.TryAcquire
	}
	lease, err := acquire(ctx, o.Name, nil)
	if errors.Is(err, tenure.ErrHeld) {
		return nil, fmt.Errorf("%w: %w", errHeld, err)
	}
	if err != nil {
		return nil, err
	}
	return tenureLease{lease}, nil
}

func (l *tenureLibrary) close() error { return l.client.Close(context.Background()) }

type tenureLease struct{ *tenure.Lease }

func (l tenureLease) check() bool             { return l.Check() == nil }
func (l tenureLease) notice() <-chan struct{} { return l.Context().Done() }
func (l tenureLease) token() (uint64, bool)   { return l.Token(), true }
func (l tenureLease) release() error          { return l.Release(context.Background()) }
