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
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
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

// peer is a lock service for callers: servers with empty data on disk, with the default
// durability.
type peer struct {
	name    string
	pids    []int // of its processes, with the engine's
	open    openFunc
	batch   openFunc // nil: a call is for one lock, or for all
	session openFunc // of callers that keep all of their locks alive by one session; nil: they have none
	forAll  bool     // a heartbeat is for all locks of a caller
	atRest  float64  // memory before all locks
}

// start starts all peers, each in a folder of its own.
func (l *load) start(ctx context.Context, dir string) {
	program := service.BuildCommand(ctx, dir, "tenured")
	serve := func(p *peer, server launcher.Server) { // until it answers
		one := must.Have(server.Start(filepath.Join(dir, "log-"+freePort())))
		l.After(one.Kill)
		p.pids = append(p.pids, one.PID())
		must.Do(one.Await(ctx))
	}
	etcd := func(p *peer, at string) (url string) {
		members, urls, err := launcher.EtcdCluster(at, 1)
		must.Do(err)
		serve(p, members[0])
		return urls[0]
	}
	tenured := func(p *peer, at, store string) {
		r := service.Start(ctx, &l.Scope, service.Config{
			Program: program, Dir: at, Stores: []string{store}, Lease: serviceLease, Drain: time.Second,
			// One principal makes all calls here: its limits would be measured.
			Args: []string{"--max-calls", "10000000", "--max-heartbeats", "10000000"},
		})
		p.pids = append(p.pids, r.Process(0).PID())
		w := newWeb(r.URLs()[0], r.Worker)
		p.open = func(context.Context) caller { return newTenured(w, 1) }
		p.batch = func(context.Context) caller { return newTenured(w, mostBeats) }
		p.session = func(ctx context.Context) caller { return newSession(ctx, w) }
	}
	for _, one := range []struct {
		peer
		start func(p *peer, at string)
	}{
		{peer{name: gateway}, func(p *peer, at string) {
			w := newWeb(etcd(p, at), "")
			p.open = func(context.Context) caller { return newEtcd(w, "") }
		}},
		{peer{name: oneLease, forAll: true}, func(p *peer, at string) {
			w := newWeb(etcd(p, at), "")
			p.open = func(ctx context.Context) caller { return newEtcd(w, w.grant(ctx)) }
		}},
		{peer{name: consulName, forAll: true}, func(p *peer, at string) {
			port := freePort()
			w := newWeb("http://127.0.0.1:"+port, "")
			p.open = func(ctx context.Context) caller { return newConsul(ctx, w) }
			serve(p, consulServer(ctx, l.consul, at, port, p.open))
		}},
		{peer{name: onEtcd}, func(p *peer, at string) {
			tenured(p, at, strings.Replace(etcd(p, at), "http:", "etcd:", 1)+"/bench")
		}},
		{peer{name: onSQLite}, func(p *peer, at string) { tenured(p, at, "sqlite:"+filepath.Join(at, "locks.db")) }},
	} {
		if one.name == consulName && l.consul == "" {
			continue
		}
		at := must.Have(os.MkdirTemp(dir, "peer-"))
		one.start(&one.peer, at)
		l.peers = append(l.peers, &one.peer)
	}
}

// serverVersions returns the versions of the peers.
func serverVersions(ctx context.Context, consul string) string {
	versions := "etcd " + must.Have(launcher.Find("etcd")).Version
	if consul != "" {
		line, _, _ := strings.Cut(must.Have(proc.Run(ctx, "", consul, "version")), "\n")
		versions += ", " + line
	}
	return versions
}

func consulServer(ctx context.Context, program, dir, port string, open openFunc) launcher.Server {
	return launcher.Server{
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
			return must.Try(func() { open(soon) })
		},
	}
}

// freePort returns a port without a listener.
func freePort() string { return strconv.Itoa(must.Have(launcher.Port())) }

// errLost is the error for a held lock that was lost.
var errLost = errors.New("a lock that was held was lost")

// web calls a server over HTTP/1.1, on persistent connections.
type web struct {
	base, token string
	http        *http.Client
}

func newWeb(base, token string) *web {
	return &web{base, token, &http.Client{
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}}
}

// call makes a call, and reads the answer into out unless that is nil. It fails with a status other
// than 2xx and the answers.
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

// mostBeats is how many heartbeats one call may have.
const mostBeats = 100

// beatCall is a call of a holder.
type beatCall struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	After string `json:"after"`
	Next  string `json:"next,omitempty"`
}

// followed returns a call with the next beat.
func (l *heldLock) followed() beatCall {
	base, _, _ := strings.Cut(l.beat, "-")
	return beatCall{l.name, l.number, l.beat, base + "-" + rand.Text()[:13]}
}

// newSession returns a caller of the lock service that attaches its locks to a session, a hundred in
// a call: at the latest before the next heartbeat.
func newSession(ctx context.Context, w *web) (t caller) {
	t = newTenured(w, 1)
	var s struct{ Session, Beat string }
	w.post(ctx, "/v1/sessions/open", map[string]any{"owner": "bench"}, &s)
	ask := func(more map[string]any) map[string]any {
		more["session"] = s.Session
		return more
	}
	renew := func(ctx context.Context) {
		next := (&heldLock{beat: s.Beat}).followed().Next
		call := ask(map[string]any{"after": s.Beat, "next": next})
		if w.post(ctx, "/v1/sessions/heartbeat", call, nil, http.StatusGone) == http.StatusGone {
			must.Do(errLost)
		}
		s.Beat = next
	}
	renew(ctx) // nothing counts before that
	var grants []beatCall
	attach := func(ctx context.Context) {
		var answer struct {
			Results []struct {
				Problem json.RawMessage `json:"problem"`
			} `json:"results"`
		}
		w.post(ctx, "/v1/sessions/attach", ask(map[string]any{"beat": s.Beat, "locks": grants}), &answer)
		for _, a := range answer.Results {
			if a.Problem != nil {
				must.Do(fmt.Errorf("%w: %s", errLost, a.Problem))
			}
		}
		grants = nil
	}
	acquire := t.acquire
	t.acquire = func(ctx context.Context, name string) *heldLock {
		l := acquire(ctx, name)
		as := l.followed()
		l.release = func(ctx context.Context) {
			w.post(ctx, "/v1/sessions/release", ask(map[string]any{"locks": []beatCall{as}}), nil)
		}
		if grants = append(grants, as); len(grants) == mostBeats {
			attach(ctx)
			renew(ctx)
		}
		return l
	}
	t.beat = func(ctx context.Context, all []*heldLock) int {
		if len(grants) > 0 {
			attach(ctx)
		}
		renew(ctx)
		return len(all)
	}
	return t
}

// newTenured returns a caller of the lock service, which follows the rules for clients. So many
// heartbeats are in one call.
func newTenured(w *web, most int) (t caller) {
	t.acquire = func(ctx context.Context, name string) *heldLock {
		l := &heldLock{name: name}
		l.release = func(ctx context.Context) {
			w.post(ctx, "/v1/release", beatCall{Name: l.name, Token: l.number, After: l.beat}, nil)
		}
		var g struct {
			Token    uint64 `json:"token"`
			Beat     string `json:"beat"`
			UsableMs int64  `json:"usable_ms"`
		}
		ask := map[string]any{"name": name, "owner": "bench", "wait_ms": 20_000}
		sent := time.Now()
		for w.post(ctx, "/v1/acquire", ask, &g, http.StatusConflict) == http.StatusConflict {
			sent = time.Now() // another caller still has it
		}
		l.number, l.beat = g.Token, g.Beat
		if g.UsableMs == 0 || time.Since(sent) >= serviceLease/10 {
			t.beat(ctx, []*heldLock{l}) // such a grant is no lease: the lock is held from the first heartbeat on
		}
		return l
	}
	t.beat = func(ctx context.Context, all []*heldLock) int {
		all = all[:min(len(all), most)]
		calls := make([]beatCall, len(all))
		for i, l := range all {
			calls[i] = l.followed()
			l.beat = calls[i].Next
		}
		if len(all) == 1 {
			if w.post(ctx, "/v1/heartbeat", calls[0], nil, http.StatusGone) == http.StatusGone {
				must.Do(errLost)
			}
			return 1
		}
		var answer struct {
			Results []struct {
				UsableMs *int64          `json:"usable_ms"`
				Problem  json.RawMessage `json:"problem"`
			} `json:"results"`
		}
		w.post(ctx, "/v1/heartbeats", map[string]any{"locks": calls}, &answer)
		if len(answer.Results) != len(all) {
			must.Do(fmt.Errorf("%d heartbeats were answered of %d", len(answer.Results), len(all)))
		}
		for _, a := range answer.Results {
			if a.UsableMs == nil {
				must.Do(fmt.Errorf("%w: %s", errLost, a.Problem))
			}
		}
		return len(all)
	}
	return t
}

// grant returns a new lease of etcd.
func (w *web) grant(ctx context.Context) string {
	var answer struct{ ID string }
	w.post(ctx, "/v3/lease/grant", map[string]any{"TTL": int(serviceLease.Seconds())}, &answer)
	return answer.ID
}

// newEtcd returns a caller of etcd's own lock, by its JSON gateway. Its locks have one lease, or one
// each if that is empty.
func newEtcd(w *web, one string) caller {
	return caller{
		acquire: func(ctx context.Context, name string) *heldLock {
			l := &heldLock{lease: one}
			if one == "" {
				l.lease = w.grant(ctx)
			}
			var answer struct {
				Key    string
				Header struct{ Revision string }
			}
			ask := map[string]any{"name": base64.StdEncoding.EncodeToString([]byte(name)), "lease": l.lease}
			w.post(ctx, "/v3/lock/lock", ask, &answer)
			l.name, l.number = answer.Key, must.Have(strconv.ParseUint(answer.Header.Revision, 10, 64))
			l.release = func(ctx context.Context) {
				if one == "" { // which frees the lock as well
					w.post(ctx, "/v3/lease/revoke", map[string]any{"ID": l.lease}, nil)
				} else {
					w.post(ctx, "/v3/lock/unlock", map[string]any{"key": l.name}, nil)
				}
			}
			return l
		},
		beat: func(ctx context.Context, all []*heldLock) int {
			var answer struct{ Result struct{ TTL string } }
			w.post(ctx, "/v3/lease/keepalive", map[string]any{"ID": all[0].lease}, &answer)
			if ttl, _ := strconv.Atoi(answer.Result.TTL); ttl <= 0 {
				must.Do(errLost)
			}
			if one == "" {
				return 1
			}
			return len(all)
		},
	}
}

// newConsul returns a caller of Consul with a session for all of its locks.
func newConsul(ctx context.Context, w *web) caller {
	var session struct{ ID string }
	ask := map[string]any{"TTL": serviceLease.String(), "LockDelay": "0s"}
	w.call(ctx, http.MethodPut, "/v1/session/create", ask, &session)
	return caller{
		acquire: func(ctx context.Context, name string) *heldLock {
			path, index := "/v1/kv/bench/"+url.PathEscape(name), "0"
			for {
				var got bool
				if w.call(ctx, http.MethodPut, path+"?acquire="+session.ID, session.ID, &got); got {
					return &heldLock{name: path, release: func(ctx context.Context) { // its number, LockIndex, is another call
						if w.call(ctx, http.MethodPut, path+"?release="+session.ID, session.ID, &got); !got {
							must.Do(errLost)
						}
					}}
				}
				answer := w.call(ctx, http.MethodGet, path+"?wait=20s&index="+index, nil, nil)
				index = answer.Header.Get("X-Consul-Index")
			}
		},
		beat: func(ctx context.Context, all []*heldLock) int {
			answer := w.call(ctx, http.MethodPut, "/v1/session/renew/"+session.ID, nil, nil, http.StatusNotFound)
			if answer.StatusCode == http.StatusNotFound {
				must.Do(errLost)
			}
			return len(all)
		},
	}
}
