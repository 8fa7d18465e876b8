// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// TestChroniclers: whatever becomes of its requests, a chronicler comes to its end
// within a bounded number of them; the work waits for one request timeout at most,
// and not for less unless the tenure is written; what it says is written was, and
// nothing is deleted but what is in its place and another's, or what is too old.
func TestChroniclers(t *testing.T) {
	const limit = 3
	timing := protocol.Timing{}.WithDefaults()
	rapid.Check(t, func(t *rapid.T) {
		fresh := 0
		env := protocol.Env{
			Fresh:  func() string { fresh++; return fmt.Sprintf("v%d", fresh) },
			Random: func() float64 { return 0.5 },
		}
		token := rapid.Uint64Range(1, 6).Draw(t, "token")
		past := driver.Tenure{Owner: "a", Token: token, Since: time.Unix(7, 0), End: driver.EndReleased}
		own, old := protocol.HistoryKey("x", token), protocol.HistoryKey("x", token-limit)
		store := map[string]driver.Record{}
		put := func(key, owner string) {
			store[key] = driver.Record{Key: key, Version: env.Fresh(), Owner: owner, State: driver.Past, Since: past.Since}
		}
		if rapid.Bool().Draw(t, "another") {
			put(own, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"))
		}
		put(old, "b")
		c := protocol.NewChronicler(timing, env, "x", past, limit)
		apply := func(r *protocol.Call) protocol.Result {
			rec, found := store[r.Key]
			switch {
			case r.Kind == protocol.Look:
				return protocol.Result{Outcome: protocol.Applied, Record: rec, Found: found}
			case r.Kind == protocol.Enter && !found:
				store[r.Key] = r.Next
				return protocol.Result{Outcome: protocol.Applied, Record: r.Next, Found: true}
			case r.Kind == protocol.Erase && (!found || rec.Version == r.Prev.Version):
				if found && !(r.Key == own && rec.Owner == "b") && !(r.Key == old && token > limit && c.Written()) {
					t.Fatalf("deletes %+v", rec)
				}
				delete(store, r.Key)
				return protocol.Result{Outcome: protocol.Applied}
			}
			return protocol.Result{Outcome: protocol.Conflicted, Record: rec, Found: found}
		}
		var late []*protocol.Call
		sent, wrote := 0, false
		now := time.Duration(0)
		for a := c.Step(now); !c.Over(); {
			if sent > 60 || now > 20*timing.Lease {
				t.Fatalf("%d requests in %v", sent, now)
			}
			if waits := !c.Written() && now < timing.RequestTimeout; c.Awaited() != waits {
				t.Fatalf("at %v: awaited %v, written %v", now, c.Awaited(), c.Written())
			}
			r := a.Call
			if r == nil {
				at, due := c.Next()
				if !due || at < now {
					t.Fatalf("at %v: next %v, %v", now, at, due)
				}
				now = at
				a = c.Step(now)
				continue
			}
			sent++
			if len(late) > 0 && rapid.Bool().Draw(t, "late") {
				apply(late[0])
				late = late[1:]
			}
			res := protocol.Result{Outcome: protocol.Unknown, Err: errors.New("no answer")}
			switch fate := rapid.IntRange(0, 5).Draw(t, "fate"); {
			case fate == 0 && r.Kind != protocol.Look:
				late = append(late, r)
			case fate == 1:
				apply(r)
			case fate == 2:
				res.Outcome = protocol.NotApplied
			case fate == 3 && r.Kind == protocol.Enter && rapid.IntRange(0, 9).Draw(t, "permanent") == 0:
				res = protocol.Result{Outcome: protocol.NotApplied, Err: driver.Permanent(errors.New("no right to"))}
			default:
				res = apply(r)
			}
			if r.Kind == protocol.Look && res.Outcome == protocol.Unknown {
				res.Outcome = protocol.NotApplied
			}
			now += rapid.SampledFrom([]time.Duration{0, time.Millisecond, timing.RequestTimeout / 2}).Draw(t, "took")
			if c.Step(now).Call != nil {
				t.Fatal("two requests under way")
			}
			a = c.Reply(now, res)
			rec := store[own]
			if wrote = wrote || rec.Owner == past.Owner && rec.State == driver.Past; c.Written() && !wrote && sent <= 20 { // beyond that, what cannot be replaced stays
				t.Fatalf("says that it is written; there stands %+v", rec)
			}
		}
		if c.Written() == (c.Err() != nil) {
			t.Fatalf("written %v, error %v", c.Written(), c.Err())
		}
	})
}
