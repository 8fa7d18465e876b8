// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// clientOn returns a client of the library on a store, whose leases are short.
func clientOn(t *testing.T, s *Store, lease time.Duration) *tenure.Client {
	t.Helper()
	c, err := tenure.New(s, &tenure.Options{LeaseDuration: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the server may be gone
	})
	return c
}

// TestLostGrant: a grant that a power cut has taken back is over before the next one, whose token is higher.
func TestLostGrant(t *testing.T) {
	enginetest.MakeVerify(t)
	const lease = 2 * time.Second
	server := enginetest.StartRedis(t)
	options := Options{Lease: lease}
	created(t, server.Addr, options)
	first := clientOn(t, mustOpen(t, server.Addr, options), lease)
	kept, err := first.Acquire(t.Context(), "kept", nil)
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, server.Addr, "SAVE")
	dump, err := os.ReadFile(filepath.Join(server.Data, "dump.rdb"))
	if err != nil {
		t.Fatal(err)
	}
	lost, err := first.Acquire(t.Context(), "lost", nil)
	if err != nil {
		t.Fatal(err)
	}
	server.Restore("dump.rdb", dump)
	restarted := time.Now()
	ended := make(chan time.Time, 1)
	go func() {
		<-lost.Context().Done()
		ended <- time.Now()
	}()
	second := clientOn(t, mustOpen(t, server.Addr, options), lease)
	next, err := second.Acquire(t.Context(), "lost", nil)
	granted := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	if at := <-ended; at.After(granted) {
		t.Errorf("two held the lock for %v", at.Sub(granted))
	}
	if wait := granted.Sub(restarted); wait < lease {
		t.Errorf("the lock was granted %v after the restart", wait)
	}
	if next.Token() <= lost.Token() {
		t.Errorf("token %d follows %d", next.Token(), lost.Token())
	}
	if err := kept.Check(); err != nil {
		t.Errorf("the holder whose record survived: %v", err)
	}
	t.Logf("granted %v after the restart began, token %d after %d", granted.Sub(restarted).Round(time.Millisecond), next.Token(), lost.Token())
}

// TestSentinel: the client follows a failover by a Sentinel, and nothing is granted until the life is opened.
func TestSentinel(t *testing.T) {
	enginetest.MakeVerify(t)
	one := enginetest.StartRedis(t)
	two := enginetest.StartRedis(t, "--replicaof", strings.Replace(one.Addr, ":", " ", 1))
	inSync(t, two.Addr)
	sentinel := startSentinel(t, one.Addr, 1)
	s := throughSentinel(t, sentinel)
	rec := mustClaim(t, s, held("a"))
	life := rec.Life
	mustDo(t, one.Addr, "WAIT", "1", "0")
	enginetest.Eventually(t, "a Sentinel that knows the replica", func(context.Context) error {
		return do(t, sentinel, "SENTINEL", "FAILOVER", "main").Error()
	})
	enginetest.Eventually(t, "a heartbeat on the other server", func(ctx context.Context) error {
		rec.Life = "" // a holder's writes are bound to no life
		now, err := s.Swap(ctx, rec, next(rec, driver.Held))
		if conflict, ok := errors.AsType[*driver.ConflictError](err); ok {
			rec = conflict.Current // an earlier one was written, without an answer
		}
		if err != nil {
			return err
		}
		if rec = now; now.Life == life {
			return errors.New("the life is the old one")
		}
		return nil
	})
	_, _, err := s.Claim(t.Context(), held("b"))
	want(t, "a claim in the new life", err, "reserved")
	open := held("b")
	open.Opens = driver.OpeningOf(rec.Life, time.Now())
	_, _, err = s.Claim(t.Context(), open)
	want(t, "the first claim in the new life", err, "released")
	mustClaim(t, s, held("b"))
}

// throughSentinel creates a store on the primary that a Sentinel names, and waits until its replica has the store.
func throughSentinel(t *testing.T, sentinel string) *Store {
	t.Helper()
	at := rueidis.ClientOption{InitAddress: []string{sentinel}}
	at.Sentinel.MasterSet = "main"
	s, err := Connect(at, &Options{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	enginetest.Eventually(t, "a store", func(ctx context.Context) error {
		_, err := s.Create(ctx, driver.CreateOptions{})
		return err
	})
	heard(t, s)
	return s
}

// TestSentinelLeavesHungPrimary: calls to a primary that hangs end when the client goes to another one. The store
// is not closed then.
func TestSentinelLeavesHungPrimary(t *testing.T) {
	enginetest.MakeVerify(t)
	one := enginetest.StartRedis(t)
	two := enginetest.StartRedis(t, "--replicaof", strings.Replace(one.Addr, ":", " ", 1))
	inSync(t, two.Addr)
	sentinel := startSentinel(t, one.Addr, 1, "sentinel down-after-milliseconds main 1000")
	s := throughSentinel(t, sentinel)
	enginetest.Eventually(t, "a Sentinel that knows the replica", func(context.Context) error {
		of, err := do(t, sentinel, "SENTINEL", "MASTER", "main").AsStrMap()
		if err == nil && of["num-slaves"] != "1" {
			err = errors.New("it knows no replica")
		}
		return err
	})
	one.Stop()
	t.Cleanup(one.Continue)
	enginetest.Eventually(t, "a read from the other server", func(ctx context.Context) error {
		_, err := s.Get(ctx, "a", driver.Strong)
		if errors.Is(err, driver.ErrClosed) {
			t.Errorf("the store is called closed: %v", err)
		}
		return err
	})
}

// startSentinel starts a Sentinel that watches the primary at an address, which it calls main. So many
// Sentinels must agree that it is down. Settings are more lines of its configuration.
func startSentinel(t *testing.T, primary string, quorum int, settings ...string) (addr string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	port := enginetest.FreePort(t)
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	config := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor main %s %d\n%s\n",
		port, strings.Replace(primary, ":", " ", 1), quorum, strings.Join(settings, "\n"))
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	e := enginetest.NewEngine(t, []string{program, file, "--sentinel"}, nil, func() error {
		client, err := rueidis.NewClient(option(addr))
		if err == nil {
			client.Close()
		}
		return err
	})
	e.Start()
	e.Await()
	return addr
}

// TestCluster: all keys of a store are in one slot, and the client of a cluster finds them.
func TestCluster(t *testing.T) {
	server := enginetest.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(enginetest.FreePort(t)))
	mustDo(t, server.Addr, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	enginetest.Eventually(t, "a cluster", func(context.Context) error {
		text, err := mustDo(t, server.Addr, "CLUSTER", "INFO").ToString()
		if err == nil && !strings.Contains(text, "cluster_state:ok") {
			err = errors.New(text)
		}
		return err
	})
	s, err := Connect(rueidis.ClientOption{InitAddress: []string{server.Addr}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Create(t.Context(), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 10)
	stop, err := s.Watch(t.Context(), "a", func() { heard <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	rec := mustClaim(t, s, held("a"))
	rec = mustSwap(t, s, rec, next(rec, driver.Released))
	<-heard
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Records) != 1 || page.Records[0].Version != rec.Version {
		t.Errorf("the list is %v, %v", page, err)
	}
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Error(err)
	}
}

// killFor is how long TestKilled runs, unless TENURE_REDIS_KILL has another duration.
const killFor = 6 * time.Second

// TestKilled kills the server under load, again and again. With the guard it starts with a part of the last writes; a
// single server that loses nothing has all of them. No token of a lock is granted twice.
func TestKilled(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Run("guard", func(t *testing.T) { killed(t, Options{}, "everysec", cut) })
	t.Run("single", func(t *testing.T) {
		killed(t, Options{Single: true}, "always", func(*testing.T, string) int { return 0 })
	})
}

// killed kills a server that stores keep records on, and has something be lost each time.
func killed(t *testing.T, options Options, fsync string, lose func(t *testing.T, data string) int) {
	t.Helper()
	run := killFor
	if d, err := time.ParseDuration(os.Getenv("TENURE_REDIS_KILL")); err == nil {
		run = d
	}
	server := enginetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", fsync)
	created(t, server.Addr, options)
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	const locks = 32
	var granted, unknown atomic.Int64
	var all [locks]map[uint64]int
	var wg sync.WaitGroup
	for i := range locks {
		s := mustOpen(t, server.Addr, options)
		all[i] = map[uint64]int{}
		wg.Go(func() {
			load(ctx, s, fmt.Sprint("lock-", i), func(token uint64) {
				all[i][token]++
				granted.Add(1)
			}, func() { unknown.Add(1) })
		})
	}
	kills, back := 0, 0
	for ctx.Err() == nil {
		select {
		case <-time.After(700 * time.Millisecond):
		case <-ctx.Done():
		}
		server.Kill()
		back += lose(t, server.Data)
		server.Start()
		server.Await()
		kills++
	}
	wg.Wait()
	for i, tokens := range all {
		for token, n := range tokens {
			if n > 1 {
				t.Errorf("lock %d: token %d was granted %d times", i, token, n)
			}
		}
	}
	if granted.Load() < locks {
		t.Errorf("there were %d grants", granted.Load())
	}
	t.Logf("%d kills, %d of them with writes cut off, %d grants, %d calls without an answer", kills, back, granted.Load(), unknown.Load())
}

// cut takes the last bytes from the log of the server's writes, as a power cut does, and reports whether there were any.
// While the server rewrites its log there are several files: then the last one, whose number is the highest.
func cut(t *testing.T, data string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the server has no log: %v", err)
	}
	file := slices.MaxFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	is, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if is.Size() <= 1<<15 {
		return 0
	}
	if err := os.Truncate(file, is.Size()-1<<14); err != nil {
		t.Fatal(err)
	}
	return 1
}

// load claims and releases a lock until ctx ends, as one of its processes that has waited long enough in each life.
func load(ctx context.Context, s *Store, key string, granted func(token uint64), unknown func()) {
	var opens driver.Opening
	for ctx.Err() == nil {
		claim := held(key)
		claim.Opens = opens
		now, _, err := s.Claim(ctx, claim)
		var conflict *driver.ConflictError
		switch {
		case err == nil:
			granted(now.Token)
		case errors.As(err, &conflict):
			current := conflict.Current
			opens = driver.OpeningOf(current.Life, time.Now())
			if current.State == driver.Held { // its own, whose answer was lost, or a release that was lost
				free := next(current, driver.Released)
				free.Opens = opens
				_, _ = s.Swap(ctx, current, free)
			}
			continue
		default:
			unknown()
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if _, err = s.Swap(ctx, now, next(now, driver.Released)); err != nil {
			unknown()
		}
	}
}
