// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Tenure is this library.
var Tenure = Library{Name: "tenure", Open: onDynamoDB(OpenTenure)}

type tenureClient struct{ *tenure.Client }

// OpenTenure opens a client over the given connections.
func OpenTenure(db *dynamodb.Client, r *wire.Request) (Client, error) {
	var options *dynamostore.Options
	switch r.Shared {
	case "":
	case Dynamolock.Name:
		options = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Dynamolock}
	default:
		options = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Java}
	}
	store, err := dynamostore.New(db, r.Table, options)
	if err != nil {
		return nil, err
	}
	return TenureOn(store, r)
}

// TenureOn opens a client over a store. The store stays open when the client is closed.
func TenureOn(store driver.Store, r *wire.Request) (Client, error) {
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
	return TenureLock{lease}, nil
}

func (c tenureClient) Close() error { return c.Client.Close(context.Background()) }

// TenureLock is a lock of Tenure, under a session or not.
type TenureLock struct{ *tenure.Lease }

// Check asks the lease.
func (l TenureLock) Check() bool { return l.Lease.Check() == nil }

// Notice is the end of the lease's context.
func (l TenureLock) Notice() <-chan struct{} { return l.Context().Done() }

// Token is the lease's.
func (l TenureLock) Token() (uint64, bool) { return l.Lease.Token(), true }

// Release releases the lease.
func (l TenureLock) Release(*wire.Request) error { return l.Lease.Release(context.Background()) }

// Heartbeat sends one.
func (l TenureLock) Heartbeat(*wire.Request) error { return l.Renew(context.Background()) }
