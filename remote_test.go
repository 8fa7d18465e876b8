// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// visitor is a holder elsewhere, in as much as a test needs of it: it makes its beats and
// remembers the last confirmed one.
type visitor struct {
	t     *testing.T
	name  string
	owner string
	tenure.RemoteGrant
	after string
}

func (m *machine) visitor(name, owner string) *visitor {
	m.t.Helper()
	return m.granted(name, owner)(m.Remote().TryAcquire(m.t.Context(), name, tenure.RemoteOptions{Owner: owner, Host: "h", Label: "v1"}))
}

func (m *machine) granted(name, owner string) func(tenure.RemoteGrant, error) *visitor {
	return func(g tenure.RemoteGrant, err error) *visitor {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
		return &visitor{t: m.t, name: name, owner: owner, RemoteGrant: g, after: g.Beat}
	}
}

func (v *visitor) next() tenure.RemoteBeat {
	term, _, _ := strings.Cut(v.after, "-")
	return tenure.RemoteBeat{Name: v.name, Token: v.Token, After: v.after, Next: term + "-" + rand.Text()[:13]}
}

// beat renews through a machine.
func (v *visitor) beat(m *machine) (tenure.RemoteRenewal, error) {
	b := v.next()
	r, err := m.Remote().Heartbeat(v.t.Context(), b)
	if err == nil {
		v.after = b.Next
	}
	return r, err
}

func (v *visitor) mustBeat(m *machine) tenure.RemoteRenewal {
	v.t.Helper()
	r, err := v.beat(m)
	want(v.t, err, nil)
	return r
}

func (v *visitor) release(m *machine) error {
	return m.Remote().Release(v.t.Context(), tenure.RemoteRelease{Name: v.name, Token: v.Token, After: v.after})
}

// calls counts the calls of a machine by their kinds while f runs, those of the history
// left out.
func (m *machine) calls(f func()) string {
	m.faults.ResetLog()
	f()
	var all []string
	for _, c := range m.faults.Log() {
		if !strings.HasPrefix(c.Key, driver.OwnPrefix) && c.Op != faultstore.OpWatch && c.Op != faultstore.OpHint {
			all = append(all, string(c.Op))
		}
	}
	return strings.Join(all, " ")
}

// TestHolderElsewhereCosts: each call is one write; and a read before it where another
// process has written last.
func TestHolderElsewhereCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		var v *visitor
		expect := func(what string, m *machine, calls string, f func()) {
			t.Helper()
			if got := m.calls(f); got != calls {
				t.Errorf("%s: %q, want %q", what, got, calls)
			}
		}
		expect("grant", a, "claim", func() { v = a.visitor("x", "us") })
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
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		release := func(v *visitor) error {
			return a.Remote().Release(t.Context(), tenure.RemoteRelease{Name: "x", Token: v.Token, After: v.after, Delete: true})
		}
		remove := a.fault(faultstore.OpDelete, 0, 0, faultstore.Refuse())
		want(t, release(a.visitor("x", "us")), nil)
		remove()
		if rec := w.record("x"); rec.State != driver.Released || rec.Token != 1 {
			t.Errorf("left as %+v", rec)
		}
		v := a.visitor("x", "us") // after another tenure, of which there is a history
		time.Sleep(time.Second)   // that is written beside the grant
		want(t, release(v), nil)
		if keys := w.keys(); len(keys) != 0 {
			t.Errorf("left %q", keys)
		}
		want(t, release(v), tenure.ErrLost)
		v = a.visitor("x", "us")
		waiting := started(func() error {
			_, err := b.Remote().Acquire(t.Context(), "x", tenure.RemoteOptions{Owner: "other"})
			return err
		})
		time.Sleep(time.Second)
		a.fault(faultstore.OpDelete, 0, 1, faultstore.Slow(time.Second, 0))
		want(t, release(v), nil)
		want(t, <-waiting, nil)
		if rec := w.record("x"); rec.State != driver.Held || rec.Token != 2 || rec.Owner != "other" {
			t.Errorf("left as %+v", rec)
		}

		// What is handed over is kept for its heir.
		v = a.visitor("y", "us")
		asked := started(func() error {
			return b.StepDown(t.Context(), "y", &tenure.StepDownOptions{To: "heir", Reason: "deploy"})
		})
		time.Sleep(time.Second)
		v.mustBeat(a)
		want(t, a.Remote().Release(t.Context(), tenure.RemoteRelease{Name: "y", Token: v.Token, After: v.after, Delete: true}), nil)
		want(t, <-asked, nil)
		if rec := w.record("y"); rec.State != driver.Reserved || rec.Owner != "heir" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestHolderElsewhereIsAlive: its beats keep others away for as long as it sends them, and
// for a lease after that.
func TestHolderElsewhereIsAlive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.machine("a"), w.machine("b"), w.machine("c")
		v := a.visitor("x", "us")
		if r := v.mustBeat(a); r.Usable != usable(t) || r.Heartbeat != heartbeat || r.Asked != nil {
			t.Errorf("renewed as %+v, want usable %v", r, usable(t))
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

// TestHolderElsewhereAcrossTimings: while a setting is rolled out, replicas differ in their
// lease durations. The period that a holder is told fits the lease in its record, whatever
// that of the replica is.
func TestHolderElsewhereAcrossTimings(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		v := a.visitor("x", "us")
		for _, of := range []time.Duration{lease / 3, lease, 3 * lease} {
			replica := w.machine(of.String(), func(o *tenure.Options) { o.LeaseDuration, o.HeartbeatPeriod = of, 0 })
			r := v.mustBeat(replica)
			if most := min(of, lease) / 5; r.Heartbeat != most || r.Usable <= r.Heartbeat {
				t.Errorf("through a replica with a lease of %v: renewed as %+v, want a heartbeat each %v", of, r, most)
			}
		}
	})
}

// TestHolderElsewhereRepeatsItself: the same call again is confirmed and changes nothing;
// an older one is lost, and so is one of another token, or that guesses the beat.
func TestHolderElsewhereRepeatsItself(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		v := a.visitor("x", "us")
		first := v.next()
		for _, m := range []*machine{a, b, a} {
			_, err := m.Remote().Heartbeat(t.Context(), first)
			want(t, err, nil)
		}
		v.after = first.Next
		was := w.record("x")
		stale := first
		stale.Next = v.next().Next
		if _, err := b.Remote().Heartbeat(t.Context(), stale); !errors.Is(err, tenure.ErrLost) {
			t.Errorf("a beat that follows an older one: %v", err)
		}
		other := v.next()
		other.Token++
		_, err := a.Remote().Heartbeat(t.Context(), other)
		want(t, err, tenure.ErrLost)
		guess := v.next()
		guess.After = strings.Repeat("A", 13) + "-" + strings.Repeat("B", 13)
		guess.Next = strings.Repeat("A", 13) + "-" + strings.Repeat("C", 13)
		_, err = a.Remote().Heartbeat(t.Context(), guess)
		want(t, err, tenure.ErrLost)
		if is := w.record("x"); is.Version != was.Version {
			t.Errorf("written by a call that has no effect: %+v", is)
		}
		v.mustBeat(a)
		want(t, v.release(a), nil)
		want(t, v.release(b), nil) // sent again
		_, err = v.beat(b)
		want(t, err, tenure.ErrLost)
		next := b.mustAcquire("x", nil)
		want(t, v.release(a), nil) // by a proxy, much later
		want(t, next.Check(), nil)
		want(t, next.Renew(t.Context()), nil)
	})
}

// TestUnusedGrantIsFreed: a program that went away while it waited costs the others a third
// of a lease; one that shows life through another process keeps the lock.
func TestUnusedGrantIsFreed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		v := a.visitor("x", "gone")
		if v.FreeAfter != lease/3 {
			t.Errorf("free after %v", v.FreeAfter)
		}
		begun := time.Now()
		b.mustAcquire("x", nil)
		if took := time.Since(begun); took < lease/3 || took > lease/3+3*refresh { // whose looks are twice as rare while nothing is heard
			t.Errorf("free after %v, want %v", took, lease/3)
		}
		if prev := w.record("x").Prev; prev == nil || prev.End != driver.EndAbandoned {
			t.Errorf("the unused tenure ended as %+v", prev)
		}
		_, err := v.beat(a)
		want(t, err, tenure.ErrLost)

		kept := a.visitor("y", "there")
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
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		v := a.visitor("x", "us")
		a.Remote().Discard("x", v.RemoteGrant)
		synctest.Wait()
		b.mustTry("x", nil)

		// The request of one that waits ends at the moment of the grant.
		holder := b.mustTry("y", nil)
		ctx, stop := context.WithCancel(t.Context())
		waits := started(func() error {
			_, err := a.Remote().Acquire(ctx, "y", tenure.RemoteOptions{Owner: "us"})
			return err
		})
		time.Sleep(refresh)
		a.fault(faultstore.OpTakeover, 0, 1, faultstore.Slow(0, time.Second))
		a.fault(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
		b.mustRelease(holder)
		time.Sleep(refresh / 2)
		stop()
		want(t, <-waits, context.Canceled)
		time.Sleep(3 * time.Second)
		b.mustTry("y", nil)
	})
}

// TestHolderElsewhereIsAsked: a request stays in the record until the tenure ends, and is
// told with each heartbeat.
func TestHolderElsewhereIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		v := a.visitor("x", "us")
		v.mustBeat(a)
		asked := started(func() error {
			return b.StepDown(t.Context(), "x", &tenure.StepDownOptions{To: "heir", Reason: "deploy"})
		})
		synctest.Wait()
		for _, m := range []*machine{a, b, a} {
			r := v.mustBeat(m)
			if q := r.Asked; q == nil || q.Kind != tenure.RequestHandOver || q.To != "heir" || q.Reason != "deploy" || q.By != "b" {
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

// TestHeirElsewhereGoesFirst: whom a lock is handed over to takes it, although others of
// the same process have waited for longer.
func TestHeirElsewhereGoesFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		v := b.visitor("x", "us")
		v.mustBeat(b)
		var order []string
		got := make(chan *visitor, 3)
		for _, owner := range []string{"first", "second", "heir"} {
			go func() {
				g, err := a.Remote().Acquire(t.Context(), "x", tenure.RemoteOptions{Owner: owner})
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

// TestHolderElsewhereAndAStoreThatFails: no answer is ErrUncertain, and the same call again
// is confirmed, whether the write was made or not.
func TestHolderElsewhereAndAStoreThatFails(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"reply lost": faultstore.LoseReplyHang(), "request lost": faultstore.BlackHole(), "late": faultstore.LateAfterError(requestTimeout / 2),
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.machine("a"), w.machine("b")
			v := a.visitor("x", "us")
			v.mustBeat(a)
			next := v.next()
			remove := a.fault(faultstore.OpHeartbeat, 0, 0, fault)
			reads := a.fault(faultstore.OpGet, 0, 0, faultstore.BlackHole())
			_, err := a.Remote().Heartbeat(t.Context(), next)
			want(t, err, tenure.ErrUncertain)
			remove()
			reads()
			_, err = b.Remote().Heartbeat(t.Context(), next)
			want(t, err, nil)
			v.after = next.Next
			v.mustBeat(a)
			remove = a.fault(faultstore.OpRelease, 0, 1, faultstore.LoseReply())
			want(t, v.release(a), nil)
			remove()
			b.mustTry("x", nil)
		})
	}
}

// TestHolderElsewhereWithLongData: what a process remembers of a record to save a read has a
// limit for its data. Heartbeats and the release keep data on both sides of it.
func TestHolderElsewhereWithLongData(t *testing.T) {
	for _, n := range []int{4 << 10, 4<<10 + 1, driver.MaxDataLen} {
		inWorldRun(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			a := w.machine("a")
			data := bytes.Repeat([]byte("x"), n)
			v := a.granted("x", "us")(a.Remote().TryAcquire(t.Context(), "x", tenure.RemoteOptions{Owner: "us", Data: data}))
			for range 3 {
				v.mustBeat(a)
				if rec := w.record("x"); !bytes.Equal(rec.Data, data) {
					t.Fatalf("%d bytes after a heartbeat", len(rec.Data))
				}
			}
			want(t, v.release(a), nil)
			next := a.visitor("x", "them")
			next.mustBeat(a)
			if rec := w.record("x"); !bytes.Equal(rec.Data, data) {
				t.Errorf("%d bytes with the next holder", len(rec.Data))
			}
		})
	}
}

// TestHolderElsewhereThatHasGone: when the caller's context ends, so does the call. A store
// that refuses is not asked on in the name of somebody who hears no answer.
func TestHolderElsewhereThatHasGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		v := a.visitor("x", "us")
		v.mustBeat(a)
		a.faults.Inject(faultstore.Rule{Fault: faultstore.Refuse()})
		for what, call := range map[string]func(context.Context) error{
			"heartbeat": func(ctx context.Context) error {
				_, err := a.Remote().Heartbeat(ctx, v.next())
				return err
			},
			"release": func(ctx context.Context) error {
				return a.Remote().Release(ctx, tenure.RemoteRelease{Name: v.name, Token: v.Token, After: v.after})
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

// TestClosedClientLeavesOffers: a program that was granted a lock goes on through another
// process.
func TestClosedClientLeavesOffers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		v := a.visitor("x", "us")
		want(t, within(t, 0, 0, func() error { return a.Close(t.Context()) }), nil)
		v.mustBeat(b)
		time.Sleep(lease / 2)
		v.mustBeat(b)
		_, err := v.beat(a)
		want(t, err, tenure.ErrClosed)
	})
}

// TestHolderElsewhereBadInput: each says which rule is broken, and nothing is sent.
func TestHolderElsewhereBadInput(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		r, ctx := a.Remote(), t.Context()
		v := a.visitor("x", "us")
		beat := func(edit func(*tenure.RemoteBeat)) error {
			b := v.next()
			edit(&b)
			_, err := r.Heartbeat(ctx, b)
			return err
		}
		acquire := func(name string, o tenure.RemoteOptions) error {
			_, err := r.TryAcquire(ctx, name, o)
			return err
		}
		term, _, _ := strings.Cut(v.Beat, "-")
		calls := a.calls(func() {
			for what, err := range map[string]error{
				"lock name is empty":                       acquire("", tenure.RemoteOptions{Owner: "us"}),
				"owner is empty":                           acquire("y", tenure.RemoteOptions{}),
				"owner \"a\\nb\" has U+000A":               acquire("y", tenure.RemoteOptions{Owner: "a\nb"}),
				"such names are for records of Tenure":     acquire(driver.OwnPrefix+"x", tenure.RemoteOptions{Owner: "us"}),
				"token is 0":                               beat(func(b *tenure.RemoteBeat) { b.Token = 0 }),
				"the beat before is empty":                 beat(func(b *tenure.RemoteBeat) { b.After = "" }),
				"does not follow":                          beat(func(b *tenure.RemoteBeat) { b.Next = b.After }),
				"up to the dash":                           beat(func(b *tenure.RemoteBeat) { b.Next = "OTHER-" + strings.Repeat("A", 13) }),
				"13 new letters or digits":                 beat(func(b *tenure.RemoteBeat) { b.Next = term + "-SHORT" }),
				"end with 13 new letters":                  beat(func(b *tenure.RemoteBeat) { b.Next = term + "-" + strings.Repeat("_", 13) }),
				"data has 262145 bytes: at most 262144":    r.Release(ctx, tenure.RemoteRelease{Name: "x", Token: 1, After: v.Beat, Data: make([]byte, driver.MaxDataLen+1)}),
				"the beat before \"AAAAAAAAAAAAAAAAAAAA\"": r.Release(ctx, tenure.RemoteRelease{Name: "x", Token: 1, After: strings.Repeat("A", 100)}),
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

// TestWaitingElsewhereIsTold: each holder that is waited for, once.
func TestWaitingElsewhereIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.machine("a"), w.machine("b")
		one := b.mustTry("x", nil)
		var told []string
		waits := started(func() error {
			_, err := a.Remote().Acquire(t.Context(), "x", tenure.RemoteOptions{Owner: "us", Waiting: func(e *tenure.HeldError) {
				told = append(told, e.Owner)
			}})
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
		b.mustRelease(one)
		want(t, <-waits, nil)
		want(t, <-two, nil)
		if len(told) == 0 || len(told) > 2 || told[0] != "b" {
			t.Errorf("told %q", told)
		}
	})
}

// TestTextOfAFailureElsewhere: the history shows why the work has failed.
func TestTextOfAFailureElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.machine("a")
		v := a.visitor("x", "us")
		v.mustBeat(a)
		want(t, a.Remote().Release(t.Context(), tenure.RemoteRelease{
			Name: "x", Token: v.Token, After: v.after, Data: []byte("d"), Failed: "no\nspace",
		}), nil)
		rec := w.record("x")
		if rec.End != driver.EndFailed || rec.Asked == nil || rec.Asked.Reason != "no space" || string(rec.Data) != "d" {
			t.Errorf("left as %+v", rec)
		}
	})
}

// TestHolderElsewhereIsToldWhy: what has ended the tenure, and not what ended the one after
// it, or what its own release has said.
func TestHolderElsewhereIsToldWhy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, boss := w.machine("a"), w.machine("boss")
		v := a.visitor("x", "us")
		v.mustBeat(a)
		want(t, boss.Revoke(t.Context(), "x", "mad"), nil)
		for range 2 { // reserved for nobody, and held by the next one
			_, err := v.beat(a)
			want(t, err, tenure.ErrSuperseded)
			if err == nil || !strings.Contains(err.Error(), `revoked by "boss": mad`) {
				t.Errorf("after the revocation: %v", err)
			}
			if w.record("x").State != driver.Held {
				a.mustAcquire("x", nil)
			}
		}

		v = a.visitor("y", "us")
		v.mustBeat(a)
		want(t, a.Remote().Release(t.Context(), tenure.RemoteRelease{Name: "y", Token: v.Token, After: v.after, Failed: "no space"}), nil)
		_, err := v.beat(a)
		want(t, err, tenure.ErrSuperseded)
		if err == nil || !strings.Contains(err.Error(), "the record was released under token 1") {
			t.Errorf("after its own release: %v", err)
		}
	})
}

// TestRemoteAskNamesWhoAsks: the history has whom the request names, else the client.
func TestRemoteAskNamesWhoAsks(t *testing.T) {
	for by, want := range map[string]string{"ops": "ops", "": "a"} {
		inWorld(t, func(t *testing.T, w *world) {
			w.machine("b").mustAcquire("x", nil)
			a := w.machine("a")
			err := a.Remote().Ask(t.Context(), tenure.RemoteRequest{Name: "x", Kind: tenure.RequestRevoke, By: by, Reason: "it hangs"})
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

func TestRemoteAskRefuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.machine("b").mustAcquire("x", nil)
		a := w.machine("a")
		for what, q := range map[string]tenure.RemoteRequest{
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
			q.Name = "x"
			err := a.Remote().Ask(t.Context(), q)
			t.Log(what)
			want(t, err, tenure.ErrInvalid)
		}
		if st, err := a.Status(t.Context(), "x"); err != nil || st.Request != nil || !st.Held {
			t.Errorf("the holder was asked: %+v, %v", st, err)
		}
	})
}
