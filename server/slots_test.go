// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

// asks returns a call for a part of a lock: a slot, or to read or to write.
func asks(name, owner string, more ...object) object {
	return object{"name": name, "owner": owner, "host": "web-7"}.with(more...)
}

var (
	reads  = object{"shared": true}
	writes = object{"exclusive": true}
)

func ofSlots(n int) object         { return object{"slots": n} }
func waits(d time.Duration) object { return object{"wait_ms": d.Milliseconds()} }

// part takes a part of a lock, and returns its holder.
func (w *world) part(name, owner string, more ...object) (*hand, answer) {
	w.Helper()
	a := w.want(w.post("/v1/acquire", ci, asks(name, owner, more...)), 200, "")
	return w.hand(ci, a.string("name"), a), a
}

// parting is part for a call that waits.
func (w *world) parting(name, owner string, more ...object) *stream {
	return w.open(request("POST", "/v1/acquire", ci, asks(name, owner, more...)))
}

func TestSlotsAreHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		first, a := w.part("jobs/r", "web-1", ofSlots(2), object{"data": "aGk="})
		_, b := w.part("jobs/r", "web-2", ofSlots(7)) // the number in the store counts
		slots := map[string]float64{a.string("name"): a.number("slot"), b.string("name"): b.number("slot")}
		if len(slots) != 2 || slots["jobs/r:slot/0"] != 0 || slots["jobs/r:slot/1"] != 1 || a.number("slots") != 2 ||
			b.number("slots") != 2 || a.string("data") != "aGk=" || a.number("usable_ms") != 10647 {
			w.Errorf("the grants say %s and %s", a.text, b.text)
		}
		for _, field := range []string{"fence_token", "last_writer", "drain", "unwritten"} {
			if a.json[field] != nil {
				w.Errorf("the grant of a slot has %s: %s", field, a.text)
			}
		}
		p := w.want(w.post("/v1/acquire", ci, asks("jobs/r", "web-3", ofSlots(2))), 409, "held")
		if owner := p.string("holder"); owner != "web-1" && owner != "web-2" || p.number("token") != 1 ||
			p.number("free_in_ms") == 0 || !strings.Contains(p.string("detail"), "all 2 slots are held") {
			w.Errorf("it is told %s", p.text)
		}
		first.beats()
		if st := w.state(first.name); st.string("holder") != "web-1" || st.string("host") != "ci@web-7" {
			w.Errorf("the slot's status says %s", st.text)
		}
		w.want(first.release(), 200, "")
		_, c := w.part("jobs/r", "web-3", ofSlots(2))
		if c.string("name") != first.name || c.number("token") != 2 || c.string("data") != "aGk=" {
			w.Errorf("the grant says %s", c.text)
		}
	})
}

// A call that waits gets a slot soon after it is free, by whatever server that was released.
func TestAWaitForASlot(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint(elsewhere), func(t *testing.T) {
			inWorld(t, func(w *world) {
				by := w
				if elsewhere {
					by = w.another()
				}
				h, _ := w.part("jobs/r", "web-1", ofSlots(1))
				h.w = by
				one := w.parting("jobs/r", "web-2", ofSlots(1), waits(20*time.Second))
				time.Sleep(time.Second)
				two := w.parting("jobs/r", "web-3", ofSlots(1), waits(5*time.Second))
				r := request("POST", "/v1/acquire", ci, asks("jobs/r", "web-4", ofSlots(1), waits(3*time.Second)))
				r.Header.Set("Accept", "text/event-stream")
				three := w.open(r)
				for range 3 {
					time.Sleep(3 * time.Second)
					h.beats()
				}
				// Its turn never came, but it is told what others have met.
				if a := w.want(two.answer(), 409, "held"); a.string("holder") != "web-1" || a.number("free_in_ms") == 0 {
					w.Errorf("after its wait it is told %s", a.text)
				}
				<-three.ended
				if names, last := three.events(); len(names) == 0 || last["problem"].string("holder") != "web-1" {
					w.Errorf("the stream says %s", three)
				}
				w.want(h.release(), 200, "")
				released := time.Now()
				a := w.want(one.answer(), 200, "")
				if a.string("name") != "jobs/r:slot/0" || a.number("token") != 2 || a.json["usable_ms"] != nil ||
					a.number("free_after_ms") != 5000 {
					w.Errorf("the grant says %s", a.text)
				}
				if took := time.Since(released); took > 3*time.Second {
					w.Errorf("it came %v after the slot was free", took)
				}
				h = w.hand(ci, a.string("name"), a)
				h.beats()
				w.want(h.release(), 200, "")
			})
		})
	}
}

// A client that has waited for a slot does not count the grant, however short the wait was.
func TestASlotAfterAWaitIsNotCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		h, _ := w.part("jobs/r", "web-1", ofSlots(1))
		waiter := w.parting("jobs/r", "web-2", ofSlots(1), waits(20*time.Second))
		time.Sleep(time.Second / 2)
		w.want(h.release(), 200, "")
		released := time.Now()
		a := w.want(waiter.answer(), 200, "")
		if took := time.Since(released); took > time.Second/10 || a.json["usable_ms"] != nil ||
			a.number("free_after_ms") != 5000 {
			w.Errorf("after %v the grant says %s", took, a.text)
		}
	})
}

// A stream tells who holds the slots.
func TestAWaitForASlotTellsItsProgress(t *testing.T) {
	inWorld(t, func(w *world) {
		h, _ := w.part("jobs/r", "web-1", ofSlots(1))
		r := request("POST", "/v1/acquire", ci, asks("jobs/r", "web-2", ofSlots(1), waits(20*time.Second)))
		r.Header.Set("Accept", "text/event-stream")
		s := w.open(r)
		time.Sleep(4 * time.Second)
		w.want(h.release(), 200, "")
		<-s.ended
		names, last := s.events()
		if fmt.Sprint(names) != "[waiting granted]" || last["waiting"].string("holder") != "web-1" ||
			last["waiting"].number("token") != 1 || last["granted"].string("name") != "jobs/r:slot/0" ||
			last["granted"].json["usable_ms"] != nil {
			w.Errorf("the stream says %s", s)
		}
	})
}

// A holder counts only in a slot that is below the number that is stored after its grant.
func TestARemovedSlotIsGivenToNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 2 { // from now on the server knows that there are two slots
			w.part("jobs/r", "web-1", ofSlots(2))
		}
		time.Sleep(2 * lease)
		sem := testutil.Must(semaphore.New(w.World.Client("go").Client, "jobs/r", 2, nil))(w.T)
		one, two := testutil.Must(sem.Acquire(w.T.Context(), nil))(w.T), testutil.Must(sem.Acquire(w.T.Context(), nil))(w.T)
		if one.Slot() == 0 {
			one = two
		}
		testutil.Want(w.T, one.Release(w.T.Context()), nil)
		w.client.Faults().Inject(faultstore.Rule{
			Key: semaphore.SizeName("jobs/r"), Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Slow(time.Second, 0),
		})
		waiter := w.parting("jobs/r", "web-2", ofSlots(2))
		time.Sleep(time.Second / 2) // it has the slot, and is about to read the number
		if rec := w.MustRecord("jobs/r:slot/1"); rec.State != driver.Held || rec.Owner != "web-2" {
			w.Errorf("the slot is %+v", rec)
		}
		testutil.Want(w.T, sem.Resize(w.T.Context(), 1, nil), nil)
		w.want(waiter.answer(), 409, "held")
		time.Sleep(time.Second)
		if st := w.state("jobs/r:slot/1"); st.string("state") != "released" {
			w.Errorf("the slot is %s", st.text)
		}
	})
}

// A grant whose number of slots cannot be read is given back before the holder could use it, and an
// answer that is late is for no lease.
func TestASlotWhoseNumberIsNotReadIsGivenBack(t *testing.T) {
	inWorld(t, func(w *world) {
		h, _ := w.part("jobs/r", "web-1", ofSlots(1))
		w.want(h.release(), 200, "")
		away := w.client.Faults().Inject(faultstore.Rule{
			Key: semaphore.SizeName("jobs/r"), Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.BlackHole(),
		})
		time.AfterFunc(2*lease, away)
		begun := time.Now()
		w.want(w.post("/v1/acquire", ci, asks("jobs/r", "web-2", ofSlots(1))), 503, "unavailable")
		if took := time.Since(begun); took > lease {
			w.Errorf("it is refused after %v", took)
		}
		time.Sleep(time.Second)
		if st := w.state("jobs/r:slot/0"); st.string("state") != "released" || st.number("token") < 2 {
			w.Errorf("the slot is %s", st.text)
		}
		time.Sleep(2 * lease)
		// The first look is lost: the second one is too late for a lease, and in time for a heartbeat.
		w.client.Faults().Inject(faultstore.Rule{
			Key: semaphore.SizeName("jobs/r"), Ops: []faultstore.Op{faultstore.OpGet}, Count: 1, Fault: faultstore.BlackHole(),
		})
		h, a := w.part("jobs/r", "web-3", ofSlots(1))
		if a.json["usable_ms"] != nil || a.number("free_after_ms") != 5000 {
			w.Errorf("the grant says %s", a.text)
		}
		h.beats()
		w.want(h.release(), 200, "")
	})
}

// A client that is gone before its answer is sent has no slot. A client that may count its grant keeps it.
func TestASlotForNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		h, _ := w.part("jobs/r", "web-1", ofSlots(1))
		waiter := w.parting("jobs/r", "web-2", ofSlots(1), waits(20*time.Second))
		time.Sleep(3 * time.Second)
		waiter.broken.Store(true)
		w.want(h.release(), 200, "")
		<-waiter.ended
		time.Sleep(time.Second)
		if st := w.state("jobs/r:slot/0"); st.string("state") != "released" || st.number("token") != 2 {
			w.Errorf("the slot is %s", st.text)
		}
		a := w.want(w.post("/v1/acquire", ci, asks("jobs/r", "web-3", ofSlots(1))), 200, "")
		if a.json["usable_ms"] == nil {
			w.Errorf("the grant says %s", a.text)
		}
		time.Sleep(lease - 2*time.Second) // without a heartbeat
		if rec := w.MustRecord("jobs/r:slot/0"); rec.State != driver.Held || rec.Token != 3 {
			w.Errorf("the slot is %+v", rec)
		}
	})
}

func TestPartsThatBreakARule(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, c := range []struct {
			more object
			want string
		}{
			{object{"slots": 0}, "slots is 0: it must be from 1 to 1000"},
			{object{"slots": 1001}, "slots is 1001: it must be from 1 to 1000"},
			{object{"slots": -1}, "slots is -1: it must be from 1 to 1000"},
			{object{"slots": "3"}, "slots is a string: want a whole number"},
			{object{"slots": 2, "shared": true}, "give one of them"},
			{object{"shared": true, "exclusive": true}, "give one of them"},
			{object{"shared": true, "data": "aGk="}, "keep yours with the resource"},
			{object{"exclusive": true, "data": "aGk="}, "keep yours with the resource"},
			{object{"slots": 2, "clock": "sun"}, "clock"},
			{object{"shared": true, "wait_ms": 20001}, "wait_ms is 20001"},
			{object{"slots": 2, "owner": ""}, "owner is empty"},
			{object{"slots": 2, "name": "jobs/" + strings.Repeat("n", 1004)}, "has 1009 bytes: at most 1008 are allowed"},
			{object{"shared": true, "name": "jobs/" + strings.Repeat("n", 1004)}, "has 1009 bytes: at most 1008 are allowed"},
		} {
			a := w.want(w.post("/v1/acquire", ci, asks("jobs/a", "web-7", c.more)), 400, "bad-request")
			if !strings.Contains(a.string("detail"), c.want) {
				w.Errorf("%v: %s, want %q", c.more, a.text, c.want)
			}
		}
		for _, c := range []struct {
			body object
			want string
		}{
			{object{"name": "jobs/a", "token": 1}, "is not the name of a gate"},
			{object{"name": "jobs/a:gate"}, "token is 0"},
			{object{"name": "jobs/a:gate", "token": 1, "wait_ms": 20001}, "wait_ms is 20001"},
		} {
			a := w.want(w.post("/v1/drain", ci, c.body), 400, "bad-request")
			if !strings.Contains(a.string("detail"), c.want) {
				w.Errorf("%v: %s, want %q", c.body, a.text, c.want)
			}
		}
		for _, more := range []object{ofSlots(1), reads, writes} {
			w.want(w.post("/v1/acquire", web, asks("jobs/a", "web-7", more)), 403, "forbidden")
			w.want(w.post("/v1/acquire", "", asks("jobs/a", "web-7", more)), 401, "unauthenticated")
		}
		w.want(w.post("/v1/drain", web, object{"name": "jobs/a:gate", "token": 1}), 403, "forbidden")
		w.want(w.post("/v1/drain", ops, object{"name": "jobs/a:gate", "token": 1}), 403, "forbidden")
		for st, err := range w.client.Locks(w.T.Context(), nil) {
			w.Errorf("there is %+v, %v", st, err)
		}
	})
}

// The server forgets those that no call uses, the longest unused ones first.
func TestSemaphoresAreForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.part("jobs/0", "web-1", ofSlots(1))
		waiter := w.parting("jobs/0", "web-2", ofSlots(1), waits(20*time.Second))
		time.Sleep(time.Second)
		for i := range server.MaxIdle + 20 {
			w.part(fmt.Sprint("jobs/s", i), "web-1", ofSlots(1))
			w.part(fmt.Sprint("jobs/c", i), "web-1", reads)
		}
		if sems, rws := w.Kept(); sems != server.MaxIdle+1 || rws != server.MaxIdle {
			w.Errorf("it keeps %d semaphores, and %d locks", sems, rws)
		}
		waiter.leave()
		if sems, _ := w.Kept(); sems != server.MaxIdle {
			w.Errorf("it keeps %d semaphores", sems)
		}
	}, func(o *server.Options) { o.Limits.Calls = 1e6 })
}

// A call that reads the slots of a large semaphore counts as several.
func TestACallForManySlotsIsNotCheap(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := testutil.Must(semaphore.New(w.World.Client("go").Client, "jobs/r", 300, nil))(w.T)
		for range 300 {
			testutil.Must(sem.TryAcquire(w.T.Context(), nil))(w.T)
		}
		refused := 0
		for range 10 { // half of what one may do at once
			if a := w.post("/v1/acquire", ci, asks("jobs/r", "web-2", ofSlots(300))); a.kind() == "limited" {
				refused++
			}
		}
		if refused == 0 {
			w.Error("it may read any number of slots")
		}
	}, func(o *server.Options) { o.Limits.Calls = 10 })
}

func TestStoresWithoutSlots(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, in *tenuretest.World) {
		in.Wrap(func(_ string, s driver.Store) driver.Store { return lossy{s} })
		w := serve(t, in)
		w.acquire(ci, "jobs/a", "web-7")
		for _, more := range []object{ofSlots(1), reads, writes} {
			a := w.want(w.post("/v1/acquire", ci, asks("jobs/r", "web-7", more)), 409, "unsupported")
			if !strings.Contains(a.string("detail"), "may lose writes that it has confirmed") {
				w.Errorf("it says %s", a.text)
			}
		}
		w.want(w.post("/v1/drain", ci, object{"name": "jobs/r:gate", "token": 1}), 409, "unsupported")
	})
}
