// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// sends returns what a contender sends until then, and at which times.
func sends(c *Contender, until time.Duration, answer func(now time.Duration, r *Call) Result) (kinds []Kind, at []time.Duration) {
	drive(c, until, func(now time.Duration, r *Call) Result {
		if r.Kind == Look && r.Consistency != driver.Strong {
			kinds = append(kinds, -1) // none of these may be cheap
		}
		kinds, at = append(kinds, r.Kind), append(at, now)
		return answer(now, r)
	})
	return kinds, at
}

// TestTryLooksFirst: where a refused claim is charged, a try that knows nothing looks, and
// claims only what that shows to be free. One that waits, one that has seen the record and
// one under a session claim at once.
func TestTryLooksFirst(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	held := driver.Record{Key: "k", Version: "v", Beat: "v", Owner: "other", Token: 7, Lease: timing.Lease, State: driver.Held}
	free := held
	free.State, free.Owner = driver.Released, ""
	keeper := NewKeeper(timing, counting(), Grant{Record: alive(timing, "s", "b")})
	for name, c := range map[string]struct {
		want Want
		is   driver.Record
		seen bool
		all  []Kind
		held bool
	}{
		"held":            {Want{Try: true, LookFirst: true}, held, false, []Kind{Look}, true},
		"free":            {Want{Try: true, LookFirst: true}, free, false, []Kind{Look, Claim}, false},
		"absent":          {Want{Try: true, LookFirst: true}, driver.Record{}, false, []Kind{Look, Claim}, false},
		"seen free":       {Want{Try: true, LookFirst: true}, free, true, []Kind{Claim}, false},
		"waits":           {Want{LookFirst: true}, free, false, []Kind{Claim}, false},
		"not charged":     {Want{Try: true}, held, false, []Kind{Claim}, true},
		"under a session": {Want{Try: true, LookFirst: true, Under: keeper}, free, false, []Kind{Claim}, false},
	} {
		sight, found := NewSight(timing, env), c.is.State != ""
		if c.seen {
			sight.Saw(0, 0, driver.Strong, c.is, found)
		}
		c.want.Key, c.want.Owner = "k", "us"
		con := NewContender(timing, env, c.want, sight)
		kinds, _ := sends(con, time.Minute, func(_ time.Duration, r *Call) Result {
			switch {
			case r.Kind == Look:
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

// TestThrottledClaimIsFollowedByALook: reads have room where writes have none. So a contender
// whose claim, or whose takeover, was throttled learns who has the lock, and waits for that one
// instead of writing again.
func TestThrottledClaimIsFollowedByALook(t *testing.T) {
	timing := Timing{}.WithDefaults()
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
		"a try":     {Want{Try: true}, false, []Kind{Claim, Look}},
		"one waits": {Want{}, false, []Kind{Claim, Look}},
		"takeover":  {Want{Behind: true}, true, []Kind{Takeover, Look}},
	} {
		sight := NewSight(timing, env)
		if c.seen {
			sight.Saw(-2*timing.Lease, -2*timing.Lease, driver.Strong, held, true)
		}
		c.want.Key, c.want.Owner = "k", "us"
		con := NewContender(timing, env, c.want, sight)
		writes := 0
		kinds, _ := sends(con, timing.Lease/20, func(_ time.Duration, r *Call) Result {
			if r.Kind == Look {
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

// TestThrottledClaimsOfAFreeLockRest: looks that show the lock free do not have the claims
// come sooner than the throttling bids, nor the patience last for ever.
func TestThrottledClaimsOfAFreeLockRest(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	con := NewContender(timing, env, Want{Key: "k", Owner: "us", Patience: timing.Lease}, NewSight(timing, env))
	kinds, at := sends(con, 4*timing.Lease, func(_ time.Duration, r *Call) Result {
		if r.Kind == Look {
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
// knows that record by its own write alone, and a look would have it wait for itself.
func TestThrottledReplacementIsTriedAgain(t *testing.T) {
	timing := Timing{}.WithDefaults()
	env, _ := seeing(timing)
	con := NewContender(timing, env, Want{Key: "k", Owner: "us"}, NewSight(timing, env))
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
