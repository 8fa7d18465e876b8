// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"errors"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Tenure is this library.
var Tenure = Library{Name: "tenure", Open: openTenure}

type tenureClient struct{ *tenure.Client }

func openTenure(r *wire.Request) (Client, error) {
	var options *dynamostore.Options
	switch r.Shared {
	case "":
	case Dynamolock.Name:
		options = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Dynamolock}
	default:
		options = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Java}
	}
	store, err := dynamostore.New(dynamo.ConnectIn(r.Region, r.Endpoint, nil), r.Table, options)
	if err != nil {
		return nil, err
	}
	client, err := tenure.New(store, &tenure.Options{
		Owner: r.Owner, LeaseDuration: Milliseconds(r.LeaseMs), HeartbeatPeriod: Milliseconds(r.HeartbeatMs), RefreshPeriod: Milliseconds(r.RefreshMs),
		RequestTimeout: Milliseconds(r.CallTimeoutMs),
	})
	if err != nil {
		return nil, err
	}
	return tenureClient{client}, nil
}

func (c tenureClient) Acquire(ctx context.Context, r *wire.Request) (Lock, error) {
	acquire := c.Client.Acquire
	if r.TryOnly {
		acquire = c.TryAcquire
	}
	var options tenure.AcquireOptions
	if r.Data != nil {
		options.Data = *r.Data
	}
	lease, err := acquire(ctx, r.Name, &options)
	if errors.Is(err, tenure.ErrHeld) {
		return nil, Refuse(wire.Held, err)
	}
	if err != nil {
		return nil, err
	}
	return tenureLease{lease}, nil
}

func (c tenureClient) Close() error { return c.Client.Close(context.Background()) }

type tenureLease struct{ *tenure.Lease }

func (l tenureLease) Check() bool                   { return l.Lease.Check() == nil }
func (l tenureLease) Notice() <-chan struct{}       { return l.Context().Done() }
func (l tenureLease) Token() (uint64, bool)         { return l.Lease.Token(), true }
func (l tenureLease) Release(*wire.Request) error   { return l.Lease.Release(context.Background()) }
func (l tenureLease) Heartbeat(*wire.Request) error { return l.Renew(context.Background()) }
