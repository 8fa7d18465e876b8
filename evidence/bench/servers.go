// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/must"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
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
