// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/peers/service"
)

// The peers of the lock service, as the page names them, and in its order.
const (
	gateway    = "etcd, a lease a lock"
	oneLease   = "etcd, a lease a caller"
	consulName = "Consul, a session a caller"
	onEtcd     = "tenured on etcd"
	onSQLite   = "tenured on SQLite"
)

// opener opens a caller.
type opener = func(context.Context) caller

// peer is what callers hold locks by: servers with empty data on the disk, as durable as by
// default.
type peer struct {
	name   string
	pids   []int // of its processes, those of the engine too
	open   opener
	batch  opener // nil: a call is for one lock, or for all
	forAll bool   // a heartbeat is for all locks of a caller
	ends   []func()
}

func (p *peer) close() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// startPeers starts all peers, and hands each on: it is to be closed, if another one fails, too.
func startPeers(ctx context.Context, dir, consul string, lease time.Duration, started func(*peer)) {
	program := must.Have(service.BuildTenured(ctx, dir))
	for i, p := range []*peer{
		{name: gateway}, {name: oneLease, forAll: true}, {name: consulName, forAll: true}, {name: onEtcd}, {name: onSQLite},
	} {
		if p.name == consulName && consul == "" {
			continue
		}
		started(p)
		at := filepath.Join(dir, strconv.Itoa(i))
		must.Do(os.Mkdir(at, 0o700))
		switch p.name {
		case onSQLite:
			p.startTenured(ctx, at, program, "sqlite:"+filepath.Join(at, "locks.db"), lease)
		case onEtcd:
			store := strings.Replace(p.startEtcd(ctx, at), "http:", "etcd:", 1) + "/bench"
			p.startTenured(ctx, at, program, store, lease)
		case consulName:
			p.startConsul(ctx, at, consul, lease)
		default:
			w := newWeb(p.startEtcd(ctx, at), "")
			p.open = func(ctx context.Context) caller { return newEtcd(ctx, w, lease, p.forAll) }
		}
	}
}

// serverVersions says what the peers are.
func serverVersions(ctx context.Context, consul string) string {
	versions := "etcd " + must.Have(launcher.Find("etcd")).Version
	if consul != "" {
		line, _, _ := strings.Cut(must.Have(proc.Run(ctx, "", consul, "version")), "\n")
		versions += ", " + line
	}
	return versions
}

// start starts a server, and waits until it answers.
func (p *peer) start(ctx context.Context, dir string, server launcher.Server) {
	one := must.Have(server.Start(filepath.Join(dir, "log")))
	p.ends = append(p.ends, one.Kill)
	p.pids = append(p.pids, one.PID())
	must.Do(one.Await(ctx))
}

// startEtcd starts an etcd of the peer's own, and returns its URL.
func (p *peer) startEtcd(ctx context.Context, dir string) string {
	client, other := "http://127.0.0.1:"+freePort(), "http://127.0.0.1:"+freePort()
	p.start(ctx, dir, must.Have(launcher.Etcd(dir, "one", client, other, "one="+other)))
	return client
}

func (p *peer) startTenured(ctx context.Context, dir, program, store string, lease time.Duration) {
	r := must.Have(service.Start(ctx, service.Config{
		Program: program, Dir: dir, Stores: []string{store}, Lease: lease, Drain: time.Second,
		// One principal makes all calls here: what protects others from it would be measured.
		Args: []string{"--max-calls", "10000000", "--max-heartbeats", "10000000"},
	}))
	p.ends = append(p.ends, r.Close)
	p.pids = append(p.pids, r.PID(0))
	w := newWeb(r.URLs()[0], r.Worker)
	p.open = func(context.Context) caller { return tenured{w, false} }
	p.batch = func(context.Context) caller { return tenured{w, true} }
}

func (p *peer) startConsul(ctx context.Context, dir, program string, lease time.Duration) {
	port := freePort()
	w := newWeb("http://127.0.0.1:"+port, "")
	p.open = func(ctx context.Context) caller { return newConsul(ctx, w, lease) }
	p.start(ctx, dir, launcher.Server{
		Args: []string{
			program, "agent", "-server", "-bootstrap-expect=1", "-data-dir=" + filepath.Join(dir, "data"),
			"-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=err", "-disable-host-node-id", "-node=one",
			"-http-port=" + port, "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
			"-server-port=" + freePort(), "-serf-lan-port=" + freePort(), "-serf-wan-port=" + freePort(),
			"-hcl=performance { raft_multiplier = 1 } limits { http_max_conns_per_client = 4096 } session_ttl_min = \"10s\"",
		},
		// It answers before it has a leader.
		Ready: func() error {
			soon, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			return must.Try(func() { newConsul(soon, w, lease) })
		},
	})
}

// freePort returns a port that nobody listens at.
func freePort() string { return strconv.Itoa(must.Have(launcher.Port())) }

// caller holds locks, one after the other or many at once. It is used by one goroutine at a
// time. Its methods are for [must.Try].
type caller interface {
	// acquire waits until the caller holds the lock.
	acquire(ctx context.Context, name string) *heldLock
	release(ctx context.Context, l *heldLock)
	// beat shows that the caller lives, for the first of these locks or for more, and returns
	// for how many. errLost: for one it was too late.
	beat(ctx context.Context, all []*heldLock) int
}

// heldLock is what a caller knows of a lock that it holds.
type heldLock struct {
	name   string // or the key, as the server has it
	number uint64 // of the tenure; zero if it is not told
	beat   string // the latest heartbeat, of the lock service
	lease  string // of etcd
}

// errLost says that a lock which was held is held no more.
var errLost = errors.New("a lock that was held was lost")

// web calls a server over HTTP/1.1, on connections that are kept.
type web struct {
	base, token string
	http        *http.Client
}

func newWeb(base, token string) *web {
	return &web{base, token, &http.Client{
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}}
}

// call makes a call, and reads the answer into out unless that is nil. It fails with a status that
// is none of 2xx, but for those that are an answer, too.
func (w *web) call(ctx context.Context, method, path string, in, out any, answers ...int) *http.Response {
	body := []byte(nil)
	if in != nil {
		body = must.Have(json.Marshal(in))
	}
	r := must.Have(http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(body)))
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	answer := must.Have(w.http.Do(r))
	text, err := io.ReadAll(answer.Body)
	must.Do(errors.Join(err, answer.Body.Close()))
	switch {
	case slices.Contains(answers, answer.StatusCode):
	case answer.StatusCode/100 != 2:
		must.Do(fmt.Errorf("%s: %d %.300s", path, answer.StatusCode, text))
	case out != nil:
		must.Do(json.Unmarshal(text, out))
	}
	return answer
}

func (w *web) post(ctx context.Context, path string, in, out any, answers ...int) (status int) {
	return w.call(ctx, http.MethodPost, path, in, out, answers...).StatusCode
}

// tenured is a caller of the lock service. It does what a client of it must do.
type tenured struct {
	*web
	batch bool // many heartbeats in one call
}

// mostBeats is how many heartbeats one call may have.
const mostBeats = 100

func (t tenured) acquire(ctx context.Context, name string) *heldLock {
	var g struct {
		Token uint64 `json:"token"`
		Beat  string `json:"beat"`
	}
	ask := map[string]any{"name": name, "owner": "bench", "wait_ms": 20_000}
	for t.post(ctx, "/v1/acquire", ask, &g, http.StatusConflict) == http.StatusConflict {
		continue // somebody else has it still
	}
	l := &heldLock{name: name, number: g.Token, beat: g.Beat}
	t.beat(ctx, []*heldLock{l}) // a grant is no lease: it is held from the first heartbeat on
	return l
}

// beatCall is a call of a holder.
type beatCall struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	After string `json:"after"`
	Next  string `json:"next,omitempty"`
}

func (t tenured) beat(ctx context.Context, all []*heldLock) int {
	most := 1
	if t.batch {
		most = mostBeats
	}
	all = all[:min(len(all), most)]
	calls := make([]beatCall, len(all))
	for i, l := range all {
		base, _, _ := strings.Cut(l.beat, "-")
		calls[i] = beatCall{l.name, l.number, l.beat, base + "-" + rand.Text()[:13]}
	}
	if len(all) == 1 {
		if t.post(ctx, "/v1/heartbeat", calls[0], nil, http.StatusGone) == http.StatusGone {
			must.Do(errLost)
		}
		all[0].beat = calls[0].Next
		return 1
	}
	var answer struct {
		Results []struct {
			UsableMs *int64          `json:"usable_ms"`
			Problem  json.RawMessage `json:"problem"`
		} `json:"results"`
	}
	t.post(ctx, "/v1/heartbeats", map[string]any{"locks": calls}, &answer)
	if len(answer.Results) != len(all) {
		must.Do(fmt.Errorf("%d heartbeats were answered of %d", len(answer.Results), len(all)))
	}
	for i, a := range answer.Results {
		if a.UsableMs == nil {
			must.Do(fmt.Errorf("%w: %s", errLost, a.Problem))
		}
		all[i].beat = calls[i].Next
	}
	return len(all)
}

func (t tenured) release(ctx context.Context, l *heldLock) {
	t.post(ctx, "/v1/release", beatCall{Name: l.name, Token: l.number, After: l.beat}, nil)
}

// etcd is a caller of etcd's own lock, by its JSON gateway.
type etcd struct {
	*web
	ttl   time.Duration
	lease string // of all locks; empty: each has one of its own
}

func newEtcd(ctx context.Context, w *web, ttl time.Duration, one bool) *etcd {
	e := &etcd{web: w, ttl: ttl}
	if one {
		e.lease = e.grant(ctx)
	}
	return e
}

func (e *etcd) grant(ctx context.Context) string {
	var answer struct{ ID string }
	e.post(ctx, "/v3/lease/grant", map[string]any{"TTL": int(e.ttl.Seconds())}, &answer)
	return answer.ID
}

func (e *etcd) acquire(ctx context.Context, name string) *heldLock {
	lease := e.lease
	if lease == "" {
		lease = e.grant(ctx)
	}
	var answer struct {
		Key    string
		Header struct{ Revision string }
	}
	ask := map[string]any{"name": base64.StdEncoding.EncodeToString([]byte(name)), "lease": lease}
	e.post(ctx, "/v3/lock/lock", ask, &answer)
	number := must.Have(strconv.ParseUint(answer.Header.Revision, 10, 64))
	return &heldLock{name: answer.Key, number: number, lease: lease}
}

func (e *etcd) beat(ctx context.Context, all []*heldLock) int {
	var answer struct{ Result struct{ TTL string } }
	e.post(ctx, "/v3/lease/keepalive", map[string]any{"ID": all[0].lease}, &answer)
	if ttl, _ := strconv.Atoi(answer.Result.TTL); ttl <= 0 {
		must.Do(errLost)
	}
	if e.lease == "" {
		return 1
	}
	return len(all)
}

func (e *etcd) release(ctx context.Context, l *heldLock) {
	if e.lease == "" { // which frees the lock as well
		e.post(ctx, "/v3/lease/revoke", map[string]any{"ID": l.lease}, nil)
	} else {
		e.post(ctx, "/v3/lock/unlock", map[string]any{"key": l.name}, nil)
	}
}

// consul is a caller of Consul with a session for all of its locks.
type consul struct {
	*web
	session string
}

func newConsul(ctx context.Context, w *web, ttl time.Duration) *consul {
	var answer struct{ ID string }
	ask := map[string]any{"TTL": ttl.String(), "LockDelay": "0s"}
	w.call(ctx, http.MethodPut, "/v1/session/create", ask, &answer)
	return &consul{w, answer.ID}
}

func (c *consul) acquire(ctx context.Context, name string) *heldLock {
	path, index := "/v1/kv/bench/"+url.PathEscape(name), "0"
	for {
		var got bool
		if c.call(ctx, http.MethodPut, path+"?acquire="+c.session, c.session, &got); got {
			return &heldLock{name: path} // its number, LockIndex, is another call
		}
		index = c.call(ctx, http.MethodGet, path+"?wait=20s&index="+index, nil, nil).Header.Get("X-Consul-Index")
	}
}

func (c *consul) beat(ctx context.Context, all []*heldLock) int {
	path := "/v1/session/renew/" + c.session
	if c.call(ctx, http.MethodPut, path, nil, nil, http.StatusNotFound).StatusCode == http.StatusNotFound {
		must.Do(errLost)
	}
	return len(all)
}

func (c *consul) release(ctx context.Context, l *heldLock) {
	var done bool
	if c.call(ctx, http.MethodPut, l.name+"?release="+c.session, c.session, &done); !done {
		must.Do(errLost)
	}
}
