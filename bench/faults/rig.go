// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// rig is what all rows share.
type rig struct {
	engine  string // of DynamoDB
	db      *dynamodb.Client
	etcd    *etcdServer
	java    *peer.Program
	program string // that serves the libraries in Go
	// suspendable is the same, with a runtime that can be told to sleep.
	suspendable string
	dir         string // for logs
	say         func(format string, args ...any)

	mu       sync.Mutex
	versions map[string]string
}

// subject is a library that faults are thrown at.
type subject struct {
	name, title string
	lease       time.Duration // where the row does not say
	settings    func(lease time.Duration) settings
	// beats is how many heartbeats there are in a lease.
	beats time.Duration
	// together is how many runs of a row go on at the same time.
	together int
}

func (s subject) id() string { return s.name }

const (
	// usualLease is long enough for a busy machine, and as short as etcd allows it.
	usualLease = 3 * time.Second
	// kubeLease is client-go's default. It cannot be scaled down in fairness: who
	// waits sees of a renewal the second alone, and so may count up to a second
	// less than the lease.
	kubeLease = 15 * time.Second
)

// settings are what a library is given. Each has the proportions of its own
// defaults.
type settings struct {
	heartbeat, refresh time.Duration // zero: as the library does by itself
	said               string
}

var subjects = []subject{
	{tenureName, "Tenure", usualLease, func(time.Duration) settings { return settings{said: "all follows from the lease"} }, 5, 8},
	{dynamolockName, "dynamolock", usualLease, fieldSettings, 4, 8},
	{javaName, "Java lock client", usualLease, fieldSettings, 4, 2},
	{etcdName, "etcd concurrency", usualLease, func(time.Duration) settings { return settings{said: "a session whose TTL is the lease"} }, 3, 8},
	{kubeName, "client-go", kubeLease, func(lease time.Duration) settings {
		return settings{refresh: lease * 2 / 15, said: "renew deadline 2/3 and retry period 2/15 of the lease; a time-out for requests as NewFromKubeconfig sets it"}
	}, 7, 8},
}

func fieldSettings(lease time.Duration) settings {
	return settings{lease / 4, lease / 20, "heartbeat 1/4 and refresh 1/20 of the lease, as its defaults are to each other"}
}

// scene is one subject in one row.
type scene struct {
	*rig
	subject
	lease time.Duration
	table string
	kube  *leaseAPI

	mu      sync.Mutex
	members []*member
	names   int
}

func (r *rig) scene(ctx context.Context, s subject, lease time.Duration) (*scene, error) {
	c := &scene{rig: r, subject: s, lease: lease, table: "tenure-faults-" + rand.Text(), kube: newLeaseAPI()}
	if c.onDynamoDB() {
		if err := dynamostore.CreateTable(ctx, r.db, c.table, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (s *scene) onDynamoDB() bool {
	return s.name == tenureName || s.name == dynamolockName || s.name == javaName
}

// close ends the processes and their gates.
func (s *scene) close(ctx context.Context) {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.Kill()
		m.gate.close()
	}
	if s.onDynamoDB() {
		// The engine is in memory, and ended soon.
		_, _ = s.db.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &s.table})
	}
}

// repeat makes runs of a row, some of them at the same time.
func (s *scene) repeat(ctx context.Context, n int, run func(ctx context.Context, i int) (float64, error)) ([]float64, error) {
	figures, errs := make([]float64, n), make([]error, n)
	room := make(chan struct{}, s.together)
	var wg sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			figures[i], errs[i] = run(ctx, i)
		})
	}
	wg.Wait()
	return figures, errors.Join(errs...)
}

// beat is the time between two heartbeats.
func (s *scene) beat() time.Duration { return s.lease / s.beats }

// lock returns the name of a lock that nobody has used.
func (s *scene) lock() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
	return fmt.Sprintf("%s-%d", strings.ToLower(s.table), s.names)
}

func (s *scene) newGate() (gate, error) {
	switch s.name {
	case etcdName:
		return newTCPGate(s.etcd.address())
	case kubeName:
		return newHTTPGate(s.kube, leaseWrite), nil
	}
	return newDynamoDBGate(s.engine)
}

// member is a process with an open client, behind a gate of its own.
type member struct {
	process
	gate      gate
	scene     *scene
	refreshMs *int64
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
)

const eagerRefresh = 20 * time.Millisecond

func (s *scene) member(ctx context.Context, how manner) (*member, error) {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	p, err := s.start(ctx, how)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	g, err := s.newGate()
	if err != nil {
		p.Kill()
		return nil, err
	}
	set := s.settings(s.lease)
	if how == eager && set.refresh > 0 {
		set.refresh = eagerRefresh
	}
	m := &member{process: p, gate: g, scene: s}
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	o := order{Library: s.name, RequestTimeout: how != unbounded, ReleaseOnCancel: how == releasing}
	o.Command, o.Endpoint, o.Region, o.Table = wire.Open, g.address(), region, s.table
	o.LeaseMs = ms(s.lease)
	if set.heartbeat > 0 {
		o.HeartbeatMs = ms(set.heartbeat)
	}
	if set.refresh > 0 {
		o.RefreshMs = ms(set.refresh)
		m.refreshMs = o.RefreshMs
	}
	a, err := do(ctx, m, o)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	about := p.about()
	if a.Version != "" {
		about.Version = a.Version
	}
	s.rig.mu.Lock()
	s.versions[s.name] = about.Version + ", " + about.Runtime
	s.rig.mu.Unlock()
	return m, nil
}

func (s *scene) start(ctx context.Context, how manner) (process, error) {
	if how == suspendable {
		return s.spawnSleeper(ctx)
	}
	if s.name == javaName {
		p, err := s.java.Start(ctx)
		if err != nil {
			return nil, err
		}
		return foreign{p}, nil
	}
	return spawn(ctx, []string{s.program})
}

func ms(d time.Duration) *int64 {
	n := d.Milliseconds()
	return &n
}

// asking is an order about a lock.
func (m *member) asking(command, name string) order {
	var o order
	o.Command, o.Name, o.RefreshMs = command, name, m.refreshMs
	o.WaitMs = ms(time.Hour) // some give up by default
	return o
}

func (m *member) acquire(ctx context.Context, name string) (reply, error) {
	return do(ctx, m, m.asking(wire.Acquire, name))
}

func (m *member) release(ctx context.Context, name string) error {
	_, err := do(ctx, m, m.asking(wire.Release, name))
	return err
}

func (m *member) holds(ctx context.Context, name string) (bool, error) {
	a, err := do(ctx, m, m.asking(wire.Holds, name))
	return err == nil && a.Holds != nil && *a.Holds, err
}

// hold is work under a lock, as it stands in its log.
type hold struct {
	log  string
	done <-chan answered
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
	o := m.asking(wire.Work, name)
	o.HoldMs, o.DurationMs = longHold.Milliseconds(), 50
	o.Log = filepath.Join(m.scene.dir, name+"-"+strings.ToLower(rand.Text())+".log")
	if err := os.WriteFile(o.Log, nil, 0o600); err != nil {
		return nil, err
	}
	h := &hold{log: o.Log, done: m.begin(o)}
	var failed error
	err := until(ctx, "work begins", func() bool {
		select {
		case a := <-h.done:
			failed = fmt.Errorf("work has ended: %w", a.err)
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
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			continue // it is being written
		}
		ns, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return b, err
		}
		switch fields[0] {
		case wire.LogBegin:
			b.begin = ns
		case wire.LogEnd:
			b.end = ns
		case "no":
			b.no = ns
		case "notice":
			b.notice = ns
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
			b.end = wire.Monotonic()
			return b, nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return b, err
		}
	}
}
