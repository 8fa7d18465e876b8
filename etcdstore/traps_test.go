// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// counter counts the requests that leave a client, each attempt of the client's own.
type counter struct {
	stats.Handler
	rpcs chan string
}

func (c *counter) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	c.rpcs <- info.FullMethodName
	return ctx
}
func (c *counter) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *counter) HandleConn(context.Context, stats.ConnStats)                       {}

// requests returns how many there were since the last call.
func (c *counter) requests() int {
	n := 0
	for {
		select {
		case <-c.rpcs:
			n++
		default:
			return n
		}
	}
}

func TestRoundTrips(t *testing.T) {
	address := enginetest.Shared(t, enginetest.Etcd, "etcd")
	prefix := prefixOf(t)
	c := &counter{rpcs: make(chan string, 1000)}
	s, err := Open(t.Context(), clientv3.Config{Endpoints: []string{address}, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(c)}}, &Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := mustOpen(t, prefix, address)
	ctx := t.Context()
	c.requests()
	costs := func(what string, want int, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := c.requests(); n != want {
			t.Errorf("%s: %d requests, want %d", what, n, want)
		}
	}
	rec, _, err := s.Claim(ctx, held("lock"))
	costs("claim of an absent lock", 1, err)
	beat := func(rec driver.Record) driver.Record {
		next := held(rec.Key)
		next.Token = rec.Token
		return next
	}
	rec, err = s.Swap(ctx, rec, beat(rec))
	costs("heartbeat", 1, err)
	_, _, err = s.Claim(ctx, held("lock"))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != rec.Version {
		t.Errorf("claim of a held lock: %v", err)
	}
	costs("claim of a held lock", 1, nil)
	released := rec
	released.Version, released.State, released.End = "released", driver.Released, driver.EndReleased
	rec, err = s.Swap(ctx, rec, released)
	costs("release", 1, err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released here", 1, err)
	rec, err = other.Swap(ctx, rec, beat(rec)) // unseen there: two requests, not counted
	costs("nothing", 0, err)
	_, err = s.Swap(ctx, driver.Record{Key: "lock", Version: "old", Beat: "old", Owner: "o", Lease: time.Second, State: driver.Held, Token: rec.Token}, beat(rec))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != rec.Version {
		t.Errorf("heartbeat that conflicts: %v", err)
	}
	costs("heartbeat that conflicts", 1, nil)
	released = rec
	released.Version, released.State, released.End = "released-2", driver.Released, driver.EndReleased
	rec, err = other.Swap(ctx, rec, released)
	costs("nothing", 0, err)
	_, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released elsewhere", 2, err)
	_, err = s.Get(ctx, "lock", driver.Strong)
	costs("strong look", 1, err)
	_, err = s.Get(ctx, "lock", driver.Eventual)
	costs("eventual look", 1, err)
	var keys []string
	for i := range 64 {
		keys = append(keys, fmt.Sprint("lock-", i))
	}
	_, err = s.GetBatch(ctx, keys, driver.Strong)
	costs("64 looks", 1, err)
}

func release(t *testing.T, s *Store, rec driver.Record) driver.Record {
	t.Helper()
	next := held(rec.Key)
	next.Token, next.State, next.End = rec.Token, driver.Released, driver.EndReleased
	return enginetest.Swap(t, s, rec, next)
}

// TestCompactionUnderAWatch: changes while a watch was cut off are compacted, so that etcd
// cannot report them any more. The watch is set again, and hints.
func TestCompactionUnderAWatch(t *testing.T) {
	members := enginetest.StartEtcd(t, 3)
	prefix := prefixOf(t)
	watcher, other := mustOpen(t, prefix, members[0].URL), mustOpen(t, prefix, members[1].URL, members[2].URL)
	rec := mustClaim(t, other, "lock")
	hints, _ := enginetest.Watched(t, watcher, "lock")
	members[0].Kill()
	enginetest.Eventually(t, "a release without the member", func(ctx context.Context) error {
		next := rec
		next.Version, next.State, next.End = "released", driver.Released, driver.EndReleased
		_, err := other.Swap(ctx, rec, next)
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Current.Version == "released" {
			err = nil
		}
		return err
	})
	enginetest.Eventually(t, "a compaction", func(ctx context.Context) error {
		out, err := other.client.Get(ctx, other.recordKey("lock"))
		if err == nil {
			_, err = other.client.Compact(ctx, out.Header.Revision)
		}
		if errors.Is(err, rpctypes.ErrCompacted) {
			err = nil
		}
		return err
	})
	members[0].Start()
	enginetest.WantHint(t, hints, "a release that was compacted")
	// And the new watch reports later changes.
	var now driver.Record
	enginetest.Eventually(t, "a claim", func(ctx context.Context) (err error) {
		now, _, err = other.Claim(ctx, held("lock"))
		return err
	})
	for len(hints) > 0 {
		<-hints
	}
	release(t, other, now)
	enginetest.WantHint(t, hints, "a release after that")
}

// TestRestartUnderAWatch kills the only member, and starts it again.
func TestRestartUnderAWatch(t *testing.T) {
	member := enginetest.StartEtcd(t, 1)[0]
	prefix := prefixOf(t)
	watcher, other := mustOpen(t, prefix, member.URL), mustOpen(t, prefix, member.URL)
	rec := mustClaim(t, other, "lock")
	hints, _ := enginetest.Watched(t, watcher, "lock")
	member.Kill()
	member.Start()
	member.Await()
	enginetest.Eventually(t, "the record", func(ctx context.Context) error {
		got, err := other.Get(ctx, "lock", driver.Strong)
		if err == nil && got.Token != rec.Token {
			t.Fatalf("token %d after a restart, want %d", got.Token, rec.Token)
		}
		return err
	})
	release(t, other, rec)
	enginetest.WantHint(t, hints, "a release after a restart")
}

// TestQuotaFull fills etcd. Writes are refused for certain, reads go on, and when there is
// room again so do the writes.
func TestQuotaFull(t *testing.T) {
	member := enginetest.StartEtcd(t, 1, "--quota-backend-bytes", "4194304", "--unsafe-no-fsync")[0]
	s := mustOpen(t, prefixOf(t), member.URL)
	rec := mustClaim(t, s, "lock")
	heap := strings.Repeat("x", 1<<20)
	enginetest.Eventually(t, "a full quota", func(ctx context.Context) error {
		if _, err := s.client.Put(ctx, "heap", heap); !errors.Is(err, rpctypes.ErrNoSpace) {
			return fmt.Errorf("it takes more: %w", err)
		}
		return nil
	})
	next := rec
	next.Version, next.Beat = "beat", "beat"
	_, err := s.Swap(t.Context(), rec, next)
	if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || !strings.Contains(fmt.Sprint(err), "etcdctl alarm disarm") {
		t.Errorf("heartbeat: %v", err)
	}
	if got, err := s.Get(t.Context(), "lock", driver.Strong); err != nil || got.Version != rec.Version {
		t.Errorf("look: %+v, %v", got, err)
	}
	out, err := s.client.Delete(t.Context(), "heap")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Compact(t.Context(), out.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Defragment(t.Context(), member.URL); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(t.Context(), rec, next); err != nil {
		t.Errorf("heartbeat after that: %v", err)
	}
}

// TestUsers: a user that may not log in, or may not write here, gets an error that says what to
// do.
func TestUsers(t *testing.T) {
	member := enginetest.StartEtcd(t, 1, "--unsafe-no-fsync", "--auth-token-ttl", "1")[0]
	admin := mustOpen(t, prefixOf(t), member.URL).client
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.UserAdd(ctx, "root", "secret"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "locks"))
	must(admin.RoleGrantPermission(ctx, "locks", "mine/", clientv3.GetPrefixRangeEnd("mine/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.UserAdd(ctx, "app", "secret"))
	must(admin.UserGrantRole(ctx, "app", "locks"))
	must(admin.AuthEnable(ctx))
	open := func(user, password, prefix string) (*Store, error) {
		return Open(ctx, clientv3.Config{Endpoints: []string{member.URL}, Username: user, Password: password, DialTimeout: patience}, &Options{Prefix: prefix})
	}
	for _, c := range []struct{ name, user, password, prefix, says string }{
		{"no user", "", "", "mine/", "name one, and its password"},
		{"wrong password", "app", "wrong", "mine/", "the user or its password is wrong"},
		{"no rights", "app", "secret", "theirs/", "readwrite on the prefix"},
	} {
		s, err := open(c.user, c.password, c.prefix)
		if s != nil || !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: the password is in %q", c.name, err)
		}
	}
	s, err := open("app", "secret", "mine/")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rec := mustClaim(t, s, "lock")
	hints, _ := enginetest.Watched(t, s, "lock")
	// Its token is good for a second or two, and then it gets another one by itself.
	for range 4 {
		<-time.After(time.Second)
		next := held("lock")
		next.Token = rec.Token
		if rec, err = s.Swap(ctx, rec, next); err != nil {
			t.Fatalf("a heartbeat after the token has ended: %v", err)
		}
	}
	release(t, s, rec)
	enginetest.WantHint(t, hints, "a release, to a watch whose token has ended")
}

// TestOutOfReach: no server listens there, which is not permanent.
func TestOutOfReach(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s, err := Open(ctx, clientv3.Config{Endpoints: []string{fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))}}, nil)
	if s != nil || err == nil || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%v, %v", s, err)
	}
}

// TestNestedPrefixes: a prefix and those below it are stores that know nothing of each other.
func TestNestedPrefixes(t *testing.T) {
	address := enginetest.Shared(t, enginetest.Etcd, "etcd")
	outer := prefixOf(t)
	enginetest.CheckNested(t, map[string]driver.Store{
		"": mustOpen(t, outer, address), "x": mustOpen(t, outer+"x/", address), "x/y": mustOpen(t, outer+"x/y/", address),
	})
}

func TestOptions(t *testing.T) {
	for _, prefix := range []string{"locks", "/" + strings.Repeat("x", 600) + "/", "\xff/"} {
		if _, err := New(&clientv3.Client{}, &Options{Prefix: prefix}); err == nil || !strings.Contains(err.Error(), "must end with a slash") {
			t.Errorf("prefix %.20q: %v", prefix, err)
		}
	}
	for prefix, want := range map[string]string{
		"a//b/":    "an empty part at position 3",
		"a//":      "an empty part at position 3",
		"./a/":     `the part "." at position 1`,
		"a/../b/":  `the part ".." at position 3`,
		"a\n/":     `'\n' at position 2`,
		"a/r/":     `the part "r" at position 3`,
		"a/w/b/":   `the part "w" at position 3`,
		"/a/b/d/":  `the part "d" at position 6`,
		"/":        "an empty part at position 1",
		"//locks/": "an empty part at position 2",
	} {
		if _, err := New(&clientv3.Client{}, &Options{Prefix: prefix}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("prefix %q: %v, want %s", prefix, err, want)
		}
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("no client, no error")
	}
}

// A call that gets no answer ends with the store, even if nothing else ends it: the store's own
// client is closed, and calls in a client of the user are abandoned.
func TestCloseEndsCalls(t *testing.T) {
	address, err := url.Parse(enginetest.Shared(t, enginetest.Etcd, "etcd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own client %v", own), func(t *testing.T) {
			relay := enginetest.NewRelay(t, address.Host)
			c := &counter{rpcs: make(chan string, 1000)}
			// Without keep-alives, which would end the calls after a while.
			config := clientv3.Config{
				Endpoints: []string{"http://" + relay.Addr}, Logger: zap.NewNop(), DialKeepAliveTime: time.Hour,
				DialOptions: []grpc.DialOption{grpc.WithStatsHandler(c)},
			}
			s, err := Open(t.Context(), config, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !own {
				client := s.client
				t.Cleanup(func() { _ = client.Close() }) // its connection is cut
				if s, err = New(client, nil); err != nil {
					t.Fatal(err)
				}
			}
			defer relay.Hold()()
			c.requests()
			ended := make(chan error, 2)
			go func() { _, err := s.Get(context.WithoutCancel(t.Context()), "lock", driver.Strong); ended <- err }()
			go func() { _, _, err := s.Claim(context.WithoutCancel(t.Context()), held("lock")); ended <- err }()
			<-c.rpcs
			<-c.rpcs // both are under way
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for range 2 {
				select {
				case err := <-ended:
					if err == nil {
						t.Error("an answer from nowhere")
					}
				case <-time.After(time.Minute):
					t.Fatal("a call outlives the store")
				}
			}
		})
	}
}
