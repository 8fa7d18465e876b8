// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/trace"
)

// plays are the situations in which the engine is recorded. Clocks run wrong by
// nearly as much as they may: a holder's slow, an acquirer's fast.
var plays = map[string]func(*world){
	"takeover of the dead": func(w *world) {
		a, b := w.process("a", -0.08), w.process("b", 0.08)
		la := a.acquire()
		time.Sleep(2*heartbeat + time.Second)
		a.Partition()
		done := make(chan *held)
		go func() { done <- b.acquire() }()
		la.watch(lease / 100)
		lb := <-done
		la.check()
		time.Sleep(lease)
		lb.check()
		lb.release()
	},
	"lost and late": func(w *world) {
		a, b := w.process("a", 0.08), w.process("b", -0.08)
		a.fault(faultstore.OpClaim, 0, 1, faultstore.LoseReplyHang())
		la := a.acquire()
		a.fault(faultstore.OpHeartbeat, 1, 2, faultstore.LoseReply())
		a.fault(faultstore.OpHeartbeat, 4, 2, faultstore.LoseRequest())
		a.fault(faultstore.OpHeartbeat, 7, 1, faultstore.Late(requestTimeout+time.Second))
		for range 12 {
			time.Sleep(heartbeat)
			la.check()
		}
		a.fault(faultstore.OpHeartbeat, 0, 1, faultstore.LateAfterError(lease))
		a.fault(faultstore.OpRelease, 0, 1, faultstore.LoseReply())
		time.Sleep(heartbeat)
		la.release()
		lb := b.acquire()
		time.Sleep(lease)
		a.Faults().Wait()
		lb.check()
		lb.release()
	},
	"late duplicate of a claim": func(w *world) {
		a, b := w.process("a", 0), w.process("b", 0.08)
		a.fault(faultstore.OpClaim, 0, 1, faultstore.Duplicate(lease))
		a.acquire().release()
		a.Faults().Wait()
		lb := b.acquire()
		lb.check()
		la := make(chan *held)
		go func() { la <- a.acquire() }()
		time.Sleep(lease)
		lb.release()
		(<-la).release()
	},
	"given up": func(w *world) {
		a, b := w.process("a", 0.05), w.process("b", -0.05)
		a.fault(faultstore.OpClaim, 0, 1, faultstore.Late(3*requestTimeout))
		a.giveUp(requestTimeout / 2)
		time.Sleep(lease / 2)
		lb := b.acquire()
		time.Sleep(heartbeat)
		lb.check()
		lb.release()
	},
	"step down and hand over": func(w *world) {
		a, b, c := w.process("a", 0.03), w.process("b", -0.08), w.process("c", 0.08)
		la := a.acquire()
		waits := make(chan *held)
		go func() { waits <- b.acquire() }()
		time.Sleep(2 * heartbeat)
		c.next()
		asked := make(chan error)
		go func() { asked <- c.StepDown(w.t.Context(), lock, &tenure.StepDownOptions{To: "b", Reason: "test"}) }()
		<-la.Context().Done()
		time.Sleep(heartbeat)
		la.check()
		la.release()
		lb := <-waits
		if err := <-asked; err != nil {
			w.t.Error(err)
		}
		c.next()
		go func() { asked <- c.StepDown(w.t.Context(), lock, &tenure.StepDownOptions{Reason: "test"}) }()
		<-lb.Context().Done()
		lb.release()
		if err := <-asked; err != nil {
			w.t.Error(err)
		}
	},
	"revoked and freed": func(w *world) {
		a, b, c := w.process("a", -0.08), w.process("b", 0.02), w.process("c", 0.08)
		la := a.acquire()
		time.Sleep(heartbeat + time.Second)
		a.Partition()
		c.next()
		done := make(chan error)
		go func() { done <- admin.Revoke(w.t.Context(), c.Client.Client, lock, "test") }()
		la.watch(lease / 50)
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		lb := b.acquire()
		b.Partition()
		lb.watch(lease / 50)
		time.Sleep(lease)
		c.next()
		if err := admin.ReleaseDead(w.t.Context(), c.Client.Client, lock, "test"); err != nil {
			w.t.Error(err)
		}
		synctest.Wait() // for the look that follows, which is not one of the next acquire
		c.acquire().release()
	},
}

// watch checks it until it fails.
func (h *held) watch(every time.Duration) {
	for h.check() {
		time.Sleep(every)
	}
}

// record plays one of them and returns its trace.
func record(t *testing.T, play func(*world)) []trace.Event {
	var events []trace.Event
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		play(w)
		synctest.Wait()
		events = w.tape.Events()
	})
	return events
}

// TestEngine: traces of the real engine are behaviours of the model.
func TestEngine(t *testing.T) {
	tlc(t)
	for name, play := range plays {
		t.Run(name, func(t *testing.T) { accepted(t, record(t, play)) })
	}
}
