// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

// pack is a holder of many locks behind the server, under one session.
type pack struct {
	w                 *world
	secret, id, owner string
	beat, first       string
	n                 int
	answered          []string
}

// session opens a session, and confirms its first heartbeat.
func (w *world) session(secret, owner string, more ...object) *pack {
	w.Helper()
	a := w.want(w.post("/v1/sessions/open", secret, object{"owner": owner, "host": "web-7"}.with(more...)), 200, "")
	if a.number("lease_ms") != 15000 || a.number("heartbeat_ms") != 3000 || a.string("session") == "" {
		w.Fatalf("the session says %s", a.text)
	}
	p := &pack{w: w, secret: secret, id: a.string("session"), owner: owner, beat: a.string("beat"), first: a.string("beat")}
	p.beats()
	return p
}

func (p *pack) next() string {
	p.n++
	term, _, _ := strings.Cut(p.beat, "-")
	return fmt.Sprintf("%s-%013d", term, p.n)
}

func (p *pack) heartbeat(next string, more ...object) answer {
	p.w.Helper()
	body := object{"session": p.id, "after": p.beat, "next": next}
	if p.answered != nil {
		body["answered"] = p.answered
	}
	return p.w.post("/v1/sessions/heartbeat", p.secret, body.with(more...))
}

// beats confirms one heartbeat.
func (p *pack) beats(more ...object) answer {
	p.w.Helper()
	next := p.next()
	a := p.w.want(p.heartbeat(next, more...), 200, "")
	p.beat, p.answered = next, nil
	return a
}

// keep sends heartbeats for so many periods.
func (p *pack) keep(periods int) {
	p.w.Helper()
	for range periods {
		time.Sleep(3 * time.Second)
		p.beats()
	}
}

func (p *pack) close() answer {
	p.w.Helper()
	return p.w.post("/v1/sessions/close", p.secret, object{"session": p.id, "after": p.beat})
}

// attach attaches a granted lock with its next beat, and returns the result for it.
func (p *pack) attach(h *hand, next string) answer {
	p.w.Helper()
	return p.only(p.w.post("/v1/sessions/attach", p.secret, object{
		"session": p.id, "beat": p.beat, "locks": []object{h.body(object{"next": next})},
	}))
}

// only returns the only result of a call, as if it were the answer.
func (p *pack) only(a answer) answer {
	p.w.Helper()
	p.w.want(a, 200, "")
	results, _ := a.json["results"].([]any)
	if len(results) != 1 {
		p.w.Fatalf("got %s, want one result", a.text)
	}
	one := answer{status: 200, json: results[0].(map[string]any), text: a.text}
	if problem, is := one.json["problem"].(map[string]any); is {
		one.json = problem
		one.status = int(one.number("status"))
	}
	return one
}

// take takes a lock under the session.
func (p *pack) take(name string) *member {
	p.w.Helper()
	h := p.w.acquire(p.secret, name, p.owner)
	l := &member{hand: h, p: p, under: h.next()}
	p.w.want(p.attach(h, l.under), 200, "")
	return l
}

// member is a lock under a session: beat is the granted one.
type member struct {
	*hand
	p     *pack
	under string // the beat under the session
}

func (l *member) release(more ...object) answer {
	l.w.Helper()
	return l.p.only(l.w.post("/v1/sessions/release", l.secret, object{
		"session": l.p.id, "locks": []object{l.body(object{"next": l.under}).with(more...)},
	}))
}

func (w *world) state(name string) answer {
	w.Helper()
	return w.want(w.get("/v1/status?name="+name, alice), 200, "")
}

// another returns the world as another server of the same store serves it.
func (w *world) another() *world {
	w.Helper()
	other := *w
	other.do = other.call
	other.client = w.World.Client("tenured-2", func(o *tenure.Options) { o.LeaseDuration, o.MaxClockDrift = lease, 0.01 })
	other.Server = testutil.Must(server.New(other.client.Client, server.Options{Principals: w.Principals()}))(w.T)
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.T.Context())
		testutil.Want(w.T, errors.Join(other.Shutdown(ctx), other.client.Close(ctx)), nil)
	})
	return &other
}

func TestASessionKeepsManyLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		if b := p.beats(); b.number("usable_ms") != 10647 || b.number("heartbeat_ms") != 3000 ||
			!strings.Contains(b.text, `"requests":[]`) {
			w.Errorf("the heartbeat says %s", b.text)
		}
		a, b, c := p.take("jobs/a"), p.take("jobs/b"), p.take("jobs/c")
		p.keep(20)
		for _, l := range []*member{a, b, c} {
			if st := w.state(l.name); st.string("state") != "held" || st.string("session") != p.id ||
				st.string("holder") != "web-7" || st.string("host") != "ci@web-7" || st.number("token") != 1 {
				w.Errorf("the status says %s", st.text)
			}
			w.want(w.post("/v1/acquire", ci, object{"name": l.name, "owner": "web-8"}), 409, "held")
		}
		w.want(a.release(object{"failed": "disk full", "data": "aGk="}), 200, "")
		w.want(a.release(), 200, "") // again
		if st := w.state("jobs/a"); st.string("state") != "released" || st.string("end") != "failed" || st.string("data") != "aGk=" {
			w.Errorf("the status says %s", st.text)
		}
		if h := w.acquire(ci, "jobs/a", "web-8"); h.token != 2 {
			w.Errorf("token %v, want 2", h.token)
		}
		w.want(a.release(), 200, "") // as after any release
		if st := w.state("jobs/a"); st.string("state") != "held" || st.string("holder") != "web-8" {
			w.Errorf("the status says %s", st.text)
		}

		waiting := w.open(request("POST", "/v1/acquire", ci, object{"name": "jobs/b", "owner": "web-8", "wait_ms": 20000}))
		elsewhere := w.another().open(request("POST", "/v1/acquire", ci, object{"name": "jobs/c", "owner": "web-9", "wait_ms": 20000}))
		p.keep(2)
		begun := time.Now()
		w.want(p.close(), 200, "")
		w.want(waiting.answer(), 200, "")
		if took := time.Since(begun); took > 100*time.Millisecond {
			w.Errorf("a waiter of the same server learns of it in %v", took)
		}
		w.want(elsewhere.answer(), 200, "")
		if took := time.Since(begun); took > 1200*time.Millisecond {
			w.Errorf("a waiter of another server learns of it in %v", took)
		}
		w.want(p.close(), 200, "") // again
		w.want(p.heartbeat(p.next()), 410, "lost")
		past := w.get("/v1/history?name=jobs/c", alice)
		if !strings.Contains(past.text, `"end":"released"`) || !strings.Contains(past.text, `"holder":"web-7"`) {
			w.Errorf("the history says %s", past.text)
		}
		time.Sleep(5 * lease) // the record is deleted
		w.want(p.close(), 410, "lost")
	})
}

// The session of a client that sends no heartbeats ends with its lease, and everything that it sends
// later is too late.
func TestASessionExpires(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7", object{"clock": "raw"})
		if b := p.beats(); b.number("usable_ms") != 12827 {
			w.Errorf("with the raw clock the heartbeat says %s", b.text)
		}
		l, late := p.take("jobs/a"), w.acquire(ci, "jobs/b", "web-7")
		begun := time.Now()
		for { // each wait_ms ends before the lease does
			a := w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-8", "wait_ms": 10000})
			if a.status == 200 {
				break
			}
			w.want(a, 409, "held")
		}
		if took := time.Since(begun); took < lease || took > lease+2*time.Second {
			w.Errorf("the lock was free after %v", took)
		}
		w.want(p.heartbeat(p.next()), 410, "lost")
		w.want(w.post("/v1/sessions/attach", ci, object{
			"session": p.id, "beat": p.beat, "locks": []object{late.body(object{"next": late.next()})},
		}), 410, "lost")
		w.want(l.release(), 410, "lost")
		if st := w.state("jobs/a"); st.string("holder") != "web-8" || st.number("token") != 2 {
			w.Errorf("the status says %s", st.text)
		}
		w.want(p.close(), 410, "lost")
	})
}

// An attachment has an effect once, whichever server carries it out, however late, and how often.
func TestAnAttachmentHasOneEffect(t *testing.T) {
	inWorld(t, func(w *world) {
		p, other := w.session(ci, "web-7"), w.another()
		far := *p
		far.w = other
		l := p.take("jobs/a")
		w.want(p.attach(l.hand, l.under), 200, "") // again
		w.want(far.attach(l.hand, l.under), 200, "")
		w.want(p.attach(l.hand, l.next()), 410, "lost")
		w.want(l.heartbeat(l.under), 410, "lost") // the lock has no heartbeat of its own any more
		w.want(l.hand.release(), 410, "lost")
		second := w.session(ci, "web-7")
		w.want(second.attach(l.hand, l.under), 410, "lost") // the session holds it, not another
		moved := *l
		moved.p = second
		w.want(moved.release(), 410, "lost")
		w.want(l.release(), 200, "")
		w.want(far.attach(l.hand, l.under), 410, "lost")
		if st := w.state("jobs/a"); st.string("state") != "released" {
			w.Errorf("the status says %s", st.text)
		}

		own := w.acquire(ci, "jobs/b", "web-7")
		after, next := *own, own.next()
		own.beats()
		w.want(p.attach(&after, next), 410, "lost") // a heartbeat went on with the grant
		w.want(p.attach(own, own.next()), 200, "")  // from that on

		// What was sent without an answer is released all the same, whether it was carried out or not.
		h := w.acquire(ci, "jobs/c", "web-7")
		unsure := &member{hand: h, p: p, under: h.next()}
		w.want(unsure.release(), 200, "")
		w.want(p.attach(h, unsure.under), 410, "lost")
	})
}

// A grant that was attached through another server is used: the server that has made it frees nothing.
func TestAnAttachedGrantIsNotFreed(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		far := *p
		far.w = w.another()
		r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"})
		r.Header.Set("Accept", "text/event-stream") // a grant that counts is not freed in any case
		s := w.open(r)
		<-s.ended
		_, last := s.events()
		h := w.hand(ci, "jobs/a", last["granted"])
		w.want(far.attach(h, h.next()), 200, "")
		p.keep(10)
		if st := w.state("jobs/a"); st.string("state") != "held" || st.string("session") != p.id {
			w.Errorf("the status says %s", st.text)
		}
	})
}

// Only who knows a beat of a session can renew, close or fill it, and only with locks that it has a
// right to, and whose beat it knows.
func TestASessionIsItsClients(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		l, h := p.take("jobs/a"), w.acquire(ci, "jobs/b", "web-7")
		attach := func(secret, session, beat string, locks ...object) answer {
			return w.post("/v1/sessions/attach", secret, object{"session": session, "beat": beat, "locks": locks})
		}
		one := h.body(object{"next": h.next()})
		guess := strings.Repeat("A", 13) + "-0000000000000"
		for _, beat := range []string{guess, p.id + "-0000000000000", p.id[:13] + "-0000000000000", "-", p.id} {
			w.want(attach(ci, p.id, beat, one), 410, "lost")
		}
		w.want(attach(ci, "nosuchsession", p.beat, one), 410, "lost")
		program := testutil.Must(w.World.Client("program").OpenSession(w.T.Context(), nil))(t)
		for _, beat := range []string{program.ID() + "-0000000000000", p.beat} { // the session of a Go program
			w.want(attach(ci, program.ID(), beat, one), 410, "lost")
		}
		w.want(attach(ci, p.id, p.first, one), 200, "") // any of its beats proves it
		if attach(ci, p.id, p.first, one).json["results"] == nil {
			w.Error("no results")
		}
		mine := *p
		mine.secret = web
		w.want(mine.attach(h, h.next()), 403, "forbidden") // no right to the name
		for _, secret := range []string{ops, ""} {
			status, kind := 403, "forbidden"
			if secret == "" {
				status, kind = 401, "unauthenticated"
			}
			w.want(attach(secret, p.id, p.beat, one), status, kind)
			w.want(w.post("/v1/sessions/open", secret, object{"owner": "x"}), status, kind)
			w.want(w.post("/v1/sessions/close", secret, object{"session": p.id, "after": p.beat}), status, kind)
			w.want(w.post("/v1/sessions/release", secret, object{"session": p.id, "locks": []object{one}}), status, kind)
			w.want(w.post("/v1/sessions/heartbeat", secret, object{"session": p.id, "after": p.beat, "next": p.next()}), status, kind)
		}
		w.want(w.post("/v1/sessions/close", ci, object{"session": p.id, "after": guess}), 410, "lost")
		w.want(w.post("/v1/sessions/close", ci, object{"session": program.ID(), "after": program.ID() + "-0000000000000"}), 410, "lost")

		// Token and session are for all to read: the beats of the lock are not.
		forged := *l
		forged.hand, forged.under = &hand{w: w, secret: ci, name: l.name, token: l.token, beat: guess}, guess[:14]+"0000000000001"
		w.want(forged.release(), 410, "lost")
		stranger := *l
		stranger.hand = &hand{w: w, secret: web, name: l.name, token: l.token, beat: l.beat}
		w.want(stranger.release(), 403, "forbidden")
		if st := w.state("jobs/a"); strings.Contains(st.text, l.under) || strings.Contains(st.text, p.beat[:13]) {
			w.Errorf("the status shows a beat: %s", st.text)
		}
		others := w.acquire(ci, "jobs/c", "web-8")
		w.want(p.attach(others, others.next()), 410, "lost") // the lock of another owner
		p.beats()
	})
}

func TestRequestsGoToTheSession(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		a, b := p.take("jobs/a"), p.take("jobs/b")
		asked := func() []any {
			w.Helper()
			all, _ := p.beats().json["requests"].([]any)
			return all
		}
		s := w.ask(ops, "jobs/a", "step-down")
		time.Sleep(time.Second)
		all := asked()
		if len(all) != 1 {
			w.Fatalf("the heartbeat says %v", all)
		}
		q, _ := all[0].(map[string]any)
		if q["name"] != "jobs/a" || q["token"] != 1. || q["kind"] != "step-down" || q["by"] != "ops" ||
			q["reason"] != "deploy of v7" || q["id"] == "" {
			w.Errorf("the request is %v", q)
		}
		w.want(w.ask(ops, "jobs/a", "step-down", object{"reason": "another"}).answer(), 409, "already-asked")
		if len(asked()) != 1 {
			w.Error("it is told once alone")
		}
		w.want(a.release(), 200, "")
		w.want(s.answer(), 200, "")
		p.answered = []string{q["id"].(string)}
		again := object{"answered": p.answered}
		next := p.next()
		for range 2 { // the same call again
			if got := w.want(p.heartbeat(next, again), 200, ""); !strings.Contains(got.text, `"requests":[]`) {
				w.Errorf("an answered request stays: %s", got.text)
			}
		}
		p.beat, p.answered = next, nil
		if past := w.get("/v1/history?name=jobs/a", ops); !strings.Contains(past.text, `"end":"stepped_down"`) ||
			!strings.Contains(past.text, `"by":"ops"`) {
			w.Errorf("the history says %s", past.text)
		}

		over := w.ask(ops, "jobs/b", "hand-over", object{"to": "web-8"})
		time.Sleep(time.Second)
		if all := asked(); len(all) != 1 || all[0].(map[string]any)["to"] != "web-8" {
			w.Fatalf("the heartbeat says %v", all)
		}
		w.want(b.release(), 200, "")
		w.want(over.answer(), 200, "")
		if st := w.state("jobs/b"); st.string("state") != "reserved" || st.string("reserved_for") != "web-8" {
			w.Errorf("the lock is %s", st.text)
		}
		w.want(w.ask(alice, "jobs/c", "revoke").answer(), 409, "not-held")
		p.take("jobs/c")
		w.want(w.ask(alice, "jobs/c", "revoke").answer(), 409, "alive") // it would end all of its locks
	})
}

// Requests that meet an attachment reach the holder, whichever comes first.
func TestARequestMeetsAnAttachment(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		h := w.acquire(ci, "jobs/a", "web-7")
		s := w.ask(ops, "jobs/a", "hand-over", object{"to": "web-8"})
		time.Sleep(time.Second)
		l := &member{hand: h, p: p, under: h.next()}
		for range 2 {
			asked, _ := w.want(p.attach(h, l.under), 200, "").json["asked"].(map[string]any)
			if asked["kind"] != "hand-over" || asked["to"] != "web-8" {
				w.Errorf("the attachment says %v", asked)
			}
		}
		w.want(l.release(), 200, "")
		w.want(s.answer(), 200, "")
		if st := w.state("jobs/a"); st.string("state") != "reserved" || st.string("reserved_for") != "web-8" {
			w.Errorf("the lock is %s", st.text)
		}

		for kind, want := range map[string]string{"step-down": "", "revoke": "alive"} {
			p, h := w.session(ci, "web-7"), w.acquire(ci, "jobs/"+kind, "web-7")
			op := map[string]faultstore.Op{"step-down": faultstore.OpRequest, "revoke": faultstore.OpReserve}[kind]
			w.client.Inject(op, 0, 1, faultstore.Slow(time.Second, 0))
			s := w.ask(alice, h.name, kind)
			time.Sleep(500 * time.Millisecond)
			l := &member{hand: h, p: p, under: h.next()}
			w.want(p.attach(h, l.under), 200, "")
			time.Sleep(time.Second)
			if all, _ := p.beats().json["requests"].([]any); (len(all) == 1) != (want == "") {
				w.Errorf("%s: the heartbeat says %v", kind, all)
			}
			if want == "" {
				w.want(l.release(), 200, "")
				w.want(s.answer(), 200, "")
			} else {
				w.want(s.answer(), 409, want)
			}
		}
	})
}

func TestSessionCallsThatBreakARule(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		good := object{"name": "jobs/a", "token": 1, "after": "a-0000000000000", "next": "a-0000000000001"}
		with := func(change object) object {
			c := object{}.with(good)
			return c.with(change)
		}
		for path, bodies := range map[string][]object{
			"open": {
				{},
				{"owner": ""},
				{"owner": "a\nb"},
				{"owner": "x", "clock": "boot"},
				{"owner": "x", "name": "y"},
				{"owner": "x", "data": strings.Repeat("QUFB", 22<<10)},
			},
			"heartbeat": {
				{},
				{"session": p.id, "after": p.beat},
				{"session": p.id, "after": p.beat, "next": p.beat},
				{"session": p.id, "after": p.beat, "next": "b-0000000000001"},
				{"session": "a/b", "after": p.beat, "next": p.next()},
				{"session": strings.Repeat("a", 65), "after": p.beat, "next": p.next()},
				{"session": p.id, "after": p.beat, "next": p.next(), "answered": make([]string, 65)},
				{"session": p.id, "after": p.beat, "next": p.next(), "data": strings.Repeat("QUFB", 22<<10)},
			},
			"close": {{}, {"session": p.id}, {"session": "", "after": p.beat}, {"session": "../x", "after": p.beat}},
			"attach": {
				{"session": p.id, "beat": p.beat},
				{"session": p.id, "beat": p.beat, "locks": []object{}},
				{"session": p.id, "locks": []object{good}},
				{"beat": p.beat, "locks": []object{good}},
				{"session": "a b", "beat": p.beat, "locks": []object{good}},
			},
			"release": {{"session": p.id}, {"locks": []object{good}}, {"session": "\x00", "locks": []object{good}}},
		} {
			for _, body := range bodies {
				w.want(w.post("/v1/sessions/"+path, ci, body), 400, "bad-request")
			}
		}
		many := make([]object, 101)
		for i := range many {
			many[i] = good
		}
		w.want(w.post("/v1/sessions/release", ci, object{"session": p.id, "locks": many}), 400, "bad-request")
		for _, bad := range []object{
			{"name": ""},
			{"name": "tenure/session/" + p.id},
			{"token": 0},
			{"after": ""},
			{"next": "b-0000000000001"},
			{"next": "a-0000000000000"},
			{"after": strings.Repeat("a", 65)},
		} {
			one := []object{with(bad)}
			w.want(p.only(w.post("/v1/sessions/attach", ci, object{"session": p.id, "beat": p.beat, "locks": one})), 400, "bad-request")
			w.want(p.only(w.post("/v1/sessions/release", ci, object{"session": p.id, "locks": one})), 400, "bad-request")
		}
		p.beats(object{"data": "aGk="})
		if got := testutil.Must(w.client.SessionStatus(w.T.Context(), p.id, nil))(t); string(got.Data) != "hi" || got.Owner != "web-7" {
			w.Errorf("the session is %+v", got)
		}
		p.beats()
		if got := testutil.Must(w.client.SessionStatus(w.T.Context(), p.id, nil))(t); string(got.Data) != "hi" {
			w.Errorf("the session is %+v", got)
		}
	})
}

// What the store answers late, or not at all, is repeated, and has one effect.
func TestASessionsCallsAreRepeated(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		h := w.acquire(ci, "jobs/a", "web-7")
		l := &member{hand: h, p: p, under: h.next()}
		next := p.next()
		w.client.Partition()
		w.want(w.post("/v1/sessions/open", ci, object{"owner": "x"}), 503, "unknown")
		w.want(p.heartbeat(next), 503, "unknown")
		attach := object{"session": p.id, "beat": p.beat, "locks": []object{h.body(object{"next": l.under})}}
		w.want(w.post("/v1/sessions/attach", ci, attach), 503, "unknown")
		release := object{"session": p.id, "locks": []object{h.body(object{"next": l.under})}}
		w.want(w.post("/v1/sessions/release", ci, release), 503, "unknown")
		w.client.Heal()
		w.want(p.heartbeat(next), 200, "")
		p.beat = next
		for range 3 { // each write is applied, and its answer lost, once
			w.client.LoseReplies(2)
			w.want(p.attach(h, l.under), 200, "")
			p.beats()
		}
		w.client.LoseReplies(2)
		w.want(l.release(), 200, "")
		w.client.LoseReplies(2)
		w.want(p.close(), 200, "")
	})
}

// lossy is a store that may lose what it has confirmed.
type lossy struct{ driver.Store }

func (lossy) Waits() time.Duration { return 30 * time.Second }

// flat is a store that cannot keep sessions.
type flat struct{ driver.Store }

func (s flat) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	if next.State == driver.Alive {
		return driver.Record{}, driver.Record{}, driver.Unsupported(errors.New("table is shared"))
	}
	return s.Store.Claim(ctx, next)
}

func TestStoresWithoutSessions(t *testing.T) {
	for want, wrap := range map[string]func(driver.Store) driver.Store{
		"may lose writes that it has confirmed": func(s driver.Store) driver.Store { return lossy{s} },
		"cannot keep sessions":                  func(s driver.Store) driver.Store { return flat{s} },
	} {
		t.Run(want, func(t *testing.T) {
			tenuretest.Test(t, func(t *testing.T, in *tenuretest.World) {
				in.Wrap(func(_ string, s driver.Store) driver.Store { return wrap(s) })
				w := serve(t, in)
				w.acquire(ci, "jobs/a", "web-7")
				a := w.want(w.post("/v1/sessions/open", ci, object{"owner": "web-7"}), 409, "no-sessions")
				if !strings.Contains(a.string("detail"), want) {
					w.Errorf("it says %s", a.text)
				}
			})
		})
	}
}

// Ten thousand locks cost one heartbeat a period.
func TestTenThousandLocksUnderOneSession(t *testing.T) {
	const locks, batch = 10_000, 100
	inWorld(t, func(w *world) {
		p := w.session(ci, "web-7")
		var all [][]object
		for i := range locks {
			h := w.acquire(ci, fmt.Sprintf("jobs/%d", i), "web-7")
			if i%batch == 0 {
				all = append(all, nil)
			}
			all[i/batch] = append(all[i/batch], h.body(object{"next": h.next()}))
			if i%batch < batch-1 {
				continue
			}
			a := w.want(w.post("/v1/sessions/attach", ci, object{"session": p.id, "beat": p.beat, "locks": all[i/batch]}), 200, "")
			if strings.Contains(a.text, "problem") {
				w.Fatalf("it says %s", a.text)
			}
			p.beats()
		}
		w.client.Faults().ResetLog()
		p.keep(20)
		if swaps, other := w.client.Faults().Count(faultstore.OpHeartbeat), w.client.Faults().Count(); swaps != 20 || other != 20 {
			w.Errorf("in a minute %d heartbeats and %d calls in all, want 20", swaps, other)
		}
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/4711", "owner": "web-8"}), 409, "held")
		w.want(p.close(), 200, "")
		if h := w.acquire(ci, "jobs/4711", "web-8"); h.token != 2 {
			w.Errorf("token %v, want 2", h.token)
		}
	}, func(o *server.Options) { o.Limits.Calls, o.Limits.Beats = 1e6, 1e6 })
}
