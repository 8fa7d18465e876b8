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
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

var (
	errNotOpen     = errors.New("not open")
	errAlreadyOpen = errors.New("already open")
	errNoHandle    = errors.New("no handle of this name")
	errReleased    = errors.New("ReleaseLock said false")
	errUnsupported = errors.New("dynamolock has no such thing")
)

// createTableBound bounds the wait for a table of the client's own helper.
const createTableBound = 30 * time.Second

// commands runs requests, each a call or two of the lock client. It may be used
// concurrently.
type commands struct {
	mu      sync.Mutex
	client  *dynamolock.Client
	handles map[string]*dynamolock.Lock
}

func (cs *commands) run(req *wire.Request) (*wire.Answer, error) {
	switch req.Command {
	case wire.Open:
		return &wire.Answer{}, cs.open(req)
	case wire.Acquire:
		return cs.acquire(req)
	case wire.Release:
		return &wire.Answer{}, cs.release(req)
	case wire.Get:
		return cs.get(req)
	case wire.Heartbeat:
		return &wire.Answer{}, cs.heartbeat(req)
	case wire.Holds:
		lock, err := cs.handle(req.Name)
		return &wire.Answer{Holds: aws.Bool(!lock.IsExpired())}, err
	case wire.Work:
		c, err := cs.opened()
		if err != nil {
			return nil, err
		}
		return (&work{client: c, req: req}).run()
	case wire.Ping:
		return &wire.Answer{}, nil
	case wire.Close:
		return &wire.Answer{}, cs.close()
	default:
		return nil, fmt.Errorf("command %q: %w", req.Command, errUnsupported)
	}
}

func (cs *commands) open(req *wire.Request) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.client != nil {
		return errAlreadyOpen
	}
	region := req.Region
	if region == "" {
		region = "local"
	}
	db := dynamodb.New(dynamodb.Options{
		Region:       region,
		BaseEndpoint: aws.String(req.Endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	var opts []dynamolock.ClientOption
	table := []dynamolock.CreateTableOption{}
	if req.Owner != "" {
		opts = append(opts, dynamolock.WithOwnerName(req.Owner))
	}
	if req.LeaseMs != nil {
		opts = append(opts, dynamolock.WithLeaseDuration(milliseconds(*req.LeaseMs)))
	}
	switch {
	case req.HeartbeatMs == nil:
	case *req.HeartbeatMs == 0:
		opts = append(opts, dynamolock.DisableHeartbeat())
	default:
		opts = append(opts, dynamolock.WithHeartbeatPeriod(milliseconds(*req.HeartbeatMs)))
	}
	if req.PartitionKey != "" {
		opts = append(opts, dynamolock.WithPartitionKeyName(req.PartitionKey))
		table = append(table, dynamolock.WithCustomPartitionKeyName(req.PartitionKey))
	}
	if req.SortKey != "" {
		opts = append(opts, dynamolock.WithSortKey(req.SortKey, req.SortValue))
		table = append(table, dynamolock.WithSortKeyName(req.SortKey))
	}
	c, err := dynamolock.New(db, req.Table, opts...)
	if err != nil {
		return err
	}
	if req.CreateTable {
		if _, err := c.CreateTable(req.Table, table...); err != nil {
			return err
		}
		in := &dynamodb.DescribeTableInput{TableName: aws.String(req.Table)}
		if err := dynamodb.NewTableExistsWaiter(db).Wait(context.Background(), in, createTableBound); err != nil {
			return err
		}
	}
	cs.client = c
	cs.handles = make(map[string]*dynamolock.Lock)
	return nil
}

// close takes the client out before it closes it: Close waits for an acquire
// that is under way, and meanwhile the other commands must be answered.
func (cs *commands) close() error {
	cs.mu.Lock()
	c := cs.client
	cs.client = nil
	cs.mu.Unlock()
	if c == nil {
		return errNotOpen
	}
	return c.Close()
}

func (cs *commands) opened() (*dynamolock.Client, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.client == nil {
		return nil, errNotOpen
	}
	return cs.client, nil
}

func (cs *commands) handle(name string) (*dynamolock.Lock, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	lock := cs.handles[name]
	if lock == nil {
		return nil, errNoHandle
	}
	return lock, nil
}

// acquireOptions are the options of a request, of acquire or of work.
func acquireOptions(req *wire.Request) ([]dynamolock.AcquireLockOption, error) {
	if req.ConsistentReleased || req.UpdateExisting || req.OnlyIfExists {
		return nil, fmt.Errorf("consistentReleased, updateExisting, onlyIfExists: %w", errUnsupported)
	}
	var opts []dynamolock.AcquireLockOption
	if req.Data != nil {
		opts = append(opts, dynamolock.WithData(*req.Data))
	}
	if req.WaitMs != nil {
		opts = append(opts, dynamolock.WithAdditionalTimeToWaitForLock(milliseconds(*req.WaitMs)))
	}
	if req.RefreshMs != nil {
		opts = append(opts, dynamolock.WithRefreshPeriod(milliseconds(*req.RefreshMs)))
	}
	if req.TryOnly {
		opts = append(opts, dynamolock.FailIfLocked())
	}
	if req.ReplaceData != nil && *req.ReplaceData {
		opts = append(opts, dynamolock.ReplaceData())
	}
	if req.DeleteOnRelease != nil && *req.DeleteOnRelease {
		opts = append(opts, dynamolock.WithDeleteLockOnRelease())
	}
	if len(req.Attributes) > 0 {
		attributes := make(map[string]types.AttributeValue, len(req.Attributes))
		for name, value := range req.Attributes {
			attributes[name] = &types.AttributeValueMemberS{Value: value}
		}
		opts = append(opts, dynamolock.WithAdditionalAttributes(attributes))
	}
	return opts, nil
}

func (cs *commands) acquire(req *wire.Request) (*wire.Answer, error) {
	c, err := cs.opened()
	if err != nil {
		return nil, err
	}
	opts, err := acquireOptions(req)
	if err != nil {
		return nil, err
	}
	lock, err := c.AcquireLock(req.Name, opts...)
	if err != nil {
		return nil, err
	}
	cs.mu.Lock()
	cs.handles[req.Name] = lock
	cs.mu.Unlock()
	return &wire.Answer{Lock: describe(req.Name, lock)}, nil
}

func (cs *commands) release(req *wire.Request) error {
	lock, err := cs.handle(req.Name)
	if err != nil {
		return err
	}
	c, err := cs.opened()
	if err != nil {
		return err
	}
	var opts []dynamolock.ReleaseLockOption
	if req.Delete != nil {
		opts = append(opts, dynamolock.WithDeleteLock(*req.Delete))
	}
	if req.Data != nil {
		opts = append(opts, dynamolock.WithDataAfterRelease(*req.Data))
	}
	ok, err := c.ReleaseLock(lock, opts...)
	if err == nil && !ok {
		return errReleased
	}
	return err
}

func (cs *commands) get(req *wire.Request) (*wire.Answer, error) {
	c, err := cs.opened()
	if err != nil {
		return nil, err
	}
	lock, err := c.Get(req.Name)
	if err != nil {
		return nil, err
	}
	a := &wire.Answer{Lock: describe(req.Name, lock)}
	// Of a missing row the client returns a lock with nothing in it.
	a.Present = aws.Bool(lock.OwnerName() != "")
	return a, nil
}

func (cs *commands) heartbeat(req *wire.Request) error {
	lock, err := cs.handle(req.Name)
	if err != nil {
		return err
	}
	c, err := cs.opened()
	if err != nil {
		return err
	}
	var opts []dynamolock.SendHeartbeatOption
	if req.Data != nil {
		opts = append(opts, dynamolock.ReplaceHeartbeatData(*req.Data))
	}
	return c.SendHeartbeat(lock, opts...)
}

func describe(name string, lock *dynamolock.Lock) wire.Lock {
	d := wire.Lock{
		Name:       name,
		Owner:      lock.OwnerName(),
		Expired:    aws.Bool(lock.IsExpired()),
		Attributes: make(map[string]string),
		Others:     make(map[string]string),
	}
	if data := lock.Data(); data != nil {
		d.Data = &data
	}
	for name, value := range lock.AdditionalAttributes() {
		switch value := value.(type) {
		case *types.AttributeValueMemberS:
			d.Attributes[name] = value.Value
		case *types.AttributeValueMemberN:
			d.Others[name] = "N " + value.Value
		default:
			d.Others[name] = fmt.Sprintf("%T", value)
		}
	}
	return d
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
