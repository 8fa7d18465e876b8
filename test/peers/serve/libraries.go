// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"cirello.io/dynamolock/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	tenureclient "github.com/tenurelock/tenure/clients/go"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/notify"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// Tenure is this library.
var Tenure = Library{Name: "tenure", Open: onDynamoDB(openTenure)}

func openTenure(db *dynamodb.Client, r *wire.Request) Client {
	var of *dynamostore.Options
	switch r.Shared {
	case "":
	case Dynamolock.Name:
		of = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Dynamolock}
	default:
		of = &dynamostore.Options{SharedTable: true, Dialect: dynamostore.Java}
	}
	return TenureOn(must.Have(dynamostore.New(db, r.Table, of)), r)
}

// TenureOn opens a client on a store, whose locks are under one session if the request says so.
func TenureOn(store driver.Store, r *wire.Request) Client {
	options := &tenure.Options{
		Owner: r.Owner, LeaseDuration: Milliseconds(r.LeaseMs), HeartbeatPeriod: Milliseconds(r.HeartbeatMs),
		RefreshPeriod: Milliseconds(r.RefreshMs), RequestTimeout: Milliseconds(r.CallTimeoutMs),
	}
	if r.Notify {
		options.Notify = must.Have(notify.Listen("127.0.0.1:0", nil)) // it is closed with the process
	}
	if r.Session {
		options.StopTimeout = time.Minute // for the releases of many locks
	}
	c := tenureClient{Client: must.Have(tenure.New(store, options))}
	if r.Session {
		c.session = must.Have(c.OpenSession(context.Background(), nil))
	}
	return c
}

type tenureClient struct {
	*tenure.Client
	session *tenure.Session // that all locks are held under; may be nil
}

func (c tenureClient) Acquire(ctx context.Context, r *wire.Request) Lock {
	acquire, try := c.Client.Acquire, c.TryAcquire
	if c.session != nil {
		acquire, try = c.session.Acquire, c.session.TryAcquire
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
		err = Refuse(wire.Held, err)
	}
	must.Do(err)
	if c.session != nil { // work under a session returns and releases when its context ends
		context.AfterFunc(lease.Context(), func() { _ = lease.Release(context.Background()) })
	}
	return tenureLock{lease}
}

func (c tenureClient) Close() (err error) {
	ctx := context.Background()
	if c.session != nil {
		err = c.session.Close(ctx)
	}
	return errors.Join(err, c.Client.Close(ctx))
}

type tenureLock struct{ *tenure.Lease }

func (l tenureLock) Check() bool                   { return l.Lease.Check() == nil }
func (l tenureLock) Notice() <-chan struct{}       { return l.Context().Done() }
func (l tenureLock) Token() (uint64, bool)         { return l.Lease.Token(), true }
func (l tenureLock) Release(*wire.Request) error   { return l.Lease.Release(context.Background()) }
func (l tenureLock) Heartbeat(*wire.Request) error { return l.Renew(context.Background()) }

// Service is the client of the lock service.
var Service = Library{Name: "go", Open: openService}

func openService(r *wire.Request) Client {
	return &serviceClient{
		client: must.Have(tenureclient.New(tenureclient.Options{
			Servers: strings.Split(r.Endpoint, ","), Token: r.Secret, Owner: r.Owner,
		})),
		under: r.Session,
	}
}

// serviceClient is used by one goroutine at a time.
type serviceClient struct {
	client  *tenureclient.Client
	under   bool // locks are held under a session
	session *tenureclient.Session
}

func (c *serviceClient) Acquire(ctx context.Context, r *wire.Request) Lock {
	var by serviceLocks = c.client
	if c.under {
		if c.session == nil || c.session.Context().Err() != nil {
			session, err := c.client.OpenSession(ctx)
			must.Do(serviceRefusal(err))
			c.session = session
		}
		by = c.session
	}
	var lease serviceLease
	var err error
	options := &tenureclient.AcquireOptions{Wait: Milliseconds(r.WaitMs), History: true}
	switch r.Mode {
	case wire.Read:
		lease, err = by.RWLock(r.Name).AcquireRead(ctx, options)
	case wire.Write:
		lease, err = by.RWLock(r.Name).AcquireWrite(ctx, options)
	case wire.Slot:
		lease, err = by.Semaphore(r.Name, r.Slots).Acquire(ctx, options)
	default:
		lease, err = by.Acquire(ctx, r.Name, options)
	}
	must.Do(serviceRefusal(err))
	return serviceLock{lease}
}

// serviceLocks is a client, or its session.
type serviceLocks interface {
	Acquire(ctx context.Context, name string, o *tenureclient.AcquireOptions) (*tenureclient.Lease, error)
	RWLock(name string) *tenureclient.RWLock
	Semaphore(name string, slots int) *tenureclient.Semaphore
}

// serviceRefusal returns the kind of an error. What no server answers in time is no accident.
func serviceRefusal(err error) error {
	for of, kind := range map[error]string{
		tenureclient.ErrHeld: wire.Held, tenureclient.ErrSessionClosed: wire.Lost, tenureclient.ErrLost: wire.Lost,
		tenureclient.ErrUnavailable: wire.Timeout, tenureclient.ErrUncertain: wire.Timeout,
		tenureclient.ErrStopTimeout: wire.Lost, // the process was stopped
	} {
		if errors.Is(err, of) {
			return Refuse(kind, err)
		}
	}
	return err
}

// Close ends the acquires that wait. A lock ends with its work.
func (c *serviceClient) Close() error { return nil }

// serviceLease is what the leases of locks, slots, readers and writers have in common.
type serviceLease interface {
	Name() string
	Token() uint64
	Check() error
	Context() context.Context
	Release(ctx context.Context) error
}

type serviceLock struct{ serviceLease }

func (l serviceLock) Check() bool             { return l.serviceLease.Check() == nil }
func (l serviceLock) Notice() <-chan struct{} { return l.Context().Done() }
func (l serviceLock) Stopping() bool          { return l.Context().Err() != nil }
func (l serviceLock) Token() (uint64, bool)   { return l.serviceLease.Token(), true }
func (l serviceLock) Release(*wire.Request) error {
	return serviceRefusal(l.serviceLease.Release(context.Background()))
}

// Dynamolock is cirello.io/dynamolock/v2.
var Dynamolock = Library{Name: "dynamolock", Module: "cirello.io/dynamolock/v2", Open: onDynamoDB(openDynamolock)}

var errReleased = errors.New("ReleaseLock said false")

type dynamolockClient struct {
	*dynamolock.Client
	// safe is for how long the session monitor lets a lock be without a heartbeat;
	// zero without a monitor.
	safe time.Duration
}

func openDynamolock(db *dynamodb.Client, r *wire.Request) Client {
	var opts []dynamolock.ClientOption
	if r.Owner != "" {
		opts = append(opts, dynamolock.WithOwnerName(r.Owner))
	}
	if r.LeaseMs != nil {
		opts = append(opts, dynamolock.WithLeaseDuration(Milliseconds(r.LeaseMs)))
	}
	switch {
	case r.HeartbeatMs == nil:
	case *r.HeartbeatMs == 0:
		opts = append(opts, dynamolock.DisableHeartbeat())
	default:
		opts = append(opts, dynamolock.WithHeartbeatPeriod(Milliseconds(r.HeartbeatMs)))
	}
	c := &dynamolockClient{Client: must.Have(dynamolock.New(db, r.Table, opts...))}
	if r.Notice {
		// The rule of thumb, the lease less three heartbeats, is one heartbeat where
		// this is asked for, and fires when nothing is wrong. With more than the lease
		// less two it may not fire at all.
		c.safe = Milliseconds(r.LeaseMs) - 2*Milliseconds(r.HeartbeatMs)
	}
	return c
}

func (c *dynamolockClient) Acquire(ctx context.Context, r *wire.Request) Lock {
	opts := acquireOptions(r)
	lock := &dynamolockLock{client: c.Client, name: r.Name}
	if c.safe > 0 {
		lock.told = make(chan struct{})
		opts = append(opts, dynamolock.WithSessionMonitor(c.safe, sync.OnceFunc(func() { close(lock.told) })))
	}
	var err error
	lock.Lock, err = c.AcquireLockWithContext(ctx, r.Name, opts...)
	must.Do(dynamolockRefusal(err, wire.Held))
	return lock
}

// acquireOptions are the options of a request, of acquire or of work.
func acquireOptions(r *wire.Request) []dynamolock.AcquireLockOption {
	if r.UpdateExisting {
		must.Do(Refuse(wire.Unsupported, errors.New("the library has no updateExisting")))
	}
	var opts []dynamolock.AcquireLockOption
	if r.Data != nil {
		opts = append(opts, dynamolock.WithData(*r.Data))
	}
	if r.WaitMs != nil {
		opts = append(opts, dynamolock.WithAdditionalTimeToWaitForLock(Milliseconds(r.WaitMs)))
	}
	if r.RefreshMs != nil {
		opts = append(opts, dynamolock.WithRefreshPeriod(Milliseconds(r.RefreshMs)))
	}
	if r.TryOnly {
		opts = append(opts, dynamolock.FailIfLocked())
	}
	if r.ReplaceData != nil && *r.ReplaceData {
		opts = append(opts, dynamolock.ReplaceData())
	}
	if r.DeleteOnRelease != nil && *r.DeleteOnRelease {
		opts = append(opts, dynamolock.WithDeleteLockOnRelease())
	}
	if len(r.Attributes) > 0 {
		attributes := make(map[string]types.AttributeValue, len(r.Attributes))
		for name, value := range r.Attributes {
			attributes[name] = &types.AttributeValueMemberS{Value: value}
		}
		opts = append(opts, dynamolock.WithAdditionalAttributes(attributes))
	}
	return opts
}

// dynamolockRefusal returns the kind of an error; notGranted is the kind for a lock
// that another process has.
func dynamolockRefusal(err error, notGranted string) error {
	var (
		timeout *dynamolock.TimeoutError
		granted *dynamolock.LockNotGrantedError
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errReleased):
		return Refuse(wire.Lost, err)
	case errors.As(err, &timeout):
		return Refuse(wire.Timeout, err)
	case errors.As(err, &granted):
		return Refuse(notGranted, err)
	}
	return err
}

func (c *dynamolockClient) Get(r *wire.Request) (wire.Lock, error) {
	lock, err := c.Client.Get(r.Name)
	if err != nil {
		return wire.Lock{}, dynamolockRefusal(err, wire.Lost)
	}
	d := (&dynamolockLock{Lock: lock, name: r.Name}).Describe()
	// Of a missing row the client returns a lock with nothing in it.
	d.Present = aws.Bool(lock.OwnerName() != "")
	return d, nil
}

type dynamolockLock struct {
	*dynamolock.Lock
	client *dynamolock.Client
	name   string
	told   chan struct{} // nil without a session monitor
}

func (l *dynamolockLock) Check() bool             { return !l.IsExpired() }
func (l *dynamolockLock) Notice() <-chan struct{} { return l.told }
func (l *dynamolockLock) Token() (uint64, bool)   { return 0, false }

func (l *dynamolockLock) Release(r *wire.Request) error {
	var opts []dynamolock.ReleaseLockOption
	if r.Delete != nil {
		opts = append(opts, dynamolock.WithDeleteLock(*r.Delete))
	}
	if r.Data != nil {
		opts = append(opts, dynamolock.WithDataAfterRelease(*r.Data))
	}
	released, err := l.client.ReleaseLock(l.Lock, opts...)
	if err == nil && !released {
		err = errReleased
	}
	return dynamolockRefusal(err, wire.Lost)
}

func (l *dynamolockLock) Heartbeat(r *wire.Request) error {
	var opts []dynamolock.SendHeartbeatOption
	if r.Data != nil {
		opts = append(opts, dynamolock.ReplaceHeartbeatData(*r.Data))
	}
	return dynamolockRefusal(l.client.SendHeartbeat(l.Lock, opts...), wire.Lost)
}

func (l *dynamolockLock) Describe() wire.Lock {
	d := wire.Lock{Name: l.name, Owner: l.OwnerName(), Attributes: map[string]string{}}
	if data := l.Data(); data != nil {
		d.Data = &data
	}
	for name, value := range l.AdditionalAttributes() {
		if text, ok := value.(*types.AttributeValueMemberS); ok {
			d.Attributes[name] = text.Value
		}
	}
	return d
}
