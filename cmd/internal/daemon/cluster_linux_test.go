// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/cluster"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// clusterRounds is the variable that says how often each fault comes, and clusterCrowd how
// many contend meanwhile.
const (
	clusterRounds = "TENURE_CLUSTER_ROUNDS"
	clusterCrowd  = "TENURE_CLUSTER_CONTENDERS"
)

// numberIn returns the number in a variable, or another one if it is not set.
func numberIn(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number from 1 on", variable, text)
	}
	return n
}

// TestCluster takes a cluster through its life: init, the first lock, who is refused, faults,
// a lost disk, a restore. All is typed as the guide has it, and what tenured has written is
// installed as it is.
func TestCluster(t *testing.T) {
	t.Parallel()
	l := inNetwork(t)
	if l == nil {
		return
	}
	url, nodes := l.newCluster([]string{"a", "b", "c"})
	life := &clusterLife{t: t, l: l, url: url, begun: time.Now()}
	step := func(name string, run func()) {
		run()
		life.mark(name)
	}
	life.mark("started")
	step("first lock", func() { l.must("tenure run --store '" + url + "' first -- true") })
	step("strangers", func() { life.strangers(nodes[0], nodes[1]) })
	step("roles", life.roles)
	step("check", func() {
		out, _ := l.tenured(0, "cluster", "check", "--dir", l.admin)
		wantText(t, out, "3 voting members, of which 3 are well")
		wantText(t, out, "0 bad, ")
		wantText(t, out, "writes of the log are on the disk within")
	})
	life.work(numberIn(t, clusterCrowd, 8))
	for range numberIn(t, clusterRounds, 1) {
		step("killed", func() {
			life.fault(func(m *labMachine) { m.Kill() }, func(m *labMachine) { m.run("etcd.yaml") })
		})
		step("cut off", func() {
			life.fault(func(m *labMachine) { m.plugged(false) }, func(m *labMachine) { m.plugged(true) })
		})
		step("paused", func() {
			life.fault(func(m *labMachine) { m.Stop() }, func(m *labMachine) { m.Continue() })
		})
	}
	step("replaced", life.replace)
	life.rest()
	step("restored", life.restore)
}

// clusterLife is that of the cluster of a test.
type clusterLife struct {
	t   *testing.T
	l   *lab
	url string

	begun   time.Time
	book    enginetest.Ledger
	kept    *tenure.Lease // by somebody who must not lose it
	stop    context.CancelFunc
	working sync.WaitGroup
}

// mark notes how long it took until here.
func (c *clusterLife) mark(what string) {
	c.t.Logf("%8v  %s", time.Since(c.begun).Round(time.Millisecond), what)
}

// strangers shows who is refused: a client with a certificate that the authority of peers has
// signed, and a peer with a client's. Each is let in where it belongs.
func (c *clusterLife) strangers(a, b *labMachine) {
	c.t.Helper()
	file := func(name string) string { return filepath.Join(c.l.admin, name) }
	// The clients' side, from where clients are.
	clients := "https://" + a.address + ":2379/version"
	for _, tc := range []struct {
		cert string
		in   bool
	}{{"client/tenure", true}, {"a/peer", false}, {"", false}} {
		cert := tc.cert
		if cert != "" {
			cert = file(cert)
		}
		err := knockAt(c.t.Context(), clients, file("client/ca.crt"), cert)
		if (err == nil) != tc.in || err != nil && !strings.Contains(err.Error(), "tls:") {
			c.t.Fatalf("a client with the certificate %q: %v", tc.cert, err)
		}
	}
	// The peers' side, from a peer: an address is looked at, too.
	must := func(in bool, cert string) {
		c.t.Helper()
		out, err := b.try(fmt.Sprintf("knock https://%s:2380/version %s %s", a.address, file("ca/peer-ca.crt"), file(cert)))
		if (err == nil) != in || err != nil && !strings.Contains(out, "tls:") {
			c.t.Fatalf("a peer with the certificate %q: %v: %s", cert, err, out)
		}
	}
	must(true, "b/peer")
	must(false, "client/tenure")
	must(false, "b/server")
}

// knock is a program that asks for a page, and fails if it is refused:
//
//	knock URL CA CERT
//
// CERT is the path of a certificate and its key, without .crt and .key.
func knock() error {
	return knockAt(context.Background(), os.Args[1], os.Args[2], os.Args[3])
}

func knockAt(ctx context.Context, url, ca, cert string) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	text, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	config.RootCAs.AppendCertsFromPEM(text)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert+".crt", cert+".key")
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return err
}

// roles types what init --roles prints. From then on programs write below their prefix alone.
func (c *clusterLife) roles() {
	dir := filepath.Join(c.l.dir, "other")
	out, _ := c.l.tenured(0, "cluster", "init", "--roles", "--dir", dir, "a=10.78.0.11", "b=10.78.0.12", "c=10.78.0.13")
	_, lines, _ := strings.Cut(out, "\n")
	lines = strings.ReplaceAll(lines, dir, c.l.admin)
	c.l.must(lines)
	c.l.must("tenure run --store '" + c.url + "' first -- true")
	out, err := c.l.try(strings.SplitN(strings.ReplaceAll(strings.ReplaceAll(lines, "admin/root", "client/tenure"), "admin/ca", "client/ca"), "\n", 2)[0] + "; etcdctl put elsewhere x")
	if err == nil || !strings.Contains(out, "permission denied") {
		c.t.Fatalf("a program wrote beside its prefix: %v: %s", err, out)
	}
}

// work has so many contend for a lock, from then on, and somebody keep another one.
func (c *clusterLife) work(crowd int) {
	c.t.Helper()
	var ctx context.Context
	ctx, c.stop = context.WithCancel(c.t.Context())
	store := openURL(c.t, c.url)
	keeper, err := clientOf(c.t, store, "keeper", 0).Acquire(ctx, "kept", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.kept = keeper
	for i := range crowd {
		client := clientOf(c.t, store, fmt.Sprint("w", i), 0)
		c.working.Go(func() {
			for ctx.Err() == nil {
				lease, err := client.Acquire(ctx, "contended", &tenure.AcquireOptions{StoreTimeout: -1})
				if err != nil {
					continue
				}
				c.book.Enter(c.t, lease)
				pause(ctx, 20*time.Millisecond)
				_ = lease.Release(context.WithoutCancel(ctx)) // it runs out otherwise
			}
		})
	}
	c.progress()
}

// rest ends the work.
func (c *clusterLife) rest() {
	c.stop()
	c.working.Wait()
	if err := c.kept.Release(c.t.Context()); err != nil {
		c.t.Error(err)
	}
	c.t.Logf("%d tenures", c.book.Count())
}

// progress waits until others have had the lock, and sees that nothing was lost.
func (c *clusterLife) progress() {
	c.t.Helper()
	before := c.book.Count()
	eventuallyTrue(c.t, "tenures", func() bool { return c.book.Count() >= before+3 })
	if err := c.kept.Check(); err != nil {
		c.t.Fatalf("a lease of 15 s was lost: %v", err)
	}
}

// leading returns who leads, by what check says.
func (c *clusterLife) leading() *labMachine {
	c.t.Helper()
	var found *labMachine
	eventuallyTrue(c.t, "a leader", func() bool {
		for _, m := range c.l.booted {
			if m.Engine == nil || !m.Running() {
				continue
			}
			out, err := m.try("curl --silent --max-time 2 http://127.0.0.1:2381/metrics | grep '^etcd_server_is_leader '")
			if err == nil && strings.TrimSpace(out) == "etcd_server_is_leader 1" {
				found = m
			}
		}
		return found != nil
	})
	return found
}

// fault does something to the leader, sees that the work goes on without it, and mends it.
func (c *clusterLife) fault(harm, mend func(*labMachine)) {
	c.t.Helper()
	leader := c.leading()
	harm(leader)
	begun := time.Now()
	c.progress()
	c.t.Logf("without %s locks went on after %v", leader.name, time.Since(begun).Round(time.Millisecond))
	mend(leader)
	leader.Await()
	c.progress()
}

// replace has a node lose its disk, and another one take its place: removed first, then
// added. What adds it is killed after each of its steps, and repeated.
func (c *clusterLife) replace() {
	c.t.Helper()
	l := c.l
	leader := c.leading()
	var lost, other *labMachine
	for _, m := range l.booted {
		if m != leader && lost == nil {
			lost = m
		} else if m != leader {
			other = m
		}
	}
	lost.Kill()
	lost.must("rm -rf /var/lib/tenure-etcd/*")
	d := l.boot("d")
	add := []string{"cluster", "add", "--dir", l.admin, "d=" + d.address}

	// What would cost the quorum is refused.
	_, said := l.tenured(69, add...)
	wantText(c.t, said, lost.name+" does not answer")
	_, said = l.tenured(69, "cluster", "remove", "--dir", l.admin, other.name)
	wantText(c.t, said, "without "+other.name+" the cluster would be lost")
	_, said = l.tenured(69, "cluster", "remove", "--dir", l.admin, "x")
	wantText(c.t, said, "there is no node")
	c.mark("refused what must be")

	l.tenured(0, "cluster", "remove", "--dir", l.admin, lost.name)
	_, said = l.tenured(69, "cluster", "remove", "--dir", l.admin, leader.name)
	wantText(c.t, said, leader.name+" leads the cluster")
	delete(l.booted, lost.name)
	for _, after := range []string{"all of them answer", "d is a learner", "wrote ", "noted as one that joins", "start it now", "d answers", "d votes", "noted in"} {
		cmd := exec.CommandContext(c.t.Context(), "addkilled", l.admin, "d="+d.address, after)
		said, err := cmd.CombinedOutput()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			c.t.Fatalf("it was not killed after %q: %v: %s", after, err, said)
		}
		if _, err := os.Stat(filepath.Join(l.admin, "d")); err == nil && d.Engine == nil {
			d.install()
			d.run("etcd.yaml")
		}
	}
	c.mark("killed at each step")
	out, _ := l.tenured(0, add...)
	c.url = storeOf(c.t, out)
	wantText(c.t, c.url, d.address)
	if strings.Contains(c.url, lost.address) {
		c.t.Fatalf("the one that was removed is in %s", c.url)
	}
	c.progress()
	out, _ = l.tenured(0, "cluster", "check", "--lease", "5s", "--dir", l.admin)
	wantText(c.t, out, "3 voting members, of which 3 are well")

	// The leader goes with yes alone, and hands over.
	leader = c.leading()
	l.tenured(0, "cluster", "remove", "--yes", "--dir", l.admin, leader.name)
	c.progress()
	leader.Kill()
	leader.must("rm -rf /var/lib/tenure-etcd/* /etc/tenure-etcd")
	c.mark("removed the leader")
	again := make(chan struct{})
	go func() {
		defer close(again)
		for ; !exists(filepath.Join(l.admin, leader.name, "etcd.yaml")); pause(c.t.Context(), 20*time.Millisecond) {
			if c.t.Context().Err() != nil {
				return
			}
		}
		leader.install()
		leader.run("etcd.yaml")
	}()
	out, _ = l.tenured(0, "cluster", "add", "--dir", l.admin, leader.name+"="+leader.address)
	<-again
	c.url = storeOf(c.t, out)
	c.progress()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// addkilled is a program that adds a node, and kills itself after a step:
//
//	addkilled DIR NAME=ADDRESS STEP
func addkilled() error {
	folder, err := cluster.Open(os.Args[1])
	if err != nil {
		return err
	}
	n, err := cluster.ParseNode(os.Args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	return folder.Add(ctx, n, time.Now(), func(format string, args ...any) {
		said := fmt.Sprintf(format, args...)
		fmt.Fprintln(os.Stderr, said)
		if strings.Contains(said, os.Args[3]) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
}

// restore goes back to a snapshot, as check --restore says it, with holders that know nothing
// of that: one that goes on, and one that is stopped for all of it.
func (c *clusterLife) restore() {
	c.t.Helper()
	const lease = 4 * time.Second
	l, t := c.l, c.t
	lines, _ := l.tenured(0, "cluster", "check", "--restore", "--dir", l.admin)
	store := openURL(t, c.url)
	for _, key := range []string{"first", "contended", "kept"} { // their leases are longer
		rec, err := store.Get(t.Context(), key, driver.Strong)
		if err == nil {
			err = store.Delete(t.Context(), rec)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	client := clientOf(t, store, "before", lease)
	for _, name := range []string{"fenced", "moved", "stopped"} {
		tenures(t, client, name, 1)
	}
	l.must(c.etcdctl() + "; ETCDCTL_ENDPOINTS=https://" + c.leading().address + ":2379 etcdctl snapshot save snapshot.db")
	highest := tenures(t, client, "fenced", 100)
	moved, err := client.Acquire(t.Context(), "moved", nil)
	if err != nil {
		t.Fatal(err)
	}
	// Its command writes until it is told to stop; it and all of its children are stopped.
	trace := filepath.Join(l.dir, "trace")
	stopped := exec.CommandContext(t.Context(), "tenure", "run", "--store", c.url, "--lease", lease.String(), "stopped", "--",
		"sh", "-c", "while :; do date +%s%N >>"+trace+"; sleep 0.05; done")
	stopped.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-stopped.Process.Pid, syscall.SIGKILL) }() // it has ended
	eventuallyTrue(t, "the command", func() bool { return exists(trace) })
	if err := syscall.Kill(-stopped.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	c.mark("prepared")
	// 1. All members down, and the longest lease waited for.
	for _, m := range l.booted {
		m.End(syscall.SIGTERM)
	}
	pause(t.Context(), lease)
	if err := moved.Check(); !errors.Is(err, tenure.ErrLost) {
		t.Fatalf("after its lease a holder believes: %v", err)
	}
	c.mark("waited")
	// 2. The snapshot, on every node.
	for name, m := range l.booted {
		_, part, found := strings.Cut(lines, "#    On "+name+":\n")
		part, _, _ = strings.Cut(part, "#")
		if !found {
			t.Fatalf("no steps for %s in\n%s", name, lines)
		}
		m.must("cd /etc; cp " + filepath.Join(l.dir, "snapshot.db") + " .; " + part)
	}
	// 3. For themselves alone, and the tokens raised.
	for _, m := range l.booted {
		m.run("restore.yaml")
	}
	c.mark("restored")
	var some *labMachine
	for _, m := range l.booted {
		m.Await()
		if !refuses(m.address + ":2379") {
			t.Errorf("%s answers other machines before the tokens are raised", m.name)
		}
		some = m
	}
	var raise string
	for line := range strings.Lines(lines) {
		if strings.Contains(line, "tenure tokens raise") {
			raise = strings.ReplaceAll(strings.TrimSpace(line), "--lease 15s", "--lease "+lease.String())
		}
	}
	t.Log(some.must("cp -r " + filepath.Join(l.admin, "admin") + " /etc/admin; cd /etc; " + raise))
	c.mark("raised")
	// 4. For all.
	for _, m := range l.booted {
		m.End(syscall.SIGTERM)
		m.run("etcd.yaml")
		m.Await()
	}
	out, _ := l.tenured(0, "cluster", "check", "--lease", "5s", "--dir", l.admin)
	wantText(t, out, "3 voting members, of which 3 are well")

	c.mark("examined")
	next := clientOf(t, openURL(t, c.url), "after", lease)
	if token := tenures(t, next, "fenced", 1); token <= highest {
		t.Errorf("token %d was given after %d", token, highest)
	}
	mine, err := next.Acquire(t.Context(), "stopped", nil)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(trace)
	if err := syscall.Kill(-stopped.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Wait(); err == nil {
		t.Error("a holder that was stopped over the restore ended well")
	}
	after, _ := os.ReadFile(trace)
	t.Logf("who was stopped wrote %d lines more when it went on", strings.Count(string(after), "\n")-strings.Count(string(before), "\n"))
	if err := mine.Check(); err != nil {
		t.Error(err)
	}
}

// etcdctl returns the line after which etcdctl reaches the cluster.
func (c *clusterLife) etcdctl() string {
	f, err := cluster.Open(c.l.admin)
	if err != nil {
		c.t.Fatal(err)
	}
	return f.Etcdctl()
}

// tenures has a lock taken and released so often, and returns the last token.
func tenures(t *testing.T, client *tenure.Client, name string, n int) (token uint64) {
	t.Helper()
	for range n {
		lease, err := client.Acquire(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		token = lease.Token()
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return token
}
