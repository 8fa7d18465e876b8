// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func TestALockIsHeldAndReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.want(w.post("/v1/acquire", ci, object{
			"name": "jobs/a", "owner": "web-7", "host": "web-7", "label": "v1", "data": "aGk=",
		}), 200, "")
		if a.number("token") != 1 || a.number("lease_ms") != 15000 || a.number("heartbeat_ms") != 3000 ||
			a.number("free_after_ms") != 15000 || a.number("usable_ms") != 10647 || a.string("data") != "aGk=" {
			w.Errorf("the grant says %s", a.text)
		}
		h := w.hand(ci, "jobs/a", a)
		// L(1-ρ)/(1+ρ) - L/8 for a lease of 15 s and ρ = 0.09.
		if b := h.beats(); b.number("usable_ms") != 10647 || b.number("heartbeat_ms") != 3000 ||
			!strings.Contains(b.text, `"asked":null`) {
			w.Errorf("the heartbeat says %s", b.text)
		}
		for range 20 {
			time.Sleep(3 * time.Second)
			h.beats()
		}
		st := w.want(w.get("/v1/status?name=jobs/a", ci), 200, "")
		if st.string("state") != "held" || st.string("holder") != "web-7" || st.string("host") != "ci@web-7" ||
			st.string("label") != "v1" || st.string("data") != "aGk=" {
			w.Errorf("the status says %s", st.text)
		}
		w.want(h.release(object{"failed": "disk full"}), 200, "")
		w.want(h.release(), 200, "") // again
		w.want(h.heartbeat(h.next()), 410, "lost")
		past := w.get("/v1/history?name=jobs/a", ci)
		if !strings.Contains(past.text, "disk full") || !strings.Contains(past.text, `"end":"failed"`) ||
			!strings.Contains(past.text, `"host":"ci@web-7"`) {
			w.Errorf("the history says %s", past.text)
		}
	})
}

// A replica whose own clock nothing slews says nothing of its clients' clocks: only a client that
// says that it counts by such a clock has more of the lease.
func TestAGrantIsForTheClientsClock(t *testing.T) {
	inWorld(t, func(w *world) {
		with := func(clock string) answer {
			body := object{"name": "jobs/a", "owner": "web-7"}
			if clock != "" {
				body["clock"] = clock
			}
			return w.post("/v1/acquire", ci, body)
		}
		for clock, want := range map[string]float64{
			"":    10647, // L(1-0.09)/(1+0.09) - L/8
			"raw": 12827, // L(1-0.01)/(1+0.01) - L/8
		} {
			h := w.hand(ci, "jobs/a", w.want(with(clock), 200, ""))
			for range 2 {
				if b := h.beats(); b.number("usable_ms") != want {
					w.Errorf("with the clock %q the heartbeat says %s", clock, b.text)
				}
			}
			w.want(h.release(), 200, "")
		}
		for _, clock := range []string{"boot", "RAW", "raw "} {
			a := w.want(with(clock), 400, "bad-request")
			d := a.string("detail")
			if !strings.Contains(d, `"`+clock+`" is not known`) || !strings.Contains(d, `"raw"`) {
				w.Errorf("with the clock %q it says %s", clock, d)
			}
		}
		if st := w.want(w.get("/v1/status?name=jobs/a", ci), 200, ""); st.string("state") != "released" {
			w.Errorf("the status says %s", st.text)
		}
	})
}

// The lock of a doctor's trial leaves no record, whatever an interrupted trial has left, and no
// other lock loses its record, nor its token.
func TestATrialLeavesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		const trial = "jobs/a:doctor-trial"
		w.acquire(ci, trial, "tenure doctor 1")
		time.Sleep(time.Minute) // it is freed, and stays
		w.want(w.get("/v1/status?name="+trial, ci), 200, "")
		for range 2 {
			h := w.acquire(ci, trial, "tenure doctor 2")
			h.beats()
			w.want(h.release(), 200, "")
			w.want(w.get("/v1/status?name="+trial, ci), 404, "not-found")
			if past := w.get("/v1/history?name="+trial, ci); !strings.Contains(past.text, `"tenures":[]`) {
				w.Errorf("the history says %s", past.text)
			}
		}
		for _, name := range []string{"jobs/a", "jobs/doctor-trial", "jobs/a:doctor-trial/0"} {
			h := w.acquire(ci, name, "web-7")
			w.want(h.release(), 200, "")
			if st := w.get("/v1/status?name="+name, ci); st.number("token") != 1 {
				w.Errorf("%s: %s", name, st.text)
			}
		}
		w.want(w.post("/v1/acquire", "", object{"name": trial, "owner": "x"}), 401, "unauthenticated")
	})
}

// A release does not fail because its reason is long.
func TestAReasonIsCut(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		long := strings.Repeat("x", 1024)
		w.want(h.release(object{"failed": long + "y\nz"}), 200, "")
		if past := w.get("/v1/history?name=jobs/a", ci).text; !strings.Contains(past, `"reason":"`+long+`"`) {
			w.Errorf("the history says %s", past)
		}
	})
}

func TestAGrantThatNothingFollowsIsFreed(t *testing.T) {
	inWorld(t, func(w *world) {
		r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"})
		r.Header.Set("Accept", "text/event-stream")
		s := w.open(r)
		<-s.ended
		if _, last := s.events(); last["granted"].number("free_after_ms") != 5000 || last["granted"].json["usable_ms"] != nil {
			w.Errorf("the grant says %s", last["granted"].text)
		}
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8"}), 409, "held")
		time.Sleep(lease/3 + time.Second)
		a := w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8"}), 200, "")
		if a.number("token") != 2 {
			w.Errorf("token %v, want 2", a.number("token"))
		}
		if m := w.get("/metrics", ci).text; !strings.Contains(m, "tenure_server_grants_unused_total 1\n") ||
			!strings.Contains(m, "tenure_server_grants_total 2\n") {
			w.Errorf("metrics say %s", m)
		}
	})
}

// A client may count its grant by the answer alone, so that nobody frees the lock before it has
// expired, even if the answer could not be sent: the client may have it.
func TestACountedGrantIsNotFreed(t *testing.T) {
	for name, broken := range map[string]bool{"nothing follows": false, "it cannot be sent": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := &stream{ResponseRecorder: httptest.NewRecorder()}
				s.broken.Store(broken)
				w.carryOut(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"}), s)
				time.Sleep(time.Second) // whatever is done about the grant is done by then
				if w.MustRecord("jobs/a").State != driver.Held {
					w.Errorf("the lock is %+v", w.MustRecord("jobs/a"))
				}
				begun := time.Now()
				a := w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}), 200, "")
				if took := time.Since(begun) + time.Second; took < lease || took > lease+2*time.Second || a.number("token") != 2 {
					w.Errorf("after %v the grant says %s", took, a.text)
				}
				if m := w.get("/metrics", ci).text; !strings.Contains(m, "tenure_server_grants_discarded_total 0\n") {
					w.Errorf("metrics say %s", m)
				}
			})
		})
	}
}

// What waited for another holder, and is granted the lock by its release, does not count the grant.
func TestAGrantAfterAWaitIsNotCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		waiter := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}))
		time.Sleep(time.Second)
		w.want(h.release(), 200, "")
		a := w.want(waiter.answer(), 200, "")
		if a.json["usable_ms"] != nil || a.number("free_after_ms") != 5000 {
			w.Errorf("the grant says %s", a.text)
		}
		w.want(w.hand(ci, "jobs/a", a).release(), 200, "")
		time.Sleep(time.Millisecond) // what the server saw before that is not what this call waits for
		a = w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}), 200, "")
		if a.number("usable_ms") != 10647 {
			w.Errorf("a grant at once says %s", a.text)
		}
	})
}

// A pair without another holder is two writes of the lock's record. A try by a replica that has granted the
// lock before reads first.
func TestAPairIsTwoWrites(t *testing.T) {
	inWorld(t, func(w *world) {
		pair := func(want string, wait int) {
			t.Helper()
			name := fmt.Sprintf("jobs/%d", wait)
			got := w.client.Calls(func() {
				a := w.post("/v1/acquire", ci, object{"name": name, "owner": "web-7", "wait_ms": wait})
				if a.json["usable_ms"] == nil {
					w.Errorf("the grant says %s", a.text)
				}
				time.Sleep(time.Second)
				w.want(w.hand(ci, name, a).release(), 200, "")
			})
			if got != want {
				w.Errorf("with a wait of %d ms: %q, want %q", wait, got, want)
			}
			time.Sleep(time.Second)
		}
		pair("claim release", 20000)
		pair("claim release", 20000)
		pair("claim release", 0)
		pair("get claim release", 0)
	})
}

func TestHeldSaysWhoAndForHowLong(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		a := w.want(w.post("/v1/acquire", alice, object{"name": "jobs/a", "owner": "web-8"}), 409, "held")
		if a.string("holder") != "web-7" || a.number("token") != 1 || a.number("free_in_ms") != 15000 ||
			a.json["reserved"] != false {
			w.Errorf("held says %s", a.text)
		}
	})
}

func TestAWaitEndsWithTheLockOrWithItsHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		begun := time.Now()
		first := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 5000}))
		second := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-9", "wait_ms": 20000}))
		for range 4 {
			h.beats()
			time.Sleep(2 * time.Second)
		}
		a := w.want(first.answer(), 409, "held")
		if a.string("holder") != "web-7" || a.number("free_in_ms") < 10000 {
			w.Errorf("after its wait it was told %s", a.text)
		}
		w.want(h.release(), 200, "")
		if a := w.want(second.answer(), 200, ""); a.number("token") != 2 {
			w.Errorf("the waiting client has %s", a.text)
		}
		if took := time.Since(begun); took > 11*time.Second {
			w.Errorf("it waited for %v", took)
		}
	})
}

func TestAWaiterThatGoesAwayTakesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		s := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}))
		time.Sleep(time.Second)
		s.leave()
		w.want(h.release(), 200, "")
		time.Sleep(time.Second)
		if st := w.get("/v1/status?name=jobs/a", ci); st.string("state") != "released" || st.number("token") != 1 {
			w.Errorf("the lock is %s", st.text)
		}
	})
}

// A grant that could not be sent is freed at once, and not after a third of the lease.
func TestAGrantThatCannotBeSentIsFreed(t *testing.T) {
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.acquire(ci, "jobs/a", "web-7")
				h.beats()
				r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000})
				r.Header.Set("Accept", accept)
				s := w.open(r)
				time.Sleep(time.Second)
				s.broken.Store(true)
				w.want(h.release(), 200, "")
				<-s.ended
				time.Sleep(time.Second)
				if st := w.get("/v1/status?name=jobs/a", ci); st.string("state") != "released" || st.number("token") != 2 {
					w.Errorf("the lock is %s", st.text)
				}
				if m := w.get("/metrics", ci).text; !strings.Contains(m, "tenure_server_grants_discarded_total 1\n") {
					w.Errorf("metrics say %s", m)
				}
			})
		})
	}
}

// A client that takes no event any more waits no more, and is granted nothing.
func TestAStreamThatBreaksTakesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000})
		r.Header.Set("Accept", "text/event-stream")
		s := w.open(r)
		time.Sleep(time.Second)
		s.broken.Store(true)
		for range 6 {
			h.beats()
			time.Sleep(time.Second)
		}
		select {
		case <-s.ended:
		default:
			w.Error("it waits on")
		}
		w.want(h.release(), 200, "")
		time.Sleep(time.Second)
		if st := w.get("/v1/status?name=jobs/a", ci); st.string("state") != "released" || st.number("token") != 1 {
			w.Errorf("the lock is %s", st.text)
		}
		<-s.ended
	})
}

func TestAnAcquireTellsItsProgress(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000})
		r.Header.Set("Accept", "text/event-stream")
		s := w.open(r)
		for range 4 {
			h.beats()
			time.Sleep(3 * time.Second)
		}
		_, last := s.events()
		if got := last["waiting"]; got.string("holder") != "web-7" || got.number("token") != 1 ||
			got.json["free_in_ms"] == nil {
			w.Errorf("it waits for %s", got.text)
		}
		if n := strings.Count(s.String(), ": alive\n\n"); n != 2 {
			w.Errorf("%d comments in 12 s, want 2: %q", n, s)
		}
		w.want(h.release(), 200, "")
		<-s.ended
		names, last := s.events()
		if !slices.Equal(names, []string{"waiting", "granted"}) || last["granted"].number("token") != 2 {
			w.Errorf("it was told %q", s)
		}
		if s.Header().Get("Content-Type") != "text/event-stream" {
			w.Errorf("content type %q", s.Header().Get("Content-Type"))
		}

		// An error of the call is the answer before the stream begins, and the end of a
		// wait is in the stream.
		r = request("POST", "/v1/acquire", web, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 1000})
		r.Header.Set("Accept", "text/event-stream")
		w.want(w.do(r), 403, "forbidden")
		r = request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-9", "wait_ms": 1000})
		r.Header.Set("Accept", "text/event-stream")
		s = w.open(r)
		<-s.ended
		_, last = s.events()
		if got := last["problem"]; got.kind() != "held" || got.number("status") != 409 {
			w.Errorf("after the wait it was told %s", got.text)
		}
	})
}

func TestAHeartbeatIsTheSameAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		next := h.next()
		w.want(h.heartbeat(next), 200, "")
		w.want(h.heartbeat(next), 200, "") // a proxy has doubled it
		after := *h
		after.beat, after.n = next, 100
		after.beats()
		w.want(h.heartbeat(next), 410, "lost") // it has come late
		w.want(after.heartbeat(after.next()), 200, "")
	})
}

func TestAHeartbeatWithoutAnAnswerOfTheStoreIsUnknown(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		w.client.Partition()
		next := h.next()
		w.want(h.heartbeat(next), 503, "unknown")
		w.want(h.release(), 503, "unknown")
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/b", "owner": "web-7"}), 503, "unavailable")
		w.client.Heal()
		w.want(h.heartbeat(next), 200, "")
	})
}

func TestHeartbeatsCountEachForItself(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.acquire(ci, "jobs/a", "web-7"), w.acquire(ci, "jobs/b", "web-7")
		beat := func(h *hand, name string) object {
			return h.body(object{"name": name, "next": h.next()})
		}
		wrong := beat(a, "jobs/a")
		wrong["next"] = "x"
		got := w.want(w.post("/v1/heartbeats", ci, object{"locks": []object{
			beat(b, "jobs/b"), beat(a, "web/a"), beat(a, "jobs/c"), wrong, beat(a, "jobs/a"),
		}}), 200, "")
		var kinds []string
		for _, r := range got.json["results"].([]any) {
			one := r.(map[string]any)
			kind := "ok"
			if p, is := one["problem"].(map[string]any); is {
				kind = strings.TrimPrefix(p["type"].(string), "urn:tenure:problem:")
			} else if one["usable_ms"] == nil || one["heartbeat_ms"] == nil {
				w.Errorf("a result without its durations: %v", one)
			}
			kinds = append(kinds, one["name"].(string)+" "+kind)
		}
		if want := []string{
			"jobs/b ok", "web/a forbidden", "jobs/c lost", "jobs/a bad-request",
			"jobs/a ok",
		}; !slices.Equal(kinds, want) {
			w.Errorf("results %q, want %q", kinds, want)
		}
		for _, n := range []int{0, 101} {
			w.want(w.post("/v1/heartbeats", ci, object{"locks": slices.Repeat([]object{beat(a, "jobs/a")}, n)}), 400,
				"bad-request")
		}
	})
}

func TestShutdownTellsWaitersToAskElsewhere(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		waiter := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 20000}))
		r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-9", "wait_ms": 20000})
		r.Header.Set("Accept", "text/event-stream")
		streaming := w.open(r)
		r = request("GET", "/v1/events?name=jobs/a", ci, nil)
		r.Header.Set("Accept", "text/event-stream")
		events := w.open(r)
		asking := w.open(request("POST", "/v1/requests", ops,
			object{"name": "jobs/a", "kind": "step-down", "reason": "deploy"}))
		time.Sleep(time.Second)
		begun := time.Now()
		if err := w.Shutdown(w.Context()); err != nil {
			w.Fatal(err)
		}
		if took := time.Since(begun); took > time.Second {
			w.Errorf("it took %v", took)
		}
		a := w.want(waiter.answer(), 503, "unavailable")
		if a.header.Get("Retry-After") == "" {
			w.Error("no Retry-After")
		}
		for _, s := range []*stream{streaming, events} {
			<-s.ended
			if _, last := s.events(); last["problem"].kind() != "unavailable" {
				w.Errorf("the stream was told %s", s)
			}
		}
		w.want(asking.answer(), 504, "unanswered") // it is written
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/b", "owner": "web-8"}), 503, "unavailable")
		w.want(w.get("/readyz", ""), 503, "unavailable")
		w.want(w.get("/healthz", ""), 200, "")
		if a := h.beats(); a.header.Get("Connection") != "close" || !strings.Contains(a.text, "deploy") {
			w.Errorf("a heartbeat is answered with %s, connection %q", a.text, a.header.Get("Connection"))
		}
		w.want(h.release(), 200, "")
	})
}

func TestDataStayUnlessThereAreOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, c := range []struct {
			data, want any
		}{
			{data: "Zmlyc3Q=", want: "Zmlyc3Q="},
			{data: nil, want: "Zmlyc3Q="},
			{data: "", want: nil},
			{data: nil, want: nil},
		} {
			body := object{"name": "jobs/a", "owner": "web-7"}
			if c.data != nil {
				body["data"] = c.data
			}
			a := w.want(w.post("/v1/acquire", ci, body), 200, "")
			if a.json["data"] != c.want {
				w.Errorf("with data %v the record has %v, want %v", c.data, a.json["data"], c.want)
			}
			w.want(w.post("/v1/release", ci, object{
				"name": "jobs/a", "token": a.number("token"), "after": a.string("beat"),
			}), 200, "")
		}
	})
}

// TestBodyOfAnotherTypeIsToldInWords: of the API, and not of the program that serves it.
func TestBodyOfAnotherTypeIsToldInWords(t *testing.T) {
	inWorld(t, func(w *world) {
		for want, body := range map[string]any{
			"wait_ms is a string: want a whole number":                object{"name": "jobs/a", "owner": "o", "wait_ms": "1s"},
			"wait_ms is number 1.5: want a whole number":              object{"name": "jobs/a", "owner": "o", "wait_ms": 1.5},
			"name is a number: want a string":                         object{"name": 1, "owner": "o"},
			"name is an object: want a string":                        object{"name": object{}, "owner": "o"},
			"the body cannot be read: it is an array: want an object": []string{"jobs/a"},
		} {
			a := w.want(w.post("/v1/acquire", ci, body), 400, "bad-request")
			if !strings.Contains(a.text, want) || strings.Contains(a.text, "Go ") {
				t.Errorf("%v: %s, want %s", body, a.text, want)
			}
		}
		a := w.want(w.post("/v1/heartbeats", ci, object{"locks": "all"}), 400, "bad-request")
		if !strings.Contains(a.text, "locks is a string: want an array") {
			t.Error(a.text)
		}
	})
}
