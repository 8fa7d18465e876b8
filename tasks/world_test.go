// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/tenuretest"
)

// world judges which tasks run at once, and keeps a journal of what replicas do.
type world struct {
	*tenuretest.World
	t *testing.T

	mu      sync.Mutex
	journal []string
	running map[string]int // tasks by "owner kind"
}

// enter fails the test if a task runs that must not run beside one of this kind, which runs
// until leave is called.
func (r *replica) enter(kind, name string) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, n := range r.running {
		owner, other, _ := strings.Cut(k, " ")
		if n > 0 && (kind == "leading" && other == "leading" && owner != r.owner ||
			owner == r.owner && kind != other && kind != "always" && other != "always") {
			r.t.Errorf("%s of %s is started while %d tasks run: %s", name, r.owner, n, k)
		}
	}
	add := func(n int) { r.running[r.owner+" "+kind] += n }
	add(1)
	return func() { r.mu.Lock(); defer r.mu.Unlock(); add(-1) }
}

// release fails the test if a leading task of the replica runs when a lock of it is released.
func (r *replica) release() {
	r.world.note("release")
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.running[r.owner+" leading"]; n > 0 {
		r.t.Errorf("%s releases the lock while %d leading tasks run", r.owner, n)
	}
}

// checkHeld fails the test if the record is released, or another's, when a leading task ends
// whose lease is good.
func (r *replica) checkHeld(name string, l *tenure.Lease) {
	rec := r.Record(election)
	if l.Check() == nil && (rec.State != driver.Held || rec.Token != l.Token()) {
		r.t.Errorf("when %s of %s ends under token %d, the record is %+v", name, r.owner, l.Token(), rec)
	}
}
