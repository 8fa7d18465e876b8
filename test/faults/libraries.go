// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/wire"
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

func openEtcd(r *wire.Request) serve.Client {
	config := clientv3.Config{Endpoints: []string{r.Endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	l := &etcdClient{client: must.Have(clientv3.New(config)), ttl: int(serve.Milliseconds(r.LeaseMs) / time.Second)}
	l.opened()
	return l
}

// opened returns the session, or a new one if that has ended.
func (l *etcdClient) opened() *concurrency.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil || l.session.Ctx().Err() != nil {
		l.session = must.Have(concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl)))
	}
	return l.session
}

// Acquire calls again after an error, as a program must: the client gives up at
// the first.
func (l *etcdClient) Acquire(ctx context.Context, r *wire.Request) serve.Lock {
	for ; ; wait.Rest(ctx, 10*time.Millisecond) {
		var err error
		session := l.opened()
		mutex := concurrency.NewMutex(session, r.Name)
		if r.TryOnly {
			err = mutex.TryLock(ctx)
		} else {
			err = mutex.Lock(ctx)
		}
		switch {
		case err == nil:
			return &etcdMutex{mutex, session}
		case errors.Is(err, concurrency.ErrLocked):
			must.Do(serve.Refuse(wire.Held, err))
		case l.client.Ctx().Err() != nil || ctx.Err() != nil:
			must.Do(err)
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

func (m *etcdMutex) Check() bool             { return m.session.Ctx().Err() == nil }
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

const namespace = "default"

var errNoTry = errors.New("the library cannot try without waiting")

// kubeLibrary is client-go's leaderelection.
var kubeLibrary = serve.Library{Name: kubeID, Module: "k8s.io/client-go", Open: openKube}

// kubeClient runs an elector for each lock.
type kubeClient struct {
	config                 *rest.Config
	lease, deadline, retry time.Duration
	bounded                bool // requests, as NewFromKubeconfig does it
	releases               bool // when its context ends
	client                 clientset.Interface

	ctx     context.Context // of all electors
	close   context.CancelFunc
	running sync.WaitGroup
}

func openKube(r *wire.Request) serve.Client {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	lease := serve.Milliseconds(r.LeaseMs)
	l := &kubeClient{
		config: &rest.Config{
			Host: r.Endpoint, QPS: -1, // its limit of five requests a second is for other uses
			ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		},
		lease: lease, deadline: lease * 2 / 3, retry: serve.Milliseconds(r.RefreshMs),
		bounded: r.RequestTimeout, releases: r.ReleaseOnCancel,
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	l.client = must.Have(clientset.NewForConfig(l.config))
	return l
}

// lock makes the lease lock with or without a bound for each request: by
// NewFromKubeconfig as most controllers do, or by hand as the package's example
// does.
func (l *kubeClient) lock(name string) resourcelock.Interface {
	identity := resourcelock.ResourceLockConfig{Identity: strings.ToLower(rand.Text())}
	if l.bounded {
		kind := resourcelock.LeasesResourceLock
		return must.Have(resourcelock.NewFromKubeconfig(kind, namespace, name, identity, l.config, l.deadline))
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace},
		Client:     l.client.CoordinationV1(),
		LockConfig: identity,
	}
}

func (l *kubeClient) Acquire(_ context.Context, r *wire.Request) serve.Lock {
	if r.TryOnly {
		must.Do(serve.Refuse(wire.Unsupported, errNoTry))
	}
	ctx, cancel := context.WithCancel(l.ctx)
	leads := make(chan context.Context, 1)
	over, stopped := context.WithCancel(context.Background())
	elector := must.Have(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l.lock(r.Name), LeaseDuration: l.lease, RenewDeadline: l.deadline, RetryPeriod: l.retry,
		ReleaseOnCancel: l.releases,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leads <- ctx },
			OnStoppedLeading: stopped,
		},
	}))
	l.running.Go(func() { elector.Run(ctx) })
	select {
	case ctx := <-leads:
		// The end of its context, or OnStoppedLeading: the first of the two counts.
		leading, stop := context.WithCancel(ctx)
		context.AfterFunc(over, stop)
		return &kubeLeader{l, r.Name, cancel, leading, over}
	case <-over.Done():
		cancel()
		must.Do(context.Canceled)
	}
	return nil
}

// Close ends all electors, as the end of their context does.
func (l *kubeClient) Close() error {
	l.close()
	l.running.Wait()
	return nil
}

type kubeLeader struct {
	library *kubeClient
	name    string
	cancel  context.CancelFunc
	leading context.Context // of the work
	over    context.Context // of the elector's leadership
}

// Check goes by the context of the work: IsLeader does not look at the clock.
func (h *kubeLeader) Check() bool             { return h.over.Err() == nil && h.leading.Err() == nil }
func (h *kubeLeader) Notice() <-chan struct{} { return h.leading.Done() }

// Token is the count of transitions, the only number in the record.
func (h *kubeLeader) Token() (uint64, bool) {
	leases := h.library.client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(context.Background(), h.name, metav1.GetOptions{})
	if err != nil || lease.Spec.LeaseTransitions == nil {
		return 0, false
	}
	return uint64(*lease.Spec.LeaseTransitions), true
}

func (h *kubeLeader) Release(*wire.Request) error {
	h.cancel()
	<-h.over.Done()
	return nil
}

// riverLibrary is the election among River's clients.
var riverLibrary = serve.Library{Name: "river", Module: "github.com/riverqueue/river", Open: openRiver}

const (
	// riverConns is how many connections to the database a process may have: each
	// client keeps one to listen on.
	riverConns = 40
	// riverEager is how many clients bid for an eager member: each does so every 5 to
	// 6 s, beginning at a random instant, and that cannot be set.
	riverEager = 8
)

// riverProcess has clients of River for each lock.
type riverProcess struct {
	pool    *pgxpool.Pool
	bidders int
	open    context.Context
	close   context.CancelFunc

	mu      sync.Mutex
	clients riverClients // of all locks
}

func openRiver(r *wire.Request) serve.Client {
	config := must.Have(pgxpool.ParseConfig(r.Endpoint))
	config.MaxConns = riverConns
	// So that each request has the text of its statement, by which the gate knows it.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	p := &riverProcess{bidders: 1}
	if serve.Milliseconds(r.RefreshMs) == eagerRefresh {
		p.bidders = riverEager
	}
	p.open, p.close = context.WithCancel(context.Background())
	p.pool = must.Have(pgxpool.NewWithConfig(context.Background(), config))
	return p
}

// Acquire has clients bid, and returns when one of them leads.
func (p *riverProcess) Acquire(ctx context.Context, r *wire.Request) serve.Lock {
	if r.TryOnly {
		must.Do(serve.Refuse(wire.Unsupported, errNoTry))
	}
	l := &riverLeader{process: p, schema: riverSchema(r.Name)}
	l.leads, l.gained = context.WithCancel(context.Background())
	l.over, l.lost = context.WithCancel(context.Background())
	for range p.bidders {
		l.bid()
	}
	select {
	case <-l.leads.Done():
	case <-p.open.Done():
		must.Do(context.Canceled)
	case <-ctx.Done():
		must.Do(context.Cause(ctx))
	}
	return l
}

// Close stops all clients, as a program does that ends.
func (p *riverProcess) Close() error {
	p.close()
	p.mu.Lock()
	clients := p.clients
	p.mu.Unlock()
	defer p.pool.Close()
	return clients.stop()
}

type riverClients []*river.Client[pgx.Tx]

func (c riverClients) stop() error {
	return wait.AtOnce(context.Background(), len(c), max(1, len(c)), func(ctx context.Context, i int) error {
		return c[i].Stop(context.WithoutCancel(ctx))
	})
}

// riverIdler works on jobs that no program inserts: a client that works on none does not take part in
// the election.
type riverIdler struct {
	river.WorkerDefaults[riverIdle]
}

type riverIdle struct{}

func (riverIdle) Kind() string { return "idle" }

func (riverIdler) Work(context.Context, *river.Job[riverIdle]) error { return nil }

// riverLeader is the leadership in a schema. River has no API call that reports that a
// client leads. But it logs that it has gained leadership; and about a second later it
// calls a hook, in the context of the service that enqueues periodic jobs, which is a
// leader's work, and ends when that must stop.
type riverLeader struct {
	process *riverProcess
	schema  string
	clients riverClients
	leader  atomic.Pointer[string] // the client's id; another one does not come after it

	leads  context.Context // over when a client leads
	gained context.CancelFunc
	over   context.Context // over when that client is to stop what a leader does
	lost   context.CancelFunc
}

// bid starts a client.
func (l *riverLeader) bid() {
	id := strings.ToLower(rand.Text())
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverIdler{})
	gained := func() {
		if l.leader.CompareAndSwap(nil, &id) {
			l.gained()
		}
	}
	lost := func() {
		if l.leader.Load() == &id {
			l.lost()
		}
	}
	over := func(ctx context.Context, _ *rivertype.HookPeriodicJobsStartParams) error {
		context.AfterFunc(ctx, lost)
		return nil
	}
	client := must.Have(river.NewClient(riverpgxv5.New(l.process.pool), &river.Config{
		ID: id, Schema: l.schema, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Logger: slog.New(slog.NewTextHandler(riverLog(gained), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Hooks:  []rivertype.Hook{river.HookPeriodicJobsStartFunc(over)},
	}))
	l.clients = append(l.clients, client)
	l.process.mu.Lock()
	l.process.clients = append(l.process.clients, client)
	l.process.mu.Unlock()
	must.Do(client.Start(context.Background()))
}

// riverLog looks for a message in a client's log.
type riverLog func()

func (gained riverLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Gained leadership")) {
		gained()
	}
	return len(line), nil
}

func (l *riverLeader) Check() bool             { return l.over.Err() == nil }
func (l *riverLeader) Notice() <-chan struct{} { return l.over.Done() }

// Token is the instant of the election in the record, in microseconds: by it a client
// renews no other's leadership.
func (l *riverLeader) Token() (uint64, bool) {
	var elected int64
	err := l.process.pool.QueryRow(context.Background(),
		"SELECT (extract(epoch FROM elected_at) * 1000000)::bigint FROM "+l.schema+".river_leader").Scan(&elected)
	return uint64(elected), err == nil
}

// Release stops the clients, by which the leader resigns. Another call asks the current
// leader to resign, but this client would bid again.
func (l *riverLeader) Release(*wire.Request) error { return l.clients.stop() }
