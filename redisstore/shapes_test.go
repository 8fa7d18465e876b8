// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// shapesTested skips a test of many servers, which takes minutes, unless TENURE_REDIS_SHAPES is set.
func shapesTested(t *testing.T) {
	t.Helper()
	if os.Getenv("TENURE_REDIS_SHAPES") == "" {
		t.Skip("TENURE_REDIS_SHAPES=1 runs it")
	}
}

// kept are settings with which a server that is started again has data. One without data might be taken for the
// primary until the others have told it, and its clients would give up the store.
var kept = []string{"--appendonly", "yes"}

// cluster is three primaries, and behind them a replica of each.
type cluster struct{ servers [6]*enginetest.Engine }

const slots = 16384

// startCluster starts a cluster whose servers have settings, and are given up after a time without an answer.
func startCluster(t *testing.T, giveUp time.Duration, settings ...string) *cluster {
	t.Helper()
	c := &cluster{}
	var ids [6]string
	for i := range c.servers {
		bus := strconv.Itoa(enginetest.FreePort(t)) // the default, 10,000 above, may be in use
		c.servers[i] = enginetest.StartRedis(t, append(slices.Clone(settings), "--cluster-enabled", "yes", "--cluster-port", bus,
			"--cluster-node-timeout", strconv.Itoa(int(giveUp.Milliseconds())), "--cluster-replica-validity-factor", "0")...)
		id, err := mustDo(t, c.servers[i].Addr, "CLUSTER", "MYID").ToString()
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = id
		host, port, _ := strings.Cut(c.servers[i].Addr, ":")
		mustDo(t, c.servers[0].Addr, "CLUSTER", "MEET", host, port, bus)
		if i < 3 {
			mustDo(t, c.servers[i].Addr, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(slots*i/3), strconv.Itoa(slots*(i+1)/3-1))
		}
	}
	for i := range 3 {
		enginetest.Eventually(t, "a replica of the cluster", func(context.Context) error {
			return do(t, c.servers[i+3].Addr, "CLUSTER", "REPLICATE", ids[i]).Error()
		})
	}
	for i := range 3 {
		online(t, c.servers[i].Addr, 1)
	}
	for _, s := range c.servers {
		enginetest.Eventually(t, "a cluster", func(context.Context) error {
			text, err := mustDo(t, s.Addr, "CLUSTER", "INFO").ToString()
			if err == nil && (!strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, "cluster_known_nodes:6")) {
				err = errors.New(text)
			}
			return err
		})
	}
	return c
}

// online waits until a server is a primary with so many replicas that answer it.
func online(t *testing.T, addr string, replicas int) {
	t.Helper()
	enginetest.Eventually(t, "replicas", func(context.Context) error {
		text, err := do(t, addr, "INFO", "replication").ToString()
		fresh := strings.Count(text, "state=online") == replicas &&
			strings.Count(text, "lag=0")+strings.Count(text, "lag=1") == replicas
		if err == nil && (!fresh || !strings.Contains(text, "role:master")) {
			err = errors.New(text)
		}
		return err
	})
}

// pair returns the servers with the keys of a store.
func (c *cluster) pair(t *testing.T, prefix string) (primary, replica *enginetest.Engine) {
	t.Helper()
	slot, err := mustDo(t, c.servers[0].Addr, "CLUSTER", "KEYSLOT", "{"+prefix+"}:life").AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if int(slot) < slots*(i+1)/3 {
			return c.servers[i], c.servers[i+3]
		}
	}
	t.Fatalf("slot %d", slot)
	return nil, nil
}

// option names servers of the cluster.
func (c *cluster) option() (o rueidis.ClientOption) {
	for _, s := range c.servers {
		o.InitAddress = append(o.InitAddress, s.Addr)
	}
	return o
}

// opened opens a store that ends with the test.
func opened(t *testing.T, o rueidis.ClientOption, options Options) *Store {
	t.Helper()
	s, err := Connect(o, &options)
	if err != nil {
		t.Fatal(err)
	}
	s.page = 7
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestConformanceOfCluster: through a client of the cluster. A loss is a server that goes back to its last dump, before
// the others give it up.
func TestConformanceOfCluster(t *testing.T) {
	shapesTested(t)
	c := startCluster(t, time.Minute)
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		options := Options{Prefix: prefixOf(t), Replicas: 1}
		primary, _ := c.pair(t, options.Prefix)
		h := harness(t, primary, options)
		first := opened(t, c.option(), options)
		heard(t, first)
		h.Open = func(t *testing.T) driver.Store { return opened(t, c.option(), options) }
		h.Hang = func(*testing.T) func() {
			primary.Stop()
			return func() {
				primary.Continue()
				online(t, primary.Addr, 1)
				heard(t, first)
			}
		}
		h.Lose = func(t *testing.T) func() {
			mustDo(t, primary.Addr, "SAVE")
			dump, err := os.ReadFile(filepath.Join(primary.Data, "dump.rdb"))
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				primary.Restore("dump.rdb", dump)
				online(t, primary.Addr, 1)
				heard(t, first)
			}
		}
		return h
	})
}

// longerThanFailovers is a lease that outlives a failover, if its record does.
const longerThanFailovers = 8 * time.Second

// take takes a lock, also when no server can be reached for a while. It returns nil once ctx has ended.
func take(ctx context.Context, client *tenure.Client, name string) *tenure.Lease {
	for {
		lease, err := client.Acquire(ctx, name, nil)
		if err == nil {
			return lease
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// contest is locks that many want. Each grant is compared with the one before.
type contest struct {
	t  *testing.T
	mu sync.Mutex
	by map[string]*tenure.Lease

	grants []grant // in their order
}

type grant struct {
	at    time.Time
	token uint64
}

// run takes a lock, and releases it, until ctx ends.
func (c *contest) run(ctx context.Context, client *tenure.Client, name string) {
	for lease := take(ctx, client, name); lease != nil; lease = take(ctx, client, name) {
		c.mu.Lock()
		if before := c.by[name]; before != nil {
			if before.Check() == nil && lease.Check() == nil {
				c.t.Errorf("%q is held twice, under %d and %d", name, before.Token(), lease.Token())
			}
			if before.Token() >= lease.Token() {
				c.t.Errorf("%q: token %d follows %d", name, lease.Token(), before.Token())
			}
		}
		c.by[name] = lease
		c.grants = append(c.grants, grant{time.Now(), lease.Token()})
		c.mu.Unlock()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = lease.Release(soon)
		cancel()
	}
}

// after returns the first grant of the life that began at an instant. A client may learn in it that a claim
// of the life before was granted: its token is no higher.
func (c *contest) after(at time.Time) (time.Time, error) {
	const jump = 1 << 19 // tokens of two lives are further apart
	c.mu.Lock()
	defer c.mu.Unlock()
	highest := uint64(0)
	for _, g := range c.grants {
		switch {
		case !g.at.After(at):
			highest = max(highest, g.token)
		case g.token > highest+jump:
			return g.at, nil
		}
	}
	return time.Time{}, errors.New("no lock was granted")
}

// failure kills a primary, and returns when it did, and when it heard of another one.
type failure func() (killed, promoted time.Time)

// failovers makes clients contend while primaries fail, one after the other.
func failovers(t *testing.T, o rueidis.ClientOption, options Options, fail failure) {
	t.Helper()
	const times, locks, held = 5, 8, 16
	s := opened(t, o, options)
	enginetest.Eventually(t, "a store", func(ctx context.Context) error {
		_, err := s.Create(ctx, driver.CreateOptions{})
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	c := &contest{t: t, by: map[string]*tenure.Lease{}}
	for range 2 {
		client := clientOn(t, opened(t, o, options), options.Lease)
		for i := range locks {
			wg.Go(func() { c.run(ctx, client, fmt.Sprint("lock-", i)) })
		}
	}
	steady := clientOn(t, opened(t, o, options), options.Lease)
	var leases [held]*tenure.Lease
	hold := func() (lost int) {
		var wg sync.WaitGroup
		for i, lease := range leases {
			if lease == nil || lease.Check() != nil {
				lost++
				wg.Go(func() { leases[i] = take(ctx, steady, fmt.Sprint("held-", i)) })
			}
		}
		wg.Wait()
		return lost
	}
	hold()
	for round := range times {
		killed, promoted := fail()
		var granted time.Time
		enginetest.Eventually(t, "a grant in the new life", func(context.Context) (err error) {
			granted, err = c.after(promoted)
			return err
		})
		t.Logf("failover %d: another primary after %v, the first grant %v later, where Waits is %v; %d of %d leases were lost",
			round+1, promoted.Sub(killed).Round(time.Millisecond), granted.Sub(promoted).Round(time.Millisecond),
			s.Waits(), hold(), held)
	}
	cancel()
	wg.Wait()
	t.Logf("%d grants", len(c.grants))
}

// TestFailoversOfCluster: a primary is killed, and its replica promoted, five times.
func TestFailoversOfCluster(t *testing.T) {
	shapesTested(t)
	c := startCluster(t, 2*time.Second, kept...)
	options := Options{Replicas: 1, Lease: longerThanFailovers}
	primary, replica := c.pair(t, DefaultPrefix)
	failovers(t, c.option(), options, func() (killed, promoted time.Time) {
		killed = time.Now()
		primary.Kill()
		enginetest.Eventually(t, "a promotion", func(context.Context) error {
			if role := info(t, replica.Addr, "replication", "role"); role != "master" {
				return errors.New(role)
			}
			return nil
		})
		promoted = time.Now()
		primary.Start()
		primary.Await()
		primary, replica = replica, primary
		online(t, primary.Addr, 1)
		return killed, promoted
	})
}

// TestFailoversOfSentinels: three servers with a Sentinel beside each. The primary is killed five times.
func TestFailoversOfSentinels(t *testing.T) {
	shapesTested(t)
	servers := []*enginetest.Engine{enginetest.StartRedis(t, kept...)}
	for range 2 {
		follows := append(slices.Clone(kept), "--replicaof", strings.Replace(servers[0].Addr, ":", " ", 1))
		servers = append(servers, enginetest.StartRedis(t, follows...))
	}
	online(t, servers[0].Addr, 2)
	var o rueidis.ClientOption
	o.Sentinel.MasterSet = "main"
	for range servers {
		addr := startSentinel(t, servers[0].Addr, 2,
			"sentinel down-after-milliseconds main 1000", "sentinel failover-timeout main 5000")
		o.InitAddress = append(o.InitAddress, addr)
	}
	primary := func() (*enginetest.Engine, error) {
		at, err := do(t, o.InitAddress[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main").AsStrSlice()
		if err != nil {
			return nil, err
		}
		for _, s := range servers {
			if s.Addr == strings.Join(at, ":") {
				return s, nil
			}
		}
		return nil, fmt.Errorf("the primary is %q", at)
	}
	known := func() { // so that the Sentinels can decide
		for _, addr := range o.InitAddress {
			enginetest.Eventually(t, "Sentinels that know each other and the replicas", func(context.Context) error {
				of, err := do(t, addr, "SENTINEL", "MASTER", "main").AsStrMap()
				if err == nil && (of["num-other-sentinels"] != "2" || of["num-slaves"] != "2" || of["flags"] != "master") {
					err = fmt.Errorf("%v", of)
				}
				return err
			})
		}
	}
	known()
	options := Options{Replicas: 2, Quorum: true, Lease: longerThanFailovers}
	failovers(t, o, options, func() (killed, promoted time.Time) {
		known()
		old, err := primary()
		if err != nil {
			t.Fatal(err)
		}
		killed = time.Now()
		old.Kill()
		enginetest.Eventually(t, "a promotion", func(context.Context) error {
			now, err := primary()
			if err == nil && now == old {
				err = errors.New("the primary is the old one")
			}
			return err
		})
		promoted = time.Now()
		old.Start()
		old.Await()
		return killed, promoted
	})
}
