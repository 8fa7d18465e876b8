// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

var serial atomic.Int64

func fresh() string { return fmt.Sprint("v-", serial.Add(1)) }

// held is a record that may be claimed.
func held(key string) driver.Record {
	v := fresh()
	return driver.Record{Key: key, Version: v, Beat: v, Owner: "o", Lease: 10 * time.Second, State: driver.Held}
}

func next(rec driver.Record, state driver.State) driver.Record {
	rec.Version = fresh()
	rec.State = state
	if state == driver.Held {
		rec.Beat = rec.Version
	} else {
		rec.End = driver.EndReleased
	}
	return rec
}

func mustClaim(t testing.TB, s driver.Store, rec driver.Record) driver.Record {
	t.Helper()
	now, _, err := s.Claim(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func mustSwap(t testing.TB, s driver.Store, prev, next driver.Record) driver.Record {
	t.Helper()
	now, err := s.Swap(t.Context(), prev, next)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// want fails the test unless an error matches all of these, and has a piece of text.
func want(t testing.TB, what string, err error, text string, all ...error) {
	t.Helper()
	for _, target := range all {
		if !errors.Is(err, target) {
			t.Errorf("%s: %v does not match %q", what, err, target)
		}
	}
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: the error is %v, want %q in it", what, err, text)
	}
}

// operations are all calls of a store about a record, which may be held.
func operations(rec driver.Record) map[string]func(context.Context, *Store) error {
	return map[string]func(context.Context, *Store) error{
		"Get": func(ctx context.Context, s *Store) error {
			_, err := s.Get(ctx, rec.Key, driver.Strong)
			return err
		},
		"GetBatch": func(ctx context.Context, s *Store) error {
			_, err := s.GetBatch(ctx, []string{rec.Key}, driver.Strong)
			return err
		},
		"List": func(ctx context.Context, s *Store) error {
			_, err := s.List(ctx, "", "")
			return err
		},
		"Claim": func(ctx context.Context, s *Store) error {
			_, _, err := s.Claim(ctx, held(rec.Key+"-other"))
			return err
		},
		"Swap": func(ctx context.Context, s *Store) error {
			_, err := s.Swap(ctx, rec, next(rec, driver.Held))
			return err
		},
		"Raise": func(ctx context.Context, s *Store) error {
			raised := next(rec, driver.Released)
			raised.Token += 5
			_, err := s.Raise(ctx, rec, raised)
			return err
		},
		"Delete": func(ctx context.Context, s *Store) error { return s.Delete(ctx, rec) },
	}
}

// TestReplaced: when the store's own record is gone, or is another one, every call says so, for ever.
func TestReplaced(t *testing.T) {
	server := enginetest.StartRedis(t)
	for name, replace := range map[string]func(){
		"Emptied":   func() { mustDo(t, server.Addr, "FLUSHALL") },
		"Restarted": func() { server.Kill(); server.Start(); server.Await() }, // without any data
		"Another": func() {
			mustDo(t, server.Addr, "FLUSHALL")
			created(t, server.Addr, Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			mustDo(t, server.Addr, "FLUSHALL")
			s := created(t, server.Addr, Options{})
			rec := mustClaim(t, s, held("a"))
			replace()
			if _, err := s.Get(t.Context(), "a", driver.Strong); !errors.Is(err, driver.ErrReplaced) {
				_, err = s.Get(t.Context(), "a", driver.Strong) // a broken connection comes first
				want(t, "Get", err, "tenure table create", driver.ErrReplaced)
			}
			for op, do := range operations(rec) {
				want(t, op, do(t.Context(), s), "stop all programs", driver.ErrReplaced, driver.ErrNotApplied)
			}
			created(t, server.Addr, Options{})
			want(t, "Get, once a store is back", operations(rec)["Get"](t.Context(), s), "", driver.ErrReplaced)
		})
	}
}

// TestCreate: a store is made once, with the same options for all.
func TestCreate(t *testing.T) {
	server := enginetest.StartRedis(t)
	_, err := Open(t.Context(), option(server.Addr), nil)
	want(t, "Open without a store", err, "tenure table create", driver.ErrPermanent, driver.ErrNotApplied)

	s := created(t, server.Addr, Options{})
	if s.Waits() != DefaultLease {
		t.Errorf("one server waits %v", s.Waits())
	}
	did, err := s.Create(t.Context(), driver.CreateOptions{})
	if err != nil || did != `store "tenure" exists already` {
		t.Errorf("Create again: %q, %v", did, err)
	}
	longer := Options{Lease: time.Minute}
	_, err = Open(t.Context(), option(server.Addr), &longer)
	want(t, "Open with other options", err, "lease=15s", driver.ErrPermanent, driver.ErrNotApplied)
	_, err = connect(t, server.Addr, longer).Create(t.Context(), driver.CreateOptions{})
	want(t, "Create with other options", err, "delete the key {tenure}:life", driver.ErrUnfit)
	if rec := mustClaim(t, s, held("a")); rec.Token != 1 {
		t.Errorf("the first token is %d", rec.Token)
	}

	// A store that is made again over records does not go on from their tokens: some may be lost.
	mustDo(t, server.Addr, "DEL", "{tenure}:life")
	s = created(t, server.Addr, Options{})
	_, _, err = s.Claim(t.Context(), held("b"))
	want(t, "first claim in a store that was made again", err, "token 1")
	if rec := mustClaim(t, s, held("b")); rec.Token < 1<<40 {
		t.Errorf("the token is %d", rec.Token)
	}
	mustDo(t, server.Addr, "HSET", "{tenure}:life", "f", "2")
	_, err = Open(t.Context(), option(server.Addr), nil)
	want(t, "Open of a later format", err, "upgrade", driver.ErrPermanent)
}

// TestOptions refuses what does not fit together.
func TestOptions(t *testing.T) {
	for text, o := range map[string]Options{
		"prefix":           {Prefix: "a}b"},
		"whole millise":    {Lease: time.Microsecond},
		"whole seconds":    {Replicas: 1, Lag: 1500 * time.Millisecond},
		"about replicas":   {Lag: time.Second},
		"needs 2 replicas": {Replicas: 1, Quorum: true},
		"0 to 100":         {Replicas: -1},
		"loses nothing":    {Single: true, Lease: time.Second},
	} {
		_, err := Connect(option("127.0.0.1:1"), &o)
		want(t, text, err, text)
	}
	for waits, o := range map[time.Duration]*Options{
		15 * time.Second:         nil,
		20500 * time.Millisecond: {Replicas: 1},
		26 * time.Second:         {Replicas: 2, Quorum: true},
		63300 * time.Millisecond: {Lease: time.Minute, Replicas: 1, Lag: time.Second},
		0:                        {Single: true},
	} {
		if set, err := o.settings(); err != nil || set.waits != waits {
			t.Errorf("%+v waits %v, want %v: %v", o, set.waits, waits, err)
		}
	}
}

// TestRefused: what Open refuses.
func TestRefused(t *testing.T) {
	server := enginetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "everysec")
	created(t, server.Addr, Options{})
	refused := func(text string, o Options) {
		t.Helper()
		_, err := Open(t.Context(), option(server.Addr), &o)
		want(t, text, err, text, driver.ErrPermanent, driver.ErrNotApplied)
	}
	set := func(name, value string) { mustDo(t, server.Addr, "CONFIG", "SET", name, value) }
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random"} {
		set("maxmemory-policy", policy)
		refused("maxmemory-policy is "+policy, Options{})
	}
	set("maxmemory-policy", "volatile-ttl")
	mustOpen(t, server.Addr, Options{})
	set("replica-read-only", "no")
	refused("replica-read-only is no", Options{})
	set("replica-read-only", "yes")

	refused("appendfsync is everysec", Options{Prefix: "one", Single: true})
	set("appendfsync", "always")
	set("no-appendfsync-on-rewrite", "yes")
	refused("no-appendfsync-on-rewrite is yes", Options{Prefix: "one", Single: true})
	set("no-appendfsync-on-rewrite", "no")
	created(t, server.Addr, Options{Prefix: "one", Single: true})
	mustDo(t, server.Addr, "ACL", "SETUSER", "default", "-config|get")
	_, err := Open(t.Context(), option(server.Addr), &Options{Prefix: "one", Single: true})
	want(t, "a configuration that may not be read", err, "grant +config|get", driver.ErrPermanent)
	mustOpen(t, server.Addr, Options{}) // it is not needed
	mustDo(t, server.Addr, "ACL", "SETUSER", "default", "+config|get")
	set("appendonly", "no")
	refused("appendonly is no", Options{Prefix: "one", Single: true})

	replica := enginetest.StartRedis(t, "--replicaof", strings.Replace(server.Addr, ":", " ", 1))
	inSync(t, replica.Addr)
	refused("1 replica connected, and the store counts on 0", Options{})
	_, err = Open(t.Context(), option(replica.Addr), nil)
	want(t, "a replica", err, "name the primary", driver.ErrNotApplied)
}

// TestClientOfTheProgram: a store on the program's own client leaves it open.
func TestClientOfTheProgram(t *testing.T) {
	if _, err := New(nil, nil); err == nil {
		t.Error("a store without a client")
	}
	server := enginetest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	options := Options{Prefix: prefixOf(t), Single: true}
	created(t, server.Addr, options)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s, err := New(client, &options)
	if err != nil {
		t.Fatal(err)
	}
	now := mustClaim(t, s, held("a"))
	mustSwap(t, s, now, next(now, driver.Released))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_, err = s.Get(t.Context(), "a", driver.Strong)
	want(t, "a read of a closed store", err, "", driver.ErrClosed)
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Errorf("the client of the program: %v", err)
	}
}

// TestKinds: which servers are refused by what they say of themselves.
func TestKinds(t *testing.T) {
	set, err := (*Options)(nil).settings()
	if err != nil {
		t.Fatal(err)
	}
	for text, d := range map[string]server{
		"":                {name: "Redis", version: "7.0.15", primary: true},
		"Redis 6.2.1":     {name: "Redis", version: "6.2.1", primary: true},
		"Dragonfly":       {version: "7.4.0", about: "Dragonfly", primary: true},
		"neither Redis":   {version: "7.4.0", primary: true},
		"name the primar": {name: "Valkey", version: "8.0.1"},
	} {
		err := d.refused(&set)
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%+v: %v, want %q", d, err, text)
		}
	}
}

// inSync waits until a replica follows its primary, and the primary has heard of it.
func inSync(t testing.TB, addr string) {
	t.Helper()
	enginetest.Eventually(t, "a replica that follows", func(context.Context) error {
		if is := info(t, addr, "replication", "master_link_status"); is != "up" {
			return fmt.Errorf("the link is %q", is)
		}
		primary := info(t, addr, "replication", "master_host") + ":" + info(t, addr, "replication", "master_port")
		seen, err := mustDo(t, primary, "INFO", "replication").ToString()
		_, port, _ := strings.Cut(addr, ":")
		if err == nil && !strings.Contains(seen, "port="+port+",state=online") {
			err = errors.New(seen)
		}
		return err
	})
}

// heard waits until the primary knows that its replicas follow, so that it takes writes.
func heard(t testing.TB, s *Store) {
	t.Helper()
	enginetest.Eventually(t, "a primary whose replicas have answered", func(ctx context.Context) error {
		rec := held(fresh())
		_, err := s.Swap(ctx, rec, next(rec, driver.Held))
		if _, answered := errors.AsType[*driver.ConflictError](err); answered {
			return nil
		}
		return err
	})
}

// TestReplicas: no write is made while a replica is silent, or one is too many.
func TestReplicas(t *testing.T) {
	primary := enginetest.StartRedis(t)
	follows := []string{"--replicaof", strings.Replace(primary.Addr, ":", " ", 1)}
	replica := enginetest.StartRedis(t, follows...)
	inSync(t, replica.Addr)
	options := Options{Replicas: 1}
	s := created(t, primary.Addr, options)
	works := func(what string) {
		enginetest.Eventually(t, what, func(ctx context.Context) error {
			_, _, err := s.Claim(ctx, held(fresh()))
			return err
		})
	}
	works("a replica")
	rec := mustClaim(t, s, held("a"))
	long := held("long")
	long.Lease = DefaultLease + time.Millisecond // less than contenders wait
	_, _, err := s.Claim(t.Context(), long)
	want(t, "a lease that is too long", err, "the longest of this store is 15s", errors.ErrUnsupported, driver.ErrNotApplied)
	refuses := func(what, text string) {
		t.Helper()
		enginetest.Eventually(t, what, func(ctx context.Context) error {
			_, _, err := s.Claim(ctx, held(fresh()))
			if err == nil {
				return errors.New("a write was made")
			}
			if !strings.Contains(err.Error(), text) { // a busy machine may be late with its answers
				return err
			}
			want(t, what, err, text, driver.ErrNotApplied)
			return nil
		})
		for op, do := range operations(rec) {
			if err := do(t.Context(), s); strings.HasPrefix(op, "Get") || op == "List" {
				if err != nil {
					t.Errorf("%s: %s: %v", what, op, err)
				}
			} else {
				want(t, what+": "+op, err, text, driver.ErrNotApplied)
			}
		}
		if got, err := s.Get(t.Context(), "a", driver.Strong); err != nil || got.Version != rec.Version {
			t.Errorf("%s: the record is %v, %v", what, got, err)
		}
	}
	replica.Stop()
	refuses("a silent replica", "0 replicas are online")
	replica.Continue()
	works("a replica that answers again")
	other := enginetest.StartRedis(t, follows...)
	inSync(t, other.Addr)
	refuses("a replica too many", "2 replicas are online")
	other.End(syscall.SIGTERM)
	works("one replica")
}

// TestFailover: a replica that lacks the last writes is promoted.
func TestFailover(t *testing.T) {
	primary := enginetest.StartRedis(t)
	relay := enginetest.NewRelay(t, primary.Addr)
	replica := enginetest.StartRedis(t, "--replicaof", strings.Replace(relay.Addr, ":", " ", 1))
	inSync(t, replica.Addr)
	options := Options{Replicas: 1}
	s := created(t, primary.Addr, options)
	heard(t, s)
	free := mustClaim(t, s, held("free"))
	free = mustSwap(t, s, free, next(free, driver.Released))
	kept := mustClaim(t, s, held("kept"))
	kept.Life = "" // a holder's writes are bound to no life
	mustDo(t, primary.Addr, "WAIT", "1", "0")
	resume := relay.Hold()
	lost := mustClaim(t, s, held("free")) // within the lag
	mustClaim(t, s, held("new"))
	mustDo(t, replica.Addr, "REPLICAOF", "NO", "ONE")
	primary.Kill()
	resume()

	// The new primary has no replica yet: no write is made.
	after := connect(t, replica.Addr, options)
	_, err := after.Swap(t.Context(), kept, next(kept, driver.Held))
	want(t, "a heartbeat without a replica", err, "0 replicas", driver.ErrNotApplied)
	second := enginetest.StartRedis(t, "--replicaof", strings.Replace(replica.Addr, ":", " ", 1))
	inSync(t, second.Addr)
	enginetest.Eventually(t, "a heartbeat of a record that survived", func(ctx context.Context) error {
		now, err := after.Swap(ctx, kept, next(kept, driver.Held))
		if err == nil {
			kept = now
		}
		return err
	})
	shown, err := after.Get(t.Context(), "free", driver.Strong)
	if err != nil || shown.State != driver.Reserved || shown.Version != shown.Life || shown.Token != free.Token || shown.Life == lost.Life {
		t.Errorf("the lock is shown as %+v, %v; want it reserved for nobody, under token %d", shown, err, free.Token)
	}
	for _, key := range []string{"free", "new"} {
		_, _, err := after.Claim(t.Context(), held(key))
		conflict := (*driver.ConflictError)(nil)
		if !errors.As(err, &conflict) || conflict.Current.State != driver.Reserved {
			t.Errorf("claim of %q in a closed life: %v", key, err)
		}
	}
	raised := next(shown, driver.Released)
	raised.Token, raised.Owner = shown.Token+5, "o"
	_, err = after.Raise(t.Context(), shown, raised)
	want(t, "a raise in a closed life", err, "reserved")
	open := held("free")
	open.Opens = driver.OpeningOf(shown.Life, time.Now())
	_, _, err = after.Claim(t.Context(), open)
	want(t, "the first claim in a life", err, "released")
	if now := mustClaim(t, after, held("free")); now.Token <= lost.Token || now.Token < 1<<40 {
		t.Errorf("token %d follows %d, which was lost", now.Token, lost.Token)
	}
}

// TestDemoted: a server that was demoted answers nothing, although the client is connected to it.
func TestDemoted(t *testing.T) {
	server := enginetest.StartRedis(t)
	s := created(t, server.Addr, Options{})
	rec := mustClaim(t, s, held("a"))
	other := enginetest.StartRedis(t)
	mustDo(t, server.Addr, "REPLICAOF", "127.0.0.1", strings.TrimPrefix(other.Addr, "127.0.0.1:"))
	for op, do := range operations(rec) {
		want(t, op, do(t.Context(), s), "is a replica", driver.ErrNotApplied)
	}
}

// TestRequests: each operation is one request, conflicts included.
func TestRequests(t *testing.T) {
	server := enginetest.StartRedis(t)
	s := created(t, server.Addr, Options{})
	other := mustOpen(t, server.Addr, Options{})
	rec := mustClaim(t, s, held("a"))
	rec = mustSwap(t, s, rec, next(rec, driver.Held))
	if _, err := s.List(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	_ = s.Delete(t.Context(), driver.Record{Key: "none", Version: "v", Token: 1})

	conflict := func(err error) error {
		if c := (*driver.ConflictError)(nil); errors.As(err, &c) {
			return nil
		}
		return fmt.Errorf("no conflict: %w", err)
	}
	count := func(what string, requests int, do func() error) {
		t.Helper()
		mustDo(t, server.Addr, "CONFIG", "RESETSTAT")
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := calls(t, server.Addr, "evalsha"); n != requests {
			t.Errorf("%s: %d requests, want %d", what, n, requests)
		}
		if n := calls(t, server.Addr, "eval"); n > 0 {
			t.Errorf("%s: %d scripts were sent whole", what, n)
		}
	}
	count("claim of an absent lock", 1, func() error { mustClaim(t, s, held("b")); return nil })
	count("claim of a held lock", 1, func() error {
		_, _, err := other.Claim(t.Context(), held("b"))
		return conflict(err)
	})
	count("heartbeat", 1, func() error { rec = mustSwap(t, s, rec, next(rec, driver.Held)); return nil })
	count("conflict of a heartbeat", 1, func() error {
		_, err := other.Swap(t.Context(), driver.Record{Key: "a", Version: "x", Token: 1}, next(rec, driver.Held))
		return conflict(err)
	})
	count("release", 1, func() error { rec = mustSwap(t, s, rec, next(rec, driver.Released)); return nil })
	count("claim of a lock that another process has released", 1, func() error { rec = mustClaim(t, other, held("a")); return nil })
	count("get", 1, func() error { _, err := s.Get(t.Context(), "a", driver.Strong); return err })
	count("batch of 200", 1, func() error {
		_, err := s.GetBatch(t.Context(), make([]string, 200), driver.Strong)
		return err
	})
	count("page", 2, func() error { _, err := s.List(t.Context(), "", ""); return err })
	count("deletion", 1, func() error { return s.Delete(t.Context(), rec) })
}

// calls is how often clients have sent a command.
func calls(t testing.TB, addr, command string) int {
	t.Helper()
	text := info(t, addr, "commandstats", "cmdstat_"+command)
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "calls="), ",")
	n, _ := strconv.Atoi(text)
	return n
}

// TestForgottenScripts: a server that has forgotten the scripts gets them again.
func TestForgottenScripts(t *testing.T) {
	server := enginetest.StartRedis(t)
	s := created(t, server.Addr, Options{})
	rec := mustClaim(t, s, held("a"))
	for op, do := range operations(rec) {
		mustDo(t, server.Addr, "SCRIPT", "FLUSH")
		err := do(t.Context(), s)
		if c := (*driver.ConflictError)(nil); err != nil && !errors.As(err, &c) && !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestRights: the policy is enough, and what is missing is refused before anything is written.
func TestRights(t *testing.T) {
	server := enginetest.StartRedis(t)
	s := created(t, server.Addr, Options{})
	user := func(readOnly bool, more ...string) *Store {
		t.Helper()
		text, _, err := s.Policy(t.Context(), driver.PolicyOptions{Role: "app", ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Fields(strings.Replace(text, "PASSWORD", "secret", 1))
		mustDo(t, server.Addr, "ACL", "DELUSER", "app")
		mustDo(t, server.Addr, append(line, more...)...)
		o := option(server.Addr)
		o.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Username: "app", Password: "secret"}, nil
		}
		s, err := Connect(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	all := func(s *Store) {
		t.Helper()
		heard := make(chan struct{}, 1)
		stop, err := s.Watch(t.Context(), "a", func() {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		rec := mustClaim(t, s, held("a"))
		rec = mustSwap(t, s, rec, next(rec, driver.Released))
		<-heard
		if _, err := s.List(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
		if err := s.Delete(t.Context(), rec); err != nil {
			t.Error(err)
		}
	}
	all(user(false))
	mustDo(t, server.Addr, "SCRIPT", "FLUSH")
	all(user(false))

	reader := user(true)
	if _, err := reader.Get(t.Context(), "a", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
	_, _, err := reader.Claim(t.Context(), held("a"))
	want(t, "claim of a reader", err, "tenure table policy", driver.ErrPermanent, driver.ErrNotApplied)

	// Without the channel a write is made, and is no error.
	deaf := user(false, "resetchannels")
	rec := mustClaim(t, deaf, held("a"))
	rec = mustSwap(t, deaf, rec, next(rec, driver.Released))
	if now, err := s.Get(t.Context(), "a", driver.Strong); err != nil || now.Version != rec.Version {
		t.Errorf("the record is %v, %v", now, err)
	}
	for _, right := range []string{"hset", "zadd", "hmget", "info"} {
		poor := user(false, "-"+right)
		_, _, err := poor.Claim(t.Context(), held("b"))
		want(t, "claim without "+right, err, "tenure table policy", driver.ErrPermanent, driver.ErrNotApplied)
		if _, err := s.Get(t.Context(), "b", driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("claim without %s: %v", right, err)
		}
	}
	o := option(server.Addr)
	o.Username, o.Password = "app", "wrong"
	_, err = Open(t.Context(), o, nil)
	want(t, "a wrong password", err, "password", driver.ErrPermanent, driver.ErrNotApplied)
}

// TestTokens: tokens beyond 2^53, and beyond nines, rise by one.
func TestTokens(t *testing.T) {
	server := enginetest.StartRedis(t)
	s := created(t, server.Addr, Options{})
	rec := mustClaim(t, s, held("a"))
	rec = mustSwap(t, s, rec, next(rec, driver.Released))
	for _, token := range []uint64{9, 10, 99, 1999, 1<<53 - 1, 1 << 53, 1<<53 + 1, driver.MaxToken - 1} {
		raised := next(rec, driver.Released)
		raised.Token = token
		if token > rec.Token {
			var err error
			if rec, err = s.Raise(t.Context(), rec, raised); err != nil {
				t.Fatal(err)
			}
		}
		now := mustClaim(t, s, held("a"))
		if stored, err := s.Get(t.Context(), "a", driver.Strong); err != nil || stored.Token != now.Token || now.Token != rec.Token+1 {
			t.Fatalf("after %d the token is %d, stored is %d: %v", rec.Token, now.Token, stored.Token, err)
		}
		rec = mustSwap(t, s, now, next(now, driver.Released))
	}
	_, _, err := s.Claim(t.Context(), held("a"))
	want(t, "claim above the highest token", err, "cannot rise", errors.ErrUnsupported, driver.ErrNotApplied)
}

// TestErrors: only what Redis is known to refuse is not applied.
func TestErrors(t *testing.T) {
	server := enginetest.StartRedis(t)
	s := created(t, server.Addr, Options{})
	rec := mustClaim(t, s, held("a"))

	mustDo(t, server.Addr, "SET", s.recordKey("text"), "x")
	_, _, err := s.Claim(t.Context(), held("text"))
	want(t, "a key that is no hash", err, "WRONGTYPE", driver.ErrUnreadable, driver.ErrNotApplied)
	_, err = s.Get(t.Context(), "text", driver.Strong)
	want(t, "a key that is no hash", err, "WRONGTYPE", driver.ErrUnreadable)

	mustDo(t, server.Addr, "CONFIG", "SET", "maxmemory", "1")
	_, _, err = s.Claim(t.Context(), held("b"))
	want(t, "a full server", err, "raise maxmemory", driver.ErrThrottled, driver.ErrNotApplied)
	mustDo(t, server.Addr, "CONFIG", "SET", "maxmemory", "0")

	mustDo(t, server.Addr, "CONFIG", "SET", "min-replicas-to-write", "1")
	_, err = s.Swap(t.Context(), rec, next(rec, driver.Held))
	want(t, "min-replicas-to-write", err, "NOREPLICAS", driver.ErrNotApplied)
	mustDo(t, server.Addr, "CONFIG", "SET", "min-replicas-to-write", "0")

	// A proxy may say this of a request that was carried out.
	err = s.failed(t.Context(), rueidis.NewErrorResult(errors.New("upstream failure")).Error())
	if errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("%v is not applied", err)
	}
	server.Kill()
	enginetest.Eventually(t, "a refused connection", func(ctx context.Context) error {
		_, err := s.Swap(ctx, rec, next(rec, driver.Held))
		if !errors.Is(err, driver.ErrNotApplied) {
			return fmt.Errorf("the outcome is unknown: %w", err)
		}
		return nil
	})
	_, err = Open(t.Context(), option(server.Addr), nil)
	want(t, "Open without a server", err, "cannot be reached", driver.ErrNotApplied)
}

// TestSilentServer: a call ends with its context while the client connects.
func TestSilentServer(t *testing.T) {
	server := enginetest.StartRedis(t)
	created(t, server.Addr, Options{})
	relay := enginetest.NewRelay(t, server.Addr)
	resume := relay.Hold()
	s := connect(t, relay.Addr, Options{})
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begin := time.Now()
		_, _, err := s.Claim(ctx, held("a"))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		cancel()
	}
	resume()
	enginetest.Eventually(t, "an answer", func(ctx context.Context) error {
		_, err := s.List(ctx, "", "")
		return err
	})
}

// TestWatchOverRestart: a subscription that broke is made again, and hints.
func TestWatchOverRestart(t *testing.T) {
	server := enginetest.StartRedis(t, "--appendonly", "yes")
	s := created(t, server.Addr, Options{})
	heard := make(chan struct{}, 100)
	for _, key := range []string{"a", "a", "b"} {
		stop, err := s.Watch(t.Context(), key, func() { heard <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if n, err := mustDo(t, server.Addr, "PUBSUB", "NUMSUB", s.key("wake")).ToArray(); err != nil || len(n) != 2 {
		t.Fatal(err)
	} else if is, _ := n[1].AsInt64(); is != 1 {
		t.Errorf("the store has %d subscriptions for 3 watches", is)
	}
	server.Kill()
	server.Start()
	server.Await()
	for range 3 {
		<-heard
	}
	mustDo(t, server.Addr, "PUBLISH", s.key("wake"), "b")
	<-heard
}
