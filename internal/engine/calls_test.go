// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// errand is a request that takes its time regardless of its context, and counts its
// answers.
type errand struct {
	takes    time.Duration
	key      string
	answers  atomic.Int64
	got      string // with the latest answer
	err      error
	answered time.Time
}

func (e *errand) Make(context.Context) (rec, former driver.Record, err error) {
	time.Sleep(e.takes)
	return driver.Record{Key: e.key}, former, nil
}

func (e *errand) Answer(rec, _ driver.Record, err error) {
	e.got, e.err, e.answered = rec.Key, err, time.Now()
	e.answers.Add(1)
}

const requestTimeout = time.Second

func inBubble(t *testing.T, test func(t *testing.T, calls *calls)) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls(64, requestTimeout)
		test(t, calls)
		calls.Close()
		begun := time.Now()
		calls.Wait()
		if took := time.Since(begun); took > 0 {
			t.Errorf("workers rested for %v after the end", took)
		}
	})
}

// TestHungCallIsAnsweredOnce: a call that does not return is answered after twice its
// timeout, and not again when it returns. A call that is sent meanwhile has its own
// worker, and a call that is sent afterwards gets its own answer.
func TestHungCallIsAnsweredOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, calls *calls) {
		begun := time.Now()
		hung, beside := &errand{takes: 5 * time.Second}, &errand{key: "beside"}
		calls.Send(0, storeCall{request: hung})
		calls.Send(0, storeCall{request: beside})
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if hung.err == nil || hung.answered.Sub(begun) != 2*requestTimeout {
			t.Errorf("the hung call: %v, after %v", hung.err, hung.answered.Sub(begun))
		}
		time.Sleep(2 * time.Second) // it has returned, and its worker rests
		next := &errand{key: "next"}
		calls.Send(0, storeCall{request: next})
		synctest.Wait()
		for _, e := range []*errand{beside, next} {
			if e.got != e.key || e.err != nil {
				t.Errorf("%s: %q, %v", e.key, e.got, e.err)
			}
		}
		for _, e := range []*errand{hung, beside, next} {
			if n := e.answers.Load(); n != 1 {
				t.Errorf("%q was answered %d times", e.key, n)
			}
		}
	})
}

// TestPatienceIsOfEachCall: a worker that has made a slow call waits as long for the next
// one as for the first.
func TestPatienceIsOfEachCall(t *testing.T) {
	inBubble(t, func(t *testing.T, calls *calls) {
		for range 5 {
			slow := &errand{key: "slow", takes: 2*requestTimeout - time.Millisecond}
			calls.Send(0, storeCall{request: slow})
			time.Sleep(slow.takes)
			synctest.Wait()
			if slow.got != "slow" || slow.err != nil {
				t.Fatalf("%q, %v", slow.got, slow.err)
			}
		}
		own := &errand{takes: 10 * requestTimeout}
		begun := time.Now()
		calls.Send(0, storeCall{request: own, Timeout: 3 * requestTimeout})
		time.Sleep(own.takes)
		synctest.Wait()
		if took := own.answered.Sub(begun); took != 6*requestTimeout {
			t.Errorf("a call with a timeout of its own was given up after %v", took)
		}
	})
}

// TestTimeoutSaysSo: a call to a store that obeys its context fails with an error that
// names the timeout.
func TestTimeoutSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, calls *calls) {
		calls.Send(0, storeCall{request: unanswered(func(ctx context.Context) error {
			begun := time.Now()
			<-ctx.Done()
			if took := time.Since(begun); took != requestTimeout || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("%v, after %v", ctx.Err(), took)
			}
			return ctx.Err()
		})})
		time.Sleep(2 * requestTimeout)
	})
}

// TestWorkersRest: only a few of many workers are kept, and they live until the end.
func TestWorkersRest(t *testing.T) {
	inBubble(t, func(t *testing.T, calls *calls) {
		more := func() int {
			synctest.Wait()
			stacks := make([]byte, 1<<20)
			return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "engine.(*worker).run(")
		}
		for range 64 {
			calls.Send(0, storeCall{request: &errand{takes: time.Millisecond}})
		}
		if n := more(); n != 64 {
			t.Errorf("%d workers for 64 calls", n)
		}
		time.Sleep(time.Millisecond)
		if n := more(); n != mostResting {
			t.Errorf("%d workers rest", n)
		}
		calls.Send(0, storeCall{request: &errand{takes: time.Millisecond}})
		if n := more(); n != mostResting {
			t.Errorf("%d workers when one of them is busy", n)
		}
		calls.Close()
		if calls.Wait(); more() != 0 {
			t.Errorf("%d workers after the end", more())
		}
	})
}

// TestCallMeetsTheEnd: a call that was handed to an idle worker is made, although Close
// comes before the worker has it.
func TestCallMeetsTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, calls *calls) {
		e := &errand{key: "one"}
		for range 2 {
			calls.Send(0, storeCall{request: e})
			synctest.Wait()
		}
		calls.Send(0, storeCall{request: e})
		calls.Close()
		calls.Wait()
		if n := e.answers.Load(); n != 3 {
			t.Errorf("%d of 3 calls were answered", n)
		}
	})
}
