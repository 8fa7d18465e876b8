// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/interop/peer/wire"
)

// serveEnv makes this program a process that holds locks with Tenure, in the
// language in which the other clients' processes are spoken to.
const serveEnv = "TENURE_BENCH_SERVE"

// region is one that the SDK knows by name: for others it searches with regular
// expressions, anew at each request.
const region = "us-east-1"

// connect returns a client of DynamoDB with connections of its own, as the SDK
// makes them by default.
func connect(endpoint string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint, Region: region,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// server is Tenure behind a pipe.
type server struct {
	out struct {
		sync.Mutex
		io.Writer
	}

	mu     sync.Mutex
	client *tenure.Client
	leases map[string]*tenure.Lease
}

// serve answers requests until the input ends. Nothing is released then, as in
// a crash.
func serve(in io.Reader, out io.Writer) error {
	s := &server{leases: map[string]*tenure.Lease{}}
	s.out.Writer = out
	if err := s.write(wire.Answer{Event: wire.Ready, OK: true, Peer: tenureName, Version: "this checkout", Runtime: runtime.Version(), PID: os.Getpid()}); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var request wire.Request
		if err := json.Unmarshal(line, &request); err != nil {
			return fmt.Errorf("request %q: %w", line, err)
		}
		// One that waits for a lock must not hold up the others.
		go func() {
			if s.write(s.answer(&request)) != nil {
				os.Exit(1) // nobody listens any more
			}
		}()
	}
}

func (s *server) write(a wire.Answer) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	s.out.Lock()
	defer s.out.Unlock()
	_, err = s.out.Write(append(line, '\n'))
	return err
}

func (s *server) answer(request *wire.Request) wire.Answer {
	a := wire.Answer{ID: request.ID, OK: true, SentNs: wire.Monotonic()}
	err := s.run(context.Background(), request)
	a.GotNs = wire.Monotonic()
	if request.Command == wire.Holds {
		holds := err == nil
		a.Holds, err = &holds, nil
	}
	if err != nil {
		a.OK, a.Kind, a.Class, a.Message = false, wire.Other, fmt.Sprintf("%T", err), err.Error()
		if errors.Is(err, tenure.ErrHeld) {
			a.Kind = wire.Held
		}
	}
	return a
}

func (s *server) run(ctx context.Context, r *wire.Request) error {
	if r.Command == wire.Open {
		return s.open(r)
	}
	s.mu.Lock()
	client, lease := s.client, s.leases[r.Name]
	s.mu.Unlock()
	switch {
	case client == nil:
		return errors.New("not open")
	case r.Command == wire.Acquire:
		acquire := client.Acquire
		if r.TryOnly {
			acquire = client.TryAcquire
		}
		l, err := acquire(ctx, r.Name, nil)
		if err == nil {
			s.mu.Lock()
			s.leases[r.Name] = l
			s.mu.Unlock()
		}
		return err
	case lease == nil:
		return fmt.Errorf("no lease of %q", r.Name)
	case r.Command == wire.Release:
		return lease.Release(ctx)
	case r.Command == wire.Heartbeat:
		return lease.Renew(ctx)
	case r.Command == wire.Holds:
		return lease.Check()
	}
	return fmt.Errorf("no command %q", r.Command)
}

func (s *server) open(r *wire.Request) error {
	store, err := dynamostore.New(connect(r.Endpoint), r.Table, nil)
	if err != nil {
		return err
	}
	client, err := tenure.New(store, &tenure.Options{
		LeaseDuration: duration(r.LeaseMs), HeartbeatPeriod: duration(r.HeartbeatMs), RefreshPeriod: duration(r.RefreshMs),
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = client
	return nil
}

func duration(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}
