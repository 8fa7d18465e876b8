// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package service starts the lock service, as the processes of tenured that share a store,
// and programs in Python, TypeScript and Java that hold locks through it.
//
// The programs use the clients in clients/, and speak the protocol of package wire, so
// that all faults for other lock clients apply to them. They find the service by the
// Endpoint of their first request: addresses, separated by commas.
package service

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/harness/gate"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
)

// BuildCommand builds a command of this checkout in a folder, and returns its path. Like all here it is
// for [must.Try].
func BuildCommand(ctx context.Context, dir, name string) string {
	file := filepath.Join(dir, name)
	must.Have(proc.Run(ctx, "", "go", "build", "-buildvcs=false", "-o", file, "github.com/tenurelock/tenure/cmd/"+name))
	return file
}

// Config says what the replicas are.
type Config struct {
	Program string   // the path of tenured
	Args    []string // more of them, after those made from the fields
	Dir     string   // of the file of principals
	// Stores are the URL of the store as each replica has it: one replica for each.
	Stores []string
	Lease  time.Duration
	// Drain is how long a replica that is asked to end answers heartbeats.
	Drain time.Duration
}

// Replicas are processes of the lock service on one store. They may be used concurrently.
type Replicas struct {
	// Worker is the token of those who hold locks, and Operator that of one who may do
	// anything.
	Worker, Operator string

	all []*replica
}

// replica is where one process after another listens on one port.
type replica struct {
	args    []string
	address string
	process atomic.Pointer[proc.Process]
}

// Start starts the replicas, which end with the scope, and returns when all of them serve.
func Start(ctx context.Context, scope *peers.Scope, c Config) *Replicas {
	tokens := filepath.Join(c.Dir, "principals-"+rand.Text())
	r := &Replicas{Worker: rand.Text(), Operator: rand.Text()}
	lines := fmt.Sprintf("worker %s hold:\noperator %s admin:\n", r.Worker, r.Operator)
	must.Do(os.WriteFile(tokens, []byte(lines), 0o600))
	for _, store := range c.Stores {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(must.Have(launcher.Port())))
		r.all = append(r.all, &replica{address: address, args: append([]string{
			c.Program, "--store", store, "--listen", address, "--tokens", tokens, "--lease", c.Lease.String(),
			"--drain", c.Drain.String(),
		}, c.Args...)})
	}
	scope.After(func() {
		for i := range r.all {
			if p := r.Process(i); p != nil {
				p.Kill()
			}
		}
	})
	must.AtOnce(ctx, len(r.all), len(r.all), r.Restart)
	return r
}

// URLs are where the replicas are reached.
func (r *Replicas) URLs() []string {
	urls := make([]string, len(r.all))
	for i, one := range r.all {
		urls[i] = "http://" + one.address
	}
	return urls
}

// Restart starts a replica that is not there, and returns when it serves.
func (r *Replicas) Restart(ctx context.Context, i int) {
	one := r.all[i]
	p := must.Have(proc.Start(proc.Command{Args: one.args}))
	one.process.Store(p)
	if err := wait.Until(ctx, "a replica serves", func() bool {
		soon, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		return r.call(soon, i, http.MethodGet, "/readyz", nil, nil) == nil || !p.Alive()
	}); err != nil || !p.Alive() {
		p.Kill()
		must.Do(errors.Join(err, fmt.Errorf("replica %d does not serve:\n%s", i+1, p.Stderr())))
	}
}

// Process returns the process of a replica.
func (r *Replicas) Process(i int) *proc.Process { return r.all[i].process.Load() }

// Terminate tells a replica to end, as an operating system does before it ends itself, and
// returns when it has.
func (r *Replicas) Terminate(ctx context.Context, i int) {
	p := r.Process(i)
	_ = p.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-p.Ended:
	case <-ctx.Done():
		must.Do(context.Cause(ctx))
	}
	if !p.State().Success() {
		must.Do(fmt.Errorf("replica %d: %s\n%s", i+1, p.State(), p.Stderr()))
	}
}

// callBound bounds a call of an operator, who may wait for a holder's answer.
const callBound = 30 * time.Second

// call calls a replica as its operator, and reads the answer into found, unless that is nil.
func (r *Replicas) call(ctx context.Context, i int, method, path string, in, found any) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, r.URLs()[i]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+r.Operator)
	request.Header.Set("Content-Type", "application/json")
	request.Close = true // a connection that is kept may be one of a process that was killed
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %d %.300s", path, response.StatusCode, text)
	case found == nil:
		return nil
	}
	return json.Unmarshal(text, found)
}

// StepDown asks the holder of a lock to step down, and waits for its answer for so long. There may be
// no holder, and the replica may be under a fault: what comes of it shows the lock.
func (r *Replicas) StepDown(ctx context.Context, i int, name string, wait time.Duration) {
	_ = r.call(ctx, i, http.MethodPost, "/v1/requests", map[string]any{
		"name": name, "kind": "step-down", "reason": "a fault", "wait_ms": wait.Milliseconds(),
	}, nil)
}

// Tenure is a tenure in the history of a lock, as far as it is needed here.
type Tenure struct {
	Token uint64 `json:"token"`
	Owner string `json:"holder"`
}

// History returns the terms of a lock that the service knows, the newest first. It retries a
// replica whose store is slow for a moment.
func (r *Replicas) History(ctx context.Context, i int, name string) (all []Tenure) {
	for query := (url.Values{"name": {name}, "limit": {"100"}}); ; {
		var found struct {
			Terms []Tenure `json:"tenures"`
			Next  uint64   `json:"next"`
		}
		var err error
		wait.Within(ctx, callBound, func() bool {
			err = r.call(ctx, i, http.MethodGet, "/v1/history?"+query.Encode(), nil, &found)
			return err == nil
		})
		must.Do(err)
		all = append(all, found.Terms...)
		if found.Next == 0 {
			return all
		}
		query.Set("below", fmt.Sprint(found.Next))
	}
}

// NewFront returns the proxy between one client and the replicas: a gate that can cut the
// client off, that has weather, and that takes each call to a replica that it draws.
func NewFront(replicas []string, w gate.Weather, seed uint64) *gate.HTTP {
	return gate.NewWeathered(replicas, w, seed, decides)
}

// decides says of a call whether it writes to a lock's record. What is for people does not.
func decides(r *http.Request) bool { return r.Method == http.MethodPost }

// IsCall says of calls to the service whether they are to one of these paths.
func IsCall(paths ...string) func(gate.Call) bool {
	return func(c gate.Call) bool { return slices.Contains(paths, c.Path) }
}

// The paths of the calls by which a lock is held.
const (
	AcquirePath   = "/v1/acquire"
	HeartbeatPath = "/v1/heartbeat"
	ReleasePath   = "/v1/release"
	DrainPath     = "/v1/drain"
)
