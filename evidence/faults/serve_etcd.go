// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// etcdLibrary is etcd's concurrency package.
var etcdLibrary = serve.Library{Name: "etcd", Module: "go.etcd.io/etcd/client/v3", Open: openEtcd}

// etcdClient keeps one session for all its locks, as is usual.
type etcdClient struct {
	client  *clientv3.Client
	ttl     int
	mu      sync.Mutex
	session *concurrency.Session
}

func openEtcd(r *wire.Request) (serve.Client, error) {
	config := clientv3.Config{Endpoints: []string{r.Endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	l := &etcdClient{client: client, ttl: int(serve.Milliseconds(r.LeaseMs) / time.Second)}
	_, err = l.opened()
	return l, err
}

// opened returns the session, or a new one if that has ended.
func (l *etcdClient) opened() (*concurrency.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil && !closed(l.session.Done()) {
		return l.session, nil
	}
	var err error
	l.session, err = concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl))
	return l.session, err
}

// Acquire calls again after an error, as a program must: the client gives up at
// the first.
func (l *etcdClient) Acquire(ctx context.Context, r *wire.Request) (serve.Lock, error) {
	for {
		session, err := l.opened()
		if err != nil {
			return nil, err
		}
		mutex := concurrency.NewMutex(session, r.Name)
		if r.TryOnly {
			err = mutex.TryLock(ctx)
		} else {
			err = mutex.Lock(ctx)
		}
		switch {
		case err == nil:
			return &etcdMutex{mutex, session}, nil
		case errors.Is(err, concurrency.ErrLocked):
			return nil, serve.Refuse(wire.Held, err)
		case l.client.Ctx().Err() != nil || ctx.Err() != nil:
			return nil, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (l *etcdClient) Close() error {
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	return errors.Join(session.Close(), l.client.Close())
}

type etcdMutex struct {
	*concurrency.Mutex
	session *concurrency.Session
}

func (m *etcdMutex) Check() bool             { return !closed(m.session.Done()) }
func (m *etcdMutex) Notice() <-chan struct{} { return m.session.Done() }

// Token is the revision in which the lock's key was made, which a transaction
// can compare: see Mutex.IsOwner.
func (m *etcdMutex) Token() (uint64, bool) {
	answer, err := m.session.Client().Get(context.Background(), m.Key())
	if err != nil || len(answer.Kvs) == 0 {
		return 0, false
	}
	return uint64(answer.Kvs[0].CreateRevision), true
}

func (m *etcdMutex) Release(*wire.Request) error { return m.Unlock(context.Background()) }

func closed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
