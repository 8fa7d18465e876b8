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

// calls makes calls of the store, a bounded number at once. Each has a goroutine for
// itself and its own timeout, so that a slow answer delays no other call. Calls that wait
// for a place go in the order of their urgency.
type calls struct {
	most    int
	timeout time.Duration
	ctx     context.Context // ends with the client
	cancel  context.CancelFunc
	wg      sync.WaitGroup // of calls, and of workers that rest

	begun    time.Time
	answered atomic.Int64 // when the last answer came, after begun; 0: never

	mu      sync.Mutex
	closed  bool
	running int
	waiting waitingCalls
	serial  uint64
	resting []*worker // the one that came last is taken first
}

// last is the urgency of calls on which no lease depends. Heartbeats go before
// them, however long they have waited.
const last = time.Duration(math.MaxInt64)

// request is what a call does.
type request interface {
	// Make makes the call, under a context that ends with the timeout. It returns what
	// the store does, as far as the call has that.
	Make(context.Context) (rec, former driver.Record, err error)
	// Answer takes that. It is called once. If the store ignores its context, Answer
	// gets an error of unknown outcome, and Make may still be running.
	Answer(rec, former driver.Record, err error)
}

// alone is a request whose answer nobody takes.
type alone func(context.Context) error

// Make calls it.
func (f alone) Make(ctx context.Context) (rec, former driver.Record, err error) {
	return rec, former, f(ctx)
}

// Answer does nothing.
func (f alone) Answer(driver.Record, driver.Record, error) {}

// storeCall is one call of the store.
type storeCall struct {
	request
	// Timeout bounds it, if it is not 0 and not that of all calls.
	Timeout time.Duration
}

func (q storeCall) fail(err error) { q.Answer(driver.Record{}, driver.Record{}, err) }

// hungFactor is after how many timeouts a call that has not returned counts as
// one of unknown outcome. Its place stays taken until it returns, so that a
// store that never does cannot pile up calls.
const hungFactor = 2

// timeoutError is the error of a call that the store has not answered in time.
type timeoutError struct {
	after time.Duration
	quiet time.Duration // since the last answer to any call; 0 if there was none
	err   error         // the driver's own
}

// lately is within how many timeouts an answer shows that the store is slow, and not away. A
// lease has about ten.
const lately = 10

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("no answer within %v (RequestTimeout)", e.after)
	switch more := e.known(); {
	case more != "":
		return text + ": " + more
	case e.quiet == 0:
		return text + ", nor to any call before: see that the store runs, and that this machine reaches it"
	case e.quiet > lately*e.after:
		return fmt.Sprintf("%s, nor to any call for %v: see that the store runs, and that this machine reaches it", text, e.quiet.Round(time.Second))
	}
	return text + "; if the store is that slow, use a longer LeaseDuration"
}

func (e *timeoutError) Unwrap() error { return e.err }

// known returns what the driver knows of the cause. A driver that knows nothing else has the
// text of the context's error, or one that says as much.
func (e *timeoutError) known() string {
	text := e.err.Error()
	if strings.Contains(text, context.DeadlineExceeded.Error()) || strings.HasSuffix(text, "no answer in time") {
		return ""
	}
	return text
}

type waitingCall struct {
	urgency time.Duration
	serial  uint64 // first come, first served among equals
	call    storeCall
	late    *time.Timer // gives it up
	index   int         // in the heap; -1: not in it any more
}

// newCalls returns the calls of one client: at most so many at once.
func newCalls(most int, timeout time.Duration) *calls {
	ctx, cancel := context.WithCancel(context.Background())
	return &calls{most: most, timeout: timeout, ctx: ctx, cancel: cancel, begun: time.Now()}
}

// quiet returns for how long no call was answered, 0 if none ever was.
func (r *calls) quiet() time.Duration {
	at := time.Duration(r.answered.Load())
	if at == 0 {
		return 0
	}
	return max(1, time.Since(r.begun)-at)
}

// Close cancels the calls under way, and ends the workers that rest.
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

// Send makes a call soon, the smaller the urgency the sooner. It never blocks.
// After Close it sends nothing, and Answer is not called.
func (r *calls) Send(urgency time.Duration, q storeCall) {
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
	w := &waitingCall{urgency: urgency, serial: r.serial, call: q}
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

// Beside runs f in a goroutine that Wait waits for. After Close it calls f directly.
func (r *calls) Beside(f func()) {
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

// giveUp answers a call that has found no place in time, and was not sent. A caller
// that repeats it does so with a new instant, from which a lease counts.
func (r *calls) giveUp(w *waitingCall) {
	r.mu.Lock()
	waits := w.index >= 0
	if waits {
		heap.Remove(&r.waiting, w.index)
		r.wg.Add(1) // as long as a call waits, workers run
	}
	r.mu.Unlock()
	if waits {
		w.call.fail(driver.NotApplied(&crowdedError{r.most, hungFactor * r.timeoutOf(w.call)}))
		r.wg.Done()
	}
}

// crowdedError is the error of a call that was not made, for want of a place.
type crowdedError struct {
	most  int
	after time.Duration
}

func (e *crowdedError) Error() string {
	return fmt.Sprintf("not sent: %d requests to the store are under way (MaxInFlight), and no place was free within %v; "+
		"the store or this machine cannot keep up: hold the locks under a session, or use a longer LeaseDuration", e.most, e.after)
}

func (r *calls) timeoutOf(q storeCall) time.Duration { return cmp.Or(q.Timeout, r.timeout) }

// worker makes calls one after the other. A few are kept when there is nothing to do: their
// stacks have grown to what the store needs, which for some is more work than the rest of a
// call.
type worker struct {
	r    *calls
	next chan storeCall // has room for one
	hung *time.Timer    // answers a call whose Make does not return; nil before the first

	mu     sync.Mutex
	call   storeCall
	awaits bool      // the call was not answered yet
	due    time.Time // when the calls that hang are given up
}

// mostResting is how many workers are kept.
const mostResting = 8

func (w *worker) run() {
	for q := range w.next {
		w.make(q)
		w.rest()
	}
	w.hung.Stop() // not after each call: the next one sets it anew, and without a call it does nothing
}

// rest has the worker make the call that waits for a place, or wait for one, or end.
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
		err = &timeoutError{timeout, w.r.quiet(), err}
	} else if showsAnswer(err) {
		w.r.answered.Store(int64(time.Since(w.r.begun)) + 1)
	}
	if w.first() {
		q.Answer(rec, former, err)
	}
}

// begin has the call answered if it does not return in time.
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

// first reports whether nobody has answered the call that is under way. If so, the caller
// is to answer it.
func (w *worker) first() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, first := w.take()
	return first
}

// take is first under the mutex. It returns the call as well.
func (w *worker) take() (q storeCall, first bool) {
	q, first = w.call, w.awaits
	w.call, w.awaits = storeCall{}, false
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
		q.fail(errHung)
	}
}

// send sends what a machine asks for, and hands the result to its caller.
func (c *Client) send(timeout, urgency time.Duration, r *protocol.Call, to caller) {
	r.Stamp(time.Now())
	c.calls.Send(urgency, storeCall{Timeout: timeout, request: c.Store.Call(r, to)})
}

// alone makes a call whose answer nobody takes.
func (c *Client) alone(call alone) {
	c.calls.Send(last, storeCall{request: call})
}

type waitingCalls []*waitingCall

func (h waitingCalls) Len() int { return len(h) }

func (h waitingCalls) Less(i, j int) bool {
	if h[i].urgency != h[j].urgency {
		return h[i].urgency < h[j].urgency
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
