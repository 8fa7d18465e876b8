// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// calls sends calls to the store, a bounded number at once. Each has its own goroutine
// and timeout, so that a slow answer delays no other call. Waiting calls are sent in the
// order in which their answers are needed.
type calls struct {
	most    int
	timeout time.Duration
	ctx     context.Context // ends with the client
	cancel  context.CancelFunc
	wg      sync.WaitGroup // of calls, and of idle workers

	begun    time.Time
	answered atomic.Int64 // when the last answer came, after begun; 0: never

	mu      sync.Mutex
	closed  bool
	running int
	waiting waitingCalls
	serial  uint64
	resting []*worker // idle; the last to become idle is used first
}

// neverNeeded is for calls on which no lease depends. Heartbeats precede them,
// however long these calls have waited.
const neverNeeded = time.Duration(math.MaxInt64)

// request is what a call does.
type request interface {
	// Make makes the call, under a context that ends with the timeout. It returns the
	// store's results, as far as the call has any.
	Make(context.Context) (rec, former driver.Record, err error)
	// Answer takes those results. It is called once. If the store ignores its context,
	// Answer gets an error of unknown outcome, and Make may still be running.
	Answer(rec, former driver.Record, err error)
}

// unanswered is a request without a receiver for its answer.
type unanswered func(context.Context) error

// Make calls it.
func (f unanswered) Make(ctx context.Context) (rec, former driver.Record, err error) {
	return rec, former, f(ctx)
}

// Answer does nothing.
func (f unanswered) Answer(driver.Record, driver.Record, error) {}

// storeCall is one call of the store.
type storeCall struct {
	request
	// Timeout bounds this call; 0 means the timeout of all calls.
	Timeout time.Duration
}

func (q storeCall) fail(err error) { q.Answer(driver.Record{}, driver.Record{}, err) }

// hungFactor is the number of timeouts after which a call that has not returned gets an
// unknown outcome. It counts as in flight until it returns, so that a store that never
// returns cannot pile up calls.
const hungFactor = 2

// timeoutError is the error of a call that the store has not answered in time.
type timeoutError struct {
	after      time.Duration
	unanswered time.Duration // since the last answer to any call; 0 if there was none
	err        error         // the driver's own
}

// recentTimeouts is the number of timeouts within which an answer to any call shows that the store
// is slow, and not unreachable. A lease has about ten.
const recentTimeouts = 10

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("no answer within %v (RequestTimeout)", e.after)
	switch more := e.known(); {
	case more != "":
		return text + ": " + more
	case e.unanswered == 0:
		return text + ", nor to any earlier call: check that the store runs and that this machine can reach it"
	case e.unanswered > recentTimeouts*e.after:
		return fmt.Sprintf("%s, nor to any call for %v: check that the store runs and that this machine can reach it", text, e.unanswered.Round(time.Second))
	}
	return text + "; if the store is that slow, use a longer lease"
}

func (e *timeoutError) Unwrap() error { return e.err }

// known returns the cause that the driver reports, if it is more than the text of the
// context's error or an equivalent one.
func (e *timeoutError) known() string {
	text := e.err.Error()
	if strings.Contains(text, context.DeadlineExceeded.Error()) || strings.HasSuffix(text, "no answer in time") {
		return ""
	}
	return text
}

type waitingCall struct {
	neededBy time.Duration
	serial   uint64 // first come, first served if needed by the same instant
	call     storeCall
	late     *time.Timer // gives the call up
	index    int         // in the heap; -1: removed
}

// newCalls returns the calls of one client. At most the given number are in flight.
func newCalls(most int, timeout time.Duration) *calls {
	ctx, cancel := context.WithCancel(context.Background())
	return &calls{most: most, timeout: timeout, ctx: ctx, cancel: cancel, begun: time.Now()}
}

// unanswered returns how long no call has been answered, 0 if none ever was.
func (r *calls) unanswered() time.Duration {
	at := time.Duration(r.answered.Load())
	if at == 0 {
		return 0
	}
	return max(1, time.Since(r.begun)-at)
}

// Close cancels the calls under way, and ends the idle workers.
func (r *calls) Close() {
	r.mu.Lock()
	r.closed = true
	for _, w := range r.resting {
		close(w.next)
	}
	r.resting = nil
	r.mu.Unlock()
	r.cancel()
}

// Wait waits, after Close, for all calls that were made to return.
func (r *calls) Wait() { r.wg.Wait() }

// Send makes a call soon; calls whose answer is needed first go first. It never blocks.
// After Close it sends nothing, and Answer is not called.
func (r *calls) Send(neededBy time.Duration, q storeCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.running < r.most {
		r.running++
		r.idle().next <- q
		return
	}
	r.serial++
	w := &waitingCall{neededBy: neededBy, serial: r.serial, call: q}
	heap.Push(&r.waiting, w)
	w.late = time.AfterFunc(hungFactor*r.timeoutOf(q), func() { r.giveUp(w) })
}

// idle returns a worker that has nothing to do. The caller holds mu.
func (r *calls) idle() *worker {
	if last := len(r.resting) - 1; last >= 0 {
		w := r.resting[last]
		r.resting = slices.Delete(r.resting, last, last+1)
		return w
	}
	w := &worker{r: r, next: make(chan storeCall, 1)}
	r.wg.Go(w.run)
	return w
}

// Go runs f in a goroutine that Wait waits for. After Close it calls f directly.
func (r *calls) Go(f func()) {
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

// giveUp answers a call that was not sent, because too many were in flight. A caller
// that repeats it counts the lease from a new instant.
func (r *calls) giveUp(w *waitingCall) {
	r.mu.Lock()
	waits := w.index >= 0
	if waits {
		heap.Remove(&r.waiting, w.index)
		r.wg.Add(1) // workers run, so wg is not zero
	}
	r.mu.Unlock()
	if waits {
		w.call.fail(driver.NotApplied(&crowdedError{r.most, hungFactor * r.timeoutOf(w.call)}))
		r.wg.Done()
	}
}

// crowdedError is the error of a call that was not made, because too many were in
// flight.
type crowdedError struct {
	most  int
	after time.Duration
}

func (e *crowdedError) Error() string {
	return fmt.Sprintf("not sent: %d requests to the store are under way (MaxInFlight), and none ended within %v; "+
		"the store or this machine cannot keep up: hold the locks under a session, or use a longer lease", e.most, e.after)
}

func (r *calls) timeoutOf(q storeCall) time.Duration { return cmp.Or(q.Timeout, r.timeout) }

// worker makes calls one after the other. A few idle workers are kept: their stacks have
// grown to what the store needs, and for some stores growing a stack costs more than the
// rest of a call.
type worker struct {
	r    *calls
	next chan storeCall // buffer of one
	hung *time.Timer    // answers a call whose Make does not return; nil before the first

	mu     sync.Mutex
	call   storeCall
	awaits bool      // the call has not been answered yet
	due    time.Time // when a call that hangs is given up
}

// mostResting is how many idle workers are kept.
const mostResting = 8

func (w *worker) run() {
	for q := range w.next {
		w.make(q)
		w.rest()
	}
	w.hung.Stop() // not after each call: the next one resets it, and between calls it has no effect
}

// rest lets the worker make the next waiting call, or wait for one, or end.
func (w *worker) rest() {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 {
		next := heap.Pop(&r.waiting).(*waitingCall)
		next.late.Stop()
		w.next <- next.call
		return
	}
	r.running--
	if r.closed || len(r.resting) >= mostResting {
		close(w.next)
		return
	}
	r.resting = append(r.resting, w)
}

var errHung = errors.New("the store did not return after its context had ended")

func (w *worker) make(q storeCall) {
	timeout, begun := w.r.timeoutOf(q), time.Now()
	ctx, cancel := context.WithDeadline(w.r.ctx, begun.Add(timeout))
	defer cancel()
	w.begin(q, begun, hungFactor*timeout)
	rec, former, err := q.Make(ctx)
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &timeoutError{timeout, w.r.unanswered(), err}
	} else if showsAnswer(err) {
		w.r.answered.Store(int64(time.Since(w.r.begun)) + 1)
	}
	if w.first() {
		q.Answer(rec, former, err)
	}
}

// begin arranges that the call is answered if it does not return in time.
func (w *worker) begin(q storeCall, begun time.Time, patience time.Duration) {
	w.mu.Lock()
	w.call, w.awaits, w.due = q, true, begun.Add(patience)
	w.mu.Unlock()
	if w.hung == nil {
		w.hung = time.AfterFunc(patience, w.giveUp)
	} else {
		w.hung.Reset(patience)
	}
}

// first reports whether the call under way has not been answered yet. If so, the caller
// must answer it.
func (w *worker) first() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, first := w.take()
	return first
}

// take is w.first under the mutex. It also returns the call.
func (w *worker) take() (q storeCall, first bool) {
	q, first = w.call, w.awaits
	w.call, w.awaits = storeCall{}, false
	return q, first
}

// giveUp answers a call whose Make has not returned. It may itself be late, and find the
// next call, which is not due yet.
func (w *worker) giveUp() {
	w.mu.Lock()
	if w.awaits && time.Now().Before(w.due) {
		w.mu.Unlock()
		return
	}
	q, first := w.take()
	w.mu.Unlock()
	if first {
		q.fail(errHung)
	}
}

// send sends what a machine asks for, and hands the result to its caller.
func (c *Client) send(timeout, neededBy time.Duration, r *protocol.Call, to caller) {
	r.Stamp(time.Now())
	c.calls.Send(neededBy, storeCall{Timeout: timeout, request: c.Store.Call(r, to)})
}

// sendUnanswered makes a call whose answer is dropped.
func (c *Client) sendUnanswered(call unanswered) {
	c.calls.Send(neverNeeded, storeCall{request: call})
}

type waitingCalls []*waitingCall

func (h waitingCalls) Len() int { return len(h) }

func (h waitingCalls) Less(i, j int) bool {
	if h[i].neededBy != h[j].neededBy {
		return h[i].neededBy < h[j].neededBy
	}
	return h[i].serial < h[j].serial
}

func (h waitingCalls) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waitingCalls) Push(x any) {
	w := x.(*waitingCall)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waitingCalls) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	w.index = -1
	*h = old[:len(old)-1]
	return w
}
