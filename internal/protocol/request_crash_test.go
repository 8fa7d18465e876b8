// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// burial runs a requester for the crash of lease "t" against a store of one record until it is over.
// fate is called before each call; it may change the record, and returns the outcome of
// the call.
type burial struct {
	rec  driver.Record
	fate func(b *burial, now time.Duration, r *Call) Outcome // Applied: as the store has it
	sent []Kind
	when []time.Duration
}

func (b *burial) run(t *testing.T, timing Timing, of ProvenCrash) *Requester {
	t.Helper()
	u := NewCrashReleaser(timing, counting(), of)
	for now := time.Duration(0); !u.Over(); {
		r := u.Step(now).Call
		if r == nil && !u.Over() {
			at, ok := u.Next()
			if !ok || at <= now {
				t.Fatalf("at %v: next %v, %v", now, at, ok)
			}
			now = at
			continue
		}
		for r != nil {
			if len(b.sent) > 1000 {
				t.Fatal("it does not come to an end")
			}
			b.sent, b.when = append(b.sent, r.Kind), append(b.when, now)
			if r.Key != of.Key || r.Consistency != driver.Strong {
				t.Fatalf("sends %+v", r)
			}
			outcome := Applied
			if b.fate != nil {
				outcome = b.fate(b, now, r)
			}
			if r.Kind == ForceRelease && outcome == Applied {
				if err := driver.CheckSwap(r.Prev, r.Next); err != nil {
					t.Fatal(err)
				}
				if b.rec.Version == r.Prev.Version && b.rec.Token == r.Prev.Token {
					b.rec = r.Next
				} else {
					outcome = Conflicted
				}
			}
			res := Result{Outcome: outcome}
			if outcome == Applied || outcome == Conflicted {
				res.Record, res.Found = b.rec, b.rec.Key != ""
			} else {
				res.Err = errStore
			}
			now += time.Millisecond
			r = u.Reply(now, res).Call
		}
	}
	return u
}

// dead returns the record of a holder with lease "t".
func dead(t Timing) driver.Record {
	return driver.Record{
		Key: "k", Version: "t-1", Beat: "t-1", Owner: "us", Token: 7, Lease: t.Lease, Heartbeat: t.Heartbeat,
		Drift: t.Drift, State: driver.Held, Data: []byte("data"), Notify: "address",
	}
}

// TestReleaseCrashed: which records it frees, and which it leaves alone.
func TestReleaseCrashed(t *testing.T) {
	with := func(edit func(*driver.Record)) driver.Record {
		rec := dead(timing)
		edit(&rec)
		return rec
	}
	session := alive(timing, "t", "t-4")
	free := freed(dead(timing), "w", driver.EndReleased, nil)
	kept := reserved(dead(timing), "t-9", reservation{"them", ""}, time.Second, driver.EndHandedOver, nil)
	over := closed(session, "w", driver.EndReleased)
	for _, tt := range []struct {
		name string
		rec  driver.Record
		want Answer
		end  driver.EndReason // if it is freed
	}{
		{"held", dead(timing), Done, driver.EndCrashed},
		{"with another version", with(func(r *driver.Record) { r.Version = "w" }), Done, driver.EndCrashed},
		{"that has said why", with(func(r *driver.Record) { r.End = driver.EndStalled }), Done, driver.EndStalled},
		{"asked", with(func(r *driver.Record) {
			r.Requests = []driver.Request{{ID: "q", Kind: driver.StepDown, By: "ops"}}
		}), Done, driver.EndCrashed},
		{"under a session", with(func(r *driver.Record) { r.Session = "s" }), Done, driver.EndCrashed},
		{"session", session, Done, driver.EndCrashed},
		{"another lease of the owner and token", with(func(r *driver.Record) { r.Version, r.Beat = "u-1", "u-1" }), HolderChanged, ""},
		{"a longer id", with(func(r *driver.Record) { r.Version, r.Beat = "tt-1", "tt-1" }), HolderChanged, ""},
		{"a beat of an older process", with(func(r *driver.Record) { r.Version, r.Beat = "t", "t" }), HolderChanged, ""},
		{"a foreign client's", with(func(r *driver.Record) { r.Beat, r.Version = "", "t-1" }), HolderChanged, ""},
		{"released", free, NoHolder, ""},
		{"reserved, with such a beat", kept, NoHolder, ""},
		{"closed", over, NoHolder, ""},
		{"absent", driver.Record{}, NoHolder, ""},
		{"unreadable", with(func(r *driver.Record) { r.Lease = 0 }), Unusable, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := tt.rec.Key
			if key == "" {
				key = "k"
			}
			b := &burial{rec: tt.rec}
			from := timing.Grace
			u := b.run(t, timing, ProvenCrash{Key: key, ID: "t", From: from, Until: 2 * timing.Lease})
			if a, _, _ := u.Answer(); a != tt.want {
				t.Fatalf("answer %v, want %v, after %v", a, tt.want, b.sent)
			}
			if tt.want != Done {
				if !reflect.DeepEqual(b.rec, tt.rec) {
					t.Errorf("it has written %+v", b.rec)
				}
				if slices.Contains(b.sent, ForceRelease) {
					t.Errorf("it tried to: %v", b.sent)
				}
				return
			}
			if !slices.Equal(b.sent, []Kind{Read, ForceRelease}) || b.when[0] != 0 || b.when[1] != from {
				t.Errorf("sent %v at %v, want a read at once, and a write at %v", b.sent, b.when, from)
			}
			want := driver.Released
			if tt.rec.State == driver.Alive {
				want = driver.Closed
			}
			rec := b.rec
			if rec.State != want || rec.End != tt.end || rec.Version == tt.rec.Version || rec.Token != tt.rec.Token ||
				rec.Session != "" || rec.Notify != "" || len(rec.Requests) > 0 || !slices.Equal(rec.Data, tt.rec.Data) {
				t.Errorf("it leaves %+v", rec)
			}
			if asked := len(tt.rec.Requests) > 0; asked != (rec.Asked != nil) || asked && rec.Asked.ID != "q" {
				t.Errorf("asked %+v", rec.Asked)
			}
		})
	}
}

// appliedLate applies the first write just before the second one.
func appliedLate() func(*burial, time.Duration, *Call) Outcome {
	var first *Call
	return func(b *burial, _ time.Duration, r *Call) Outcome {
		switch {
		case r.Kind != ForceRelease:
		case first == nil:
			first = r
			return Unknown
		default:
			b.rec = first.Next
		}
		return Applied
	}
}

// TestReleaseCrashedLooksAgain: a late heartbeat, a request, a lost answer or a claim still
// in flight do not stop it. It reads before it may write.
func TestReleaseCrashedLooksAgain(t *testing.T) {
	of := ProvenCrash{Key: "k", ID: "t", From: timing.Grace, Until: 2 * timing.Lease}
	late := func(n int) func(*burial, time.Duration, *Call) Outcome {
		return func(b *burial, _ time.Duration, r *Call) Outcome {
			if r.Kind == ForceRelease && n > 0 {
				n--
				b.rec.Version = string(rune('p' + n))
				b.rec.Beat = "t-" + b.rec.Version
			}
			return Applied
		}
	}
	for _, tt := range []struct {
		name string
		rec  driver.Record
		fate func(*burial, time.Duration, *Call) Outcome
		by   time.Duration // it is done
	}{
		{"heartbeat between look and swap", dead(timing), late(1), of.From + timing.Lease/100},
		{"five do", dead(timing), late(5), of.From + timing.Lease/5},
		{"own swap of unknown outcome", dead(timing), func(b *burial, _ time.Duration, r *Call) Outcome {
			if r.Kind == ForceRelease && len(b.sent) == 2 {
				b.rec = r.Next
				return Unknown
			}
			return Applied
		}, of.From + timing.Lease/100},
		{"the write is lost", dead(timing), func(b *burial, _ time.Duration, r *Call) Outcome {
			if r.Kind == ForceRelease && len(b.sent) == 2 {
				return Unknown
			}
			return Applied
		}, of.From + timing.Lease/100},
		{"the first looks are lost", dead(timing), func(b *burial, _ time.Duration, _ *Call) Outcome {
			if len(b.sent) < 3 {
				return NotApplied
			}
			return Applied
		}, of.From + timing.Lease/100},
		{"own swap of unknown outcome, applied before the next one", dead(timing), appliedLate(), of.From + timing.Lease/100},
		{"look earlier than From, and a heartbeat since", dead(timing), func(b *burial, _ time.Duration, _ *Call) Outcome {
			if len(b.sent) == 2 {
				b.rec.Version, b.rec.Beat = "t-9", "t-9"
			}
			return Applied
		}, of.From + timing.Lease/100},
		{"claim applied after the first look", driver.Record{}, func(b *burial, now time.Duration, _ *Call) Outcome {
			if now > of.From && b.rec.Key == "" {
				b.rec = dead(timing)
			}
			return Applied
		}, of.From + 2*timing.RequestTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &burial{rec: tt.rec, fate: tt.fate}
			u := b.run(t, timing, of)
			if a, _, err := u.Answer(); a != Done || b.rec.State != driver.Released || b.rec.End != driver.EndCrashed {
				t.Fatalf("answer %v, %v, after %v: %+v", a, err, b.sent, b.rec)
			}
			if b.sent[0] != Read || b.when[0] != 0 {
				t.Errorf("begins with %v at %v", b.sent[0], b.when[0])
			}
			for i, at := range b.when {
				if b.sent[i] == ForceRelease && at < of.From {
					t.Errorf("writes at %v, before %v", at, of.From)
				}
			}
			if last := b.when[len(b.when)-1]; last > tt.by {
				t.Errorf("the last call is at %v, want %v at the latest", last, tt.by)
			}
		})
	}
}

// TestReleaseCrashedGivesUp: it does not outlive the lease for long, and waits for a claim in
// flight no longer than a claim can take.
func TestReleaseCrashedGivesUp(t *testing.T) {
	of := ProvenCrash{Key: "k", ID: "t", From: timing.Grace, Until: 2 * timing.Lease}
	b := &burial{rec: dead(timing), fate: func(*burial, time.Duration, *Call) Outcome { return NotApplied }}
	u := b.run(t, timing, of)
	if a, _, err := u.Answer(); a != Unusable || !errors.Is(err, errStore) {
		t.Errorf("answer %v, %v", a, err)
	}
	if last := b.when[len(b.when)-1]; last < of.Until-timing.Lease || last >= of.Until {
		t.Errorf("the last call is at %v", last)
	}

	b = &burial{}
	u = b.run(t, timing, of)
	last, end := b.when[len(b.when)-1], of.From+2*timing.RequestTimeout
	if a, _, _ := u.Answer(); a != NoHolder || last < end || last > end+timing.Lease/10 || len(b.sent) > 10 {
		t.Errorf("answer %v after %d reads, the last at %v, want one at %v", a, len(b.sent), last, end)
	}

	b = &burial{rec: dead(timing)}
	u = b.run(t, timing, ProvenCrash{Key: "k", ID: "t", From: time.Hour, Until: time.Second})
	if a, _, err := u.Answer(); a != Unusable || !errors.Is(err, ErrNotProved) || b.rec.State != driver.Held {
		t.Errorf("answer %v, %v", a, err)
	}
}
