// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
)

// tolerance is how late a process may stamp a report, by its scheduling.
const tolerance = 100 * time.Millisecond

// tenureSeen is one leader's time, as the reports tell it.
type tenureSeen struct {
	Token    uint64
	Replica  string
	PID      int
	From, To time.Time // its work; To is zero while it goes on
	Beat     time.Time // when the last confirmed heartbeat was sent
	End      kind      // killed, steppedDown, released, lost, or empty
	asked    bool      // it was asked to step down
	Previous *previous
}

// tenuresIn finds the tenures in the reports. Those of one replica must be in
// their order.
func tenuresIn(reports []report) []tenureSeen {
	var all []tenureSeen
	last := map[string]int{} // the index of each replica's latest tenure
	for _, r := range reports {
		if r.Kind == leading {
			last[r.Replica] = len(all)
			all = append(all, tenureSeen{
				Token: r.Token, Replica: r.Replica, PID: r.PID, From: r.Time, Beat: r.Time, Previous: r.Previous,
			})
			continue
		}
		i, ok := last[r.Replica]
		if !ok {
			continue
		}
		t := &all[i]
		switch {
		case r.Kind == killed && t.End == "":
			t.To, t.End = r.Time, killed
		case r.Token != t.Token:
		case r.Kind == renewed:
			t.Beat = r.Time.Add(-time.Duration(r.Took))
		case r.Kind == stopped:
			t.To = r.Time
		case r.Kind == steppedDown:
			t.asked = true
		case r.Kind == released && t.End == "" && t.asked:
			t.End = steppedDown
		case r.Kind == released && t.End == "", r.Kind == lost:
			t.End = r.Kind
		}
	}
	slices.SortStableFunc(all, func(a, b tenureSeen) int { return a.From.Compare(b.From) })
	return all
}

// check holds the reports of a whole demo against what Tenure promises and
// what the play wants: the first leader is killed, the second one is asked to
// step down, and the last one to end. It returns the tenures in their order, and an error that names each
// promise that the reports break.
func check(lease time.Duration, reports []report) ([]tenureSeen, error) {
	all := tenuresIn(reports)
	errs := []error{checkTokens(all), checkAlone(all), checkExits(reports)}
	for i, t := range all {
		want := released
		switch i {
		case 0:
			want = killed
		case 1:
			want = steppedDown
		}
		if t.End != want {
			errs = append(errs, fmt.Errorf("the tenure with token %d of %s ended as %q: it should have been %q", t.Token, t.Replica, t.End, want))
		}
		if i+1 < len(all) {
			errs = append(errs, checkSuccession(lease, t, all[i+1]))
		}
		if slices.ContainsFunc(all[:i], func(u tenureSeen) bool { return u.Replica == t.Replica }) {
			errs = append(errs, fmt.Errorf("%s led twice", t.Replica))
		}
	}
	return all, errors.Join(errs...)
}

// checkTokens wants the tokens 1, 2, 3.
func checkTokens(all []tenureSeen) error {
	tokens := make([]uint64, len(all))
	for i, t := range all {
		tokens[i] = t.Token
	}
	if want := []uint64{1, 2, 3}; !slices.Equal(tokens, want) {
		return fmt.Errorf("the tokens of the leaders are %v: they must be %v", tokens, want)
	}
	return nil
}

// checkAlone wants no two leaders at once.
func checkAlone(all []tenureSeen) error {
	for i, t := range all {
		for _, u := range all[i+1:] {
			if t.To.IsZero() || u.From.Before(t.To) {
				return fmt.Errorf("two leaders at once: %s with token %d began before %s with token %d had ended",
					u.Replica, u.Token, t.Replica, t.Token)
			}
		}
	}
	return nil
}

// checkSuccession wants that a killed leader's lease had run out before the
// next one led, and that the next one found in the record how it ended.
func checkSuccession(lease time.Duration, t, next tenureSeen) error {
	end := endOf(t.End)
	if t.End == killed {
		if stood := next.From.Sub(t.Beat); stood < lease-tolerance {
			return fmt.Errorf("%s took over %s after the last heartbeat of %s, which was killed: the lease is %s",
				next.Replica, inSeconds(stood), t.Replica, exactly(lease))
		}
	}
	want := previous{Owner: t.Replica, Token: t.Token, End: end}
	switch got := next.Previous; {
	case got == nil:
		return fmt.Errorf("%s found no tenure before its own: it must be %s", next.Replica, want)
	case *got != want:
		return fmt.Errorf("%s found before its own tenure %s: it must be %s", next.Replica, *got, want)
	}
	return nil
}

// endOf returns how the records must say that a tenure ended.
func endOf(k kind) string {
	switch k {
	case killed:
		return tenure.EndExpired
	case steppedDown:
		return tenure.EndSteppedDown
	}
	return tenure.EndReleased
}

// checkHistory wants that the history of the lock tells what was seen.
func checkHistory(seen []tenureSeen, history []tenure.Tenure) error {
	if len(history) != len(seen) {
		return fmt.Errorf("the history has %d tenures: %d were seen", len(history), len(seen))
	}
	var errs []error
	for i, h := range history { // the newest first
		t := seen[len(seen)-1-i]
		if h.Token != t.Token || h.Owner != t.Replica || h.End != endOf(t.End) || (h.Request != nil) != t.asked {
			errs = append(errs, fmt.Errorf("the history says %s, token %d, %q: seen was %s, token %d, %q", h.Owner, h.Token, h.End, t.Replica, t.Token, t.End))
		}
	}
	return errors.Join(errs...)
}

// checkExits wants that each process that was started was waited for, and that
// only the killed one failed.
func checkExits(reports []report) error {
	var errs []error
	type end struct{ killed, exited bool }
	ends := map[int]*end{}
	for _, r := range reports {
		e := ends[r.PID]
		switch {
		case r.Kind == started:
			ends[r.PID] = &end{}
		case e == nil:
		case r.Kind == killed:
			e.killed = true
		case r.Kind == exited:
			e.exited = true
			if e.killed != (r.Error != "") {
				errs = append(errs, fmt.Errorf("%s (pid %d) exited with status %q", r.Replica, r.PID, cmp.Or(r.Error, "0")))
			}
		}
	}
	for pid, e := range ends {
		if !e.exited {
			errs = append(errs, fmt.Errorf("process %d was not waited for", pid))
		}
	}
	return errors.Join(errs...)
}
