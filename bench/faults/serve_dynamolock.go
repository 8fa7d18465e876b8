// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cirello.io/dynamolock/v2"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// region is one that the SDK knows by name: for others it searches with regular
// expressions, anew at each request.
const region = "us-east-1"

// connect returns a client of DynamoDB as the SDK makes it by default.
func connect(endpoint string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: region,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// dynamolockLibrary has the session monitor, which the interop rig's process has
// not: it is how dynamolock tells a holder.
type dynamolockLibrary struct {
	client  *dynamolock.Client
	refresh time.Duration
	safe    time.Duration
}

func openDynamolock(o order) (library, error) {
	lease := duration(o.LeaseMs)
	client, err := dynamolock.New(connect(o.Endpoint), o.Table, dynamolock.WithLeaseDuration(lease), dynamolock.WithHeartbeatPeriod(duration(o.HeartbeatMs)))
	if err != nil {
		return nil, err
	}
	// Its rule of thumb, the lease less three heartbeats, is one heartbeat here,
	// and fires when nothing is wrong. With more than the lease less two it may
	// not fire at all.
	return &dynamolockLibrary{client, duration(o.RefreshMs), lease - 2*duration(o.HeartbeatMs)}, nil
}

func (l *dynamolockLibrary) acquire(ctx context.Context, o order) (held, error) {
	lock := &dynamolockLock{library: l, told: make(chan struct{})}
	options := []dynamolock.AcquireLockOption{
		dynamolock.WithRefreshPeriod(l.refresh), dynamolock.WithAdditionalTimeToWaitForLock(duration(o.WaitMs)),
		dynamolock.WithSessionMonitor(l.safe, sync.OnceFunc(func() { close(lock.told) })),
	}
	if o.TryOnly {
		options = append(options, dynamolock.FailIfLocked())
	}
	if o.DeleteOnRelease != nil && *o.DeleteOnRelease {
		options = append(options, dynamolock.WithDeleteLockOnRelease())
	}
	got, err := l.client.AcquireLockWithContext(ctx, o.Name, options...)
	if refused := (*dynamolock.LockNotGrantedError)(nil); errors.As(err, &refused) {
		return nil, fmt.Errorf("%w: %w", errHeld, err)
	}
	if err != nil {
		return nil, err
	}
	lock.Lock = got
	return lock, nil
}

func (l *dynamolockLibrary) close() error { return l.client.Close() }

type dynamolockLock struct {
	*dynamolock.Lock
	library *dynamolockLibrary
	told    chan struct{}
}

func (l *dynamolockLock) check() bool             { return !l.IsExpired() }
func (l *dynamolockLock) notice() <-chan struct{} { return l.told }
func (l *dynamolockLock) token() (uint64, bool)   { return 0, false }

func (l *dynamolockLock) release() error {
	released, err := l.library.client.ReleaseLock(l.Lock)
	if err == nil && !released {
		return errNoLock
	}
	return err
}
