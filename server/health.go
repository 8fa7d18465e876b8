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
	if err := c.s.ready.check(); err != nil {
		c.s.o.Logger.Warn("tenure: not ready", "error", err)
		return problemf(unavailable, "the store does not answer: the log of this server has its error").after(retryStore)
	}
	return c.text("ready\n")
}

// readiness asks the store whether it answers, for all who ask: once a second at most.
type readiness struct {
	client *tenure.Client

	mu    sync.Mutex
	asked time.Time
	err   error
}

const (
	readyPeriod = time.Second
	// readyName is a lock that nobody takes: to read that it is not there is an answer, too.
	readyName = "readyz"
)

// check returns why the store has given no answer lately, nil if it has.
func (r *readiness) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.asked.IsZero() || now.Sub(r.asked) >= readyPeriod {
		// The client bounds the read; those who ask meanwhile have the same answer.
		_, r.err = r.client.Status(context.Background(), readyName)
		r.asked = time.Now()
	}
	return r.err
}
