// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// asked returns an asker that has seen the lock under a session, and then what a
// strong read has shown of the session: its record, or that there is none.
func askedTied(t *testing.T, timing Timing, want driver.Request, session driver.Record) (*Asker, Env, *Call) {
	t.Helper()
	env, _ := seeing(timing)
	k := NewAsker(timing, env, "k", want, 5*time.Second, NewSight(timing, env))
	k.Step(0)
	r := k.Reply(0, found(under(timing, "s", "v", 7))).Call
	if r == nil || r.Kind != Peek || r.Consistency != driver.Strong || r.Key != driver.SessionKey("s") {
		t.Fatalf("want a strong look at the session, got %+v", r)
	}
	return k, env, k.Reply(0, Result{Outcome: Applied, Record: session, Found: session.Key != ""}).Call
}

// TestAskerOfTiedAnswers: what an asker is told when it has seen the session.
func TestAskerOfTiedAnswers(t *testing.T) {
	timing := Timing{}.WithDefaults()
	lives := alive(timing, "s", "b")
	over := closed(lives, "c", driver.EndReleased)
	expired := closed(lives, "c", driver.EndExpired)
	nonsense := lives
	nonsense.Lease = 0
	with := func(qs ...driver.Request) driver.Record {
		rec := lives
		rec.Requests = qs
		return rec
	}
	q := driver.Request{ID: "q", Kind: driver.HandOver, Lock: "k", Token: 7, By: "first"}
	former, other, question := q, q, q
	former.Token, other.Lock, question.Kind = 6, "k2", driver.Confirm
	for _, tt := range []struct {
		name    string
		kind    driver.RequestKind
		session driver.Record
		want    Answer
		next    Kind // 0 for none
	}{
		{"step-down", driver.StepDown, lives, NoAnswer, Ask},
		{"step-down of a closed session's", driver.StepDown, over, Nobody, 0},
		{"step-down of a dead session's", driver.StepDown, expired, Nobody, 0},
		{"step-down where there is no session", driver.StepDown, driver.Record{}, Nobody, 0},
		{"hand-over", driver.HandOver, lives, NoAnswer, Ask},
		{"second request", driver.StepDown, with(other, q), Pending, 0},
		{"the former tenure was asked", driver.StepDown, with(former), NoAnswer, Ask},
		{"another lock was asked for", driver.StepDown, with(other), NoAnswer, Ask},
		{"the session was asked whether it holds it", driver.StepDown, with(question), NoAnswer, Ask},
		{"what makes no sense", driver.StepDown, nonsense, Unusable, 0},
		{"revoke of a living session's", driver.Revoke, lives, Sessioned, 0},
		{"revoke of a dead session's", driver.Revoke, expired, NoAnswer, Free},
		{"free of a dead session's", driver.ReleaseDead, expired, NoAnswer, Free},
		{"free where there is no session", driver.ReleaseDead, driver.Record{}, NoAnswer, Free},
		{"free of a closed session's", driver.ReleaseDead, over, Nobody, 0},
		{"free of a living session's", driver.ReleaseDead, lives, NoAnswer, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, r := askedTied(t, timing, driver.Request{Kind: tt.kind, By: "op", To: "x"}, tt.session)
			a, rec, _ := k.Answer()
			if a != tt.want || k.Over() != (a != NoAnswer) || k.Token() != 7 {
				t.Errorf("answer %d, over %v, token %d; want %d", a, k.Over(), k.Token(), tt.want)
			}
			if a == Pending && (len(rec.Requests) != 1 || rec.Requests[0].By != "first" || rec.Key != "k") {
				t.Errorf("pending: %+v", rec)
			}
			if (r != nil) != (tt.next != 0) || r != nil && r.Kind != tt.next {
				t.Fatalf("sends %+v, want %v", r, tt.next)
			}
			if r == nil {
				return
			}
			if r.Kind == Free {
				if r.Key != "k" || r.Next.State != driver.Released || r.Next.Session != "" || r.Next.End != driver.EndReleasedDead || r.Next.Asked.By != "op" {
					t.Errorf("frees with %+v", r.Next)
				}
				k.Reply(0, found(r.Next))
				if a, _, _ := k.Answer(); a != Done {
					t.Errorf("freed, and answered %d", a)
				}
				return
			}
			laid := r.Next.Requests[len(r.Next.Requests)-1]
			if r.Key != lives.Key || r.Next.Beat != lives.Beat || laid.Lock != "k" || laid.Token != 7 || laid.By != "op" {
				t.Errorf("asks with %+v", r.Next)
			}
			k.Reply(0, found(r.Next))
			if a, _, _ := k.Answer(); a != Laid {
				t.Errorf("laid, and answered %d", a)
			}
		})
	}
}

// TestAskedTheHolderItself: to hand over to who holds it is no request.
func TestAskedTheHolderItself(t *testing.T) {
	timing := Timing{}.WithDefaults()
	k, _, r := askedTied(t, timing, driver.Request{Kind: driver.HandOver, By: "op", To: "us"}, alive(timing, "s", "b"))
	if a, _, _ := k.Answer(); a != Self || r != nil {
		t.Errorf("answer %d, sends %+v", a, r)
	}
}

// TestAskingASessionThatChanges: a conflict shows what is there now, and that
// decides.
func TestAskingASessionThatChanges(t *testing.T) {
	timing := Timing{}.WithDefaults()
	lives := alive(timing, "s", "b")
	later := alive(timing, "s", "b2")
	q := driver.Request{Kind: driver.StepDown, By: "op"}

	k, _, _ := askedTied(t, timing, q, lives)
	r := k.Reply(0, conflict(later)).Call
	if r == nil || r.Kind != Ask || r.Prev.Version != "b2" {
		t.Errorf("after a heartbeat: %+v", r)
	}
	k, _, r = askedTied(t, timing, q, lives)
	if k.Reply(0, conflict(closed(later, "c", driver.EndReleased))); r.Kind != Ask || k.answer != Nobody {
		t.Errorf("after it was closed: answer %d", k.answer)
	}
	// Another one of this process has seen more.
	k, env, r := askedTied(t, timing, q, lives)
	k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
	env.Session("s").Saw(1, 1, driver.Strong, closed(later, "c", driver.EndReleased), true)
	if a := k.Step(time.Second); a.Call != nil || k.answer != Nobody || r.Kind != Ask {
		t.Errorf("sends %+v, answer %d", a.Call, k.answer)
	}
	k, _, _ = askedTied(t, timing, q, lives)
	k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
	k.sight.Saw(1, 1, driver.Strong, theirs(timing, "v9", 8), true)
	if r := k.Step(time.Second).Call; r == nil || r.Kind != Look {
		t.Errorf("asks for a tenure that is over: %+v", r)
	}
}

// TestAskingForAKeyThatWasDeleted: its tokens begin again, so that the same one is
// another tenure.
func TestAskingForAKeyThatWasDeleted(t *testing.T) {
	timing := Timing{}.WithDefaults()
	k, _, _ := askedTied(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, alive(timing, "s", "b"))
	k.Reply(0, Result{Outcome: NotApplied, Err: errStore})
	k.sight.Saw(1, 1, driver.Strong, under(timing, "s", "v2", 7), true)
	if r := k.Step(time.Second).Call; r == nil || r.Kind != Look {
		t.Fatalf("want a look, got %+v", r)
	}
	if k.Reply(time.Second, found(under(timing, "s", "v2", 7))); k.answer != Changed {
		t.Errorf("answer %d", k.answer)
	}
}

// TestUnknownAskOfASession: the records of both tell what became of it.
func TestUnknownAskOfASession(t *testing.T) {
	timing := Timing{}.WithDefaults()
	for _, tt := range []struct {
		name    string
		lock    func(driver.Request) driver.Record
		session func(driver.Request) driver.Record
		want    Answer
		next    Kind
	}{
		{"it lies there", nil, func(q driver.Request) driver.Record { return asking(alive(timing, "s", "b3"), "r", q) }, Laid, 0},
		{"it does not", nil, func(driver.Request) driver.Record { return alive(timing, "s", "b3") }, NoAnswer, Ask},
		{"it was honoured", func(q driver.Request) driver.Record {
			return freed(under(timing, "s", "v", 7), "w", driver.EndSteppedDown, &q)
		}, nil, Laid, 0},
		{"it was honoured, and another has it", func(q driver.Request) driver.Record {
			next := theirs(timing, "v9", 8)
			next.Prev = &driver.Tenure{Token: 7, Asked: &q}
			return next
		}, nil, Laid, 0},
		{"another has it", func(driver.Request) driver.Record { return theirs(timing, "v9", 8) }, nil, Changed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, r := askedTied(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, alive(timing, "s", "b"))
			q := r.Next.Requests[0]
			k.Reply(0, Result{Outcome: Unknown, Err: errStore})
			now, _ := k.Next()
			r = k.Step(now).Call
			if r == nil || r.Kind != Look || r.Consistency != driver.Strong {
				t.Fatalf("want a look, got %+v", r)
			}
			lock := under(timing, "s", "v", 7)
			if tt.lock != nil {
				lock = tt.lock(q)
			}
			r = k.Reply(now, found(lock)).Call
			if tt.session != nil {
				if r == nil || r.Kind != Peek {
					t.Fatalf("want a look at the session, got %+v", r)
				}
				r = k.Reply(now, found(tt.session(q))).Call
			}
			if a, _, _ := k.Answer(); a != tt.want {
				t.Errorf("answer %d, want %d", a, tt.want)
			}
			if (r != nil) != (tt.next != 0) || r != nil && (r.Kind != tt.next || r.Next.Requests[0].ID != q.ID) {
				t.Errorf("then %+v", r)
			}
		})
	}
}

// TestAskingASessionThatIsFull: the asker waits for room, and for so long as it
// has patience.
func TestAskingASessionThatIsFull(t *testing.T) {
	timing := Timing{}.WithDefaults()
	full := alive(timing, "s", "b")
	full.Requests = make([]driver.Request, driver.MaxRequests)
	k, _, r := askedTied(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, full)
	if at, _ := k.Next(); r != nil || k.Over() || at <= 0 || at > timing.Refresh {
		t.Fatalf("sends %+v, over %v, next at %v", r, k.Over(), at)
	}
	now, _ := k.Next()
	if r = k.Step(now).Call; r == nil || r.Kind != Peek || r.Consistency != driver.Strong {
		t.Fatalf("want a look at the session, got %+v", r)
	}
	if r = k.Reply(now, found(alive(timing, "s", "b2"))).Call; r == nil || r.Kind != Ask {
		t.Fatalf("there is room: %+v", r)
	}
	k, _, _ = askedTied(t, timing, driver.Request{Kind: driver.StepDown, By: "op"}, full)
	looks := 0
	for now = 0; !k.Over() && now < timing.Lease; looks++ {
		now, _ = k.Next()
		k.Step(now)
		k.Reply(now, found(full))
	}
	if a, _, err := k.Answer(); a != Unusable || !errors.Is(err, errFull) || now < 5*time.Second || looks > 100 {
		t.Errorf("answer %d, %v at %v after %d looks", a, err, now, looks)
	}
}

// TestFreeUnderASession: an operator's release waits until the session is dead,
// closes it, and then frees the lock.
func TestFreeUnderASession(t *testing.T) {
	timing := Timing{}.WithDefaults()
	lives := alive(timing, "s", "b")
	run := func(kind driver.RequestKind, session func(now time.Duration) driver.Record) (k *Asker, closing time.Duration) {
		k, env, r := askedTied(t, timing, driver.Request{Kind: kind, By: "op"}, lives)
		_ = env
		for now := time.Duration(0); !k.Over() && now < 3*timing.Lease; {
			if r == nil {
				now, _ = k.Next()
				r = k.Step(now).Call
				continue
			}
			switch r.Kind {
			case Look:
				r = k.Reply(now, found(under(timing, "s", "v", 7))).Call
			case Peek:
				r = k.Reply(now, found(session(now))).Call
			case Close:
				if closing = now; r.Key != lives.Key || r.Next.State != driver.Closed || r.Next.End != driver.EndExpired {
					t.Fatalf("closes with %+v", r)
				}
				r = k.Reply(now, found(r.Next)).Call
			case Free:
				if closing == 0 {
					t.Fatal("frees a lock of a session that is not closed")
				}
				r = k.Reply(now, found(r.Next)).Call
			default:
				t.Fatalf("sends %+v", r)
			}
		}
		return k, closing
	}
	k, at := run(driver.ReleaseDead, func(time.Duration) driver.Record { return lives })
	if a, _, _ := k.Answer(); a != Done || at != timing.Lease {
		t.Errorf("answer %d, closed at %v", a, at)
	}
	k, at = run(driver.ReleaseDead, func(now time.Duration) driver.Record {
		if now > timing.Heartbeat {
			return alive(timing, "s", "b2")
		}
		return lives
	})
	if a, _, _ := k.Answer(); a != Alive || at != 0 {
		t.Errorf("it beats: answer %d, closed at %v", a, at)
	}
	// Who revokes a lock whose session is seen dead already need not wait.
	env, _ := seeing(timing)
	env.Session("s").Saw(0, 0, driver.Strong, lives, true)
	k = NewAsker(timing, env, "k", driver.Request{Kind: driver.Revoke, By: "op"}, 0, NewSight(timing, env))
	k.Step(timing.Lease)
	k.Reply(timing.Lease, found(under(timing, "s", "v", 7)))
	r := k.Reply(timing.Lease, found(lives)).Call
	if r == nil || r.Kind != Close {
		t.Fatalf("want it closed, got %+v, answer %d", r, k.answer)
	}
	if r = k.Reply(timing.Lease, found(r.Next)).Call; r == nil || r.Kind != Free {
		t.Fatalf("want it freed, got %+v", r)
	}
}
