// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// The engine can be stopped, so that it answers nothing until it goes on.

// stop stops the engine.
func (db *database) stop(*testing.T) (resume func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	hang := make(chan struct{})
	db.hang = hang
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.hang = nil
		close(hang)
	}
}

// answer waits until the engine answers, or the context is done; deaf, for the engine
// alone.
func (db *database) answer(ctx context.Context, deaf bool) error {
	db.mu.Lock()
	hang := db.hang
	db.mu.Unlock()
	switch {
	case hang == nil:
	case deaf:
		<-hang
	default:
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// An engine may count the writes of each key, from its creation on, and a handle
// remember of each key the last record that it saw, and at which count that was.

func (h *handle) put(r driver.Record) {
	h.db.records[h.id(r.Key)] = r
	h.db.nodes[h.id(r.Key)]++
	h.saw(r)
}

func (h *handle) saw(r driver.Record) {
	h.nodes[r.Key] = node{r.Version, r.Token, h.db.nodes[h.id(r.Key)]}
}

type node struct {
	version string
	token   uint64
	count   int
}

// byNode reports whether the node stands at the count at which this handle has seen
// prev, if it has, in the store that goes by that.
func (h *handle) byNode(prev driver.Record) (same, known bool) {
	if !h.db.is("node's version alone") {
		return false, false
	}
	n, known := h.nodes[prev.Key]
	known = known && n.version == prev.Version && n.token == prev.Token
	return n.count == h.db.nodes[h.id(prev.Key)], known
}

// textOnly reports whether an error is of the check that a bug leaves out.
func (h *handle) textOnly(err error) bool {
	return h.db.is("text unchecked") && strings.Contains(err.Error(), "U+0000")
}

// beginWatch fails as any call, and reports whether it is the first one of the handle.
func (h *handle) beginWatch(ctx context.Context) (cold bool, err error) {
	h.mu.Lock()
	dialed := h.dialed
	h.mu.Unlock()
	switch h.db.bug {
	case "watch ignores its context":
		ctx = context.Background()
	case "watch hangs past its context":
		_ = h.db.answer(ctx, true)
	}
	if err := h.fail(ctx); err != nil {
		return false, err
	}
	if h.db.is("watch armed by the next call") {
		h.mu.Lock()
		h.dialed = dialed
		h.mu.Unlock()
	}
	return !dialed, nil
}

func (h *handle) isDialed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dialed
}
