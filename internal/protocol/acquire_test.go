// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

var (
	errStore = errors.New("store")
	timing   = Timing{}.WithDefaults() // of these tests
)

// waiting returns a contender whose claim is under way since 0.
func waiting(t Timing, want Want) *Acquirer {
	want.Key, want.Owner = "k", "us"
	c := NewAcquirer(t, middle(), want, NewView(t, middle()))
	c.Step(0)
	return c
}

// TestUnknownLookIsNoWrite: a read without an answer leaves nothing to clean up.
func TestUnknownLookIsNoWrite(t *testing.T) {
	c := waiting(timing, Want{})
	rec := driver.Record{Key: "k", Version: "w", Beat: "w", Token: 3, Lease: timing.Lease, State: driver.Held}
	c.Reply(0, Result{Outcome: Conflicted, Record: rec, Found: true})
	at, _ := c.Next()
	if a := c.Step(at); a.Call == nil || a.Call.Kind != Read {
		t.Fatalf("want a read, got %+v", a.Call)
	}
	c.Reply(at, Result{Outcome: Unknown, Err: errStore})
	c.GiveUp(at)
	if !c.Over() {
		t.Error("cleans up although it wrote nothing")
	}
}

// TestLostRace: a claim that lost has nothing to clean up.
func TestLostRace(t *testing.T) {
	c := waiting(Timing{}.WithDefaults(), Want{})
	c.GiveUp(0)
	if c.Over() {
		t.Error("over with a claim under way")
	}
	rec := driver.Record{Key: "k", Version: "w", Beat: "w", Token: 3, Lease: time.Second, State: driver.Held}
	c.Reply(time.Second, Result{Outcome: Conflicted, Record: rec, Found: true})
	if !c.Over() {
		t.Error("not over although its only claim lost")
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		want    Want
		err     error
		outcome Outcome
		first   bool // refused by the first failure
		ever    bool
	}{
		{"a store that is busy", Want{}, errStore, NotApplied, false, false},
		{"patience", Want{Patience: 5 * time.Second}, errStore, NotApplied, false, true},
		{"no permission", Want{}, driver.Permanent(errStore), NotApplied, true, true},
		{"unreadable", Want{}, driver.ErrUnreadable, NotApplied, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, now := waiting(timing, tt.want), time.Duration(0)
			for i := range 60 {
				c.Reply(now, Result{Outcome: tt.outcome, Err: tt.err})
				if i == 0 && (c.Refused() != nil) != tt.first {
					t.Errorf("refused at once: %v", c.Refused() != nil)
				}
				if c.Refused() != nil {
					break
				}
				now, _ = c.Next()
				if a := c.Step(now); a.Call == nil {
					t.Fatalf("nothing sent at %v", now)
				}
			}
			if got := c.Refused() != nil; got != tt.ever {
				t.Fatalf("refused: %v, want %v", got, tt.ever)
			}
			if r := c.Refused(); r != nil && !errors.Is(r.Err, tt.err) {
				t.Errorf("refused for %v, want %v", r.Err, tt.err)
			}
			if tt.want.Patience > 0 && now < tt.want.Patience {
				t.Errorf("patience of %v ended at %v", tt.want.Patience, now)
			}
		})
	}
}

// mover is a machine that sends requests.
type mover interface {
	Step(now time.Duration) Action
	Next() (time.Duration, bool)
	Reply(now time.Duration, r Result) Action
}

// drive runs a machine until the given instant. Each of its requests takes a
// millisecond.
func drive(m mover, until time.Duration, answer func(now time.Duration, r *Call) Result) {
	now := time.Duration(0)
	for r := m.Step(now).Call; now < until; {
		if r == nil {
			at, ok := m.Next()
			if !ok {
				return
			}
			now = max(now, at)
			r = m.Step(now).Call
			continue
		}
		now += time.Millisecond
		r = m.Reply(now, answer(now, r)).Call
	}
}

// TestFailuresAreForgottenWithAnAnswer: after a bad time the tries are as
// close again as at first.
func TestFailuresAreForgottenWithAnAnswer(t *testing.T) {
	c := waiting(timing, Want{})
	rec := driver.Record{Key: "k", Version: "w", Beat: "w", Token: 3, Lease: timing.Lease, State: driver.Held}
	now := time.Duration(0)
	next := func() {
		t.Helper()
		at, ok := c.Next()
		if now = at; !ok || c.Step(at).Call == nil {
			t.Fatal("nothing to do")
		}
	}
	for range 10 {
		c.Reply(now, Result{Outcome: NotApplied, Err: errStore})
		next()
	}
	c.Reply(now, Result{Outcome: Conflicted, Record: rec, Found: true})
	next()
	c.Reply(now, Result{Outcome: NotApplied, Err: errStore})
	if at, _ := c.Next(); at-now > timing.Lease/500 {
		t.Errorf("next try after %v", at-now)
	}

	h := holding(timing)
	now = 0
	beat := func(r Result) {
		t.Helper()
		at, ok := h.Next()
		if now = at; !ok || h.Step(at).Call == nil {
			t.Fatal("no heartbeat")
		}
		if r.Outcome == Applied {
			r.Record = h.rec.Clone()
			r.Record.Version, r.Record.Beat = h.out.Next.Version, h.out.Next.Version
		}
		h.Reply(now, r)
	}
	for range 8 {
		beat(Result{Outcome: NotApplied, Err: errStore})
	}
	beat(Result{Outcome: Applied, Found: true})
	beat(Result{Outcome: NotApplied, Err: errStore})
	if at, _ := h.Next(); at-now > timing.Lease/500 {
		t.Errorf("next heartbeat after %v", at-now)
	}
}

// TestSessionOfAFormerLife: an eventual reply that shows the lock under another session,
// from before its record was deleted, is no sign of life of who holds it now.
func TestSessionOfAFormerLife(t *testing.T) {
	env, _ := seeing(timing)
	env.Session("old").Observe(0, 0, driver.Strong, alive(timing, "old", "beat of old"), true)
	view := NewView(timing, env)
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "other", UnlessAlive: true}, view)
	now := time.Second
	looked := false
	for call := c.Step(now).Call; now < timing.Lease/2; now += 10 * time.Millisecond {
		if call == nil {
			call = c.Step(now).Call
			continue
		}
		r := found(under(timing, "new", "v", 7))
		switch {
		case call.Kind == Claim:
			r = conflict(under(timing, "new", "v", 7))
		case looksAt(call) && call.Key == driver.SessionKey("old"):
			r = found(alive(timing, "old", "beat of old"))
		case looksAt(call):
			r = found(alive(timing, "new", "beat of new"))
		case call.Consistency == driver.Eventual:
			looked, r = true, found(under(timing, "old", "u", 7))
		}
		call = c.Reply(now, r).Call
	}
	if r := c.Refused(); r != nil || !looked {
		t.Errorf("refused %+v; cheap read made: %v", r, looked)
	}
}

// TestStrongLookGoesBeforeTheTakeover: an acquire does not take over from a holder whose latest
// sign of life eventual replies show, however long that has stood: it counts from the strong reply
// that shows it, and an acquire with UnlessAlive then gives up.
func TestStrongLookGoesBeforeTheTakeover(t *testing.T) {
	for _, unless := range []bool{true, false} {
		env, _ := seeing(timing)
		c := NewAcquirer(timing, env, Want{Key: "k", Owner: "other", UnlessAlive: unless}, NewView(timing, env))
		taken := false
		now := time.Second
		for call := c.Step(now).Call; now < 4*timing.Lease; now += 10 * time.Millisecond {
			if call == nil {
				call = c.Step(now).Call
				continue
			}
			r := found(theirs(timing, "second", 7))
			switch {
			case call.Kind == Claim:
				r = conflict(theirs(timing, "first", 7))
			case call.Kind == Takeover:
				taken, r = true, found(call.Next)
			case call.Consistency == driver.Strong && now < 2*timing.Lease:
				r = Result{Outcome: NotApplied, Err: errStore}
			}
			call = c.Reply(now, r).Call
		}
		if _, granted := c.Granted(); taken == unless || granted == unless || (c.Refused() != nil) != unless {
			t.Errorf("unless alive: %v; takes over: %v, granted: %v, refused: %+v", unless, taken, granted, c.Refused())
		}
	}
}

// sends returns what a contender sends until then, and at which times.
func sends(c *Acquirer, until time.Duration, answer func(now time.Duration, r *Call) Result) (kinds []Kind, at []time.Duration) {
	drive(c, until, func(now time.Duration, r *Call) Result {
		if r.Kind == Read && r.Consistency != driver.Strong {
			kinds = append(kinds, -1) // none of these may be cheap
		}
		kinds, at = append(kinds, r.Kind), append(at, now)
		return answer(now, r)
	})
	return kinds, at
}

// TestTryLooksFirst: where the store charges for a refused claim, a try that knows nothing
// reads first, and claims only a lock that the read shows free. An acquire that waits,
// that has read the record before, or that is under a session claims at once.
func TestTryLooksFirst(t *testing.T) {
	env, _ := seeing(timing)
	held := driver.Record{Key: "k", Version: "v", Beat: "v", Owner: "other", Token: 7, Lease: timing.Lease, State: driver.Held}
	free := held
	free.State, free.Owner = driver.Released, ""
	session := NewSessionHolder(timing, counting(), Grant{Record: alive(timing, "s", "b")})
	for name, c := range map[string]struct {
		want Want
		is   driver.Record
		seen bool
		all  []Kind
		held bool
	}{
		"held":            {Want{Try: true, ReadFirst: true}, held, false, []Kind{Read}, true},
		"free":            {Want{Try: true, ReadFirst: true}, free, false, []Kind{Read, Claim}, false},
		"absent":          {Want{Try: true, ReadFirst: true}, driver.Record{}, false, []Kind{Read, Claim}, false},
		"seen free":       {Want{Try: true, ReadFirst: true}, free, true, []Kind{Claim}, false},
		"waits":           {Want{ReadFirst: true}, free, false, []Kind{Claim}, false},
		"not charged":     {Want{Try: true}, held, false, []Kind{Claim}, true},
		"under a session": {Want{Try: true, ReadFirst: true, Under: session}, free, false, []Kind{Claim}, false},
	} {
		view, found := NewView(timing, env), c.is.State != ""
		if c.seen {
			view.Observe(0, 0, driver.Strong, c.is, found)
		}
		c.want.Key, c.want.Owner = "k", "us"
		con := NewAcquirer(timing, env, c.want, view)
		kinds, _ := sends(con, time.Minute, func(_ time.Duration, r *Call) Result {
			switch {
			case r.Kind == Read:
				return Result{Outcome: Applied, Record: c.is, Found: found}
			case c.held:
				return Result{Outcome: Conflicted, Record: c.is, Found: true}
			}
			now := r.Next
			now.Token = c.is.Token + 1
			return Result{Outcome: Applied, Record: now, Found: true, Former: c.is}
		})
		_, granted := con.Granted()
		if r := con.Refused(); !slices.Equal(kinds, c.all) || granted == c.held || c.held != (r != nil && r.Held && r.Record.Token == 7) {
			t.Errorf("%s: it sent %v, granted %t, refused %+v; want %v", name, kinds, granted, r, c.all)
		}
	}
}

// TestThrottledClaimIsFollowedByALook: reads have their own capacity. So a contender whose
// claim or takeover was throttled reads who has the lock, and waits for that holder instead of
// writing again.
func TestThrottledClaimIsFollowedByALook(t *testing.T) {
	env, _ := seeing(timing)
	throttled := Result{Outcome: NotApplied, Err: driver.NotApplied(driver.Throttled(errStore))}
	held := driver.Record{Key: "k", Version: "v", Beat: "v", Owner: "other", Token: 7, Lease: timing.Lease, State: driver.Held}
	next := held
	next.Version, next.Beat, next.Token = "w", "w", 8
	for name, c := range map[string]struct {
		want  Want
		seen  bool // held, long ago
		first []Kind
	}{
		"a try":     {Want{Try: true}, false, []Kind{Claim, Read}},
		"one waits": {Want{}, false, []Kind{Claim, Read}},
		"takeover":  {Want{ViewFresh: true}, true, []Kind{Takeover, Read}},
	} {
		view := NewView(timing, env)
		if c.seen {
			view.Observe(-2*timing.Lease, -2*timing.Lease, driver.Strong, held, true)
			view.Observe(-1, -1, driver.Strong, held, true) // it is dead
		}
		c.want.Key, c.want.Owner = "k", "us"
		con := NewAcquirer(timing, env, c.want, view)
		writes := 0
		kinds, _ := sends(con, timing.Lease/20, func(_ time.Duration, r *Call) Result {
			if r.Kind == Read {
				return found(next)
			}
			writes++
			return throttled
		})
		if writes != 1 || len(kinds) < 2 || !slices.Equal(kinds[:2], c.first) {
			t.Errorf("%s: it sent %v, want %v and no other write", name, kinds, c.first)
		}
		if r := con.Refused(); c.want.Try != (r != nil && r.Held && r.Record.Token == 8) {
			t.Errorf("%s: refused %+v", name, r)
		}
	}
}

// TestThrottledClaimsOfAFreeLockRest: reads that show the lock free neither bring a
// throttled claim forward nor extend the patience.
func TestThrottledClaimsOfAFreeLockRest(t *testing.T) {
	env, _ := seeing(timing)
	con := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", Patience: timing.Lease}, NewView(timing, env))
	kinds, at := sends(con, 4*timing.Lease, func(_ time.Duration, r *Call) Result {
		if r.Kind == Read {
			return Result{Outcome: Applied}
		}
		return Result{Outcome: NotApplied, Err: driver.NotApplied(driver.Throttled(errStore))}
	})
	last, pause := time.Duration(-1), timing.Heartbeat/16
	for i, k := range kinds {
		if k != Claim {
			continue
		}
		if last >= 0 && at[i]-last < pause {
			t.Errorf("claim %d came %v after the one before, want %v at least", i, at[i]-last, pause)
		}
		last = at[i]
	}
	if r := con.Refused(); r == nil || r.Held || at[len(at)-1] > timing.Lease+timing.Lease/5 {
		t.Errorf("refused %+v after %v, want the store's error after %v", r, at[len(at)-1], timing.Lease)
	}
}

// TestThrottledReplacementIsTriedAgain: a contender whose grant came too late replaces it. It
// knows that record by its own write alone; after a read it would wait for itself.
func TestThrottledReplacementIsTriedAgain(t *testing.T) {
	env, _ := seeing(timing)
	con := NewAcquirer(timing, env, Want{Key: "k", Owner: "us"}, NewView(timing, env))
	claim := con.Step(0).Call
	claim.Next.Token = 1
	now := 2 * timing.Lease
	if r := con.Reply(now, found(claim.Next)).Call; r == nil || r.Kind != Takeover {
		t.Fatalf("after a grant that came too late: %+v", r)
	}
	con.Reply(now, Result{Outcome: NotApplied, Err: driver.NotApplied(driver.Throttled(errStore))})
	at, _ := con.Next()
	if r := con.Step(at).Call; at > now+timing.Lease/10 || r == nil || r.Kind != Takeover || r.Prev.Version != claim.Next.Version {
		t.Errorf("after it was throttled: %+v at %v", r, at-now)
	}
}

// TestTryOfATerm: a try that was decided on one term gives up if the conflict shows
// another one, even if the lock is free.
func TestTryOfATerm(t *testing.T) {
	dead := theirs(timing, "v1", 1)
	free := freed(theirs(timing, "v2", 2), "v3", driver.EndReleased, nil)
	for _, of := range []*driver.Record{&dead, nil} {
		view := NewView(timing, middle())
		view.Observe(0, 0, driver.Strong, dead, true)
		view.Observe(timing.Lease, timing.Lease, driver.Strong, dead, true)
		c := NewAcquirer(timing, middle(), Want{Key: "k", Owner: "us", Try: true, ViewFresh: true, Observed: of}, view)
		r := c.Step(timing.Lease).Call
		if r == nil || r.Kind != Takeover {
			t.Fatalf("sends %+v", r)
		}
		r = c.Reply(timing.Lease, conflict(free)).Call
		if refused := c.Refused(); of != nil && (refused == nil || !refused.Held || refused.Record.Token != 2) {
			t.Errorf("of token 1, and the lock is free after token 2: sends %+v, refused %+v", r, refused)
		}
		if of == nil && (r == nil || r.Kind != Claim) {
			t.Errorf("of whichever term, and the lock is free: sends %+v", r)
		}
	}
	for _, rec := range []driver.Record{{}, free} {
		view := NewView(timing, middle())
		view.Observe(0, 0, driver.Strong, rec, rec.Key != "")
		c := NewAcquirer(timing, middle(), Want{Key: "k", Owner: "us", Try: true, ViewFresh: true, Observed: &driver.Record{}}, view)
		if r := c.Step(0).Call; (r == nil) != (rec.Key != "") || r != nil && r.Kind != Claim {
			t.Errorf("of a lock that was not there, and now is %q: sends %+v", rec.State, r)
		}
	}
}

// TestReservedFor: which owner or label a record is reserved for.
func TestReservedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		owner, label string // of the record
		want         string // who may take it: by name, of the label, without a label
		nobody       bool
	}{
		"an owner":                   {"us", "", "us", false},
		"an owner, and a label":      {"us", "v2", "us", false},
		"a label":                    {"", "v2", "of it", false},
		"nobody":                     {"", "", "", true},
		"another owner":              {"x", "", "", false},
		"a label that nobody has":    {"", "v3", "", false},
		"an owner with another case": {"Us", "", "", false},
	} {
		rec := driver.Record{State: driver.Reserved, Owner: tt.owner, Label: tt.label}
		for who, is := range map[string]reservation{"us": {"us", "v1"}, "of it": {"b", "v2"}, "no label": {"c", ""}, "other": {"d", "v1"}} {
			if got := ReservedFor(rec, is.owner, is.label); got != (who == tt.want) {
				t.Errorf("%s: kept for %q: %v", name, who, got)
			}
			for _, state := range []driver.State{driver.Held, driver.Released} {
				if rec := (driver.Record{State: state, Owner: tt.owner, Label: tt.label}); ReservedFor(rec, is.owner, is.label) || ReservedForNobody(rec) {
					t.Errorf("%s, but %s: kept for %q", name, state, who)
				}
			}
		}
		if ReservedForNobody(rec) != tt.nobody {
			t.Errorf("%s: kept for nobody: %v", name, ReservedForNobody(rec))
		}
	}
}

// TestReservationsCount: a reservation for an owner or label only lasts for the time
// that it names. A reservation for nobody is the former holder's lease, and counts with
// its drift bound.
func TestReservationsCount(t *testing.T) {
	held := theirs(Timing{}.WithDefaults(), "v1", 1)
	held.Drift = 0.01
	for to, want := range map[reservation]float64{{owner: "x"}: 0, {label: "v2"}: 0, {}: 0.01} {
		if rec := reserved(held, "v2", to, time.Second, driver.EndHandedOver, nil); rec.Drift != want || reservationOf(rec) != to || rec.Host != "" {
			t.Errorf("reserved for %+v: %+v", to, rec)
		}
	}
}

// TestUnlessAliveComparesWithWhatItSaw: a holder that was observed before the acquire began, and
// had handed the lock over by then, is no sign of life.
func TestUnlessAliveComparesWithWhatItSaw(t *testing.T) {
	env, _ := seeing(timing)
	held, view := theirs(timing, "v", 7), NewView(timing, env)
	view.Observe(-10*timing.Lease, -10*timing.Lease, driver.Strong, held, true)
	c := NewAcquirer(timing, env, Want{Key: "k", Owner: "us", UnlessAlive: true}, view)
	c.Step(0)
	c.Reply(0, conflict(reserved(held, "w", reservation{owner: "x"}, time.Second, driver.EndHandedOver, nil)))
	if r := c.Refused(); r != nil {
		t.Errorf("refused for a holder of before: %+v", r)
	}
}

// TestLateClaimAfterTheHolder: a claim whose answer was lost, and which is applied when the holder
// that was seen meanwhile has released the lock, takes no lock unless no holder lived: the work
// would be done twice. A claim after a holder that others knew to be dead takes it.
func TestLateClaimAfterTheHolder(t *testing.T) {
	for _, tt := range []struct {
		end     driver.EndReason
		refused bool
	}{
		{driver.EndReleased, true},
		{driver.EndFailed, true},
		{driver.EndReleasedDead, false},
		{driver.EndCrashed, false},
		{driver.EndAbandoned, false},
	} {
		c := waiting(timing, Want{UnlessAlive: true})
		claim := c.retrier.out
		c.Reply(time.Millisecond, Result{Outcome: Unknown, Err: errStore})
		held := theirs(timing, "v", 7)
		shown := held
		drive(c, timing.Lease/2, func(_ time.Duration, r *Call) Result {
			if r.Kind == Release {
				return found(r.Next)
			}
			defer func() {
				shown = claim.Next // the following read shows it
				shown.Token, shown.Prev = held.Token+1, held.Term(tt.end)
			}()
			return found(shown)
		})
		_, granted := c.Granted()
		left, _ := c.StrayGrant()
		r := c.Refused()
		if refused := r != nil && r.Held && r.Record.Token == held.Token; refused != tt.refused || granted == tt.refused {
			t.Errorf("after %s: granted %v, refused %+v", tt.end, granted, r)
		}
		if tt.refused && left.Record.Version != claim.Next.Version {
			t.Errorf("after %s: it does not give back %+v", tt.end, left)
		}
	}
}

// TestLostClaimsDoNotSlowTheNext: an acquire that learns of each release from a hint, and loses
// each claim to another process, claims at once after the following release.
func TestLostClaimsDoNotSlowTheNext(t *testing.T) {
	c := waiting(timing, Want{})
	for n := range uint64(12) {
		now := time.Duration(n+1) * time.Millisecond
		held := theirs(timing, string(rune('a'+n)), n+1)
		if n > 0 {
			if r := c.Hint(now).Call; r == nil || r.Kind != Read {
				t.Fatalf("release %d: want a read, got %+v", n, r)
			}
			free := freed(theirs(timing, string(rune('a'+n-1)), n), "free"+string(rune('a'+n)), driver.EndReleased, nil)
			if r := c.Reply(now, found(free)).Call; r == nil || r.Kind != Claim {
				t.Fatalf("release %d: want a claim at once, got %+v", n, r)
			}
		}
		c.Reply(now, conflict(held))
	}
}
