// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"strings"
	"testing"
	"time"
)

func (w *world) ask(secret, name, kind string, more ...object) *stream {
	body := object{"name": name, "kind": kind, "reason": "deploy of v7"}.with(more...)
	return w.open(request("POST", "/v1/requests", secret, body))
}

// audited fails the test unless the log has one line of an act, with all of these words.
func (w *world) audited(words ...string) {
	w.Helper()
	for line := range strings.Lines(w.logged()) {
		found := strings.Contains(line, "tenure: audit")
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return
		}
	}
	w.Errorf("no line of an act has %q:\n%s", words, w.logged())
}

func TestAHolderIsAskedToStepDown(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		s := w.ask(ops, "jobs/a", "step-down")
		time.Sleep(time.Second)
		a := h.beats()
		asked, _ := a.json["asked"].(map[string]any)
		if asked["kind"] != "step-down" || asked["reason"] != "deploy of v7" || asked["by"] != "ops" {
			w.Fatalf("the holder is asked %v", asked)
		}
		if a := h.beats(); a.json["asked"] == nil {
			w.Error("it is told once alone")
		}
		if st := w.get("/v1/status?name=jobs/a", ops); !strings.Contains(st.text, `"kind":"step-down"`) {
			w.Errorf("the status shows no request: %s", st.text)
		}
		w.want(h.release(), 200, "")
		w.want(s.answer(), 200, "")
		w.audited("principal=ops", "action=step-down", "lock=jobs/a", `reason="deploy of v7"`, "outcome=done")
		past := w.get("/v1/history?name=jobs/a", ops)
		if !strings.Contains(past.text, `"end":"stepped_down"`) ||
			!strings.Contains(past.text, `"by":"ops","kind":"step-down","reason":"deploy of v7"`) {
			w.Errorf("the history says %s", past.text)
		}
	})
}

func TestTheSameRequestAgainWaitsForTheSame(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		first := w.ask(ops, "jobs/a", "step-down", object{"wait_ms": 1000})
		keep := func(seconds int) {
			for range seconds {
				time.Sleep(time.Second)
				h.beats()
			}
		}
		keep(6)
		w.want(first.answer(), 504, "unanswered")
		w.audited("action=step-down", "outcome=unanswered")
		again := w.ask(ops, "jobs/a", "step-down")
		other := w.ask(ops, "jobs/a", "step-down", object{"reason": "another"})
		stranger := w.ask(alice, "jobs/a", "step-down") // the same words are not the same request
		keep(3)
		if a := w.want(other.answer(), 409, "already-asked"); !strings.Contains(a.text, `"request":{`) {
			w.Errorf("it says %s", a.text)
		}
		w.want(stranger.answer(), 409, "already-asked")
		w.want(h.release(), 200, "")
		w.want(again.answer(), 200, "")
	})
}

func TestHandOver(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		reserved := w.open(request("POST", "/v1/acquire", ci,
			object{"name": "jobs/a", "owner": "web-8", "label": "v2", "wait_ms": 20000}))
		w.want(w.ask(ops, "jobs/a", "hand-over", object{"to": "web-7"}).answer(), 409, "held") // has it
		s := w.ask(ops, "jobs/a", "hand-over", object{"to": "web-8"})
		time.Sleep(time.Second)
		if asked, _ := h.beats().json["asked"].(map[string]any); asked["kind"] != "hand-over" || asked["to"] != "web-8" {
			w.Fatalf("the holder is asked %v", asked)
		}
		w.want(h.release(), 200, "")
		w.want(s.answer(), 200, "")
		a := w.want(reserved.answer(), 200, "")
		w.audited("action=hand-over", "to=web-8", "outcome=done")

		next := w.hand(ci, "jobs/a", a)
		s = w.ask(ops, "jobs/a", "hand-over", object{"to_label": "v3"})
		time.Sleep(time.Second)
		if asked, _ := next.beats().json["asked"].(map[string]any); asked["to_label"] != "v3" {
			w.Fatalf("the holder is asked %v", asked)
		}
		w.want(next.release(), 200, "")
		w.want(s.answer(), 200, "")
		for _, wait := range []int{0, 1000} { // the latter ends before the reservation does
			held := w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-9", "wait_ms": wait}), 409, "held")
			if held.json["reserved"] != true || held.string("label") != "v3" {
				w.Errorf("it is reserved: %s", held.text)
			}
		}
		if st := w.get("/v1/status?name=jobs/a", ops); st.string("state") != "reserved" ||
			st.string("reserved_for_label") != "v3" {
			w.Errorf("the status is %s", st.text)
		}
	})
}

func TestReleaseDead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want(w.ask(ops, "jobs/a", "release-dead").answer(), 409, "not-held")
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		s := w.ask(ops, "jobs/a", "release-dead")
		time.Sleep(2 * time.Second)
		h.beats()
		w.want(s.answer(), 409, "alive")
		// It dies. A wait that is too short goes on with the next call.
		w.want(w.ask(ops, "jobs/a", "release-dead", object{"wait_ms": 6000}).answer(), 504, "unanswered")
		w.want(w.ask(ops, "jobs/a", "release-dead").answer(), 200, "")
		if st := w.get("/v1/status?name=jobs/a", ops); st.string("state") != "released" || st.string("end") != "freed" {
			w.Errorf("the lock is %s", st.text)
		}
		w.want(h.heartbeat(h.next()), 410, "lost")
		w.audited("action=release-dead", "outcome=done")
	})
}

func TestRevoke(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		w.want(w.ask(ops, "jobs/a", "revoke").answer(), 403, "forbidden")
		w.audited("principal=ops", "action=revoke", "outcome=forbidden")
		s := w.ask(alice, "jobs/a", "revoke", object{"wait_ms": 5000})
		time.Sleep(time.Second)
		w.want(h.heartbeat(h.next()), 410, "lost")
		w.want(s.answer(), 504, "unanswered")
		w.want(w.ask(alice, "jobs/a", "revoke").answer(), 200, "")
		if st := w.get("/v1/status?name=jobs/a", ops); st.string("state") != "released" || st.string("end") != "revoked" {
			w.Errorf("the lock is %s", st.text)
		}
		if a := w.acquire(ci, "jobs/a", "web-8"); a.token != 2 {
			w.Errorf("token %v", a.token)
		}
	})
}

func TestRequestsThatBreakARule(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, more := range []object{
			{"kind": "steal"},
			{"reason": ""},
			{"reason": strings.Repeat("x", 1025)},
			{"reason": "line\nfeed"},
			{"kind": "hand-over"},
			{"kind": "hand-over", "to": "a", "to_label": "b"},
			{"kind": "step-down", "to": "a"},
			{"wait_ms": -1},
			{"wait_ms": 20001},
			{"name": ""},
			{"name": "tenure/session/x"},
		} {
			w.want(w.ask(alice, "jobs/a", "step-down", more).answer(), 400, "bad-request")
		}
	})
}

func TestAStoreThatFailsLeavesARequestUnknown(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		w.client.Partition()
		w.want(w.ask(ops, "jobs/a", "step-down").answer(), 503, "unknown")
		w.client.Heal()
	})
}
