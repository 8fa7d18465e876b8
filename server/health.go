// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
)

// healthz is GET /healthz.
func (c *call) healthz() error { return c.text("ok\n") }

// readyz is GET /readyz.
func (c *call) readyz() error {
	if c.s.waits.closed() {
		return draining()
	}
	if err := c.s.reachable(); err != nil {
		c.s.o.Logger.Warn("tenure: not ready", "error", err)
		return problemf(unavailable, "the store does not answer: the log of this server has its error").after(retryStore)
	}
	return c.text("ready\n")
}

const (
	// askPeriod is for how long an answer of the store serves all who ask the same.
	askPeriod = time.Second
	// readyName is a lock that nobody takes: to read that it is not there is an answer, too.
	readyName = "readyz"
)

// recent is an answer of the store, for all who ask within a second.
type recent[T any] struct {
	mu    sync.Mutex // held while the store is asked
	asked time.Time
	value T
	err   error
}

// over says that the store is to be asked. The caller holds the mutex.
func (r *recent[T]) over() bool { return time.Since(r.asked) >= askPeriod }

// ask asks the store. The client bounds the read; those who ask meanwhile wait for its answer. The caller
// holds the mutex.
func (r *recent[T]) ask(read func(context.Context) (T, error)) {
	r.value, r.err = read(context.Background())
	r.asked = time.Now()
}

// reachable returns why the store has given no answer lately, nil if it has.
func (s *Server) reachable() error {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if s.ready.over() {
		s.ready.ask(func(ctx context.Context) (tenure.Status, error) { return s.client.Status(ctx, readyName) })
	}
	return s.ready.err
}
