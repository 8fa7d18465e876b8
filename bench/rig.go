// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/interop/peer"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// The clients there are.
const (
	tenureName     = "tenure"
	dynamolockName = "dynamolock"
	javaName       = "java"
)

var clientNames = []string{tenureName, dynamolockName, javaName}

// client is one that is measured: a program that speaks the language of package
// wire.
type client struct {
	name  string
	start func(context.Context) (*peer.Process, error)
}

// tenureClient is this program as it serves Tenure.
func tenureClient() client {
	return clientOf(peer.Command(tenureName, []string{"/proc/self/exe"}, serveEnv+"=1"))
}

func peerClient(ctx context.Context, kind peer.Kind) (client, error) {
	program, err := peer.Build(ctx, kind)
	if err != nil {
		return client{}, err
	}
	return clientOf(program), nil
}

func clientOf(program *peer.Program) client {
	return client{string(program.Kind), program.Start}
}

// rig is what all steps share.
type rig struct {
	engine  string
	db      *dynamodb.Client // of the rig itself, past all counters
	clients []client
	size    size
	say     func(format string, args ...any)
	largest int64 // item, in bytes

	mu     sync.Mutex
	report *report
}

func (r *rig) add(rows ...row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Rows = append(r.report.Rows, rows...)
}

// timing is the same for all clients in a step.
type timing struct{ lease, heartbeat, refresh time.Duration }

func (t timing) String() string {
	return fmt.Sprintf("lease %v, heartbeat %v, refresh %v", t.lease, t.heartbeat, t.refresh)
}

// stage is a table of one client, with the processes that use it, whose requests
// are counted together.
type stage struct {
	*rig
	client
	timing
	table string
	wire  *counter
	large bool // the units are those of each item's size

	mu      sync.Mutex
	members []*member
}

func (r *rig) stage(ctx context.Context, c client, t timing) (*stage, error) {
	s := &stage{rig: r, client: c, timing: t, table: "tenure-bench-" + rand.Text()}
	if err := dynamostore.CreateTable(ctx, r.db, s.table, nil); err != nil {
		return nil, err
	}
	var err error
	if s.wire, err = newCounter(r.engine); err != nil {
		return nil, err
	}
	return s, nil
}

// close ends the processes, and checks what the rule for units takes for
// granted.
func (s *stage) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.Kill()
	}
	s.wire.close()
	err := s.checkItems(ctx)
	_, dropped := s.db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &s.table})
	return errors.Join(err, dropped)
}

func (s *stage) checkItems(ctx context.Context) error {
	sizes, err := s.sizes(ctx)
	if err != nil {
		return err
	}
	for _, n := range sizes {
		s.rig.mu.Lock()
		s.largest = max(s.largest, n)
		s.rig.mu.Unlock()
		if n > maxItem && !s.large {
			return fmt.Errorf("%s wrote an item of %d bytes: the rule for units is for %d at most", s.name, n, maxItem)
		}
	}
	return nil
}

// itemBytes is the size of an item as DynamoDB counts it, or a little more.
func itemBytes(item map[string]types.AttributeValue) (n int64) {
	for name, value := range item {
		n += int64(len(name)) + valueBytes(value)
	}
	return n
}

func valueBytes(value types.AttributeValue) (n int64) {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return int64(len(v.Value))
	case *types.AttributeValueMemberN:
		return int64(len(v.Value))
	case *types.AttributeValueMemberB:
		return int64(len(v.Value))
	case *types.AttributeValueMemberM:
		return 3 + int64(len(v.Value)) + itemBytes(v.Value)
	case *types.AttributeValueMemberL:
		n = 3
		for _, element := range v.Value {
			n += 1 + valueBytes(element)
		}
		return n
	}
	return 1
}

// member is a process with an open client.
type member struct {
	*peer.Process
	stage *stage
}

// startBound bounds what takes no time but on a busy machine.
const startBound = time.Minute

// member starts a process. Unless it is counted, its requests go past the
// counter.
func (s *stage) member(ctx context.Context, counted bool) (*member, error) {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	p, err := s.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	m := &member{p, s}
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	s.rig.mu.Lock()
	s.report.Clients[s.name] = p.Ready.Version + ", " + p.Ready.Runtime
	s.rig.mu.Unlock()
	endpoint := s.engine
	if counted {
		endpoint = s.wire.URL
	}
	_, err = m.Do(ctx, wire.Request{
		Command: wire.Open, Endpoint: endpoint, Region: region, Table: s.table,
		LeaseMs: ms(s.lease), HeartbeatMs: ms(s.heartbeat), RefreshMs: ms(s.refresh),
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.name, err)
	}
	return m, nil
}

func ms(d time.Duration) *int64 { return aws.Int64(d.Milliseconds()) }

// acquire waits for the lock, for as long as ctx lasts.
func (m *member) acquire(ctx context.Context, name string) (wire.Answer, error) {
	return m.Do(ctx, wire.Request{
		Command: wire.Acquire, Name: name, RefreshMs: ms(m.stage.refresh),
		WaitMs: ms(time.Hour), // the peers give up by default
	})
}

// refused tries a lock that is held.
func (m *member) refused(ctx context.Context, name string) error {
	_, err := m.Do(ctx, wire.Request{Command: wire.Acquire, Name: name, TryOnly: true})
	if refused := (*peer.Refused)(nil); errors.As(err, &refused) && refused.Kind == wire.Held {
		return nil
	}
	return errors.Join(errors.New("try of a held lock: it was not refused as held"), err)
}

func (m *member) release(ctx context.Context, name string) (wire.Answer, error) {
	return m.Do(ctx, wire.Request{Command: wire.Release, Name: name})
}

func (m *member) heartbeat(ctx context.Context, name string) error {
	_, err := m.Do(ctx, wire.Request{Command: wire.Heartbeat, Name: name})
	return err
}

// holds counts the locks that the member's own handles say it still has.
func (m *member) holds(ctx context.Context, names []string) (n int, err error) {
	for _, name := range names {
		a, err := m.Do(ctx, wire.Request{Command: wire.Holds, Name: name})
		if err != nil {
			return n, err
		}
		if a.Holds != nil && *a.Holds {
			n++
		}
	}
	return n, nil
}

// pause waits for a time that belongs to a measurement.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// until waits for a condition.
func until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, errors.New("not so within a minute: "+what))
	defer cancel()
	for !holds() {
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// atOnce runs f for all of 0 to n-1, limit of them at a time, and ends the others
// when one fails.
func atOnce(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	room := make(chan struct{}, limit)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if ctx.Err() != nil {
				return
			}
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// eachClient runs a part of a step for all clients at once: they do not disturb
// each other, as they wait for most of the time.
func (r *rig) eachClient(ctx context.Context, t timing, f func(ctx context.Context, s *stage) error) error {
	return atOnce(ctx, len(r.clients), len(r.clients), func(ctx context.Context, i int) error { return r.staged(ctx, r.clients[i], t, f) })
}

func (r *rig) staged(ctx context.Context, c client, t timing, f func(ctx context.Context, s *stage) error) error {
	s, err := r.stage(ctx, c, t)
	if err != nil {
		return err
	}
	err = f(ctx, s)
	if closed := s.close(ctx); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
