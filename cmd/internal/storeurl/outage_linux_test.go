// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// survivable is the longest outage that a lease of 10 s survives, by the guide to operations.
const survivable = 5220 * time.Millisecond

// outage is a time in which an engine does not answer.
type outage struct {
	url string // of the store
	// prepare returns what begins the outage, and returns when the engine answers again.
	prepare func(t *testing.T) (happens func())
}

// TestLeaseSurvives: a lease of 10 s outlives a restart of PostgreSQL that takes 4 s, and the death
// of the leader of three etcds.
func TestLeaseSurvives(t *testing.T) {
	enginetest.MakeVerify(t)
	if _, raw := clock.Machine(clock.Options{}); !raw {
		t.Skip("without a raw clock, such a lease survives 3.77 s")
	}
	for name, begin := range map[string]func(*testing.T) outage{
		"restart of PostgreSQL": postgresRestarts, "death of the leader of etcd": etcdLeaderDies,
	} {
		t.Run(name, func(t *testing.T) { begin(t).test(t) })
	}
}

func (o outage) test(t *testing.T) {
	const attempts = 5
	for range attempts {
		if o.survived(t) {
			return
		}
	}
	t.Skipf("this machine is too busy: in each of %d attempts the engine was away for too long", attempts)
}

// survived has the outage begin at the worst instant, when a heartbeat is due, and reports whether
// the lease outlives it. If it does not, and the engine and this process were away for longer than
// is survivable, the attempt shows nothing.
func (o outage) survived(t *testing.T) bool {
	at, err := Parse(o.url)
	if err != nil {
		t.Fatal(err)
	}
	store, err := at.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() // nothing is left to be lost
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	lease, err := client.Acquire(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context()) //nolint:errcheck // it may be lost
	full, period := lease.Remaining(), client.Options().HeartbeatPeriod
	happens := o.prepare(t)
	const step = 10 * time.Millisecond
	for lease.Remaining() > full-period+10*step {
		<-time.After(step)
	}
	watched, over := make(chan time.Duration, 1), make(chan struct{})
	least := lease.Remaining()
	go func() { // returns the longest pause of this process
		var paused time.Duration
		renewed := false
		for last := time.Now(); !renewed && lease.Check() == nil; <-time.After(step) {
			now, left := time.Now(), lease.Remaining()
			paused, last = max(paused, now.Sub(last)), now
			least = min(least, left)
			select {
			case <-over:
				renewed = left > full-period/2
			default:
			}
		}
		watched <- paused
	}()
	began := time.Now()
	happens()
	away := time.Since(began)
	close(over)
	away += <-watched
	switch err := lease.Check(); {
	case err == nil:
		t.Logf("away for %v: the least that was left of the lease was %v", away, least)
		return true
	case away <= survivable:
		t.Fatalf("away for %v, which a lease of 10 s survives up to %v: %v", away, survivable, err)
	}
	t.Logf("away for %v, longer than %v", away, survivable)
	return false
}

// postgresRestarts is pg_ctl restart, in 4 s.
func postgresRestarts(t *testing.T) outage {
	s, _ := postgresWithUser(t)
	return outage{url: s.URL, prepare: func(*testing.T) func() {
		return func() {
			down := time.After(4 * time.Second)
			s.End(syscall.SIGINT)
			<-down
			s.Start()
			s.Await()
		}
	}}
}

// etcdLeaderDies kills the leader of three members.
func etcdLeaderDies(t *testing.T) outage {
	// The times are etcd's defaults.
	members := enginetest.StartEtcd(t, 3, "--unsafe-no-fsync", "--heartbeat-interval", "100", "--election-timeout", "1000")
	var urls []string
	for _, m := range members {
		urls = append(urls, m.URL)
	}
	admin, err := clientv3.New(clientv3.Config{Endpoints: urls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	var dead *enginetest.Engine
	return outage{
		url: "etcd://" + strings.ReplaceAll(strings.Join(urls, ","), "http://", "") + "/p",
		prepare: func(t *testing.T) func() {
			if dead != nil { // of the attempt before
				dead.Start()
				dead.Await()
			}
			enginetest.Eventually(t, "a leader", func(ctx context.Context) error {
				for _, dead = range members {
					if is, err := admin.Status(ctx, dead.URL); err == nil && is.Leader == is.Header.MemberId {
						return nil
					}
				}
				return errors.New("no member leads")
			})
			return func() {
				dead.Kill()
				enginetest.Eventually(t, "a write", func(ctx context.Context) error {
					ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
					defer stop()
					_, err := admin.Put(ctx, "probe", "")
					return err
				})
			}
		},
	}
}
