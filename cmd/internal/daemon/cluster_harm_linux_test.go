// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/cmd/internal/cluster"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/fence"
)

// TestClusterOfOne shows, on a cluster of one, what harm is done by a restore without one of its
// steps; what a full quota does, and the cure that check tells; and what expired certificates do.
func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	l := inNetwork(t)
	if l == nil {
		return
	}
	url, nodes := l.newCluster([]string{"one"}, "--quota", "8MB")
	c := &clusterLife{t: t, l: l, url: url}
	snapshot := filepath.Join(l.dir, "snapshot.db")
	owner := clientOf(t, openURL(t, url), "owner", 0)
	tenures(t, owner, "x", 1)
	l.must(c.etcdctl() + "; etcdctl snapshot save " + snapshot)
	gate := fence.NewGate(nil)
	highest := tenures(t, owner, "x", 5)
	if err := gate.Admit(t.Context(), "x", highest); err != nil {
		t.Fatal(err)
	}
	c.withoutTheWait(nodes[0], snapshot)
	c.withoutTheRaise(nodes[0], snapshot, gate, highest)
	c.full()
	c.expired()
}

// back goes back to the snapshot, as check --restore says for the node, and opens it to all at
// once.
func (c *clusterLife) back(m *labMachine, snapshot string) {
	c.t.Helper()
	m.End(syscall.SIGTERM)
	lines, _ := c.l.tenured(0, "cluster", "check", "--restore", "--dir", c.l.admin)
	_, part, _ := strings.Cut(lines, "#    On "+m.name+":\n")
	part, _, _ = strings.Cut(part, "#")
	m.must("rm -rf /var/lib/tenure-etcd.lost; cd /etc; cp " + snapshot + " .; " + part)
	m.run("etcd.yaml")
	m.Await()
}

// withoutTheWait: a holder that hears nothing believes in its lock for as long as its lease is.
// If another one can take it before, there are two.
func (c *clusterLife) withoutTheWait(m *labMachine, snapshot string) {
	t := c.t
	t.Helper()
	faults := faultstore.New(openURL(t, c.url), nil)
	t.Cleanup(func() { _ = faults.Close() })
	first, err := clientOf(t, faults.Driver(), "first", 0).Acquire(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	faults.Inject(faultstore.Rule{Fault: faultstore.BlackHole()}) // it is cut off
	c.back(m, snapshot)
	// The tokens are raised, and nothing is waited for.
	store := openURL(t, c.url)
	rec, err := store.Get(t.Context(), "x", driver.Strong)
	if err != nil {
		t.Fatal(err)
	}
	raised := rec.Clone()
	raised.Version, raised.State, raised.Token = rand.Text(), driver.Released, rec.Token+1_000_000
	raised.Beat = raised.Version
	if _, err := store.(driver.Raiser).Raise(t.Context(), rec, raised); err != nil {
		t.Fatal(err)
	}
	second, err := clientOf(t, store, "second", 0).Acquire(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Check(), second.Check()); err != nil {
		t.Errorf("%v: the harm is gone, and with it the point of the wait", err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// withoutTheRaise: tokens are given again, and a fence refuses the rightful holder.
func (c *clusterLife) withoutTheRaise(m *labMachine, snapshot string, gate *fence.Gate, highest uint64) {
	t := c.t
	t.Helper()
	c.back(m, snapshot)
	next, err := clientOf(t, openURL(t, c.url), "next", 0).Acquire(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	stale := (*fence.StaleError)(nil)
	if err := gate.Admit(t.Context(), "x", next.Token()); next.Token() > highest || !errors.As(err, &stale) {
		t.Errorf("token %d after %d, and the fence says %v: the harm is gone, and with it the point of raising", next.Token(), highest, err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// full fills the quota, and has check tell the cure, which is typed as it is told.
func (c *clusterLife) full() {
	t := c.t
	t.Helper()
	at, err := storeurl.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := at.Etcd()
	config, err := e.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	large := make([]byte, 512<<10)
	for range 100 {
		if _, err = client.Put(t.Context(), "tenure/large", string(large)); err != nil {
			break
		}
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("the quota is not full: %v", err)
	}
	out, _ := c.l.tenured(69, "cluster", "check", "--dir", c.l.admin)
	wantText(t, out, "bad   space: the quota is full: all writes are refused")
	var cure []string
	for line := range strings.Lines(out) {
		if _, step, ok := strings.Cut(line, "cure: "); ok {
			_, step, _ = strings.Cut(strings.TrimSpace(step), ": ")
			cure = append(cure, step)
		}
	}
	t.Logf("%s", c.l.must(strings.Join(cure, "\n")))
	tenures(t, clientOf(t, openURL(t, c.url), "cured", 0), "x", 1)
}

// expired has a node with certificates that have ended. It is told in a sentence, and cured
// without a restart.
func (c *clusterLife) expired() {
	t, l := c.t, c.l
	t.Helper()
	m := l.boot("old")
	l.admin = filepath.Join(l.dir, "cluster-old")
	f, err := cluster.Init(l.admin, cluster.Defaults(), []cluster.Node{{Name: "old", Address: m.address}}, time.Now().AddDate(-3, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	m.install()
	m.run("etcd.yaml")
	m.Await()
	out, _ := l.tenured(69, "cluster", "check", "--dir", l.admin)
	wantText(t, out, "old/server.crt has ended on ")
	wantText(t, out, "tenured cluster certs --renew")
	var said bytes.Buffer
	run := exec.CommandContext(t.Context(), "tenure", "run", "--store", f.URL(), "x", "--", "true")
	run.Stderr = &said
	if err := run.Run(); err == nil || !strings.Contains(said.String(), "expired") {
		t.Errorf("with an expired certificate: %v: %s", err, &said)
	}
	l.tenured(0, "cluster", "certs", "--renew", "--dir", l.admin)
	m.install() // what is running reads them again
	tenures(t, clientOf(t, openURL(t, f.URL()), "renewed", 0), "x", 1)
	l.tenured(0, "cluster", "check", "--dir", l.admin)
}
