// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// attaches puts the lock with beat1 under session "s" with beat2, and detaches ends that, applied or not.
var (
	attaches = RemoteHeartbeat{Key: "k", Token: 7, After: beat1, Next: beat2, Of: &OfSession{ID: "s", Owner: "them"}}
	detaches = RemoteHeartbeat{Key: "k", Token: 7, After: beat1, Next: beat2, Of: &OfSession{ID: "s", Detaches: true}}
)

// attached returns the lock of theirs under a session.
func attached(session, beat string) driver.Record {
	rec := theirs(timing, beat, 7)
	rec.Session = session
	return rec
}

// TestAttachmentJudges: what an attachment, or the release of an attached lock, makes of a record. A late
// or repeated call finds another beat, session, token or state, and has no effect.
func TestAttachmentJudges(t *testing.T) {
	at := func(beat string) driver.Record { return theirs(timing, beat, 7) }
	with := func(rec driver.Record, edit func(*driver.Record)) driver.Record {
		edit(&rec)
		return rec
	}
	for _, tt := range []struct {
		name   string
		rec    driver.Record
		attach Answer // to an attachment; NoAnswer: it is written
		detach Answer // to a release, likewise
	}{
		{"the granted beat", at(beat1), NoAnswer, NoAnswer},
		{"the granted beat, and a request", asking(at(beat1), "v", driver.Request{ID: "q", Kind: driver.StepDown}), NoAnswer, NoAnswer},
		{"the granted beat of another owner", with(at(beat1), func(r *driver.Record) { r.Owner = "x" }), HolderChanged, NoAnswer},
		{"a heartbeat since", at(beat0), HolderChanged, HolderChanged},
		{"a heartbeat with the beat of the attachment", at(beat2), HolderChanged, HolderChanged},
		{"attached", attached("s", beat2), Done, NoAnswer},
		{"attached with another beat", attached("s", beat0), HolderChanged, HolderChanged},
		{"under the session with the granted beat", attached("s", beat1), HolderChanged, HolderChanged},
		{"attached to another session", attached("t", beat2), HolderChanged, HolderChanged},
		{"under another session with the granted beat", attached("t", beat1), HolderChanged, HolderChanged},
		{"the next term", theirs(timing, beat1, 8), HolderChanged, HolderChanged},
		{"the next term, attached", with(attached("s", beat2), func(r *driver.Record) { r.Token = 8 }), HolderChanged, HolderChanged},
		{"released by its holder", freed(attached("s", beat2), "v", driver.EndReleased, nil), HolderChanged, Done},
		{"freed unused", freed(at(beat1), "v", driver.EndAbandoned, nil), HolderChanged, HolderChanged},
		{"revoked", reserved(at(beat1), "v", reservation{}, timing.Lease, driver.EndRevoked, nil), HolderChanged, HolderChanged},
		{"no record", driver.Record{}, HolderChanged, HolderChanged},
	} {
		for what, c := range map[string]struct {
			of   RemoteHeartbeat
			want Answer
		}{"attachment": {attaches, tt.attach}, "release": {detaches, tt.detach}} {
			r, call := relayed(t, timing, c.of, Result{Outcome: Applied, Record: tt.rec, Found: tt.rec.Key != ""})
			if got, _, _ := r.Answer(); got != c.want || (call == nil) != (c.want != NoAnswer) {
				t.Errorf("%s of %s: answer %d, want %d; sends %+v", what, tt.name, got, c.want, call)
			}
			known := NewRemoteWrite(timing, counting(), c.of, tt.rec, time.Second).Step(0).Call
			if reads := known.Kind.Reads(); reads != (c.want != NoAnswer) {
				t.Errorf("%s of %s, which is known: sends %+v", what, tt.name, known)
			}
		}
	}
}

// TestAttachmentWrites: a new beat under the session, and nothing else but the heartbeat period, which
// the lock has no more. A request that was there stays, and is told.
func TestAttachmentWrites(t *testing.T) {
	rec := theirs(timing, beat1, 7)
	rec.Data, rec.Heartbeat, rec.Drift = []byte("d"), timing.Heartbeat, timing.Drift
	rec = asking(rec, "v", driver.Request{ID: "q", Kind: driver.HandOver, To: "x"})
	r, c := relayed(t, timing, attaches, found(rec))
	want := rec.Clone()
	want.Version, want.Beat, want.Session, want.Heartbeat = beat2, beat2, "s", 0
	if c.Kind != Heartbeat || !reflect.DeepEqual(c.Prev, rec) || !reflect.DeepEqual(c.Next, want) {
		t.Errorf("writes %+v over %+v, want %+v", c.Next, c.Prev, want)
	}
	r.Reply(1, found(c.Next))
	if a, is, _ := r.Answer(); a != Done || AskedOf(is) == nil || AskedOf(is).ID != "q" {
		t.Errorf("answer %d with %+v", a, is)
	}
	// The beat is new, so that nothing takes the record for the unused grant.
	o, grant := offered(timing, 0)
	frees(t, o, timing.FreeAfter(), grant)
	of := attaches
	of.After = beat0
	_, c = relayed(t, timing, of, found(grant))
	if again := o.Reply(timing.FreeAfter(), conflict(c.Next)).Call; again != nil || !o.Over() {
		t.Errorf("the grant is attached, and freed by %+v", again)
	}
}

// TestDetachmentWrites: the release completes what the session's record asks, or else the lock's own.
func TestDetachmentWrites(t *testing.T) {
	to := func(owner string) driver.Request {
		return driver.Request{ID: owner, Kind: driver.HandOver, To: owner, Lock: "k", Token: 7}
	}
	session := alive(timing, "s", beat0)
	session.Requests = []driver.Request{{ID: "c", Kind: driver.Confirm, Lock: "k", Token: 7}, to("x")}
	for name, tt := range map[string]struct {
		session driver.Record
		own     []driver.Request
		want    string // the owner that it is reserved for
	}{
		"nothing asked":             {alive(timing, "s", beat0), nil, ""},
		"asked through the session": {session, nil, "x"},
		"asked before":              {alive(timing, "s", beat0), []driver.Request{to("y")}, "y"},
		"asked twice":               {session, []driver.Request{to("y")}, "x"},
		"without the session":       {driver.Record{}, nil, ""},
	} {
		rec := attached("s", beat2)
		rec.Requests = tt.own
		of, under := detaches, *detaches.Of
		under.Asked = SessionRequest(tt.session, "k", 7)
		of.Of = &under
		_, c := relayed(t, timing, of, found(rec))
		reserved := ""
		if c.Next.State == driver.Reserved {
			reserved = c.Next.Owner
		}
		if c.Kind != Release || reserved != tt.want || c.Next.Session != "" {
			t.Errorf("%s: writes %+v", name, c.Next)
		}
	}
	if q := SessionRequest(session, "k", 8); q != nil {
		t.Errorf("the next term is asked %+v", q)
	}
}

// TestSessionBeats: a session's record is renewed and closed as a lock's is renewed and released.
func TestSessionBeats(t *testing.T) {
	of := func(next string) RemoteHeartbeat {
		return RemoteHeartbeat{Key: driver.SessionKey("s"), Token: 1, After: beat1, Next: next, Of: &OfSession{}}
	}
	at := func(beat string) driver.Record { return alive(timing, "s", beat) }
	for _, tt := range []struct {
		name      string
		rec       driver.Record
		beat, end Answer
	}{
		{"the beat before", at(beat1), NoAnswer, NoAnswer},
		{"the next beat", at(beat2), Done, HolderChanged},
		{"an earlier beat", at(beat0), HolderChanged, HolderChanged},
		{"closed by its holder", closed(at(beat1), "v", driver.EndReleased), HolderChanged, Done},
		{"closed when it had expired", closed(at(beat1), "v", driver.EndExpired), HolderChanged, HolderChanged},
		{"no record", driver.Record{}, HolderChanged, HolderChanged},
	} {
		for next, want := range map[string]Answer{beat2: tt.beat, "": tt.end} {
			r := NewRemoteWrite(timing, counting(), of(next), driver.Record{}, time.Second)
			r.Step(0)
			c := r.Reply(0, Result{Outcome: Applied, Record: tt.rec, Found: tt.rec.Key != ""}).Call
			if got, _, _ := r.Answer(); got != want || (c == nil) != (want != NoAnswer) {
				t.Errorf("%q after %s: answer %d, want %d; sends %+v", next, tt.name, got, want, c)
			}
		}
	}
	rec := at(beat1)
	for i, kind := range []driver.RequestKind{driver.StepDown, driver.Confirm, driver.HandOver, "later"} {
		rec.Requests = append(rec.Requests, driver.Request{ID: string(rune('a' + i)), Kind: kind, Lock: "k"})
	}
	rec.Data = []byte("d")
	was := rec.Clone()
	for data, want := range map[string]string{"": "d", "e": "e"} {
		d := of(beat2)
		d.Of.Answered = []string{"a", "x"}
		if data != "" {
			d.Data = []byte(data)
		}
		c := NewRemoteWrite(timing, counting(), d, rec, time.Second).Step(0).Call
		left := SessionRequests(c.Next)
		if c.Kind != Heartbeat || c.Next.State != driver.Alive || c.Next.Beat != beat2 || string(c.Next.Data) != want ||
			len(c.Next.Requests) != 1 || len(left) != 1 || left[0].ID != "c" || c.Next.Session != "" {
			t.Errorf("writes %+v", c.Next)
		}
	}
	if !reflect.DeepEqual(rec, was) {
		t.Errorf("the known record has become %+v", rec)
	}
	c := NewRemoteWrite(timing, counting(), of(""), rec, time.Second).Step(0).Call
	if c.Kind != Release || c.Next.State != driver.Closed || c.Next.End != driver.EndReleased || c.Next.Requests != nil {
		t.Errorf("closes with %+v", c.Next)
	}
}

// TestRemoteSessionOpener: the beats of a session begin with a secret, and the record has the bound of
// its holder's clock.
func TestRemoteSessionOpener(t *testing.T) {
	raw := timing
	raw.Drift = RawDrift
	for _, drift := range []float64{RawDrift, DefaultDrift} {
		o := NewRemoteSessionOpener(raw, counting(), driver.Record{Owner: "them", Drift: drift}, time.Second)
		c := o.Step(0).Call
		o.Reply(1, found(c.Next))
		_, rec, _ := o.Answer()
		id := driver.SessionID(rec.Key)
		if c.Kind != Claim || rec.State != driver.Alive || rec.Token != 1 || rec.Drift != drift || strings.HasPrefix(rec.Beat, id) {
			t.Errorf("opens %+v", rec)
		}
	}
	o := NewRemoteSessionOpener(timing, counting(), driver.Record{Owner: "them", Drift: RawDrift}, time.Second)
	if c := o.Step(0).Call; c.Next.Drift != timing.Drift {
		t.Errorf("with a drift of %v where the operator expects %v", c.Next.Drift, timing.Drift)
	}
}

// TestSessionLook: only an open session whose secret the caller knows lets locks be attached.
func TestSessionLook(t *testing.T) {
	rec := alive(timing, "s", beat1)
	ofProgram := alive(timing, "s", "s-0000000000000")
	for name, tt := range map[string]struct {
		beat string
		rec  driver.Record
		want Answer
	}{
		"the present beat":        {beat1, rec, Done},
		"an older one":            {beat0, rec, Done},
		"another's":               {"UUUUUUUUUUUUU-0000000000000", rec, HolderChanged},
		"no beat":                 {"TTTTTTTTTTTTT", rec, HolderChanged},
		"empty":                   {"-", rec, HolderChanged},
		"of a program, by its id": {"s-0000000000001", ofProgram, HolderChanged},
		"closed":                  {beat1, closed(rec, "v", driver.EndReleased), HolderChanged},
		"gone":                    {beat1, driver.Record{}, HolderChanged},
		"a lock's record":         {beat1, theirs(timing, beat1, 1), HolderChanged},
	} {
		l := NewSessionLook(timing, counting(), "s", tt.beat, time.Second)
		c := l.Step(0).Call
		if c == nil || c.Kind != Read || c.Consistency != driver.Strong || c.Key != driver.SessionKey("s") {
			t.Fatalf("%s: sends %+v", name, c)
		}
		l.Reply(1, Result{Outcome: Applied, Record: tt.rec, Found: tt.rec.Key != ""})
		if got, is, _ := l.Answer(); got != tt.want || !l.Over() || got == Done && is.Key != tt.rec.Key {
			t.Errorf("%s: answer %d with %+v, want %d", name, got, is, tt.want)
		}
	}
	l := NewSessionLook(timing, counting(), "s", beat1, time.Second)
	for now := time.Duration(0); !l.Over(); now, _ = l.Next() {
		if now > time.Minute {
			t.Fatal("it tries for ever")
		}
		l.Step(now)
		l.Reply(now, Result{Outcome: NotApplied, Err: errStore})
	}
	if got, _, err := l.Answer(); got != Unusable || err == nil {
		t.Errorf("without an answer: %d, %v", got, err)
	}
}

// TestRequesterMeetsAnAttachment: a lock that its remote holder attaches to a session is still held by
// the same holder.
func TestRequesterMeetsAnAttachment(t *testing.T) {
	plain := theirs(timing, beat1, 7)
	for kind, want := range map[driver.RequestKind]Answer{
		driver.StepDown: NoAnswer, driver.Revoke: NoAnswer, driver.ReleaseDead: Alive,
	} {
		views := map[string]*View{}
		env := middle()
		env.Session = func(id string) *View {
			if views[id] == nil {
				views[id] = NewView(timing, env)
			}
			return views[id]
		}
		k := NewRequester(timing, env, "k", driver.Request{Kind: kind}, 0, NewView(timing, env))
		k.Step(0)
		c := k.Reply(0, found(plain)).Call
		if kind == driver.ReleaseDead {
			c = k.Step(timing.Lease).Call
		}
		if c == nil {
			t.Fatalf("%s: sends nothing", kind)
		}
		r := conflict(attached("s", beat2))
		if c.Kind.Reads() {
			r = found(attached("s", beat2))
		}
		c = k.Reply(timing.Lease, r).Call
		if got, _, _ := k.Answer(); got != want || want == NoAnswer && (c == nil || c.Kind != Read || c.Key != driver.SessionKey("s")) {
			t.Errorf("%s: answer %d, and sends %+v", kind, got, c)
		}
	}
}
