// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// fleet are processes of tenured on one store, each on a socket of its own.
type fleet struct {
	t     *testing.T
	dir   string
	store string
	args  []string
	token string
	all   []*replica
}

// newFleet starts n of them on a file, with further arguments.
func newFleet(t *testing.T, n int, args ...string) *fleet {
	t.Helper()
	return newFleetOn(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"), n, args...)
}

func newFleetOn(t *testing.T, store string, n int, args ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), store: store, args: args, token: "3q7vXb9TzK2mWp5c"}
	if err := os.WriteFile(filepath.Join(f.dir, "tokens"), []byte("tester "+f.token+" admin:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := &replica{f: f, socket: filepath.Join(f.dir, fmt.Sprintf("%d.sock", i))}
		f.all = append(f.all, r)
		r.start()
	}
	return f
}

func (f *fleet) caller(r *replica) *caller { return newCaller(f.token, nil, "unix:"+r.socket) }

// replica is one process at a time.
type replica struct {
	f      *fleet
	socket string
	starts int
	cmd    *exec.Cmd
	ready  atomic.Bool // as the balancer knows
}

// start starts the process, and waits until it is ready.
func (r *replica) start() {
	t := r.f.t
	t.Helper()
	r.starts++
	path := fmt.Sprintf("%s.%d.log", r.socket, r.starts)
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r.cmd = exec.Command("tenured", append([]string{ //nolint:noctx // it is ended by signals
		"--store", r.f.store, "--listen", "unix:" + r.socket,
		"--tokens", filepath.Join(r.f.dir, "tokens"), "--max-calls", "100000",
	}, r.f.args...)...)
	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := r.cmd
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // it may have ended long since
	if _, err := listensAt(path); err != nil {
		t.Fatal(err)
	}
	c := r.f.caller(r)
	defer c.http.CloseIdleConnections()
	for end := time.Now().Add(patience); ; pause(t.Context(), 20*time.Millisecond) {
		a, err := c.call(t.Context(), http.MethodGet, "/readyz", nil)
		if err == nil && a.Status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not ready: %v %s", err, a.Body)
		}
	}
}

// stop ends the process by a signal, and checks its exit status.
func (r *replica) stop(s syscall.Signal, want int) {
	r.f.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.f.t.Fatal(err)
	}
	_ = r.cmd.Wait() // the status says it
	if got := r.cmd.ProcessState.ExitCode(); got != want {
		r.f.t.Errorf("signal %v: exit status %d, want %d", s, got, want)
	}
}

// balance returns the address of a proxy that sends calls to the replicas by turns, as far
// as they say that they are ready. A replica that is gone without a word costs a call 502.
func (f *fleet) balance() string {
	var turn atomic.Int64
	next := func() *replica {
		for range f.all {
			if r := f.all[int(turn.Add(1))%len(f.all)]; r.ready.Load() {
				return r
			}
		}
		return f.all[0]
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	transport.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := strings.Cut(addr, ":")
		var i int
		if _, err := fmt.Sscanf(host, "replica-%d", &i); err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "unix", f.all[i].socket)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			r := next()
			for i := range f.all {
				if f.all[i] == r {
					p.SetURL(&url.URL{Scheme: "http", Host: fmt.Sprintf("replica-%d", i)})
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html>Bad Gateway</html>"))
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	for _, r := range f.all {
		r.ready.Store(true)
		probing.Go(func() {
			c := f.caller(r)
			for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
				a, err := c.call(ctx, http.MethodGet, "/readyz", nil)
				r.ready.Store(err == nil && a.Status == http.StatusOK)
			}
		})
	}
	f.t.Cleanup(func() { cancel(); probing.Wait(); proxy.CloseClientConnections(); proxy.Close() })
	return proxy.URL
}

// tokens returns the tokens of all locks.
func (f *fleet) tokens(c *caller) map[string]uint64 {
	f.t.Helper()
	all := map[string]uint64{}
	for after := ""; ; {
		a, err := c.call(f.t.Context(), http.MethodGet, "/v1/locks?limit=500&after="+url.QueryEscape(after), nil)
		var page struct {
			Locks []struct {
				Name  string
				Token uint64
			}
			Next string
		}
		if err == nil {
			err = json.Unmarshal(a.Body, &page)
		}
		if err != nil || a.Status != http.StatusOK {
			f.t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
		for _, l := range page.Locks {
			all[l.Name] = l.Token
		}
		if after = page.Next; after == "" {
			return all
		}
	}
}

// A second signal ends the drain.
func TestSecondSignal(t *testing.T) {
	f := newFleet(t, 1, "--drain", "1h")
	r := f.all[0]
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		a, err := f.caller(r).call(t.Context(), http.MethodGet, "/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Status == http.StatusServiceUnavailable {
			break
		}
	}
	r.stop(syscall.SIGINT, 0)
}

// A service that was killed has held nothing that matters: its holders go on with the next
// one, and what it had granted to nobody runs out.
func TestKilledService(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	f := newFleet(t, 1, "--lease", "10s")
	r := f.all[0]
	c := f.caller(r)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	h, err := c.acquire(ctx, "job", "holder", 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.call(ctx, http.MethodPost, "/v1/acquire", map[string]any{"name": "unused", "owner": "nobody"})
	if err != nil || a.Status != http.StatusOK {
		t.Fatal(err, a.Status)
	}
	r.stop(syscall.SIGKILL, -1)
	r.start()
	if err := h.renew(ctx); err != nil {
		t.Fatal(err)
	}
	keeping, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() {
		if err := h.keep(ctx, keeping); err != nil {
			t.Error(err)
		}
	})
	other, err := c.acquire(ctx, "unused", "next", 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if other.Token != 2 {
		t.Errorf("the unused grant was followed by token %d", other.Token)
	}
	stop()
	renewals.Wait()
	for _, h := range []*held{h, other} {
		if err := h.renew(ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.release(ctx); err != nil {
			t.Error(err)
		}
	}
}
