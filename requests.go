// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// requests sends requests to the store, a bounded number at once, each in a
// goroutine of its own with a timeout of its own, so that a slow answer delays
// nobody else's. Those that wait for a place go in the order of their urgency.
type requests struct {
	most    int
	timeout time.Duration
	ctx     context.Context // ends with the client
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running int
	waiting waitingRequests
	serial  uint64
}

// unhurried is the urgency of requests on which no lease depends. However long
// they have waited, the heartbeats go in front.
const unhurried = time.Duration(math.MaxInt64)

// request is one call of the store.
type request struct {
	kind protocol.Kind
	// ask calls the store.
	ask func(context.Context) (rec, former driver.Record, err error)
	// answer takes what became of it. It is called once, also if the store
	// takes no notice of the context that it was given.
	answer func(protocol.Result)
}

// deafFactor is after how many timeouts a call that has not returned counts as
// one of unknown outcome. Its place stays taken until it returns, so that a
// store that never does cannot pile up calls.
const deafFactor = 2

// timeoutError is the error of a call that the store has not answered in time. What
// a driver says of it is how it was cut off, which helps nobody.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("no answer within %v (RequestTimeout); if the store is that slow, use a longer LeaseDuration", e.after)
}

func (e *timeoutError) Unwrap() error { return e.err }

var errDeaf = errors.New("the store did not return after its context had ended")

type waitingRequest struct {
	urgency time.Duration
	serial  uint64 // first come, first served among equals
	request request
	late    *time.Timer // gives it up
	index   int         // in the heap; -1: not in it any more
}

func newRequests(most int, timeout time.Duration) *requests {
	ctx, cancel := context.WithCancel(context.Background())
	return &requests{most: most, timeout: timeout, ctx: ctx, cancel: cancel}
}

// close cancels the requests under way. wg is done when they have returned.
func (r *requests) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
}

// send sends q soon, the smaller the urgency the sooner. It never blocks. After
// close nothing is sent, and nobody gets an answer.
func (r *requests) send(urgency time.Duration, q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.wg.Add(1)
	if r.running < r.most {
		r.running++
		go r.run(q)
		return
	}
	r.serial++
	w := &waitingRequest{urgency: urgency, serial: r.serial, request: q}
	heap.Push(&r.waiting, w)
	w.late = time.AfterFunc(deafFactor*r.timeout, func() { r.giveUp(w) })
}

// beside runs f beside, and has the client's end wait for it. After close it is run
// here.
func (r *requests) beside(f func()) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.wg.Add(1)
	}
	r.mu.Unlock()
	if closed {
		f()
		return
	}
	go func() {
		defer r.wg.Done()
		f()
	}()
}

// giveUp answers a request that has found no place in time. It was not sent;
// whoever asks again does so with a fresh instant, from which a lease counts.
func (r *requests) giveUp(w *waitingRequest) {
	r.mu.Lock()
	waits := w.index >= 0
	if waits {
		heap.Remove(&r.waiting, w.index)
	}
	r.mu.Unlock()
	if waits {
		w.request.answer(protocol.Result{Outcome: protocol.NotApplied, Err: errCrowded})
		r.wg.Done()
	}
}

var errCrowded = errors.New("too many requests to the store are under way")

func (r *requests) run(q request) {
	for {
		r.ask(q)
		r.wg.Done()

		r.mu.Lock()
		if len(r.waiting) == 0 {
			r.running--
			r.mu.Unlock()
			return
		}
		w := heap.Pop(&r.waiting).(*waitingRequest)
		w.late.Stop()
		q = w.request
		r.mu.Unlock()
	}
}

func (r *requests) ask(q request) {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
	defer cancel()
	var answered atomic.Bool
	deaf := time.AfterFunc(deafFactor*r.timeout, func() {
		if answered.CompareAndSwap(false, true) {
			q.answer(protocol.ResultOf(q.kind, driver.Record{}, driver.Record{}, errDeaf))
		}
	})
	rec, former, err := q.ask(ctx)
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &timeoutError{r.timeout, err}
	}
	deaf.Stop()
	if answered.CompareAndSwap(false, true) {
		q.answer(protocol.ResultOf(q.kind, rec, former, err))
	}
}

type waitingRequests []*waitingRequest

func (h waitingRequests) Len() int { return len(h) }

func (h waitingRequests) Less(i, j int) bool {
	if h[i].urgency != h[j].urgency {
		return h[i].urgency < h[j].urgency
	}
	return h[i].serial < h[j].serial
}

func (h waitingRequests) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waitingRequests) Push(x any) {
	w := x.(*waitingRequest)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waitingRequests) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	w.index = -1
	*h = old[:len(old)-1]
	return w
}
