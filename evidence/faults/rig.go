// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// rig is what all rows share.
type rig struct {
	engine    string // of DynamoDB
	db        *dynamodb.Client
	etcd      *etcdServer
	database  *database // nil if nothing is looked at on PostgreSQL
	zookeeper string    // host and port
	gateway   string    // the URL of a server of S3's protocol
	cluster   *cluster  // nil if Tenure is not looked at on Kubernetes
	java      *peers.Program
	tenured   string // the service's command, by its path; empty if its clients are not looked at
	clients   map[peers.Kind]*peers.Program
	program   string // this one, by its path: it serves the libraries in Go
	// suspendable is the same, with a runtime that can be told to sleep.
	suspendable string
	dir         string // for logs
	say         func(format string, args ...any)

	mu       sync.Mutex
	versions map[string]string
}

// The libraries there are. Tenure is on DynamoDB, as two of the others are; and then on
// PostgreSQL, etcd, ZooKeeper and Kubernetes, and in a bucket.
const (
	tenureName       = "tenure"
	dynamolockName   = "dynamolock"
	javaName         = "java"
	etcdName         = "etcd"
	kubeName         = "client-go"
	riverName        = "river"
	onPostgresName   = "tenure-postgres"
	onEtcdName       = "tenure-etcd"
	onZooKeeperName  = "tenure-zookeeper"
	onKubernetesName = "tenure-kubernetes"
	inBucketName     = "tenure-bucket"
)

// engine is what a library keeps its locks in.
type engine string

const (
	dynamoDB   engine = "DynamoDB"
	postgreSQL engine = "PostgreSQL"
	etcdEngine engine = "etcd"
	zooKeeper  engine = "ZooKeeper"
	apiServer  engine = "Kubernetes"
	bucket     engine = "a bucket"
)

// subject is a library that faults are thrown at.
type subject struct {
	name, title string
	on          engine
	lease       time.Duration // where the row does not say
	settings    func(lease time.Duration) settings
	// beats is how many heartbeats there are in a lease.
	beats time.Duration
	// together is how many runs of a row go on at the same time.
	together int
	// lacks says of rows, by their ids, why they cannot be tried.
	lacks map[string]string
}

func (s subject) id() string { return s.name }

// elsewhere says that it is Tenure on another store than in the table of the libraries.
func (s subject) elsewhere() bool {
	_, is := tenureStores[s.name]
	return is
}

// isOnKubernetes says that it is Tenure on Kubernetes: client-go has an API server of this
// process.
func (s subject) isOnKubernetes() bool { return s.name == onKubernetesName }

// isTenure says that it is Tenure, on whatever store.
func (s subject) isTenure() bool { return s.name == tenureName || s.elsewhere() }

const (
	// usualLease is long enough for a busy machine, and as short as etcd allows it.
	usualLease = 3 * time.Second
	// kubeLease is client-go's default. It cannot be scaled down in fairness: who
	// waits sees of a renewal the second alone, and so may count up to a second
	// less than the lease.
	kubeLease = 15 * time.Second
	// riverLease cannot be set.
	riverLease = 15 * time.Second
	// riverBid is how often a client of River bids, and renews, at least.
	riverBid = 5 * time.Second
)

// settings are what a library is given. Each has the proportions of its own
// defaults.
type settings struct {
	heartbeat, refresh time.Duration // zero: as the library does by itself
	said               string
}

var subjects = []subject{
	{tenureName, "Tenure", dynamoDB, usualLease, func(time.Duration) settings { return settings{said: tenureSettings} }, 5, 8, nil},
	{dynamolockName, "dynamolock", dynamoDB, usualLease, fieldSettings, 4, 8, nil},
	{javaName, "Java lock client", dynamoDB, usualLease, fieldSettings, 4, 2, nil},
	{etcdName, "etcd concurrency", etcdEngine, usualLease, func(time.Duration) settings { return settings{said: "a session whose TTL is the lease"} }, 3, 8, nil},
	{kubeName, "client-go", apiServer, kubeLease, func(lease time.Duration) settings {
		return settings{refresh: lease * 2 / 15, said: "renew deadline 2/3 and retry period 2/15 of the lease; a time-out for requests as NewFromKubeconfig sets it"}
	}, 7, 8, nil},
	{riverName, "River", postgreSQL, riverLease, func(time.Duration) settings {
		return settings{refresh: riverBid, said: "all is fixed: a TTL of 15 s, a renewal every 5 s, a bid every 5 to 6 s"}
	}, 3, 8, map[string]string{
		manyRow:      "has one election in a schema of a database",
		endAtWorkRow: "its leader does River's own work alone",
	}},
	{onPostgresName, "Tenure on PostgreSQL", postgreSQL, usualLease, func(time.Duration) settings {
		return settings{said: fmt.Sprintf("%s; %d connections at most, and statements that are not prepared", tenureSettings, postgresConns)}
	}, 5, 8, nil},
	{onEtcdName, "Tenure on etcd", etcdEngine, usualLease, func(time.Duration) settings { return settings{said: tenureSettings} }, 5, 8, nil},
	{onZooKeeperName, "Tenure on ZooKeeper", zooKeeper, usualLease, func(time.Duration) settings { return settings{said: tenureSettings} }, 5, 8, nil},
	{onKubernetesName, "Tenure on Kubernetes", apiServer, usualLease, func(time.Duration) settings {
		return settings{said: tenureSettings + "; HTTP to the gate, and TLS behind it"}
	}, 5, 8, nil},
	{inBucketName, "Tenure in a bucket", bucket, usualLease, func(time.Duration) settings { return settings{said: tenureSettings} }, 5, 8, nil},
}

const tenureSettings = "all follows from the lease"

func fieldSettings(lease time.Duration) settings {
	return settings{lease / 4, lease / 20, "heartbeat 1/4 and refresh 1/20 of the lease"}
}

// scene is one subject in one row.
type scene struct {
	*rig
	subject
	lease time.Duration
	table *dynamo.Table // nil where the library has none
	kube  *leaseAPI

	word string // of its locks' names

	service *servedBy // nil where the subject is no client of the service

	// Of Tenure on another store than DynamoDB: where it has the records, and that place
	// without a gate.
	place   string
	records driver.Store

	// Guarded by mu of the rig.
	members []*member
	names   int
}

func (r *rig) scene(ctx context.Context, s subject, lease time.Duration) (*scene, error) {
	c := &scene{rig: r, subject: s, lease: lease, word: strings.ToLower(rand.Text()), kube: newLeaseAPI()}
	if c.onDynamoDB() {
		var err error
		if c.table, err = dynamo.NewTable(ctx, r.db, "tenure-faults"); err != nil {
			return nil, err
		}
	}
	if s.name == riverName {
		for n := range preparedLocks {
			if err := r.database.riverTables(ctx, c.named(n+1)); err != nil {
				return nil, err
			}
		}
	}
	if s.elsewhere() {
		if err := c.openPlace(ctx); err != nil {
			return nil, err
		}
	}
	if s.isServed() {
		if err := c.startService(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (s *scene) onDynamoDB() bool { return s.on == dynamoDB }

// close ends the processes and their gates.
func (s *scene) close(ctx context.Context) {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.Kill()
		m.gate.Close()
	}
	if s.service != nil {
		s.service.close()
	}
	if s.onDynamoDB() {
		// The engine is in memory, and ended soon.
		_ = s.table.Drop(ctx)
	}
	if s.records != nil {
		_ = s.records.Close() // the same
	}
}

// repeat makes runs of a row, some of them at the same time.
func (s *scene) repeat(ctx context.Context, n int, run func(ctx context.Context, i int) (float64, error)) ([]float64, error) {
	figures := make([]float64, n)
	return figures, wait.AtOnce(ctx, n, s.together, func(ctx context.Context, i int) (err error) {
		figures[i], err = run(ctx, i)
		return err
	})
}

// beat is the time between two heartbeats.
func (s *scene) beat() time.Duration { return s.lease / s.beats }

// lock returns the name of a lock that nobody has used.
func (s *scene) lock() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
	return s.named(s.names)
}

func (s *scene) named(n int) string { return fmt.Sprintf("tenure-faults-%s-%d", s.word, n) }

// preparedLocks is for how many locks of a scene things are made beforehand: River's tables,
// folders in ZooKeeper. Those rows that need it take no more.
const preparedLocks = 6

// direct is where the engine is: a URL of DynamoDB, else a host and port.
func (s *scene) direct() (string, error) {
	switch s.on {
	case etcdEngine:
		return s.etcd.address(), nil
	case postgreSQL:
		return s.database.address()
	case zooKeeper:
		return s.zookeeper, nil
	case bucket:
		return strings.TrimPrefix(s.gateway, "http://"), nil
	case dynamoDB:
		return s.engine, nil
	case apiServer:
		if s.isOnKubernetes() {
			return s.cluster.address(), nil
		}
	}
	return "", fmt.Errorf("%s is in this process", s.on)
}

// endpoint is how a library is told of an address, that of a gate or of the engine. For
// Tenure on Kubernetes it is a kubeconfig.
func (s *scene) endpoint(address string) (string, error) {
	switch {
	case s.isOnKubernetes():
		return s.cluster.kubeconfig(s.dir, address)
	case s.on != postgreSQL:
		return address, nil
	}
	u, err := s.database.url(address)
	if err == nil && s.elsewhere() {
		return postgresEndpoint(u)
	}
	return u, err
}

func (s *scene) newGate() (gate.Gate, error) {
	if s.name == kubeName {
		return gate.NewHTTP(s.kube, leaseWrite), nil
	}
	if s.isServed() {
		return s.service.front()
	}
	direct, err := s.direct()
	switch {
	case err != nil:
		return nil, err
	case s.elsewhere():
		return gate.NewTCPWrites(direct, tenureStores[s.name].writes)
	case s.name == etcdName:
		return gate.NewTCP(direct)
	case s.name == riverName:
		return gate.NewTCPWrites(direct, riverWrites)
	}
	return gate.NewDynamoDB(direct)
}

// member is a process with an open client, behind a gate of its own.
type member struct {
	*peers.Member
	gate  gate.Gate
	scene *scene
	slept []byte // of one that can be suspended
}

// manner is how a member differs from the ordinary.
type manner int

const (
	ordinary manner = iota
	// eager looks at a held lock each 20 ms where looking is all it can do, so
	// that it takes over when the lock can be taken, and not when it looks next.
	eager
	// unbounded leaves the time-out of requests away, where the library leaves
	// that to its user.
	unbounded
	// releasing sets the option that client-go needs to release a lock at all.
	releasing
	// suspendable can be suspended.
	suspendable
	// underSession holds its locks under one session. Tenure's alone has such a thing.
	underSession
)

const eagerRefresh = 20 * time.Millisecond

func (s *scene) member(ctx context.Context, how manner) (*member, error) {
	program := s.served()
	var slept []byte
	if how == suspendable {
		var err error
		if program, slept, err = s.sleeper(program); err != nil {
			return nil, err
		}
	}
	g, err := s.newGate()
	if err != nil {
		return nil, err
	}
	set := s.settings(s.lease)
	if how == eager && set.refresh > 0 {
		set.refresh = eagerRefresh
	}
	r := wire.Request{
		Command: wire.Open, Table: s.place, Region: dynamo.Region, LeaseMs: peers.Milliseconds(s.lease),
		Notice: true, RequestTimeout: how != unbounded, ReleaseOnCancel: how == releasing, Session: how == underSession,
	}
	if s.table != nil {
		r.Table = s.table.Name
	}
	if s.service != nil {
		r.Secret = s.service.Worker
	}
	if r.Endpoint, err = s.endpoint(g.Address()); err != nil {
		g.Close()
		return nil, err
	}
	if set.heartbeat > 0 {
		r.HeartbeatMs = peers.Milliseconds(set.heartbeat)
	}
	if set.refresh > 0 {
		r.RefreshMs = peers.Milliseconds(set.refresh)
	}
	p, err := program.Open(ctx, r)
	if err != nil {
		g.Close()
		return nil, err
	}
	m := &member{p, g, s, slept}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	s.versions[s.name] = p.Version()
	return m, nil
}

// two are members, one of each manner.
func (s *scene) two(ctx context.Context, how, other manner) (one, two *member, err error) {
	if one, err = s.member(ctx, how); err == nil {
		two, err = s.member(ctx, other)
	}
	return one, two, err
}

// held are two members, of which the first one holds a lock.
func (s *scene) held(ctx context.Context) (holder, other *member, name string, err error) {
	holder, other, err = s.two(ctx, ordinary, ordinary)
	if err != nil {
		return nil, nil, "", err
	}
	name = s.lock()
	_, err = holder.Acquire(ctx, name)
	return holder, other, name, err
}

// served is the program of the library.
func (s *scene) served() *peers.Program {
	switch {
	case s.name == javaName:
		return s.java
	case s.isServed():
		return s.clients[s.client()]
	}
	return peers.Own(peers.Kind(s.name))
}

// hold is work under a lock, as it stands in its log.
type hold struct {
	log  string
	done *peers.Call
}

// belief is for how long a holder took the lock for its own, on the machine's
// monotonic clock. What has not happened is zero.
type belief struct{ begin, end, no, notice int64 }

// until is the instant up to which the holder believed: it stops at a check that
// fails or at a notice, whichever comes first.
func (b belief) until() int64 {
	if b.notice > 0 && b.notice < b.end {
		return b.notice
	}
	return b.end
}

// told is the instant at which the holder knew. It is later than until where a
// check hangs before it says no.
func (b belief) told() int64 {
	no := b.no
	if no == 0 {
		no = b.end // the Java client's log has no other; its checks follow within 2 ms
	}
	if b.notice > 0 && b.notice < no {
		return b.notice
	}
	return no
}

// over says that both have come that can come.
func (b belief) over() bool { return b.end > 0 }

const longHold = 10 * time.Minute

// work has m work under the lock, and returns when it does.
func (m *member) work(ctx context.Context, name string) (*hold, error) {
	o := m.Asking(wire.Work, name)
	o.HoldMs, o.DurationMs = longHold.Milliseconds(), 50
	o.Log = filepath.Join(m.scene.dir, name+"-"+strings.ToLower(rand.Text())+".log")
	if err := os.WriteFile(o.Log, nil, 0o600); err != nil {
		return nil, err
	}
	h := &hold{log: o.Log, done: m.Begin(o)}
	var failed error
	err := wait.Until(ctx, "work begins", func() bool {
		select {
		case <-h.done.Done():
			answer, err := h.done.Wait(ctx)
			failed = errors.Join(fmt.Errorf("work has ended before it was seen to begin: %+v", answer), err)
			return true
		default:
		}
		b, err := h.read()
		return err != nil || b.begin > 0
	})
	if failed != nil {
		return nil, failed
	}
	return h, err
}

func (h *hold) read() (b belief, err error) {
	file, err := os.Open(h.log)
	if err != nil {
		return b, err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		l, err := wire.ParseLog(lines.Text())
		if err != nil {
			continue // it is being written
		}
		switch l.What {
		case wire.LogBegin:
			b.begin = l.At
		case wire.LogEnd:
			b.end = l.At
		case "no":
			b.no = l.At
		case "notice":
			b.notice = l.At
		}
	}
	return b, lines.Err()
}

// ended waits for the end of the work, for as long as it could take.
func (h *hold) ended(ctx context.Context, bound time.Duration) (belief, error) {
	var b belief
	var err error
	limit := time.Now().Add(bound)
	for {
		b, err = h.read()
		if err != nil || b.over() {
			return b, err
		}
		if time.Now().After(limit) {
			// It believes still.
			b.end = proc.Monotonic()
			return b, nil
		}
		if err := wait.For(ctx, 5*time.Millisecond); err != nil {
			return b, err
		}
	}
}

// sleeper returns a program like this one that can be suspended, and the memory
// where it finds for how long it was.
func (s *scene) sleeper(program *peers.Program) (*peers.Program, []byte, error) {
	file := filepath.Join(s.dir, "slept-"+rand.Text())
	slept, err := proc.Map(file, 8)
	if err != nil {
		return nil, nil, err
	}
	sleeps := *program
	sleeps.Command.Env = append(slices.Clone(program.Command.Env), suspendEnv+"="+file)
	if s.preloads() {
		sleeps.Command.Env = append(sleeps.Command.Env, "LD_PRELOAD="+filepath.Join(s.dir, preloaded))
	} else {
		sleeps.Command.Args = []string{s.suspendable}
	}
	return &sleeps, slept, nil
}

// sleep has the monotonic clock of a process that is stopped stand for d more.
func (m *member) sleep(d time.Duration) {
	binary.NativeEndian.PutUint64(m.slept, binary.NativeEndian.Uint64(m.slept)+uint64(d))
}
