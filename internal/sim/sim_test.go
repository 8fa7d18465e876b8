// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/trace"
)

// TestSeedsReplay: a seed does the same again, event by event. What follows the
// order of a map shows in one seed of some fifty.
func TestSeedsReplay(t *testing.T) {
	enginetest.MakeVerify(t)
	for seed := range uint64(110) {
		one, two := &Trace{Events: trace.NewRecorder()}, &Trace{}
		if _, err := Run(Seed(seed), nil, one); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		tape := Record(Seed(seed))
		if _, err := Run(tape, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(Play(tape.Choices), nil, two); err != nil {
			t.Fatal(err)
		}
		if one.Text(0) != two.Text(0) {
			t.Errorf("seed %d: played from its tape it does something else", seed)
		}
		if c := Schedule(Seed(seed)); len(one.Events.Events()) == 0 && c.Clients == 0 && !c.Guarded && !c.Loses {
			t.Errorf("seed %d: the model gets no events", seed)
		}
	}
}

// TestDuplicatesAfterADeletion: an operator deletes a record, and then a claim and a heartbeat
// of its former holder come once more. They exclude no process, and the judge is not to say
// that the heartbeat has changed what was before the claim, or has lost data.
func TestDuplicatesAfterADeletion(t *testing.T) {
	for _, seed := range []uint64{544393, 7074274} {
		if _, err := Run(Seed(seed), nil, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestSchedulesAreWorthTheirCount: each has at least 200 events and 3 processes,
// and most have what can go wrong.
func TestSchedulesAreWorthTheirCount(t *testing.T) {
	enginetest.MakeVerify(t)
	mixed := 0
	sum := explore(t, 300, func(seed uint64, c *Config) {
		if c.Processes+c.Clients < minProcesses || !c.Faults {
			t.Errorf("seed %d: %d processes and %d clients, faults %v", seed, c.Processes, c.Clients, c.Faults)
		}
	})
	if sum.Least < 200 {
		t.Errorf("a schedule has %d events", sum.Least)
	}
	for _, what := range []Happening{Takeover, Request, LateWrite, WrongClock, Pause} {
		if n := sum.With[what]; n < int(sum.Schedules)/2 {
			t.Errorf("%d of %d schedules have a %s, want half at least", n, sum.Schedules, what)
		}
	}
	for seed := range uint64(300) {
		if Schedule(Seed(seed)).Mixed {
			mixed++
		}
	}
	if mixed < 10 {
		t.Errorf("%d schedules have processes with a timing of their own", mixed)
	}
}

// TestShrink: a violation becomes small, and still breaks the same rule. The rule here
// is that no lock is taken over, which many schedules break.
func TestShrink(t *testing.T) {
	enginetest.MakeVerify(t)
	run := func(src Source) error {
		tally, err := Run(src, unasked, nil)
		if err == nil && tally.Of[Takeover] > 0 {
			err = &Violation{Rule: "no takeover"}
		}
		return err
	}
	for seed := range uint64(100) {
		tape := Record(Seed(seed))
		if run(tape) == nil || len(tape.Choices) < 400 { // a short one says little
			continue
		}
		few := Shrink(slices.Clone(tape.Choices), "no takeover", 100, run)
		var v *Violation
		if again := run(Play(few)); !errors.As(again, &v) || v.Rule != "no takeover" {
			t.Errorf("shrunk to what gives %v", again)
		}
		if len(few) > len(tape.Choices)/2 {
			t.Errorf("%d choices shrunk to %d, want half at most", len(tape.Choices), len(few))
		}
		t.Logf("seed %d: %d choices shrunk to %d", seed, len(tape.Choices), len(few))
		return
	}
	t.Fatal("nothing is found")
}

func TestParseFaults(t *testing.T) {
	for list, want := range map[string]Fault{"pauses": Pauses, "late,crashes": Late | Crashes} {
		if got, err := ParseFaults(list); got != want || err != nil {
			t.Errorf("%q: %b, %v, want %b", list, got, err, want)
		}
	}
	if _, err := ParseFaults("pauses,rain"); err == nil || !strings.Contains(err.Error(), `"rain"`) {
		t.Errorf("error %v", err)
	}
}

// TestFaultsAreLeftOut: what is switched off does not happen.
func TestFaultsAreLeftOut(t *testing.T) {
	for seed := range uint64(50) {
		tally, err := Run(Seed(seed), func(c *Config) { c.Without = noFaults - 1 }, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, fault := range []Happening{Pause, Crash, Step, LateWrite} {
			if n := tally.Of[fault]; n > 0 {
				t.Errorf("seed %d: a %s %d times", seed, fault, n)
			}
		}
	}
}

// TestHistoryIsJudged: a missing or wrong term in the history is found.
func TestHistoryIsJudged(t *testing.T) {
	first := protocol.HistoryKey("k", 1)
	for _, tt := range []struct {
		spoil func(*lock)
		want  string
	}{
		{func(*lock) {}, ""},
		{func(l *lock) { delete(l.stores, first) }, "lacks token 1"},
		{func(l *lock) { l.stores[first].rec.Owner = "somebody" }, "has token 1 as"},
	} {
		cfg := Config{Timing: Tight(), Processes: 3}
		l := newLock(Seed(1), cfg)
		for i, p := range l.procs {
			l.after(time.Duration(i)*l.t.Lease, func() { l.often(true, 0, l.t.Lease/16, l.t.Lease/2, p.act) })
		}
		l.run(func() bool { return l.last >= 3 && l.holder() != nil && !l.chronicled() })
		tt.spoil(l)
		l.checkHistory()
		if !strings.Contains(l.violation, tt.want) || (l.violation == "") != (tt.want == "") {
			t.Errorf("violation %q, want %q", l.violation, tt.want)
		}
	}
}

// TestFenceIsJudged: a write of an earlier grant that passes is found.
func TestFenceIsJudged(t *testing.T) {
	l := newLock(Seed(1), Config{Timing: Tight(), Processes: 2})
	m := &machine{p: l.procs[0]}
	l.arrives(m, 2, 7)
	l.arrives(m, 1, 7)
	if !strings.Contains(l.violation, "passes the fence") {
		t.Errorf("violation %q", l.violation)
	}
}
