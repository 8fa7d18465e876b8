// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure/evidence/chaos/trial"
	"github.com/tenurelock/tenure/evidence/peers/holds"
	"github.com/tenurelock/tenure/evidence/peers/service"
)

// verdict is what a round has shown.
type verdict struct {
	Wrong []string `json:"wrong,omitempty"`

	Holds   int            `json:"holds"`
	Of      map[string]int `json:"of"` // by the client
	Effects int            `json:"effects"`
	Refused int            `json:"refused"` // by the fence
	Late    int            `json:"late"`    // came after a later tenure had begun
	Gap     time.Duration  `json:"gapNs"`   // the longest in which nobody held the lock
	Tokens  uint64         `json:"tokens"`  // the last one

	Recovery time.Duration  `json:"recoveryNs"` // from the last kill to the next hold
	Faults   map[string]int `json:"faults"`     // of the nemesis
	Weather  map[string]int `json:"weather"`    // of the gates
	Errors   map[string]int `json:"errors"`     // that clients' work came to
}

func (v *verdict) say(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

// gapBound is for how long nobody may hold the lock in a round: a dead holder's lease; one
// more that a heartbeat which comes late can add; one that a waiter begins anew when its
// replica is killed; two for grants of which nobody learns, a third of a lease each; and a
// store that stands still.
func gapBound(lease time.Duration) time.Duration { return 6*lease + 2*time.Second }

// verdict judges what is known of the round, when none of its clients works any more.
func (r *round) verdict(ctx context.Context) (*verdict, error) {
	file, err := os.Open(r.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	written, err := holds.Read(file, r.deaths)
	if err != nil {
		return nil, err
	}
	tenures, err := r.replicas.History(ctx, 0, lockName)
	if err != nil {
		return nil, err
	}
	effects, bad := r.resource.Seen()
	l := logOf(written, effects)
	v := judge(l, tenures)
	v.Wrong = append(append(v.Wrong, bad...), r.problems...)
	var before, after string
	if v.Gap, before, after = l.Gap(r.began, r.ended); v.Gap > gapBound(r.Lease) {
		v.say("nobody held the lock for %v, from %s to %s; at most %v are allowed", v.Gap.Round(time.Millisecond),
			before, after, gapBound(r.Lease))
	}
	if r.recovery < 0 || r.recovery > r.bound {
		v.say("after the last kill nobody held the lock for %v; at most %v are allowed",
			r.recovery.Round(time.Millisecond), r.bound)
	}
	v.Recovery, v.Faults, v.Weather, v.Errors = r.recovery, r.struck.All(), r.weather.All(), r.errors.All()
	return v, nil
}

// logOf returns the log of what the clients have written down, and the resource.
func logOf(written []holds.Hold, effects []trial.Effect) *trial.Log {
	l := &trial.Log{Effects: effects}
	for _, w := range written {
		h := trial.Hold{Lock: lockName, Owner: w.Owner, Token: w.Token, Begin: w.Begin, Last: w.End, Killed: w.Killed}
		if h.Killed {
			h.Last = h.Begin
		}
		l.Holds = append(l.Holds, h)
	}
	l.EndKilled()
	return l
}

// judge has the log judged, and compares it with what the service says of the lock: each hold
// is a tenure of its history, of the same owner.
func judge(l *trial.Log, tenures []service.Tenure) *verdict {
	v := &verdict{Holds: len(l.Holds), Of: map[string]int{}, Effects: len(l.Effects), Late: len(l.Late())}
	for _, f := range l.Judge() {
		v.say("%s: %s", f.Sin, f.Text)
	}
	for _, e := range l.Effects {
		if e.Refused {
			v.Refused++
		}
	}
	owners := map[uint64]string{}
	for _, t := range tenures {
		owners[t.Token] = t.Owner
	}
	for _, h := range l.Holds {
		kind, _, _ := strings.Cut(h.Owner, "-")
		v.Of[kind]++
		v.Tokens = max(v.Tokens, h.Token)
		switch owner, found := owners[h.Token]; {
		case !found:
			v.say("token %d of %s is in no tenure of the history", h.Token, h.Owner)
		case owner != "" && owner != h.Owner: // a crash can hide who it was
			v.say("token %d was held by %s, and the history says by %s", h.Token, h.Owner, owner)
		}
	}
	return v
}
