// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

func (h *hand) drain(wait time.Duration) answer {
	h.w.Helper()
	return h.w.post("/v1/drain", h.secret, object{"name": h.name, "token": h.token}.with(waits(wait)))
}

// draining is drain in the background.
func (h *hand) draining(wait time.Duration) *stream {
	return h.w.open(request("POST", "/v1/drain", h.secret, object{"name": h.name, "token": h.token}.with(waits(wait))))
}

// library returns the lock as a Go program has it.
func (w *world) library(name string) *rwlock.Lock {
	w.Helper()
	return testutil.Must(rwlock.New(w.World.Client("go").Client, name, nil))(w.T)
}

func TestAWriterWaitsForTheReadersThatItMeets(t *testing.T) {
	inWorld(t, func(w *world) {
		r1, a := w.part("jobs/c", "web-1", reads)
		r2, b := w.part("jobs/c", "web-2", reads)
		if r1.name == r2.name || !strings.HasPrefix(r1.name, "jobs/c:read/") || a.number("fence_token") != 1 ||
			b.number("fence_token") != 1 || a.json["last_writer"] != nil || a.json["slot"] != nil || a.json["drain"] != nil ||
			a.json["unwritten"] != nil || a.number("usable_ms") != 10647 {
			w.Errorf("the readers are told %s and %s", a.text, b.text)
		}
		r1.beats()
		r2.beats()
		p := w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-3", writes)), 409, "held")
		if owner := p.string("holder"); owner != "web-1" && owner != "web-2" || p.number("token") != 1 ||
			p.number("free_in_ms") == 0 {
			w.Errorf("the writer is told %s", p.text)
		}
		writer, g := w.part("jobs/c", "web-3", writes, waits(20*time.Second))
		if writer.name != "jobs/c:gate" || g.number("token") != 2 || g.number("fence_token") != 4 ||
			g.json["drain"] != true || g.string("unwritten") == "" || g.json["data"] != nil || g.json["last_writer"] != nil {
			w.Errorf("the writer is told %s", g.text)
		}
		writer.beats()
		for _, wait := range []time.Duration{0, 2 * time.Second} {
			begun := time.Now()
			p := w.want(writer.drain(wait), 409, "held")
			if owner := p.string("holder"); owner != "web-1" && owner != "web-2" || p.number("free_in_ms") == 0 ||
				time.Since(begun) < wait {
				w.Errorf("after %v the writer is told %s", time.Since(begun), p.text)
			}
		}
		p = w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-4", reads)), 409, "held")
		if p.string("holder") != "web-3" || p.number("token") != 2 {
			w.Errorf("a reader is told %s", p.text)
		}
		late := w.parting("jobs/c", "web-5", reads, waits(20*time.Second))
		drained := writer.draining(20 * time.Second)
		w.want(r1.release(), 200, "")
		for range 2 {
			time.Sleep(3 * time.Second)
			r2.beats()
			writer.beats()
		}
		select {
		case <-drained.ended:
			w.Fatalf("one reader is left: %s", drained)
		default:
		}
		w.want(r2.release(), 200, "")
		w.want(drained.answer(), 200, "")
		w.want(writer.drain(0), 200, "") // again
		writer.beats()
		w.want(writer.release(), 200, "")
		w.want(writer.drain(0), 410, "lost")
		a = w.want(late.answer(), 200, "")
		last, _ := a.json["last_writer"].(map[string]any)
		if a.number("fence_token") != 5 || last["owner"] != "web-3" || last["token"] != 2.0 || last["end"] != "released" ||
			a.json["usable_ms"] != nil {
			w.Errorf("the next reader is told %s", a.text)
		}
		w.want(w.hand(ci, a.string("name"), a).release(), 200, "")
		if _, g := w.part("jobs/c", "web-6", writes); g.json["drain"] != nil || g.number("fence_token") != 6 ||
			g.number("usable_ms") != 10647 {
			w.Errorf("a writer without readers is told %s", g.text)
		}
	})
}

// A gate that is given back unused, by the server or by the writer, is no term of a writer: it is not
// the last writer of later grants, and the readers before it and after it have one token.
func TestAGateThatIsGivenBackIsNoWritersTerm(t *testing.T) {
	inWorld(t, func(w *world) {
		writer, _ := w.part("jobs/c", "web-1", writes)
		w.want(writer.release(object{"failed": "disk full"}), 200, "")
		reader, _ := w.part("jobs/c", "web-2", reads)
		is := func(a answer, token float64) {
			t.Helper()
			last, _ := a.json["last_writer"].(map[string]any)
			if a.number("fence_token") != token || last["owner"] != "web-1" || last["token"] != 1.0 || last["end"] != "failed" {
				w.Errorf("it is told %s", a.text)
			}
		}
		for range 4 { // by the server
			reader.beats()
			w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-3", writes)), 409, "held")
			time.Sleep(time.Second)
		}
		second, a := w.part("jobs/c", "web-4", reads)
		is(a, 3)
		w.want(second.release(), 200, "")
		for range 4 { // by the writer
			reader.beats()
			h, a := w.part("jobs/c", "web-3", writes, waits(20*time.Second))
			is(a, 2*a.number("token"))
			w.want(h.release(object{"data": a.string("unwritten")}), 200, "")
			time.Sleep(time.Second)
		}
		for range 4 { // by the server, because the writer has gone away
			reader.beats()
			r := request("POST", "/v1/acquire", ci, asks("jobs/c", "web-3", writes, waits(20*time.Second)))
			r.Header.Set("Accept", "text/event-stream")
			s := &stream{ResponseRecorder: httptest.NewRecorder()}
			s.broken.Store(true)
			w.carryOut(r, s)
			time.Sleep(time.Second)
		}
		_, a = w.part("jobs/c", "web-4", reads)
		is(a, 3)
	})
}

// The lock's own data in its records are nobody else's.
func TestDataOfReadersAndWritersIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		first, g := w.part("jobs/c", "web-1", writes)
		before := g.string("unwritten")
		w.want(first.release(), 200, "")
		writer, _ := w.part("jobs/c", "web-1", writes)
		for _, data := range []string{
			"aGk=",                         // hi
			before,                         // of another term
			"eyJ0b2tlbiI6MiwiZXBvY2giOjJ9", // {"token":2,"epoch":2}
			"eyJ0b2tlbiI6MiwiZXBvY2giOjF9", // {"token":2,"epoch":1}
			"eyJ0b2tlbiI6MiwiZXBvY2giOjAsImxhc3QiOnt9fQ==", // {"token":2,"epoch":0,"last":{}}
		} {
			a := w.want(writer.release(object{"data": data}), 400, "bad-request")
			if !strings.Contains(a.string("detail"), "unwritten") {
				w.Errorf("%s: %s", data, a.text)
			}
		}
		writer.beats() // it holds the gate still
		w.want(writer.release(), 200, "")
		reader, _ := w.part("jobs/c", "web-2", reads)
		w.want(reader.release(object{"data": before}), 400, "bad-request")
		p := w.session(ci, "web-2")
		under := reader.next()
		w.want(p.attach(reader, under), 200, "")
		l := &member{hand: reader, p: p, under: under}
		w.want(l.release(object{"data": "aGk="}), 400, "bad-request")
		w.want(l.release(), 200, "")
	})
}

// Readers and writers may be kept by a session, like any lock.
func TestReadersAndWritersUnderASession(t *testing.T) {
	inWorld(t, func(w *world) {
		p, q := w.session(ci, "web-1"), w.session(ci, "web-2")
		reader, _ := w.part("jobs/c", "web-1", reads)
		w.want(p.attach(reader, reader.next()), 200, "")
		writer, g := w.part("jobs/c", "web-2", writes, waits(20*time.Second))
		if g.json["drain"] != true {
			w.Errorf("the writer is told %s", g.text)
		}
		w.want(q.attach(writer, writer.next()), 200, "")
		drained := writer.draining(20 * time.Second)
		for range 3 {
			time.Sleep(3 * time.Second)
			p.beats()
			q.beats()
		}
		select {
		case <-drained.ended:
			w.Fatalf("the reader is there: %s", drained)
		default:
		}
		w.want(p.close(), 200, "")
		w.want(drained.answer(), 200, "")
		w.want(q.close(), 200, "")
		w.want(writer.drain(0), 410, "lost")
	})
}

func TestADrainIsOfTheGatesHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		lost := func(token float64) {
			t.Helper()
			h := hand{w: w, secret: ci, name: "jobs/c:gate", token: token}
			w.want(h.drain(0), 410, "lost")
		}
		lost(1) // there is no record
		writer, _ := w.part("jobs/c", "web-1", writes)
		w.want(writer.drain(0), 200, "")
		lost(2)
		w.want(writer.release(), 200, "")
		lost(1)
		next, _ := w.part("jobs/c", "web-2", writes)
		a := w.want(writer.drain(0), 410, "lost")
		if a.string("holder") != "web-2" || a.number("token") != 2 {
			w.Errorf("it is told %s", a.text)
		}
		next.beats()
		w.client.Inject(faultstore.OpGet, 0, 1000, faultstore.Refuse())
		if a := next.drain(0); a.status != 503 {
			w.Errorf("without the store it says %s", a.text)
		}
	})
}

// A reader that shows no life is waited for until its lease is over, and so is a writer, by readers.
func TestTheDeadAreWaitedForWithTheirLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.part("jobs/c", "web-1", reads)
		begun := time.Now()
		writer, _ := w.part("jobs/c", "web-2", writes, waits(20*time.Second))
		writer.beats()
		drained := writer.draining(20 * time.Second)
		for range 4 {
			time.Sleep(3 * time.Second)
			writer.beats()
		}
		w.want(drained.answer(), 200, "")
		if took := time.Since(begun); took < lease || took > lease+3*time.Second {
			w.Errorf("the reader was waited for for %v", took)
		}
		writer.beats()
		begun = time.Now()
		a := w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-3", reads, waits(20*time.Second))), 200, "")
		last, _ := a.json["last_writer"].(map[string]any)
		if took := time.Since(begun); took < lease-time.Second || took > lease+3*time.Second ||
			last["end"] == "released" || last["owner"] != "web-2" {
			w.Errorf("after %v the reader is told %s", took, a.text)
		}
	})
}

// Go programs and clients of the service exclude each other.
func TestReadersAndWritersBesideGoPrograms(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.library("jobs/c")
		ctx := w.T.Context()
		mine := testutil.Must(l.AcquireRead(ctx, nil))(w.T)
		reader, _ := w.part("jobs/c", "web-1", reads)
		w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-2", writes)), 409, "held")
		w.want(reader.release(), 200, "")
		writer, g := w.part("jobs/c", "web-2", writes, waits(10*time.Second))
		writer.beats()
		if p := w.want(writer.drain(0), 409, "held"); p.string("holder") != "go" || g.json["drain"] != true {
			w.Errorf("the writer is told %s and %s", g.text, p.text)
		}
		if _, err := l.TryAcquireWrite(ctx, nil); err == nil {
			w.Error("a Go program writes beside a writer")
		}
		testutil.Want(w.T, mine.Release(ctx), nil)
		w.want(writer.drain(5*time.Second), 200, "")
		if _, err := l.TryAcquireRead(ctx, nil); err == nil {
			w.Error("a Go program reads beside a writer")
		}
		w.want(writer.release(), 200, "")
		mine = testutil.Must(l.AcquireWrite(ctx, nil))(w.T)
		if last, ok := mine.LastWriter(); !ok || last.Owner != "web-2" || last.End != "released" ||
			mine.Token() <= uint64(g.number("fence_token")) {
			w.Errorf("the Go program sees %+v, under %d", last, mine.Token())
		}
		w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-1", reads)), 409, "held")
		waiter := w.parting("jobs/c", "web-1", reads, waits(20*time.Second))
		time.Sleep(4 * time.Second)
		testutil.Want(w.T, mine.Release(ctx), nil)
		a := w.want(waiter.answer(), 200, "")
		if a.number("fence_token") != float64(mine.Token()+1) {
			w.Errorf("the reader is told %s after %d", a.text, mine.Token())
		}
	})
}

// Many readers that wait get in soon after the writer has gone.
func TestManyReadersWait(t *testing.T) {
	inWorld(t, func(w *world) {
		writer, _ := w.part("jobs/c", "web-0", writes)
		var all []*stream
		for range 50 {
			all = append(all, w.parting("jobs/c", "web-1", reads, waits(20*time.Second)))
		}
		time.Sleep(3 * time.Second)
		w.want(writer.release(), 200, "")
		released := time.Now()
		names := map[string]bool{}
		for _, s := range all {
			names[w.want(s.answer(), 200, "").string("name")] = true
		}
		if took := time.Since(released); took > 5*time.Second || len(names) != 50 {
			w.Errorf("%d readers after %v", len(names), took)
		}
	})
}

// A client whose grant waits for its first heartbeat for longer than the lease, while its server is cut
// off from the store and cannot free it, has nothing once a writer, or a smaller semaphore, has gone by
// its death: for it has no deadline that would have told it.
func TestAFirstHeartbeatAfterTheLease(t *testing.T) {
	for _, c := range []struct{ attaches, tries bool }{{}, {attaches: true}, {tries: true}} {
		inWorld(t, func(w *world) {
			other := w.another()
			granted := func(name string, more ...object) *hand {
				r := request("POST", "/v1/acquire", ci, asks(name, "web-1", more...))
				r.Header.Set("Accept", "text/event-stream") // so that nothing counts before a heartbeat
				s := other.open(r)
				<-s.ended
				_, last := s.events()
				return w.hand(ci, last["granted"].string("name"), last["granted"])
			}
			sem := testutil.Must(semaphore.New(w.World.Client("go").Client, "jobs/r", 2, nil))(w.T)
			parts := []*hand{granted("jobs/c", reads), granted("jobs/r", ofSlots(2)), granted("jobs/r", ofSlots(2))}
			other.client.Partition()
			if c.tries {
				w.want(w.post("/v1/acquire", ci, asks("jobs/c", "web-2", writes)), 409, "held")
				time.Sleep(lease + time.Second)
				if _, a := w.part("jobs/c", "web-2", writes); a.json["drain"] != nil {
					w.Errorf("the writer is told %s", a.text)
				}
			} else {
				writer, _ := w.part("jobs/c", "web-2", writes, waits(20*time.Second))
				drained := writer.draining(20 * time.Second)
				for range 5 {
					writer.beats()
					time.Sleep(3 * time.Second)
				}
				w.want(drained.answer(), 200, "")
			}
			testutil.Want(w.T, sem.Resize(w.T.Context(), 1, &semaphore.ResizeOptions{Wait: true}), nil)
			p := w.session(ci, "web-1")
			for _, h := range parts {
				switch {
				case h.name == "jobs/r:slot/0": // it was not removed
				case c.attaches:
					w.want(p.attach(h, h.next()), 410, "lost")
				default:
					w.want(h.heartbeat(h.next()), 410, "lost")
				}
			}
			other.client.Heal()
		})
	}
}

// A session that was closed leaves the record of a gate under it as it was: readers that have waited, and
// those that come later, get in.
func TestReadersAfterTheSessionOfAWriter(t *testing.T) {
	for _, waited := range []time.Duration{0, 20 * time.Second} {
		inWorld(t, func(w *world) {
			p := w.session(ci, "web-1")
			gate, _ := w.part("jobs/c", "web-1", writes)
			w.want(p.attach(gate, gate.next()), 200, "")
			var waiter *stream
			if waited > 0 {
				waiter = w.parting("jobs/c", "web-2", reads, waits(waited))
				time.Sleep(2 * time.Second)
			}
			w.want(p.close(), 200, "")
			closed := time.Now()
			if waited == 0 {
				waiter = w.parting("jobs/c", "web-2", reads)
			}
			a := w.want(waiter.answer(), 200, "")
			last, _ := a.json["last_writer"].(map[string]any)
			if a.number("fence_token") != 3 || last["owner"] != "web-1" || last["end"] != "released" || time.Since(closed) > 5*time.Second {
				w.Errorf("after %v the reader is told %s", time.Since(closed), a.text)
			}
		})
	}
}
