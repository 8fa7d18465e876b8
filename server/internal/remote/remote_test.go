// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// TestRemoteHolderCosts: each call is one write; and a read before it where another
// process has written last.
func TestRemoteHolderCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		var v *holder
		expect := func(what string, m *service, calls string, f func()) {
			t.Helper()
			if got := m.calls(f); got != calls {
				t.Errorf("%s: %q, want %q", what, got, calls)
			}
		}
		expect("grant", a, "claim", func() { v = a.holder("x", "us") })
		expect("first heartbeat", a, "heartbeat", func() { v.mustBeat(a) })
		expect("nothing more for the grant", a, "", func() { time.Sleep(lease / 2) })
		expect("heartbeat", a, "heartbeat", func() { v.mustBeat(a) })
		expect("through another", b, "get heartbeat", func() { v.mustBeat(b) })
		expect("again", b, "heartbeat", func() { v.mustBeat(b) })
		expect("where another has written", a, "get heartbeat", func() { v.mustBeat(a) })
		expect("release", a, "release", func() { want(t, v.release(a), nil) })
		rec := w.record("x")
		if rec.State != driver.Released || rec.End != driver.EndReleased || rec.Owner != "us" || rec.Host != "h" || rec.Label != "v1" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestReleaseThatDeletes leaves nothing, but for what somebody has taken meanwhile, and is a release
// whatever comes of the rest.
func TestReleaseThatDeletes(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		release := func(v *holder) error {
			return a.remote.Release(t.Context(), wire.ReleaseRequest{Name: "x", Token: v.Token, After: v.after}, true)
		}
		remove := a.fault(faultstore.OpDelete, 0, faultstore.Refuse())
		want(t, release(a.holder("x", "us")), nil)
		remove()
		if rec := w.record("x"); rec.State != driver.Released || rec.Token != 1 {
			t.Errorf("left as %+v", rec)
		}
		v := a.holder("x", "us") // after another tenure, of which there is a history
		time.Sleep(time.Second)  // that is written beside the grant
		want(t, release(v), nil)
		if left, err := w.Store().List(t.Context(), "", ""); err != nil || len(left.Records) != 0 {
			t.Errorf("left %+v, %v", left, err)
		}
		want(t, release(v), tenure.ErrLost)
		v = a.holder("x", "us")
		waiting := started(func() error {
			_, err := b.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: "other"}, true, nil)
			return err
		})
		time.Sleep(time.Second)
		a.fault(faultstore.OpDelete, 1, faultstore.Slow(time.Second, 0))
		want(t, release(v), nil)
		want(t, <-waiting, nil)
		if rec := w.record("x"); rec.State != driver.Held || rec.Token != 2 || rec.Owner != "other" {
			t.Errorf("left as %+v", rec)
		}

		// What is handed over is kept for its heir.
		v = a.holder("y", "us")
		asked := started(func() error {
			return b.StepDown(t.Context(), "y", &tenure.StepDownOptions{To: "heir", Reason: "deploy"})
		})
		time.Sleep(time.Second)
		v.mustBeat(a)
		want(t, a.remote.Release(t.Context(), wire.ReleaseRequest{Name: "y", Token: v.Token, After: v.after}, true), nil)
		want(t, <-asked, nil)
		if rec := w.record("y"); rec.State != driver.Reserved || rec.Owner != "heir" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestRemoteHolderIsAlive: its beats keep others away for as long as it sends them, and
// for a lease after that.
func TestRemoteHolderIsAlive(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b, c := w.service("a"), w.service("b"), w.service("c")
		v := a.holder("x", "us")
		drift, whole := 0.09, float64(lease)
		usable := time.Duration(whole*(1-drift)/(1+drift)) - lease/8
		if r := v.mustBeat(a); r.UsableMs != usable.Milliseconds() || r.HeartbeatMs != heartbeat.Milliseconds() || r.Asked != nil {
			t.Errorf("renewed as %+v, want usable %v", r, usable)
		}
		waiting := started(func() error {
			_, err := c.Acquire(t.Context(), "x", nil)
			return err
		})
		for range 20 {
			time.Sleep(heartbeat)
			v.mustBeat(b)
		}
		last := time.Now()
		pending(t, "the other's acquire", waiting)
		want(t, <-waiting, nil)
		if took := time.Since(last); took < lease || took > lease+2*refresh {
			t.Errorf("taken over after %v", took)
		}
		_, err := v.beat(a)
		want(t, err, tenure.ErrLost)
		want(t, v.release(a), tenure.ErrLost)
	})
}

// TestRemoteHolderAcrossTimings: while a setting is rolled out, replicas differ in their
// lease durations. The period that a holder is told fits the lease in its record, whatever
// that of the replica is.
func TestRemoteHolderAcrossTimings(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a := w.service("a")
		v := a.holder("x", "us")
		for _, of := range []time.Duration{lease / 3, lease, 3 * lease} {
			replica := w.service(of.String(), func(o *tenure.Options) { o.LeaseDuration, o.HeartbeatPeriod = of, 0 })
			r := v.mustBeat(replica)
			if most := min(of, lease) / 5; r.HeartbeatMs != most.Milliseconds() || r.UsableMs <= r.HeartbeatMs {
				t.Errorf("through a replica with a lease of %v: renewed as %+v, want a heartbeat each %v", of, r, most)
			}
		}
	})
}

// TestRemoteHolderRepeatsItself: the same call again is confirmed and changes nothing;
// an older one is lost, and so is one of another token, or that guesses the beat.
func TestRemoteHolderRepeatsItself(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		v := a.holder("x", "us")
		first := v.next()
		for _, m := range []*service{a, b, a} {
			_, err := m.remote.Heartbeat(t.Context(), first)
			want(t, err, nil)
		}
		v.after = first.Next
		was := w.record("x")
		stale := first
		stale.Next = v.next().Next
		if _, err := b.remote.Heartbeat(t.Context(), stale); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("a beat that follows an older one: %v", err)
		}
		other := v.next()
		other.Token++
		_, err := a.remote.Heartbeat(t.Context(), other)
		want(t, err, tenure.ErrLost)
		guess := v.next()
		guess.After = strings.Repeat("A", 13) + "-" + strings.Repeat("B", 13)
		guess.Next = strings.Repeat("A", 13) + "-" + strings.Repeat("C", 13)
		_, err = a.remote.Heartbeat(t.Context(), guess)
		want(t, err, tenure.ErrLost)
		if is := w.record("x"); is.Version != was.Version {
			t.Errorf("written by a call that has no effect: %+v", is)
		}
		v.mustBeat(a)
		want(t, v.release(a), nil)
		want(t, v.release(b), nil) // sent again
		_, err = v.beat(b)
		want(t, err, tenure.ErrLost)
		next := b.mustAcquire("x")
		want(t, v.release(a), nil) // by a proxy, much later
		want(t, next.Check(), nil)
		want(t, next.Renew(t.Context()), nil)
	})
}

// TestUnusedGrantIsFreed: a program that went away while it waited costs the others a third
// of a lease; one that shows life through another process keeps the lock.
func TestUnusedGrantIsFreed(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		v := a.holder("x", "gone")
		if v.FreeAfterMs != (lease / 3).Milliseconds() {
			t.Errorf("free after %d ms", v.FreeAfterMs)
		}
		begun := time.Now()
		b.mustAcquire("x")
		if took := time.Since(begun); took < lease/3 || took > lease/3+3*refresh { // whose looks are twice as rare while nothing is heard
			t.Errorf("free after %v, want %v", took, lease/3)
		}
		if prev := w.record("x").Prev; prev == nil || prev.End != driver.EndAbandoned {
			t.Errorf("the unused tenure ended as %+v", prev)
		}
		_, err := v.beat(a)
		want(t, err, tenure.ErrLost)

		kept := a.holder("y", "there")
		kept.mustBeat(b)
		time.Sleep(lease/3 + refresh)
		kept.mustBeat(b)
		if rec := w.record("y"); rec.State != driver.Held || rec.Token != kept.Token {
			t.Errorf("a lock in use was freed: %+v", rec)
		}
	})
}

// TestGrantThatNobodyLearnsOf: it is released at once.
func TestGrantThatNobodyLearnsOf(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		v := a.holder("x", "us")
		a.remote.Discard(v.Grant)
		synctest.Wait()
		b.mustTry("x")

		// The request of one that waits ends at the moment of the grant.
		holder := b.mustTry("y")
		ctx, stop := context.WithCancel(t.Context())
		waits := started(func() error {
			_, err := a.remote.Acquire(ctx, wire.AcquireRequest{Name: "y", Owner: "us"}, true, nil)
			return err
		})
		time.Sleep(refresh)
		a.fault(faultstore.OpTakeover, 1, faultstore.Slow(0, time.Second))
		a.fault(faultstore.OpClaim, 1, faultstore.Slow(0, time.Second))
		want(t, holder.Release(t.Context()), nil)
		time.Sleep(refresh / 2)
		stop()
		want(t, <-waits, context.Canceled)
		time.Sleep(3 * time.Second)
		b.mustTry("y")
	})
}

// TestRemoteHolderIsAsked: a request stays in the record until the tenure ends, and is
// told with each heartbeat.
func TestRemoteHolderIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		v := a.holder("x", "us")
		v.mustBeat(a)
		asked := started(func() error {
			return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "heir", Reason: "deploy"})
		})
		synctest.Wait()
		for _, m := range []*service{a, b, a} {
			r := v.mustBeat(m)
			if q := r.Asked; q == nil || q.Kind != "hand-over" || q.To != "heir" || q.Reason != "deploy" || q.By != "b" {
				t.Errorf("asked %+v", q)
			}
			time.Sleep(heartbeat)
		}
		pending(t, "the request", asked)
		want(t, v.release(b), nil)
		if rec := w.record("x"); rec.State != driver.Reserved || rec.Owner != "heir" {
			t.Errorf("left as %+v", rec)
		}
		want(t, <-asked, nil)
	})
}

// TestReservationGoesFirst: whom a lock is handed over to takes it, although others of
// the same process have waited for longer.
func TestReservationGoesFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		v := b.holder("x", "us")
		v.mustBeat(b)
		var order []string
		got := make(chan *holder, 3)
		for _, owner := range []string{"first", "second", "heir"} {
			go func() {
				g, err := a.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: owner}, true, nil)
				if err != nil {
					got <- nil
					return
				}
				got <- a.granted("x", owner)(g, err)
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * refresh)
		asked := started(func() error {
			return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "heir", Reason: "deploy"})
		})
		synctest.Wait()
		v.mustBeat(b)
		want(t, v.release(b), nil)
		for range 3 {
			n := <-got
			if n == nil {
				t.Fatal("an acquire failed")
			}
			order = append(order, n.owner)
			n.mustBeat(a)
			want(t, n.release(a), nil)
		}
		want(t, <-asked, nil)
		if strings.Join(order, " ") != "heir first second" {
			t.Errorf("came as %v", order)
		}
	})
}

// TestRemoteHolderAndAStoreThatFails: no answer is ErrUncertain, and the same call again
// is confirmed, whether the write was made or not.
func TestRemoteHolderAndAStoreThatFails(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"reply lost": faultstore.LoseReplyHang(), "request lost": faultstore.BlackHole(), "late": faultstore.LateAfterError(requestTimeout / 2),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w world) {
				a, b := w.service("a"), w.service("b")
				v := a.holder("x", "us")
				v.mustBeat(a)
				next := v.next()
				remove := a.fault(faultstore.OpHeartbeat, 0, fault)
				reads := a.fault(faultstore.OpGet, 0, faultstore.BlackHole())
				_, err := a.remote.Heartbeat(t.Context(), next)
				want(t, err, tenure.ErrUncertain)
				remove()
				reads()
				_, err = b.remote.Heartbeat(t.Context(), next)
				want(t, err, nil)
				v.after = next.Next
				v.mustBeat(a)
				remove = a.fault(faultstore.OpRelease, 1, faultstore.LoseReply())
				want(t, v.release(a), nil)
				remove()
				b.mustTry("x")
			})
		})
	}
}

// TestRemoteHolderWithLongData: what a process remembers of a record to save a read has a
// limit for its data. Heartbeats and the release keep data on both sides of it.
func TestRemoteHolderWithLongData(t *testing.T) {
	for _, n := range []int{4 << 10, 4<<10 + 1, driver.MaxDataLen} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w world) {
				a := w.service("a")
				data := bytes.Repeat([]byte("x"), n)
				v := a.granted("x", "us")(a.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: "us", Data: data}, false, nil))
				for range 3 {
					v.mustBeat(a)
					if rec := w.record("x"); !bytes.Equal(rec.Data, data) {
						t.Fatalf("%d bytes after a heartbeat", len(rec.Data))
					}
				}
				want(t, v.release(a), nil)
				next := a.holder("x", "them")
				next.mustBeat(a)
				if rec := w.record("x"); !bytes.Equal(rec.Data, data) {
					t.Errorf("%d bytes with the next holder", len(rec.Data))
				}
			})
		})
	}
}

// TestRemoteHolderThatHasGone: when the caller's context ends, so does the call. A store
// that refuses is not asked on in the name of somebody who hears no answer.
func TestRemoteHolderThatHasGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a := w.service("a")
		v := a.holder("x", "us")
		v.mustBeat(a)
		a.Faults().Inject(faultstore.Rule{Fault: faultstore.Refuse()})
		for what, call := range map[string]func(context.Context) error{
			"heartbeat": func(ctx context.Context) error {
				_, err := a.remote.Heartbeat(ctx, v.next())
				return err
			},
			"release": func(ctx context.Context) error {
				return a.remote.Release(ctx, wire.ReleaseRequest{Name: v.name, Token: v.Token, After: v.after}, false)
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), requestTimeout/2)
			err := call(ctx)
			cancel()
			want(t, err, tenure.ErrUncertain)
			want(t, err, context.DeadlineExceeded)
			if calls := a.calls(func() { time.Sleep(4 * requestTimeout) }); calls != "" {
				t.Errorf("%s: %q after its caller has gone", what, calls)
			}
		}
	})
}

// TestClosedClientLeavesGrants: a program that was granted a lock goes on through another
// process.
func TestClosedClientLeavesGrants(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		v := a.holder("x", "us")
		begun := time.Now()
		want(t, a.Close(t.Context()), nil)
		if took := time.Since(begun); took != 0 {
			t.Errorf("took %v", took)
		}
		v.mustBeat(b)
		time.Sleep(lease / 2)
		v.mustBeat(b)
		_, err := v.beat(a)
		want(t, err, tenure.ErrClosed)
	})
}

// TestRemoteHolderBadInput: each says which rule is broken, and nothing is sent.
func TestRemoteHolderBadInput(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a := w.service("a")
		r, ctx := a.remote, t.Context()
		v := a.holder("x", "us")
		beat := func(edit func(*wire.HeartbeatRequest)) error {
			b := v.next()
			edit(&b)
			_, err := r.Heartbeat(ctx, b)
			return err
		}
		acquire := func(name, owner string) error {
			_, err := r.Acquire(ctx, wire.AcquireRequest{Name: name, Owner: owner}, false, nil)
			return err
		}
		term, _, _ := strings.Cut(v.Beat, "-")
		calls := a.calls(func() {
			for what, err := range map[string]error{
				"lock name is empty":                       acquire("", "us"),
				"\"a \" has a space at byte 1":             acquire("a ", "us"),
				"owner is empty":                           acquire("y", ""),
				"owner \"a\\nb\" has U+000A":               acquire("y", "a\nb"),
				"such names are for records of Tenure":     acquire(driver.OwnPrefix+"x", "us"),
				"token is 0":                               beat(func(b *wire.HeartbeatRequest) { b.Token = 0 }),
				"the beat before is empty":                 beat(func(b *wire.HeartbeatRequest) { b.After = "" }),
				"does not follow":                          beat(func(b *wire.HeartbeatRequest) { b.Next = b.After }),
				"up to the dash":                           beat(func(b *wire.HeartbeatRequest) { b.Next = "OTHER-" + strings.Repeat("A", 13) }),
				"13 new letters or digits":                 beat(func(b *wire.HeartbeatRequest) { b.Next = term + "-SHORT" }),
				"end with 13 new letters":                  beat(func(b *wire.HeartbeatRequest) { b.Next = term + "-" + strings.Repeat("_", 13) }),
				"data has 262145 bytes: at most 262144":    r.Release(ctx, wire.ReleaseRequest{Name: "x", Token: 1, After: v.Beat, Data: make([]byte, driver.MaxDataLen+1)}, false),
				"the beat before \"AAAAAAAAAAAAAAAAAAAA\"": r.Release(ctx, wire.ReleaseRequest{Name: "x", Token: 1, After: strings.Repeat("A", 100)}, false),
			} {
				want(t, err, tenure.ErrInvalid)
				if err == nil || !strings.Contains(err.Error(), what) {
					t.Errorf("got %v, want %q", err, what)
				}
			}
		})
		if calls != "" {
			t.Errorf("sent %q", calls)
		}
	})
}

// TestWaitingHolderIsTold: each holder that is waited for, once.
func TestWaitingHolderIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, b := w.service("a"), w.service("b")
		one := b.mustTry("x")
		var told []string
		waits := started(func() error {
			_, err := a.remote.Acquire(t.Context(), wire.AcquireRequest{Name: "x", Owner: "us"}, true, func(e *tenure.HeldError) {
				told = append(told, e.Owner)
			})
			return err
		})
		time.Sleep(5 * refresh)
		two := started(func() error {
			l, err := b.Acquire(t.Context(), "x", nil)
			if err == nil {
				time.Sleep(5 * refresh)
				err = l.Release(t.Context())
			}
			return err
		})
		synctest.Wait()
		want(t, one.Release(t.Context()), nil)
		want(t, <-waits, nil)
		want(t, <-two, nil)
		if len(told) == 0 || len(told) > 2 || told[0] != "b" {
			t.Errorf("told %q", told)
		}
	})
}

// TestTextOfAFailure: the history shows why the work has failed.
func TestTextOfAFailure(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a := w.service("a")
		v := a.holder("x", "us")
		v.mustBeat(a)
		want(t, a.remote.Release(t.Context(), wire.ReleaseRequest{
			Name: "x", Token: v.Token, After: v.after, Data: []byte("d"), Failed: "no\nspace",
		}, false), nil)
		rec := w.record("x")
		if rec.End != driver.EndFailed || rec.Asked == nil || rec.Asked.Reason != "no space" || string(rec.Data) != "d" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestRemoteHolderIsToldWhy: what has ended the tenure, and not what ended the one after
// it, or what its own release has said.
func TestRemoteHolderIsToldWhy(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		a, boss := w.service("a"), w.service("boss")
		v := a.holder("x", "us")
		v.mustBeat(a)
		want(t, admin.Revoke(t.Context(), boss.Client.Client, "x", "mad"), nil)
		for range 2 { // reserved for nobody, and held by the next one
			_, err := v.beat(a)
			want(t, err, tenure.ErrSuperseded)
			if err == nil || !strings.Contains(err.Error(), `revoked by "boss": mad`) {
				t.Errorf("after the revocation: %v", err)
			}
			if w.record("x").State != driver.Held {
				a.mustAcquire("x")
			}
		}

		v = a.holder("y", "us")
		v.mustBeat(a)
		want(t, a.remote.Release(t.Context(), wire.ReleaseRequest{Name: "y", Token: v.Token, After: v.after, Failed: "no space"}, false), nil)
		_, err := v.beat(a)
		want(t, err, tenure.ErrSuperseded)
		if err == nil || !strings.Contains(err.Error(), "the record was released under token 1") {
			t.Errorf("after its own release: %v", err)
		}
	})
}

// TestAskNamesWhoAsks: the history has whom the request names, else the client.
func TestAskNamesWhoAsks(t *testing.T) {
	for by, want := range map[string]string{"ops": "ops", "": "a"} {
		inWorld(t, func(t *testing.T, w world) {
			w.service("b").mustAcquire("x")
			a := w.service("a")
			err := a.remote.Ask(t.Context(), remote.Request{Name: "x", Request: tenure.Request{Kind: tenure.RequestRevoke, By: by, Reason: "it hangs"}})
			if err != nil {
				t.Fatal(err)
			}
			past, err := a.History(t.Context(), "x")
			if err != nil || len(past) == 0 || past[0].Request == nil {
				t.Fatalf("history %+v, %v", past, err)
			}
			if q := past[0].Request; q.By != want || q.Reason != "it hangs" {
				t.Errorf("%q asks, and says %q; want %q", q.By, q.Reason, want)
			}
		})
	}
}

func TestAskRefuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w world) {
		w.service("b").mustAcquire("x")
		a := w.service("a")
		for what, q := range map[string]tenure.Request{
			"no kind":          {},
			"another kind":     {Kind: "steal"},
			"an heir of none":  {Kind: tenure.RequestStepDown, To: "c"},
			"a label of none":  {Kind: tenure.RequestRevoke, ToLabel: "v2"},
			"no heir":          {Kind: tenure.RequestHandOver},
			"two heirs":        {Kind: tenure.RequestHandOver, To: "c", ToLabel: "v2"},
			"a line end":       {Kind: tenure.RequestStepDown, By: "ops\nroot"},
			"a name too long":  {Kind: tenure.RequestStepDown, By: strings.Repeat("o", 1025)},
			"a reason no text": {Kind: tenure.RequestStepDown, Reason: "\n"},
		} {
			err := a.remote.Ask(t.Context(), remote.Request{Name: "x", Request: q})
			t.Log(what)
			want(t, err, tenure.ErrInvalid)
		}
		if st, err := a.Status(t.Context(), "x"); err != nil || st.Request != nil || !st.Held {
			t.Errorf("the holder was asked: %+v, %v", st, err)
		}
	})
}
