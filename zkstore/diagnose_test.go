// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// newStore returns a store that has sent no request yet.
func newStore(t *testing.T, o Options, hosts ...string) *Store {
	t.Helper()
	s, err := New(hosts, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it returns nil
	return s
}

// diagnosed returns the findings about servers, for leases of a minute.
func diagnosed(t *testing.T, s *Store, want ...string) string {
	t.Helper()
	lines := enginetest.Findings(t, s.Diagnose(t.Context(), driver.Timing{Lease: time.Minute, Heartbeat: 12 * time.Second}), want...)
	if strings.Contains(lines, "secret") {
		t.Errorf("a password is shown:\n%s", lines)
	}
	return lines
}

// An ensemble of three servers; one does not run.
func TestDiagnoseEnsemble(t *testing.T) {
	servers := enginetest.StartZooKeeper(t, 3, "forceSync=no")
	var hosts []string
	for _, z := range servers {
		hosts = append(hosts, z.Addr)
	}
	o := Options{Root: "/locks", User: "app", Password: "secret", Session: 4 * time.Second}
	s := newStore(t, o, hosts...)
	diagnosed(t, s, ", leader;", ", follower;", "ok members: 3 voting servers", "ok session: the store leaves a server that hangs for another one after 2.67s",
		"/locks does not exist yet, and can be created", "records are created for the user alone", "a request of 1 MB is accepted", "!warn ", "!bad ")
	mustClaim(t, s, "lock")
	servers[0].Kill()
	diagnosed(t, newStore(t, o, hosts...), "warn server: "+hosts[0]+" does not answer", "nodes can be created below /locks")
	servers[1].Kill()
	var f driver.Finding
	for deadline := time.Now().Add(time.Minute); !strings.Contains(f.Finding, "serves no requests") && time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		f, _ = s.server(t.Context(), hosts[2])
	}
	if !strings.Contains(f.Finding, "cannot reach a majority") {
		t.Errorf("without a majority: %v", f)
	}
}

// A server that accepts no long request, and whose records anyone may change.
func TestDiagnoseOpenServer(t *testing.T) {
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djute.maxbuffer=200000")
	address := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0].Addr
	anyones := newStore(t, Options{Root: "/a/locks"}, address)
	diagnosed(t, anyones, "standalone; it is a single server", "warn access: anyone who reaches the servers may change the records", "warn size: a request of 1 MB ends the connection")
	mustClaim(t, anyones, "lock")
	// The root was there before the user.
	diagnosed(t, newStore(t, Options{Root: "/a/locks", User: "app", Password: "secret"}, address),
		"warn access: anyone who reaches the servers may change /a/locks: world:anyone; addauth")
	if f := session(20*time.Second, 3*time.Second); f.Level != driver.LevelWarn || !strings.Contains(f.Advice, "session=3s") {
		t.Errorf("a session that outlives leases: %v", f)
	}
}

// The examination of a root leaves nothing behind there.
func TestDiagnosePlace(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	above := rootOf(t)
	o := Options{Root: above + "/locks", User: "app", Password: "secret"}
	for range 2 {
		diagnosed(t, newStore(t, o, address), "ok rights: "+o.Root+" does not exist yet", "ok access: ", "ok size: ", "!members")
	}
	s := newStore(t, o, address)
	mustClaim(t, s, "lock")
	diagnosed(t, s, "ok rights: nodes can be created below "+o.Root, "ok access: ")
	names, err := s.ask(t.Context(), wire.GetChildren(o.Root, false))
	if err != nil {
		t.Fatal(err)
	}
	if children, err := names[0].Children(); err != nil || len(children) != 1 {
		t.Errorf("children %v, %v", children, err)
	}
	other := o
	other.Password = "wrong"
	diagnosed(t, newStore(t, other, address), "bad rights: no node can be created below "+o.Root+": ", "belong to another user")
	other.Root = above + "/locks/mine"
	denied := newStore(t, other, address)
	diagnosed(t, denied, "bad rights: "+other.Root+" does not exist, and cannot be created: ")
	diagnosed(t, newStore(t, Options{Root: rootOf(t)}, address), "does not exist yet", "warn access: ")
	_, _, err = denied.Claim(t.Context(), held("lock"))
	if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "does not exist, and this user may not create it") {
		t.Errorf("a claim below a node of another user: %v", err)
	}
}

// A proxy before a server may not pass on srvr.
func TestDiagnoseSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = io.ReadFull(conn, make([]byte, len("srvr")))
			_ = conn.Close()
		}
	}()
	f, answers := newStore(t, Options{}, l.Addr().String()).server(t.Context(), l.Addr().String())
	if !answers || f.Level != driver.LevelOK || !strings.Contains(f.Finding, "its state is unknown") {
		t.Errorf("%v, %v", f, answers)
	}
}

func TestOlderThan36(t *testing.T) {
	for version, older := range map[string]bool{"3.4.14": true, "3.5.10": true, "3.6.0": false, "3.10.1": false, "4.0.0": false, "": false, "what": false} {
		if olderThan36(version) != older {
			t.Errorf("version %q: want %v", version, older)
		}
	}
}

func TestDiagnoseEncryption(t *testing.T) {
	for host, want := range map[string]string{"127.0.0.1": "ok", "localhost": "ok", "10.0.0.1": "the password is sent over it"} {
		s := &Store{hosts: []string{"[::1]:2181", host + ":2181"}, user: "app"}
		if f := s.encryption(); !strings.Contains(f.String(), want) {
			t.Errorf("%s: %v", host, f)
		}
	}
}

func TestVoters(t *testing.T) {
	config := "server.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\nserver.2=10.0.0.2:2888:3888;2181\nserver.3=10.0.0.3:2888:3888:observer;2181\nversion=0"
	if n := voters(config); n != 2 {
		t.Errorf("%d", n)
	}
}
