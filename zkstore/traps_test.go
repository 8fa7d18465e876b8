// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

func held(key string) driver.Record {
	version := "v" + strings.ReplaceAll(time.Now().Format("150405.000000000"), ".", "-")
	return driver.Record{Key: key, Version: version, Beat: version, Owner: "o", Lease: time.Second, State: driver.Held}
}

func mustClaim(t *testing.T, s *Store, key string) driver.Record {
	t.Helper()
	return enginetest.Claim(t, s, held(key))
}

// beat and released are what a holder writes next.
func beat(rec driver.Record) driver.Record {
	next := held(rec.Key)
	next.Token = rec.Token
	return next
}

func released(rec driver.Record) driver.Record {
	next := beat(rec)
	next.State, next.End = driver.Released, driver.EndReleased
	return next
}

// counter is a relay that counts what leaves a client: requests, but for pings, and
// flights of them, which are written at once.
type counter struct {
	addr string
	mu   sync.Mutex
	sent int
	far  int
}

func newCounter(t *testing.T, target string) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := &counter{addr: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			go c.relay(server, client, func(frame []byte, first bool) {
				if len(frame) < 8 || int32(binary.BigEndian.Uint32(frame)) < 0 {
					return
				}
				c.sent++
				if first {
					c.far++
				}
			})
			go c.relay(client, server, func([]byte, bool) {})
		}
	}()
	return c
}

func (c *counter) relay(to, from net.Conn, saw func(frame []byte, first bool)) {
	defer to.Close()
	defer from.Close()
	in := bufio.NewReaderSize(from, 1<<16)
	for {
		first := in.Buffered() == 0 // what is written at once, comes at once
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		c.mu.Lock()
		saw(frame, first)
		c.mu.Unlock()
		if _, err := to.Write(append(head[:], frame...)); err != nil {
			return
		}
	}
}

// take returns the requests and the flights since the last call.
func (c *counter) take() (requests, flights int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests, flights = c.sent, c.far
	c.sent, c.far = 0, 0
	return requests, flights
}

func TestRoundTrips(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	root := rootOf(t)
	c := newCounter(t, address)
	s, other := mustOpen(t, root, c.addr), mustOpen(t, root, address)
	ctx := t.Context()
	for i := range 300 {
		mustClaim(t, other, fmt.Sprint("makes the folders ", i))
	}
	c.take()
	costs := func(what string, wantRequests, wantFlights int, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if requests, flights := c.take(); requests != wantRequests || flights != wantFlights {
			t.Errorf("%s: %d requests in %d round trips, want %d in %d", what, requests, flights, wantRequests, wantFlights)
		}
	}
	rec, _, err := s.Claim(ctx, held("lock"))
	costs("claim of an absent lock", 2, 1, err)
	rec, err = s.Swap(ctx, rec, beat(rec))
	costs("heartbeat", 1, 1, err)
	_, _, err = s.Claim(ctx, held("lock"))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != rec.Version {
		t.Errorf("claim of a held lock: %v", err)
	}
	costs("claim of a held lock", 2, 1, nil)
	rec, err = s.Swap(ctx, rec, released(rec))
	costs("release", 1, 1, err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released here", 2, 1, err)
	rec, err = other.Swap(ctx, rec, released(rec))
	costs("nothing", 0, 0, err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released elsewhere", 4, 2, err)
	_, err = s.Get(ctx, "lock", driver.Strong)
	costs("strong look", 2, 1, err)
	_, err = s.Get(ctx, "lock", driver.Eventual)
	costs("eventual look", 1, 1, err)
	_, err = s.GetBatch(ctx, []string{"lock", "a", "b", "c"}, driver.Strong)
	costs("4 looks", 5, 1, err)
	costs("delete", 1, 1, s.Delete(ctx, rec))
}

// TestLateWrite: what has not left the client when its caller gives up is never sent.
func TestLateWrite(t *testing.T) {
	server := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0]
	root := rootOf(t)
	s, other := mustOpen(t, root, server.Addr), mustOpen(t, root, server.Addr)
	rec := mustClaim(t, s, "lock")
	server.Kill()
	enginetest.Eventually(t, "a lost connection", func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := s.Get(ctx, "lock", driver.Strong)
		if !errors.Is(err, wire.ErrNotSent) {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Swap(ctx, rec, beat(rec)); !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("heartbeat without a server: %v", err)
	}
	server.Start()
	server.Await()
	for _, reader := range []*Store{s, other} {
		enginetest.Eventually(t, "the record", func(ctx context.Context) error {
			got, err := reader.Get(ctx, "lock", driver.Strong)
			if err == nil && got.Version != rec.Version {
				t.Fatalf("version %s, which was given up before it was sent", got.Version)
			}
			return err
		})
	}
}

// TestHungServer: what has left the client may be carried out later, and is not said to
// be not applied.
func TestHungServer(t *testing.T) {
	server := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0]
	root := rootOf(t)
	s, other := mustOpen(t, root, server.Addr), mustOpen(t, root, server.Addr)
	rec := mustClaim(t, s, "lock")
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	next := beat(rec)
	_, err := s.Swap(ctx, rec, next)
	server.Continue()
	if err == nil || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("heartbeat to a server that hangs: %v", err)
	}
	enginetest.Eventually(t, "the late heartbeat", func(ctx context.Context) error {
		got, err := other.Get(ctx, "lock", driver.Strong)
		if err == nil && got.Version != next.Version {
			err = errors.New("it was not applied yet")
		}
		return err
	})
}

// TestTooLong: a record that would make the server end the connection is refused before
// it is sent, and does no harm.
func TestTooLong(t *testing.T) {
	s := mustOpen(t, rootOf(t), enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper"))
	long := held("long")
	long.Label = strings.Repeat("x", 2<<20) // past the limits of package tenure
	if _, _, err := s.Claim(t.Context(), long); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "jute.maxbuffer") {
		t.Errorf("%v", err)
	}
	largest := held("largest")
	largest.Data = make([]byte, driver.MaxDataLen)
	if _, _, err := s.Claim(t.Context(), largest); err != nil {
		t.Error(err)
	}
}

// TestRestartUnderAWatch kills the server of a watch, and starts it again.
func TestRestartUnderAWatch(t *testing.T) {
	server := enginetest.StartZooKeeper(t, 1)[0]
	root := rootOf(t)
	watcher, other := mustOpen(t, root, server.Addr), mustOpen(t, root, server.Addr)
	rec := mustClaim(t, other, "lock")
	hints, _ := enginetest.Watched(t, watcher, "lock")
	absent, _ := enginetest.Watched(t, watcher, "absent")
	server.Kill()
	server.Start()
	enginetest.WantHint(t, hints, "a lost connection")
	enginetest.WantHint(t, absent, "a lost connection, of an absent record")
	enginetest.Eventually(t, "a release", func(ctx context.Context) error {
		_, err := other.Swap(ctx, rec, released(rec))
		if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Current.State == driver.Released {
			err = nil
		}
		return err
	})
	enginetest.WantHint(t, hints, "a release after that")
	made := mustClaim(t, other, "absent")
	for len(absent) > 0 {
		<-absent
	}
	enginetest.Swap(t, other, made, released(made))
	enginetest.WantHint(t, absent, "a release of a record that was absent")
}

// TestNothingIsLeftOfAWatch: a watch that was ended gets no event.
func TestNothingIsLeftOfAWatch(t *testing.T) {
	s := mustOpen(t, rootOf(t), enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper"))
	rec := mustClaim(t, s, "lock")
	hints, stop := enginetest.Watched(t, s, "lock")
	again, stopAgain := enginetest.Watched(t, s, "lock")
	stop()
	stop()
	rec = enginetest.Swap(t, s, rec, released(rec))
	enginetest.WantHint(t, again, "a release, of the other watch")
	stopAgain()
	path := s.path("lock")
	// There is no watch left to remove.
	replies, err := s.client.Do(t.Context(), wire.RemoveWatches(path))
	if err != nil || replies[0].Code != -121 {
		t.Errorf("a watch is left: %v, %v", replies, err)
	}
	if len(hints) > 0 {
		t.Error("a watch that was ended was told")
	}
	_ = rec
}

// TestHeartbeatsWakeNobody: a watch does not report them.
func TestHeartbeatsWakeNobody(t *testing.T) {
	s := mustOpen(t, rootOf(t), enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper"))
	rec := mustClaim(t, s, "lock")
	hints, _ := enginetest.Watched(t, s, "lock")
	for range 20 {
		rec = enginetest.Swap(t, s, rec, beat(rec))
	}
	enginetest.Swap(t, s, rec, released(rec))
	enginetest.WantHint(t, hints, "a release")
	if len(hints) > 0 {
		t.Errorf("%d hints too many", len(hints))
	}
}

// TestUsers: the nodes of a user are closed to others.
func TestUsers(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	root := rootOf(t)
	open := func(user, password string) (*Store, error) {
		return Open(t.Context(), []string{address}, &Options{Root: root, User: user, Password: password})
	}
	owner, err := open("app", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	mustClaim(t, owner, "lock")
	for _, c := range []struct{ user, password string }{{"", ""}, {"app", "wrong"}, {"other", "secret"}} {
		s, err := open(c.user, c.password)
		if s != nil || !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(fmt.Sprint(err), "belong to another user") {
			t.Errorf("%s:%s: %v", c.user, c.password, err)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the password is in %v", err)
		}
	}
	again, err := open("app", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Get(t.Context(), "lock", driver.Strong); err != nil {
		t.Error(err)
	}
}

// TestWipedData shows what the documentation warns of: tokens begin again.
func TestWipedData(t *testing.T) {
	server := enginetest.StartZooKeeper(t, 1)[0]
	s := mustOpen(t, rootOf(t), server.Addr)
	rec := mustClaim(t, s, "lock")
	for range 3 {
		enginetest.Swap(t, s, rec, released(rec))
		rec = mustClaim(t, s, "lock")
	}
	server.Kill()
	if err := os.RemoveAll(filepath.Join(server.Data, "version-2")); err != nil {
		t.Fatal(err)
	}
	server.Start()
	server.Await()
	var now driver.Record
	enginetest.Eventually(t, "a claim", func(ctx context.Context) (err error) {
		now, _, err = s.Claim(ctx, held("lock"))
		return err
	})
	if rec.Token != 4 || now.Token != 1 {
		t.Errorf("token %d before, %d after", rec.Token, now.Token)
	}
}

// TestQuota: a hard quota of nodes is an answer: nothing was written, until an operator sets
// another quota. Existing nodes can still be written.
func TestQuota(t *testing.T) {
	server := enginetest.StartZooKeeper(t, 1, "enforceQuota=true")[0]
	s := mustOpen(t, "/q", server.Addr)
	rec := mustClaim(t, s, "lock")
	open := wire.ACL{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}
	for _, node := range []struct{ path, data string }{
		{"/zookeeper/quota/q", ""},
		{"/zookeeper/quota/q/zookeeper_stats", "count=4,bytes=0"},
		{"/zookeeper/quota/q/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4"},
	} {
		replies, err := s.client.Do(t.Context(), wire.Alone(wire.Create(node.path, []byte(node.data), open)))
		if err != nil || replies[0].Code != wire.OK {
			t.Fatalf("%s: %v, %v", node.path, replies, err)
		}
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		_, _, err := s.Claim(t.Context(), held(key))
		if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || !strings.Contains(fmt.Sprint(err), "quota of the root") {
			t.Errorf("%s: %v", key, err)
		}
	}
	enginetest.Swap(t, s, rec, beat(rec))
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		hosts   []string
		options Options
		says    string
	}{
		{nil, Options{}, "no server is named"},
		{[]string{"h"}, Options{}, "write HOST:PORT"},
		{[]string{"h:1"}, Options{Root: "locks"}, "must begin with a slash"},
		{[]string{"h:1"}, Options{Root: "/locks/"}, "not end with one"},
		{[]string{"h:1"}, Options{Root: "/a//b"}, "an empty part at position 4"},
		{[]string{"h:1"}, Options{Root: "/./a"}, `the part "." at position 2`},
		{[]string{"h:1"}, Options{Root: "/a/.."}, `the part ".." at position 4`},
		{[]string{"h:1"}, Options{Root: "/a\tb"}, `'\t' at position 3`},
		{[]string{"h:1"}, Options{Root: "/a "}, `' ' at position 3`},
		{[]string{"h:1"}, Options{Root: "/a/00"}, `the part "00" at position 4`},
		{[]string{"h:1"}, Options{Root: "/a/3f/b"}, `the part "3f" at position 4`},
		{[]string{"h:1"}, Options{Root: "/zookeeper"}, "ZooKeeper's own"},
		{[]string{"h:1"}, Options{Root: "/zookeeper/quota"}, "ZooKeeper's own"},
		{[]string{"h:1"}, Options{Session: time.Millisecond}, "from 1s to 1h"},
		{[]string{"h:1"}, Options{Password: "p"}, "no user"},
		{[]string{"h:1"}, Options{TLS: &tls.Config{}, Dial: func(context.Context, string) (net.Conn, error) { return nil, nil }}, "leave out TLS"},
		{[]string{"h:1"}, Options{User: "a:b"}, "has a colon"},
	} {
		if s, err := New(c.hosts, &c.options); s != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c, err, c.says)
		}
	}
}

// TestNestedRoots: a root and those below it are stores that know nothing of each other.
func TestNestedRoots(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	outer := rootOf(t)
	enginetest.CheckNested(t, map[string]driver.Store{
		"": mustOpen(t, outer, address), "x": mustOpen(t, outer+"/x", address), "40": mustOpen(t, outer+"/40", address),
	})
}

func TestNames(t *testing.T) {
	for _, key := range []string{"a", ".", "..", "a/b", "a b%", "tenure/session/x", "ü", "\x01", strings.Repeat("ü", 500)} {
		name := escape(key)
		if back, ours := unescape(name); !ours || back != key || strings.ContainsAny(name, "/. ") {
			t.Errorf("%q is %q, and %q, %v again", key, name, back, ours)
		}
	}
	for _, name := range []string{"%", "%4", "%zz", "a.b", "%41", "%2f"} {
		if key, ours := unescape(name); ours {
			t.Errorf("%q is taken for %q", name, key)
		}
	}
}
