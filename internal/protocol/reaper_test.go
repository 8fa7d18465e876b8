// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// reap runs a reaper against a store of one record until it is over, and notes the
// writes. change is called before each request.
func reap(t *testing.T, timing Timing, rec *driver.Record, change func(now time.Duration)) (g *Reaper, sent map[Kind]time.Duration) {
	t.Helper()
	env, sent := counting(), map[Kind]time.Duration{}
	g = NewReaper(timing, env, "s", NewView(timing, env))
	for now := time.Duration(0); !g.Over(); {
		if now > 20*timing.Lease {
			t.Fatal("it does not come to an end")
		}
		r := g.Step(now).Call
		if r == nil {
			at, ok := g.Next()
			if !ok || at < now {
				t.Fatalf("at %v: next %v, %v", now, at, ok)
			}
			now = at
			r = g.Step(now).Call
		}
		for r != nil {
			if change != nil {
				change(now)
			}
			if r.Key != driver.SessionKey("s") || !r.OfSession() {
				t.Fatalf("sends %+v", r)
			}
			res := Result{Outcome: Applied, Record: *rec, Found: rec.Key != ""}
			switch {
			case looksAt(r):
				if r.Consistency != driver.Strong {
					t.Error("a cheap read")
				}
			case rec.Version != r.Prev.Version:
				res.Outcome = Conflicted
			case closes(r):
				sent[ForceRelease] = now
				*rec = r.Next
				res.Record = *rec
			case r.Kind == Delete:
				sent[Delete] = now
				*rec = driver.Record{}
				res = ResultOf(Delete, driver.Record{}, driver.Record{}, nil)
			}
			r = g.Reply(now, res).Call
		}
	}
	return g, sent
}

func TestReaper(t *testing.T) {
	long := alive(timing, "s", "b")
	long.Lease = 2 * timing.Lease
	over := closed(alive(timing, "s", "b"), "c", driver.EndReleased)
	nonsense := alive(timing, "s", "b")
	nonsense.Lease = 0
	for _, tt := range []struct {
		name          string
		rec           driver.Record
		closed, swept time.Duration
		want          Answer
	}{
		{"dead", alive(timing, "s", "b"), timing.Lease, 5 * timing.Lease, Done},
		{"dead, with a longer lease", long, 2 * timing.Lease, 10 * timing.Lease, Done},
		{"closed", over, 0, 4 * timing.Lease, Done},
		{"absent", driver.Record{}, 0, 0, NoHolder},
		{"nonsense", nonsense, 0, 0, Unusable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, sent := reap(t, timing, &tt.rec, nil)
			if a, _, _ := g.Answer(); a != tt.want || g.Swept() != (tt.want == Done) {
				t.Errorf("answer %d, swept %v", a, g.Swept())
			}
			if sent[ForceRelease] != tt.closed || sent[Delete] != tt.swept {
				t.Errorf("closed at %v, deleted at %v; want %v and %v", sent[ForceRelease], sent[Delete], tt.closed, tt.swept)
			}
		})
	}
}

// TestReaperLeavesTheLiving: a session that shows life is left alone.
func TestReaperLeavesTheLiving(t *testing.T) {
	for name, from := range map[string]time.Duration{"soon": timing.Heartbeat, "at the last moment": timing.Lease} {
		rec := alive(timing, "s", "b")
		g, sent := reap(t, timing, &rec, func(now time.Duration) {
			if now >= from {
				rec = alive(timing, "s", "b2")
			}
		})
		if a, _, _ := g.Answer(); a != Alive || g.Swept() || len(sent) > 0 {
			t.Errorf("%s: answer %d, swept %v, wrote %v", name, a, g.Swept(), sent)
		}
	}
}

// TestReaperOfUnknownFate: a read finds out whether a write without an answer was
// applied.
func TestReaperOfUnknownFate(t *testing.T) {
	over := closed(alive(timing, "s", "b"), "c", driver.EndReleased)
	begin := func() (*Reaper, time.Duration) {
		g := NewReaper(timing, counting(), "s", NewView(timing, counting()))
		g.Step(0)
		g.Reply(0, found(over))
		now, _ := g.Next()
		if r := g.Step(now).Call; r == nil || r.Kind != Delete || r.Prev.Version != "c" {
			t.Fatalf("want it deleted, got %+v", r)
		}
		g.Reply(now, Result{Outcome: Unknown, Err: errStore})
		now, _ = g.Next()
		if r := g.Step(now).Call; r == nil || !looksAt(r) {
			t.Fatalf("want a read, got %+v", r)
		}
		return g, now
	}
	g, now := begin()
	g.Reply(now, Result{Outcome: Applied})
	if a, _, _ := g.Answer(); a != Done || !g.Swept() {
		t.Errorf("it is gone: answer %d, swept %v", a, g.Swept())
	}
	g, now = begin()
	if r := g.Reply(now, found(over)).Call; r == nil || r.Kind != Delete {
		t.Errorf("it is there: %+v", r)
	}
	g, now = begin()
	for ; !g.Over() && now < 20*timing.Lease; g.Step(now) {
		g.Reply(now, Result{Outcome: NotApplied, Err: errStore})
		if at, ok := g.Next(); ok {
			now = at
		}
	}
	if a, _, err := g.Answer(); a != Unusable || !errors.Is(err, errStore) || now > 7*timing.Lease {
		t.Errorf("a mute store: answer %d, %v at %v", a, err, now)
	}
}

// TestReaperMeetsAnother: the later of two reapers finds no record, or a record that it
// has not read before.
func TestReaperMeetsAnother(t *testing.T) {
	for name, now := range map[string]driver.Record{"deleted": {}, "brought back": alive(timing, "s", "b")} {
		rec := closed(alive(timing, "s", "b"), "c", driver.EndReleased)
		first := true
		g, sent := reap(t, timing, &rec, func(at time.Duration) {
			if first && at >= 4*timing.Lease {
				rec, first = now, false
			}
		})
		a, _, _ := g.Answer()
		if name == "deleted" && (a != NoHolder || g.Swept()) || name != "deleted" && (a != Done || sent[ForceRelease] != 5*timing.Lease) {
			t.Errorf("%s: answer %d, swept %v, wrote %v", name, a, g.Swept(), sent)
		}
	}
}

// TestResultOfDelete: nothing is there when a record was deleted.
func TestResultOfDelete(t *testing.T) {
	if r := ResultOf(Delete, driver.Record{}, driver.Record{}, nil); r.Outcome != Applied || r.Found {
		t.Errorf("deleted: %+v", r)
	}
	rec := alive(Timing{}.WithDefaults(), "s", "b")
	if r := ResultOf(Delete, driver.Record{}, driver.Record{}, &driver.ConflictError{Current: rec}); r.Outcome != Conflicted || !r.Found || r.Record.Version != "b" {
		t.Errorf("another record: %+v", r)
	}
	if r := ResultOf(Delete, driver.Record{}, driver.Record{}, errStore); r.Outcome != Unknown {
		t.Errorf("no answer: %+v", r)
	}
}
