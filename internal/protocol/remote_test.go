// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// offered returns a grant that was unconfirmed from the given instant on.
func offered(timing Timing, at time.Duration) (*UnconfirmedGrant, driver.Record) {
	rec := theirs(timing, beat0, 7)
	o := NewUnconfirmedGrant(timing, counting(), Grant{Record: rec})
	o.Step(at)
	return o, rec
}

// frees fails unless the unconfirmed grant releases rec at the given instant.
func frees(t *testing.T, o *UnconfirmedGrant, at time.Duration, rec driver.Record) *Call {
	t.Helper()
	c := o.Step(at).Call
	if c == nil || c.Kind != Release || c.Prev.Version != rec.Version || c.Next.State != driver.Released || c.Next.End != driver.EndAbandoned {
		t.Fatalf("at %v: sends %+v", at, c)
	}
	return c
}

// TestUnusedUnconfirmedGrantIsFreed: after a third of the lease and not before, as a term in which
// no work was done.
func TestUnusedUnconfirmedGrantIsFreed(t *testing.T) {
	o, rec := offered(timing, time.Second)
	at, due := o.Next()
	if want := time.Second + timing.Lease/3; !due || at != want || timing.FreeAfter() != timing.Lease/3 {
		t.Fatalf("due at %v, %v; want %v", at, due, want)
	}
	if c := o.Step(at - 1).Call; c != nil || o.Over() {
		t.Fatalf("too early: %+v", c)
	}
	c := frees(t, o, at, rec)
	if o.Over() {
		t.Error("over with a release under way")
	}
	o.Reply(at, found(c.Next))
	if _, due := o.Next(); due || !o.Over() {
		t.Errorf("freed; over %v, due %v", o.Over(), due)
	}
}

// TestUnconfirmedGrantGivenUp: it is freed at once, whether it was stepped before or not, and once.
func TestUnconfirmedGrantGivenUp(t *testing.T) {
	for _, stepped := range []bool{true, false} {
		o := NewUnconfirmedGrant(timing, counting(), Grant{Record: theirs(timing, beat0, 7)})
		if stepped {
			o.Step(0)
		}
		if c := o.GiveUp(time.Second).Call; c == nil || c.Kind != Release {
			t.Fatalf("stepped %v: sends %+v", stepped, c)
		}
		if c := o.GiveUp(time.Second).Call; c != nil {
			t.Errorf("a second release under way: %+v", c)
		}
	}
}

// TestUnconfirmedGrantTaken: nothing is sent when the holder has shown life through this process, and
// a release that is under way then is the last. The holder of another term with that token shows nothing.
func TestUnconfirmedGrantTaken(t *testing.T) {
	o, rec := offered(timing, 0)
	if o.Taken("former-0000000000001"); o.Over() {
		t.Error("over by the beat of another term")
	}
	o.Taken(rec.Beat)
	if c := o.Step(timing.Lease).Call; c != nil || !o.Over() {
		t.Errorf("sends %+v; over %v", c, o.Over())
	}
	o, rec = offered(timing, 0)
	frees(t, o, timing.FreeAfter(), rec)
	o.Taken(rec.Beat)
	if o.Over() {
		t.Error("over with a release under way")
	}
	if c := o.Reply(timing.FreeAfter(), Result{Outcome: Unknown, Err: errStore}).Call; c != nil || !o.Over() {
		t.Errorf("sends %+v; over %v", c, o.Over())
	}
}

// TestUnconfirmedGrantCounts: a grant that may be counted is never released by the machine. If
// it is too late by the slowest clock of a holder and the fastest of this process, it is not to be
// counted, and is released early.
func TestUnconfirmedGrantCounts(t *testing.T) {
	raw, short := timing, timing
	raw.Drift, short.Lease = RawDrift, timing.Lease/3
	for name, tt := range map[string]struct {
		of    Timing // of the machine
		drift float64
		took  time.Duration
		want  time.Duration
	}{
		"at once":                          {timing, timing.Drift, 0, timing.Usable()},
		"just in time by a slow clock":     {timing, 0.09, tenth(0.09, timing.Drift) - 1, timing.UsableOf(theirs(timing, beat0, 7))},
		"too late by the slowest":          {timing, 0.09, tenth(0.09, timing.Drift) + 1, 0},
		"just in time by the raw clock":    {raw, RawDrift, tenth(RawDrift, RawDrift) - 1, raw.Usable()},
		"too late by the raw clock":        {raw, RawDrift, tenth(RawDrift, RawDrift) + 1, 0},
		"a slewed client of a raw process": {raw, 0.09, tenth(0.09, RawDrift) - 1, timing.Usable()},
		"of a short lease":                 {short, 0.09, short.Lease, 0},
	} {
		rec := theirs(tt.of, beat0, 7)
		rec.Lease, rec.Drift = tt.of.Lease, tt.drift
		o := NewUnconfirmedGrant(tt.of, counting(), Grant{Record: rec})
		o.Step(0)
		if got := o.Counts(time.Millisecond, tt.took); got != tt.want {
			t.Errorf("%s: may be counted for %v, want %v", name, got, tt.want)
		}
		if o.Over() != (tt.want > 0) {
			t.Errorf("%s: over %v", name, o.Over())
		}
		for _, later := range []Action{o.GiveUp(time.Second), o.Step(tt.of.Lease)} {
			if tt.want > 0 && later.Call != nil {
				t.Errorf("%s: it sends %+v", name, later.Call)
			}
		}
	}
}

// tenth is how long an acquire may take by the clock of this process until a tenth of the lease has
// certainly passed by the holder's.
func tenth(holder, own float64) time.Duration {
	return time.Duration(float64(timing.Lease/10) / (1 - holder) * (1 + own))
}

// TestUnconfirmedGrantDoesNotCount: while its release is due, is under way, or was sent.
func TestUnconfirmedGrantDoesNotCount(t *testing.T) {
	none := func(what string, o *UnconfirmedGrant, at time.Duration) {
		t.Helper()
		if usable := o.Counts(at, 0); usable != 0 {
			t.Errorf("%s: it may be counted for %v", what, usable)
		}
	}
	o, rec := offered(timing, 0)
	none("due", o, timing.FreeAfter())
	frees(t, o, timing.FreeAfter(), rec)
	none("under way", o, 0)
	o.Reply(timing.FreeAfter(), Result{Outcome: Unknown, Err: errStore})
	none("unknown", o, timing.FreeAfter())
	o, rec = offered(timing, 0)
	o.GiveUp(0)
	o.Reply(0, Result{Outcome: Unknown, Err: errStore})
	none("given up", o, 1)
	none("given up by a machine that has not begun", func() *UnconfirmedGrant {
		o := NewUnconfirmedGrant(timing, counting(), Grant{Record: rec})
		o.GiveUp(0)
		return o
	}(), 1)
	rec.Lease = 20 * time.Millisecond
	none("too short to use", NewUnconfirmedGrant(timing, counting(), Grant{Record: rec}), 0)
}

// TestUnconfirmedGrantMeets: what a release that was refused means.
func TestUnconfirmedGrantMeets(t *testing.T) {
	rec := theirs(timing, beat0, 7)
	asked := asking(rec, "v", driver.Request{ID: "q", Kind: driver.StepDown})
	later := rec
	later.Token = 8
	for name, tt := range map[string]struct {
		now   driver.Record
		again bool
	}{
		"a request":           {asked, true},
		"a heartbeat":         {theirs(timing, beat1, 7), false},
		"released":            {freed(rec, "v", driver.EndAbandoned, nil), false},
		"the claim once more": {later, false}, // under another token
		"no record":           {driver.Record{}, false},
	} {
		o, _ := offered(timing, 0)
		at := timing.FreeAfter()
		frees(t, o, at, rec)
		c := o.Reply(at, Result{Outcome: Conflicted, Record: tt.now, Found: tt.now.Key != ""}).Call
		if o.Over() == tt.again {
			t.Errorf("%s: over %v", name, o.Over())
		}
		if again := c != nil && c.Kind == Release && c.Prev.Version == tt.now.Version; again != tt.again {
			t.Errorf("%s: sends %+v", name, c)
		}
	}
}

// TestUnconfirmedGrantWithoutAnswer: the release is retried until the record has expired by
// itself.
func TestUnconfirmedGrantWithoutAnswer(t *testing.T) {
	o, rec := offered(timing, 0)
	now, tries := timing.FreeAfter(), 0
	for ; !o.Over(); tries++ {
		if now >= timing.Lease {
			if c := o.Step(now).Call; c != nil || !o.Over() {
				t.Fatalf("at %v: sends %+v", now, c)
			}
			break
		}
		frees(t, o, now, rec)
		o.Reply(now, Result{Outcome: Unknown, Err: errStore})
		at, due := o.Next()
		if !due || at <= now {
			t.Fatalf("at %v it is due at %v, %v", now, at, due)
		}
		now = at
	}
	if tries < 3 {
		t.Errorf("%d tries", tries)
	}
}

// The beats of a remote holder, in order.
const (
	beat0 = "TTTTTTTTTTTTT-0000000000000"
	beat1 = "TTTTTTTTTTTTT-0000000000001"
	beat2 = "TTTTTTTTTTTTT-0000000000002"
)

// sent is the heartbeat that follows beat1, and released the release after it.
var (
	sent     = RemoteHeartbeat{Key: "k", Token: 7, After: beat1, Next: beat2}
	released = RemoteHeartbeat{Key: "k", Token: 7, After: beat1}
)

// relayed has a remote write without a known record read first, and returns its call
// after that.
func relayed(t *testing.T, timing Timing, of RemoteHeartbeat, shown Result) (*RemoteWrite, *Call) {
	t.Helper()
	r := NewRemoteWrite(timing, counting(), of, driver.Record{}, 5*time.Second)
	c := r.Step(0).Call
	if c == nil || c.Kind != Read || c.Consistency != driver.Strong || c.Key != "k" {
		t.Fatalf("begins with %+v, want a strong read", c)
	}
	return r, r.Reply(0, shown).Call
}

// TestFollowsBeat: a beat begins with the ID of its acquire, and is new.
func TestFollowsBeat(t *testing.T) {
	for _, tt := range []struct {
		after, next string
		want        bool
	}{
		{beat1, beat2, true},
		{beat1, "TTTTTTTTTTTTT-azAZ09azAZ09a", true},
		{"v18-v19", "v18-0000000000001", true},
		{beat1, beat1, false},
		{beat1, "SSSSSSSSSSSSS-0000000000002", false},
		{beat1, "TTTTTTTTTTTTT0000000000002", false},
		{beat1, "TTTTTTTTTTTTT-000000000002", false},
		{beat1, "TTTTTTTTTTTTT-00000000000002", false},
		{beat1, "TTTTTTTTTTTTT-00000000-0002", false},
		{beat1, "TTTTTTTTTTTTT-00000000 0002", false},
		{beat1, "TTTTTTTTTTTTT-00000000\x100002", false},
		{beat1, "TTTTTTTTTTTTT-00000000é0002", false},
		{beat1, "", false},
		{"TTTTTTTTTTTTT", "TTTTTTTTTTTTT-0000000000002", false},
		{"", "-0000000000002", false},
	} {
		if got := FollowsBeat(tt.after, tt.next); got != tt.want {
			t.Errorf("%q after %q: %v, want %v", tt.next, tt.after, got, tt.want)
		}
	}
}

// TestRemoteWriteJudges: how a remote heartbeat is answered for the record that a read
// shows.
func TestRemoteWriteJudges(t *testing.T) {
	at := func(beat string) driver.Record { return theirs(timing, beat, 7) }
	asked := asking(at(beat1), "v", driver.Request{ID: "q", Kind: driver.StepDown})
	revoked := reserved(at(beat1), "v", reservation{}, timing.Lease, driver.EndRevoked, nil)
	handed := reserved(at(beat1), "v", reservation{owner: "x"}, time.Second, driver.EndHandedOver, nil)
	with := func(rec driver.Record, edit func(*driver.Record)) driver.Record {
		edit(&rec)
		return rec
	}
	after := func(end driver.EndReason) driver.Record { // the next term, and how this one has ended
		return with(theirs(timing, "v", 8), func(r *driver.Record) { r.Prev = at(beat1).Term(end) })
	}
	for _, tt := range []struct {
		name string
		rec  driver.Record
		beat Answer // to a heartbeat; NoAnswer: it is written
		end  Answer // to a release, likewise
	}{
		{"the beat before", at(beat1), NoAnswer, NoAnswer},
		{"the beat before, and a request", asked, NoAnswer, NoAnswer},
		{"the next beat", at(beat2), Done, HolderChanged},
		{"an earlier beat", at(beat0), HolderChanged, HolderChanged},
		{"another token", with(at(beat1), func(r *driver.Record) { r.Token = 8 }), HolderChanged, HolderChanged},
		{"the next beat under another token", with(at(beat2), func(r *driver.Record) { r.Token = 8 }), HolderChanged, HolderChanged},
		{"a session's", under(timing, "s", beat1, 7), HolderChanged, HolderChanged},
		{"no record", driver.Record{}, HolderChanged, HolderChanged},
		{"released by its holder", freed(at(beat1), "v", driver.EndReleased, nil), HolderChanged, Done},
		{"released after a request", freed(at(beat1), "v", driver.EndSteppedDown, nil), HolderChanged, Done},
		{"released with a failure", freed(at(beat1), "v", driver.EndFailed, nil), HolderChanged, Done},
		{"freed by an offer", freed(at(beat1), "v", driver.EndAbandoned, nil), HolderChanged, HolderChanged},
		{"freed by an operator", freed(at(beat1), "v", driver.EndReleasedDead, nil), HolderChanged, HolderChanged},
		{"the next term, released", with(freed(at(beat1), "v", driver.EndReleased, nil), func(r *driver.Record) { r.Token = 8 }), HolderChanged, HolderChanged},
		{"revoked", revoked, HolderChanged, HolderChanged},
		{"handed over", handed, HolderChanged, Done},
		{"held by the next one, after a release", after(driver.EndReleased), HolderChanged, Done},
		{"held by the next one, after a hand-over", after(driver.EndHandedOver), HolderChanged, Done},
		{"held by the next one, which took over", after(driver.EndExpired), HolderChanged, HolderChanged},
	} {
		for what, want := range map[string]Answer{"heartbeat": tt.beat, "release": tt.end} {
			of := sent
			if what == "release" {
				of = released
			}
			r, c := relayed(t, timing, of, Result{Outcome: Applied, Record: tt.rec, Found: tt.rec.Key != ""})
			if got, _, _ := r.Answer(); got != want || (c == nil) != (want != NoAnswer) {
				t.Errorf("%s of %s: answer %d, want %d; sends %+v", what, tt.name, got, want, c)
			}
		}
	}
}

// TestRemoteWriteWritesOneBeat: a heartbeat changes the beat and nothing else, whichever process
// carries it out: all that do write the same over the same.
func TestRemoteWriteWritesOneBeat(t *testing.T) {
	rec := theirs(timing, beat1, 7)
	rec.Data, rec.Label, rec.Host = []byte("d"), "v1", "h"
	rec.Requests = []driver.Request{{ID: "q", Kind: driver.HandOver, To: "x"}}
	rec.Version = "v"
	r, c := relayed(t, timing, sent, found(rec))
	want := rec.Clone()
	want.Version, want.Beat = beat2, beat2
	if c.Kind != Heartbeat || !reflect.DeepEqual(c.Prev, rec) || !reflect.DeepEqual(c.Next, want) {
		t.Errorf("writes %+v over %+v, want %+v", c.Next, c.Prev, want)
	}
	r.Reply(1, found(c.Next))
	if a, is, err := r.Answer(); a != Done || !reflect.DeepEqual(is, want) || err != nil || !r.Over() {
		t.Errorf("answer %d with %+v, %v; over %v", a, is, err, r.Over())
	}
	if q := AskedOf(want); q == nil || q.ID != "q" || q.To != "x" {
		t.Errorf("asked %+v", q)
	}
}

// TestRemoteWriteKeepsTheLease: the lease and the drift stay those of the grant. A process with a
// shorter lease wrote its own: others waited for that, and the holder, which had not heard
// of it yet, acted for the longer one.
func TestRemoteWriteKeepsTheLease(t *testing.T) {
	rec := theirs(timing, beat1, 7)
	rec.Heartbeat, rec.Drift = timing.Heartbeat, timing.Drift
	other := Timing{Lease: timing.Lease / 2, Drift: 0.2}.WithDefaults()
	_, c := relayed(t, other, sent, found(rec))
	if is := c.Next; is.Lease != rec.Lease || is.Heartbeat != rec.Heartbeat || is.Drift != rec.Drift {
		t.Errorf("writes a lease of %v, a period of %v and a drift of %v", is.Lease, is.Heartbeat, is.Drift)
	}
	if got, want := other.UsableOf(c.Next), timing.Window()-other.Grace; got != want {
		t.Errorf("usable for %v, want %v", got, want)
	}
}

// TestUsableOfAnyClock: a record that does not say by which clock its holder counts is not
// answered by the better clock of this process.
func TestUsableOfAnyClock(t *testing.T) {
	raw := Timing{Drift: 0.01}.WithDefaults()
	want := Timing{Lease: raw.Lease, Grace: raw.Grace, Drift: 0.09}.Usable()
	rec := driver.Record{Lease: raw.Lease}
	for _, drift := range []float64{0, -1, 1, math.NaN()} {
		rec.Drift = drift
		if got := raw.UsableOf(rec); got != want {
			t.Errorf("with a drift of %v it is usable for %v, want %v", drift, got, want)
		}
	}
}

// TestRemoteWriteKnowing: a known record saves the read, if it shows the beat that the remote
// heartbeat follows. It never answers the heartbeat.
func TestRemoteWriteKnowing(t *testing.T) {
	for beat, want := range map[string]Kind{beat0: Read, beat1: Heartbeat, beat2: Read} {
		r := NewRemoteWrite(timing, counting(), sent, theirs(timing, beat, 7), time.Second)
		if c := r.Step(0).Call; c == nil || c.Kind != want {
			t.Errorf("knowing %s it sends %+v, want %v", beat, c, want)
		}
	}
	other := NewRemoteWrite(timing, counting(), sent, theirs(timing, beat1, 8), time.Second)
	if c := other.Step(0).Call; c.Kind != Read {
		t.Errorf("knowing another token it sends %+v", c)
	}

	// The known record was old, as the conflict shows.
	r := NewRemoteWrite(timing, counting(), sent, theirs(timing, beat1, 7), time.Second)
	r.Step(0)
	r.Reply(1, conflict(theirs(timing, beat2, 7)))
	if a, _, _ := r.Answer(); a != Done {
		t.Errorf("answer %d to what another process has carried out, want %d", a, Done)
	}
}

// TestRemoteWriteRaces: a request written in between is kept, and the machine backs off more and
// more from a process that writes repeatedly.
func TestRemoteWriteRaces(t *testing.T) {
	rec := theirs(timing, beat1, 7)
	r, _ := relayed(t, timing, sent, found(rec))
	rec = asking(rec, "v1", driver.Request{ID: "q", Kind: driver.StepDown})
	c := r.Reply(0, conflict(rec)).Call
	if c == nil || c.Prev.Version != "v1" || len(c.Next.Requests) != 1 {
		t.Fatalf("after the first conflict: %+v, want a write at once that keeps the request", c)
	}
	now, last := time.Duration(0), time.Duration(0)
	for i := range 3 {
		if c := r.Reply(now, conflict(rec)).Call; c != nil {
			t.Fatalf("writes at once after conflict %d", i+2)
		}
		at, due := r.Next()
		if !due || at-now <= last {
			t.Fatalf("tries again after %v, %v, and after %v before", at-now, due, last)
		}
		last, now = at-now, at
		if c := r.Step(now).Call; c == nil || c.Kind != Heartbeat {
			t.Fatalf("sends %+v", c)
		}
	}
}

// TestRemoteWriteWithoutAnswer: after a write without an answer the machine reads. A store that
// gives no answer for the patience is unusable, and so is a store that answers only reads.
func TestRemoteWriteWithoutAnswer(t *testing.T) {
	rec := theirs(timing, beat1, 7)
	for name, reads := range map[string]bool{"mute": false, "answers only reads": true} {
		r, c := relayed(t, timing, sent, found(rec))
		now := time.Duration(0)
		for !r.Over() && now < time.Minute {
			if c == nil {
				at, due := r.Next()
				if !due || at <= now {
					t.Fatalf("%s: at %v it is due at %v, %v", name, now, at, due)
				}
				now = at
				c = r.Step(now).Call
				continue
			}
			now += timing.RequestTimeout / 2
			res := Result{Outcome: Unknown, Err: errStore}
			if c.Kind == Read {
				if res.Outcome = NotApplied; reads {
					res = found(rec)
				}
			}
			c = r.Reply(now, res).Call
		}
		if a, _, err := r.Answer(); !reads && (a != Unusable || !errors.Is(err, errStore) || now < 5*time.Second || now > 5*time.Second+timing.RequestTimeout) {
			t.Errorf("%s: answer %d, %v after %v", name, a, err, now)
		}
		if a, _, _ := r.Answer(); reads && a != Unusable {
			t.Errorf("%s: answer %d after %v", name, a, now)
		}
	}

	r, c := relayed(t, timing, sent, found(rec))
	if r.Reply(1, Result{Outcome: Unknown, Err: errStore}); c.Kind != Heartbeat {
		t.Fatalf("sends %+v", c)
	}
	at, _ := r.Next()
	if c := r.Step(at).Call; c == nil || c.Kind != Read {
		t.Fatalf("looks for its write by %+v", c)
	}
	r.Reply(at, found(theirs(timing, beat2, 7)))
	if a, _, _ := r.Answer(); a != Done {
		t.Errorf("answer %d to a write that was made, want %d", a, Done)
	}
}

// TestRemoteWriteReleases: the record is left as a holder leaves it that knows of the request in
// it, with the data of the release, or those that it has.
func TestRemoteWriteReleases(t *testing.T) {
	rec := theirs(timing, beat1, 7)
	rec.Data = []byte("old")
	stepDown := driver.Request{ID: "q", Kind: driver.StepDown, By: "op"}
	handOver := driver.Request{ID: "q", Kind: driver.HandOver, By: "op", To: "x"}
	broken := driver.Request{By: "r1", Reason: "no space"}
	for _, tt := range []struct {
		name  string
		of    RemoteHeartbeat
		asked *driver.Request
		state driver.State
		end   driver.EndReason
		id    string // of what it ended for
		data  string
	}{
		{"done", RemoteHeartbeat{}, nil, driver.Released, driver.EndReleased, "", "old"},
		{"done with data", RemoteHeartbeat{Data: []byte("new")}, nil, driver.Released, driver.EndReleased, "", "new"},
		{"done with no data", RemoteHeartbeat{Data: []byte{}}, nil, driver.Released, driver.EndReleased, "", ""},
		{"failed", RemoteHeartbeat{Failed: &broken}, nil, driver.Released, driver.EndFailed, "w1", "old"},
		{"asked to step down", RemoteHeartbeat{}, &stepDown, driver.Released, driver.EndSteppedDown, "q", "old"},
		{"asked, and failed", RemoteHeartbeat{Failed: &broken}, &stepDown, driver.Released, driver.EndSteppedDown, "q", "old"},
		{"asked to hand over", RemoteHeartbeat{Data: []byte("new")}, &handOver, driver.Reserved, driver.EndHandedOver, "q", "new"},
	} {
		of, was := tt.of, rec
		of.Key, of.Token, of.After = released.Key, released.Token, released.After
		if tt.asked != nil {
			was = asking(rec, "v", *tt.asked)
		}
		_, c := relayed(t, timing, of, found(was))
		next := c.Next
		ended := next.Term("")
		if tt.state == driver.Reserved {
			ended = next.Prev
		}
		id := ""
		if ended.Asked != nil {
			id = ended.Asked.ID
		}
		if c.Kind != Release || next.State != tt.state || ended.End != tt.end || id != tt.id || string(next.Data) != tt.data || len(next.Requests) > 0 {
			t.Errorf("%s: %v leaves %+v, ended %+v", tt.name, c.Kind, next, ended)
		}
		if next.Version == was.Version || next.Version == beat1 {
			t.Errorf("%s: the version %s is not new", tt.name, next.Version)
		}
		if tt.state == driver.Reserved && (next.Owner != "x" || next.Lease != timing.Reservation()) {
			t.Errorf("%s: reserved for %q for %v", tt.name, next.Owner, next.Lease)
		}
	}
	if broken.ID != "" || broken.Kind != "" {
		t.Errorf("the caller's request was changed: %+v", broken)
	}
}

// TestRemoteWriteGivenUp: it sends nothing more.
func TestRemoteWriteGivenUp(t *testing.T) {
	r, _ := relayed(t, timing, sent, found(theirs(timing, beat1, 7)))
	r.GiveUp(1)
	if r.Over() {
		t.Error("over with a write under way")
	}
	if c := r.Reply(2, conflict(theirs(timing, beat1, 7))).Call; c != nil || !r.Over() {
		t.Errorf("sends %+v; over %v", c, r.Over())
	}
	if a, _, _ := r.Answer(); a != Abandoned {
		t.Errorf("answer %d", a)
	}
}
