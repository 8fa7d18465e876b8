// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"cmp"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/tenuretest"
)

// world judges who works where: no two have the same partition, and tokens rise.
type world struct {
	*tenuretest.World
	t       *testing.T
	options shard.Options     // of all workers
	faults  []faultstore.Rule // of all workers
	blind   bool              // no hint of the store arrives, as from those that cannot watch
	workers []*worker
	mu      sync.Mutex
	desks   map[string]*desk // by partition
}

// desk is where a partition is worked on.
type desk struct {
	p     *shard.Partition // the latest one at work
	w     *worker          // that has it
	left  time.Time        // when no owner was at work any more, and zero while one is
	gap   time.Duration    // the longest time without one
	begun int              // how often it has come to a worker
}

// enter notes that a handler is at work, until leave is called.
func (w *worker) enter(p *shard.Partition) (leave func()) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	d := w.s.desks[p.ID()]
	if d == nil {
		d = &desk{p: p, w: w}
		w.s.desks[p.ID()] = d
	} else if d.p.Check() == nil && p.Check() == nil || p.Token() <= d.p.Token() {
		w.s.t.Errorf("%s has %q under token %d, and %s under %d", w.owner, p.Name(), p.Token(), d.w.owner, d.p.Token())
	}
	if left := cmp.Or(d.left, d.w.died); !left.IsZero() {
		d.gap = max(d.gap, time.Since(left))
	}
	d.p, d.w, d.left, d.begun = p, w, time.Time{}, d.begun+1
	return func() {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		if d.p == p {
			d.left = time.Now()
		}
	}
}
