// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// The peers, as the page names them.
const (
	gateway    = "etcd, a lease a lock"
	sessions   = "etcd, a lease a caller"
	onEtcd     = "tenured on etcd"
	onSQLite   = "tenured on SQLite"
	consulName = "Consul, a session a caller"
	// inBatches is a way to send heartbeats.
	inBatches = ", 100 a call"
)

// peer is what callers hold locks by.
type peer struct {
	name  string
	pids  []int // of its processes, those of the engine too
	open  func(ctx context.Context) (holder, error)
	batch func(ctx context.Context) (holder, error) // nil: a call is for one lock, or for all
	ends  []func()
}

func (p *peer) close() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

// open starts all peers. What it returns is to be closed, beside an error too.
func open(ctx context.Context, dir, etcdProgram, consulProgram string, lease time.Duration, r *report) (all []*peer, err error) {
	if etcdProgram == "" {
		if etcdProgram, err = launcher.Program("etcd", "etcd"); err != nil {
			return nil, err
		}
	}
	if r.Programs, err = versions(ctx, etcdProgram, consulProgram); err != nil {
		return nil, err
	}
	program, err := service.BuildTenured(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, start := range []func() (*peer, error){
		func() (*peer, error) { return startEtcd(ctx, gateway, dir, etcdProgram, lease, true) },
		func() (*peer, error) { return startEtcd(ctx, sessions, dir, etcdProgram, lease, false) },
		func() (*peer, error) {
			p := &peer{}
			e, err := serveEtcd(ctx, p, filepath.Join(dir, "of-tenured"), etcdProgram)
			if err != nil {
				return p, err
			}
			return p, startTenured(ctx, p, onEtcd, dir, program, "etcd://"+e+"/load", lease)
		},
		func() (*peer, error) {
			p := &peer{}
			return p, startTenured(ctx, p, onSQLite, dir, program, "sqlite:"+filepath.Join(dir, "locks.db"), lease)
		},
		func() (*peer, error) {
			if consulProgram == "" {
				return nil, nil
			}
			return startConsul(ctx, filepath.Join(dir, "consul"), consulProgram, lease)
		},
	} {
		p, err := start()
		if p != nil {
			all = append(all, p)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// versions says what the peers are.
func versions(ctx context.Context, etcd, consul string) (string, error) {
	out, err := proc.Run(ctx, "", etcd, "--version")
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(out, "\n")
	all := "etcd " + strings.TrimPrefix(line, "etcd Version: ")
	if consul != "" {
		if out, err = proc.Run(ctx, "", consul, "version"); err != nil {
			return "", err
		}
		line, _, _ = strings.Cut(out, "\n")
		all += ", " + line
	}
	return all, nil
}

// process starts a process of a peer, and waits until it serves.
func (p *peer) process(ctx context.Context, what, ready string, args ...string) error {
	one, err := proc.Start(proc.Command{Args: args})
	if err != nil {
		return err
	}
	p.ends = append(p.ends, one.Kill)
	p.pids = append(p.pids, one.PID())
	err = wait.Until(ctx, what+" serves", func() bool { return !one.Alive() || answers(ctx, ready) })
	if err == nil && !one.Alive() {
		err = errors.New("it has ended")
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", what, err, one.Stderr())
	}
	return nil
}

// answers says that a path answers 200.
func answers(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // the status is all
	return answer.StatusCode == http.StatusOK
}

// serveEtcd starts an etcd of the peer's own, whose data are on the disk as durably as it has
// them, and returns its address.
func serveEtcd(ctx context.Context, p *peer, dir, program string) (string, error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	client, other := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	return "127.0.0.1:" + ports[0], p.process(ctx, "etcd", client+"/health", program,
		"--name", "one", "--data-dir", dir, "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", other, "--initial-advertise-peer-urls", other, "--initial-cluster", "one="+other)
}

func startEtcd(ctx context.Context, name, dir, program string, lease time.Duration, own bool) (*peer, error) {
	p := &peer{name: name}
	address, err := serveEtcd(ctx, p, filepath.Join(dir, "etcd-"+strconv.FormatBool(own)), program)
	w := newWeb("http://"+address, "")
	p.open = func(ctx context.Context) (holder, error) { return newEtcd(ctx, w, lease, own) }
	return p, err
}

func startTenured(ctx context.Context, p *peer, name, dir, program, store string, lease time.Duration) error {
	p.name = name
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
	p.open = func(context.Context) (holder, error) { return tenured{w, "load", false}, nil }
	p.batch = func(context.Context) (holder, error) { return tenured{w, "load", true}, nil }
	return nil
}

func startConsul(ctx context.Context, dir, program string, lease time.Duration) (*peer, error) {
	p := &peer{name: consulName}
	ports, err := freePorts(4)
	if err != nil {
		return p, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return p, err
	}
	base := "http://127.0.0.1:" + ports[0]
	if err := p.process(ctx, "consul", base+"/v1/status/leader", program, "agent", "-server", "-bootstrap-expect=1",
		"-data-dir="+dir, "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=err", "-disable-host-node-id", "-node=one",
		"-http-port="+ports[0], "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
		"-server-port="+ports[1], "-serf-lan-port="+ports[2], "-serf-wan-port="+ports[3],
		"-hcl=performance { raft_multiplier = 1 } limits { http_max_conns_per_client = 4096 } session_ttl_min = \"10s\"",
	); err != nil {
		return p, err
	}
	w := newWeb(base, "")
	p.open = func(ctx context.Context) (holder, error) { return newConsul(ctx, w, lease) }
	// It answers before it has a leader.
	return p, wait.Until(ctx, "consul makes sessions", func() bool {
		_, err := newConsul(ctx, w, lease)
		return err == nil
	})
}

// freePorts returns ports that nobody listens at.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		port, err := launcher.Port()
		if err != nil {
			return nil, err
		}
		ports = append(ports, strconv.Itoa(port))
	}
	return ports, nil
}
