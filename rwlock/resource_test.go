// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/rwlock"
)

// actor is one lease at work, as a reader or as a writer: a downgrade makes another one.
type actor struct {
	lease    *rwlock.Lease
	p        *player
	writing  bool
	token    uint64
	shown    bool // the fence has let an access of it in
	released atomic.Bool
}

func (a *actor) String() string {
	kind := "reader"
	if a.writing {
		kind = "writer"
	}
	return fmt.Sprintf("%s of %s with %d", kind, a.p.owner, a.token)
}

// rightly says that it may act, and knows that: a process that is stopped asks nothing.
func (a *actor) rightly() bool {
	return !a.p.stopped.Load() && !a.released.Load() && a.lease.Check() == nil && a.lease.Writing() == a.writing
}

// resource is what is read and written, behind a fence. It judges.
type resource struct {
	mu      sync.Mutex
	highest uint64
	actors  map[*actor]bool
	epochs  map[uint64]bool // of the writers that there were
	found   string          // what was broken first
	reads   int
	writes  int
	refused int
	wronged []wronged
}

// wronged is an actor that the fence has refused though it might act.
type wronged struct {
	who   string
	epoch uint64
	let   uint64 // the epoch of whom the fence has let in
}

// appeal judges the actors that the fence has refused, when the history of the gate is
// known. The fence may refuse readers if a writer crashed while it waited for them: it is
// not known then that the writer had not written. The same holds after two consecutive
// abandoned terms of the gate: the next holder sees only the second of them.
func (r *resource) appeal(history []tenure.Term) {
	for _, w := range r.wronged {
		abandoned := map[uint64]bool{}
		for _, t := range history {
			abandoned[t.Token] = t.End == tenure.EndAbandoned
		}
		unknown := false
		for _, t := range history {
			if t.Token > w.epoch && t.Token <= w.let && t.End != tenure.EndReleased && (t.End != tenure.EndAbandoned || abandoned[t.Token+1]) {
				unknown = true
			}
		}
		if !unknown {
			r.broken("none refused: the %s rightly works, and the fence has let in epoch %d", w.who, w.let)
		}
	}
}

func newResource() *resource {
	return &resource{actors: map[*actor]bool{}, epochs: map[uint64]bool{}}
}

func (r *resource) broken(format string, args ...any) {
	if r.found == "" {
		r.found = fmt.Sprintf(format, args...)
	}
}

// look judges who may act at this moment. The caller holds mu.
func (r *resource) look() {
	var right []*actor
	for a := range r.actors {
		if a.rightly() {
			right = append(right, a)
		}
	}
	for i, a := range right {
		for _, b := range right[:i] {
			if a.writing || b.writing {
				r.broken("excludes: the %v beside the %v", a, b)
			}
		}
	}
}

func (r *resource) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
}

// enter records an actor that begins, and judges what its lease says of the last writer.
func (r *resource) enter(p *player, l *rwlock.Lease) *actor {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &actor{lease: l, p: p, writing: l.Writing(), token: l.Token()}
	last, ok := l.LastWriter()
	for epoch := range r.epochs {
		if before := epoch <= l.Epoch() && !a.writing || epoch < l.Epoch(); before && (!ok || epoch > last.Token) {
			r.broken("last writer: the %v got epoch %d, but it was %d", a, last.Token, epoch)
		}
	}
	if a.writing {
		r.epochs[l.Epoch()] = true
	}
	r.actors[a] = true
	r.look()
	return a
}

func (r *resource) leave(a *actor) {
	a.released.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.actors, a)
}

// access is an access that arrives, now or late, once or again.
func (r *resource) access(a *actor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	if a.token < r.highest {
		r.refused++
		if a.rightly() {
			r.wronged = append(r.wronged, wronged{a.String(), a.token / 2, r.highest / 2})
		}
		return
	}
	r.highest = a.token
	if a.writing {
		r.writes++
	} else {
		r.reads++
	}
	if a.rightly() {
		a.shown = true
	}
	for b := range r.actors {
		if b != a && b.shown && (a.writing || b.writing) && b.rightly() {
			r.broken("not torn: the %v is disturbed by the %v", b, a)
		}
	}
}
