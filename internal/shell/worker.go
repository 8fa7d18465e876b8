// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// worker makes calls one after the other. Its goroutine is kept for a while: its stack has
// grown to what the store needs, which for some is more work than the rest of a call.
type worker struct {
	r    *Calls
	next chan Call   // has room for one
	rest *time.Timer // ends its rest; nil before the first
	deaf *time.Timer // answers a call whose Make does not return; nil before the first

	mu     sync.Mutex
	call   Call
	awaits bool      // the call was not answered yet
	due    time.Time // when the deaf are given up
}

const (
	// mostResting is how many workers are kept, and restFor how long each is when there
	// is nothing to do.
	mostResting = 32
	restFor     = time.Second
)

func (w *worker) run(q Call) {
	for more := true; more; q, more = w.another() {
		w.make(q)
	}
	w.r.wg.Done()
}

// another returns the next call. It waits for one for a while, if not too many others do.
// What the last call counts for in the group of all is given back when there is one, or by
// run.
func (w *worker) another() (q Call, found bool) {
	r := w.r
	r.mu.Lock()
	if len(r.waiting) > 0 {
		next := heap.Pop(&r.waiting).(*waitingCall)
		next.late.Stop()
		r.mu.Unlock()
		r.wg.Done()
		return next.call, true
	}
	r.running--
	if r.closed || len(r.resting) >= mostResting {
		r.mu.Unlock()
		return q, false
	}
	r.resting = append(r.resting, w)
	r.mu.Unlock()

	if w.rest == nil {
		w.rest = time.NewTimer(restFor)
	} else {
		w.rest.Reset(restFor)
	}
	defer w.rest.Stop()
	select {
	case q = <-w.next:
	case <-w.rest.C:
		if w.leaves() {
			return q, false
		}
		q = <-w.next
	case <-r.ctx.Done():
		if w.leaves() {
			return q, false
		}
		q = <-w.next
	}
	r.wg.Done()
	return q, true
}

// leaves ends the rest. It returns false if a call is on its way to the worker.
func (w *worker) leaves() bool {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.resting, w)
	if i >= 0 {
		r.resting = slices.Delete(r.resting, i, i+1)
	}
	return i >= 0
}

var errDeaf = errors.New("the store did not return after its context had ended")

func (w *worker) make(q Call) {
	timeout := w.r.timeoutOf(q)
	ctx, cancel := context.WithTimeout(w.r.ctx, timeout)
	defer cancel()
	w.begin(q, deafFactor*timeout)
	rec, former, err := q.Make(ctx)
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &timeoutError{timeout, err}
	}
	w.deaf.Stop()
	if w.first() {
		q.Answer(rec, former, err)
	}
}

// begin has the call answered if it does not return in time.
func (w *worker) begin(q Call, patience time.Duration) {
	w.mu.Lock()
	w.call, w.awaits, w.due = q, true, time.Now().Add(patience)
	w.mu.Unlock()
	if w.deaf == nil {
		w.deaf = time.AfterFunc(patience, w.giveUp)
	} else {
		w.deaf.Reset(patience)
	}
}

// first reports whether nobody has answered the call that is under way. Who asks first
// answers it.
func (w *worker) first() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, first := w.take()
	return first
}

// take is first under the mutex. It returns the call as well.
func (w *worker) take() (q Call, first bool) {
	q, first = w.call, w.awaits
	w.call, w.awaits = Call{}, false
	return q, first
}

// giveUp answers a call whose Make has not returned. It may be late itself, and meet the
// next call, whose time has not come.
func (w *worker) giveUp() {
	w.mu.Lock()
	if w.awaits && time.Now().Before(w.due) {
		w.mu.Unlock()
		return
	}
	q, first := w.take()
	w.mu.Unlock()
	if first {
		q.fail(errDeaf)
	}
}
