// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// lateLink passes the connection of a replica to its primary. Once it is held, what the replica sends arrives when it
// is let go, as after a partition: the first segment again, and the end of the connection a round trip later.
type lateLink struct {
	addr string
	held sync.RWMutex // locked: it is
}

func newLateLink(t *testing.T, primary string) *lateLink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	l := &lateLink{addr: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn, primary)
		}
	}()
	return l
}

func (l *lateLink) serve(replica net.Conn, addr string) {
	defer replica.Close()
	primary, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer primary.Close()
	go func() { _, _ = io.Copy(replica, primary) }()
	for part := make([]byte, 64); err == nil; {
		var n int
		n, err = replica.Read(part)
		l.held.RLock()
		_, _ = primary.Write(part[:n])
		l.held.RUnlock()
	}
	time.Sleep(5 * time.Millisecond)
}

// TestLateAnswers: a primary that was cut off gets, when the network is back, what its replica sent before it was
// promoted. That is no sign that the replica follows.
func TestLateAnswers(t *testing.T) {
	primary := enginetest.StartRedis(t)
	link := newLateLink(t, primary.Addr)
	replica := enginetest.StartRedis(t, "--replicaof", strings.Replace(link.addr, ":", " ", 1))
	inSync(t, replica.Addr)
	options := Options{Replicas: 1, Lag: time.Second}
	s := created(t, primary.Addr, options)
	heard(t, s)
	link.held.Lock()
	time.Sleep(2 * time.Second) // the replica answers each second
	mustDo(t, replica.Addr, "REPLICAOF", "NO", "ONE")
	time.Sleep(options.Lag + ackPeriod + 200*time.Millisecond)
	_, _, err := s.Claim(t.Context(), held(fresh()))
	want(t, "a claim without a replica", err, "0 replicas", driver.ErrNotApplied)
	link.held.Unlock()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, _, err := s.Claim(t.Context(), held(fresh())); !errors.Is(err, driver.ErrNotApplied) {
			t.Fatalf("a claim after the bound: %v", err)
		}
	}
}

// TestQuorumThatLeavesLate: the replica that is not promoted leaves the old primary as late as it may, and the network
// hides that from the old primary. It goes on for no longer than contenders wait.
func TestQuorumThatLeavesLate(t *testing.T) {
	primary := enginetest.StartRedis(t)
	options := Options{Replicas: 2, Quorum: true, Lag: 2 * time.Second}
	var links []*lateLink
	var replicas []*enginetest.Engine
	for range 2 {
		link := newLateLink(t, primary.Addr)
		replica := enginetest.StartRedis(t, "--replicaof", strings.Replace(link.addr, ":", " ", 1))
		inSync(t, replica.Addr)
		links, replicas = append(links, link), append(replicas, replica)
	}
	s := created(t, primary.Addr, options)
	heard(t, s)
	links[0].held.Lock() // for ever
	mustDo(t, replicas[0].Addr, "REPLICAOF", "NO", "ONE")
	promoted := time.Now()
	var last time.Duration // of a write after the promotion
	for leaves := options.Lag + ackPeriod - 100*time.Millisecond; last == 0 || time.Since(promoted) < last+2*time.Second; {
		if leaves > 0 && time.Since(promoted) > leaves {
			links[1].held.Lock()
			host, port, _ := strings.Cut(replicas[0].Addr, ":")
			mustDo(t, replicas[1].Addr, "REPLICAOF", host, port)
			leaves = 0
		}
		if _, _, err := s.Claim(t.Context(), held(fresh())); err == nil {
			last = time.Since(promoted)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if most := s.Waits() - DefaultLease; last > most {
		t.Errorf("the old primary took a write %v after the promotion, and contenders wait for %v", last, most)
	}
	t.Logf("the last write was %v after the promotion", last)
}

// TestRightsWithReplicas: the rights of the policy suffice to see that replicas follow.
func TestRightsWithReplicas(t *testing.T) {
	primary := enginetest.StartRedis(t)
	replica := enginetest.StartRedis(t, "--replicaof", strings.Replace(primary.Addr, ":", " ", 1))
	inSync(t, replica.Addr)
	options := Options{Replicas: 1}
	text, _, err := created(t, primary.Addr, options).Policy(t.Context(), driver.PolicyOptions{Role: "app"})
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, primary.Addr, strings.Fields(strings.Replace(text, "PASSWORD", "secret", 1))...)
	o := option(primary.Addr)
	o.Username, o.Password = "app", "secret"
	s, err := Connect(o, &options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	heard(t, s)
	mustClaim(t, s, held("a"))
}
