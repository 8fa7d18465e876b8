// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/bell"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Tenure is this library.
var Tenure = Library{Name: "tenure", Open: onDynamoDB(OpenTenure)}

// OpenTenure opens a client over the given connections.
func OpenTenure(db *dynamodb.Client, r *wire.Request) (Client, error) {
	var of *dynamostore.Options
	switch r.Shared {
	case "":
	case Dynamolock.Name:
		of = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Dynamolock}
	default:
		of = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Java}
	}
	store, err := dynamostore.New(db, r.Table, of)
	if err != nil {
		return nil, err
	}
	return TenureOn(store, r)
}

// TenureOn opens a client on a store, whose locks are under one session if the request says so.
func TenureOn(store driver.Store, r *wire.Request) (c TenureClient, err error) {
	options := &tenure.Options{
		Owner: r.Owner, LeaseDuration: Milliseconds(r.LeaseMs), HeartbeatPeriod: Milliseconds(r.HeartbeatMs),
		RefreshPeriod: Milliseconds(r.RefreshMs), RequestTimeout: Milliseconds(r.CallTimeoutMs),
	}
	if r.Bell {
		udp, err := bell.Listen("127.0.0.1:0", nil) // it is closed with the process
		if err != nil {
			return c, err
		}
		options.Bell = tenure.Bell{Address: udp.Address(), Transport: udp, Heartbeats: r.Tells}
	}
	if r.Session {
		options.StopTimeout = time.Minute // for the releases of many locks
	}
	if c.Client, err = tenure.New(store, options); err == nil && r.Session {
		c.Session, err = c.Client.OpenSession(context.Background(), nil)
	}
	return c, err
}

// TenureClient is a client of Tenure, on whatever store. If Session is set, the locks are
// held under it. Close leaves the store open.
type TenureClient struct {
	*tenure.Client
	Session *tenure.Session
}

// Acquire takes the lock.
func (c TenureClient) Acquire(ctx context.Context, r *wire.Request) (Lock, error) {
	acquire, try := c.Client.Acquire, c.TryAcquire
	if c.Session != nil {
		acquire, try = c.Session.Acquire, c.Session.TryAcquire
	}
	if r.TryOnly {
		acquire = try
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
	if c.Session != nil { // whoever works under a session returns when told to, and releases
		context.AfterFunc(lease.Context(), func() { _ = lease.Release(context.Background()) })
	}
	return TenureLock{lease}, nil
}

// Close closes the session, and the client.
func (c TenureClient) Close() (err error) {
	ctx := context.Background()
	if c.Session != nil {
		err = c.Session.Close(ctx)
	}
	return errors.Join(err, c.Client.Close(ctx))
}

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
