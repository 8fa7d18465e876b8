// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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

// peer is what callers hold locks by: servers with empty data on the disk, as durable as by
// default.
type peer struct {
	name   string
	pids   []int // of its processes, those of the engine too
	open   func(ctx context.Context) (caller, error)
	batch  func(ctx context.Context) (caller, error) // nil: a call is for one lock, or for all
	forAll bool                                      // a heartbeat is for all locks of a caller
	ends   []func()
}

func (p *peer) close() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

// startPeers starts all peers. What it returns is to be closed, beside an error too.
func startPeers(ctx context.Context, dir, consulProgram string, lease time.Duration) (all []*peer, err error) {
	program, err := service.BuildTenured(ctx, dir)
	if err != nil {
		return nil, err
	}
	for i, p := range []*peer{
		{name: gateway}, {name: oneLease, forAll: true}, {name: consulName, forAll: true}, {name: onEtcd}, {name: onSQLite},
	} {
		at := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(at, 0o700); err != nil {
			return all, err
		}
		var address string
		switch p.name {
		case onSQLite:
			err = p.startTenured(ctx, at, program, "sqlite:"+filepath.Join(at, "locks.db"), lease)
		case onEtcd:
			if address, err = p.startEtcd(ctx, at); err == nil {
				err = p.startTenured(ctx, at, program, strings.Replace(address, "http:", "etcd:", 1)+"/bench", lease)
			}
		case consulName:
			if consulProgram == "" {
				continue
			}
			err = p.startConsul(ctx, at, consulProgram, lease)
		default:
			address, err = p.startEtcd(ctx, at)
			w := newWeb(address, "")
			p.open = func(ctx context.Context) (caller, error) { return newEtcd(ctx, w, lease, p.forAll) }
		}
		all = append(all, p)
		if err != nil {
			return all, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return all, nil
}

// serverVersions says what the peers are.
func serverVersions(ctx context.Context, consulProgram string) (string, error) {
	kind, err := launcher.Find("etcd")
	if err != nil || consulProgram == "" {
		return "etcd " + kind.Version, err
	}
	out, err := proc.Run(ctx, "", consulProgram, "version")
	line, _, _ := strings.Cut(out, "\n")
	return "etcd " + kind.Version + ", " + line, err
}

// start starts a server, and waits until it answers.
func (p *peer) start(ctx context.Context, dir string, server launcher.Server) error {
	one, err := server.Start(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	p.ends = append(p.ends, one.Kill)
	p.pids = append(p.pids, one.PID())
	return one.Await(ctx)
}

// startEtcd starts an etcd of the peer's own, and returns its URL.
func (p *peer) startEtcd(ctx context.Context, dir string) (string, error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	client, other := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	server, err := launcher.Etcd(dir, "one", client, other, "one="+other)
	if err != nil {
		return "", err
	}
	return client, p.start(ctx, dir, server)
}

func (p *peer) startTenured(ctx context.Context, dir, program, store string, lease time.Duration) error {
	r, err := service.Start(ctx, service.Config{
		Program: program, Dir: dir, Stores: []string{store}, Lease: lease, Drain: time.Second,
		// One principal makes all calls here: what protects others from it would be measured.
		Args: []string{"--max-calls", "10000000", "--max-heartbeats", "10000000"},
	})
	if err != nil {
		return err
	}
	p.ends = append(p.ends, r.Close)
	p.pids = append(p.pids, r.PID(0))
	w := newWeb(r.URLs()[0], r.Worker)
	p.open = func(context.Context) (caller, error) { return tenured{w, false}, nil }
	p.batch = func(context.Context) (caller, error) { return tenured{w, true}, nil }
	return nil
}

func (p *peer) startConsul(ctx context.Context, dir, program string, lease time.Duration) error {
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	w := newWeb("http://127.0.0.1:"+ports[0], "")
	p.open = func(ctx context.Context) (caller, error) { return newConsul(ctx, w, lease) }
	return p.start(ctx, dir, launcher.Server{
		Args: []string{
			program, "agent", "-server", "-bootstrap-expect=1", "-data-dir=" + filepath.Join(dir, "data"),
			"-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=err", "-disable-host-node-id", "-node=one",
			"-http-port=" + ports[0], "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
			"-server-port=" + ports[1], "-serf-lan-port=" + ports[2], "-serf-wan-port=" + ports[3],
			"-hcl=performance { raft_multiplier = 1 } limits { http_max_conns_per_client = 4096 } session_ttl_min = \"10s\"",
		},
		// It answers before it has a leader.
		Ready: func() error {
			soon, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			_, err := newConsul(soon, w, lease)
			return err
		},
	})
}

// freePorts returns ports that nobody listens at.
func freePorts(n int) (ports []string, err error) {
	for range n {
		port, err := launcher.Port()
		if err != nil {
			return nil, err
		}
		ports = append(ports, strconv.Itoa(port))
	}
	return ports, nil
}
