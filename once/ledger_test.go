// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// ledgers are data that a lock may have: ledgers, and what only looks like one.
var ledgers = []string{
	"", " ", "x", "{}", "[]", "null", "0", "\x00", `"once/1"`,
	`{"ledger":"once/1"}`,
	`{"ledger":"once/2"}`,
	`{"ledger":"once/2"}}`,
	`{"ledger":"once/2"}]`,
	`{"ledger":"once/2"} {}`,
	`{"ledger":"once/3"}`,
	`{"ledger":"once/1","last":3}`,
	`{"ledger":"once/1","last":4,"runs":[{"slot":4,"token":1,"owner":"a","begun":1}]}`,
	`{"ledger":"once/1","last":2,"runs":[{"slot":4,"token":1,"state":"done"},{"slot":2,"token":3,"state":"reset","error":"why"}]}`,
	`{"ledger":"once/1","last":-9223372036854775808,"runs":[{"slot":-9223372036854775808,"token":2,"state":"reset"}]}`,
	`{"ledger":"once/1","runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/1","last":4,"begun":[[6,7]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","last":4,"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","floor":4,"runs":[{"slot":4,"token":1,"state":"done","begun":1,"ended":2,"took":1,"attempts":1}]}`,
	`{"ledger":"once/2","floor":4,"runs":[{"slot":4,"token":1,"state":"failed","exit":3,"error":"x\ufffd<","missed":2}]}`,
	`{"ledger":"once/2","floor":4}`,
	`{"ledger":"once/2","begun":[[4,4]],"runs":[{"slot":5,"token":1}]}`,
	`{"ledger":"once/2","begun":[[4,4]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","floor":2,"begun":[[4,6],[8,9]],"runs":[{"slot":9,"token":1,"state":"done"},{"slot":5,"token":2}]}`,
	`{"ledger":"once/2","floor":2,"begun":[[4,6],[8,9]],"runs":[{"slot":9,"token":1,"state":"done"},{"slot":7,"token":2,"state":"reset","error":"why"}]}`,
	`{"ledger":"once/2","floor":3,"begun":[[4,6]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","floor":4,"begun":[[4,6]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","floor":3,"begun":[[4,6]],"runs":[{"slot":4,"token":1,"state":"changed"}],"schedule":{"text":"x","after":4,"sum":"00"}}`,
	`{"ledger":"once/2","floor":3,"runs":[{"slot":3,"token":1}],"schedule":{"after":4}}`,
	`{"ledger":"once/2","schedule":{"text":"x","after":4,"next":5,"sum":"00"}}`,
	`{"ledger":"once/2","begun":[[4,6],[7,9]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","begun":[[8,9],[4,6]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","begun":[[6,4]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","begun":[[4]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","begun":[[0,0],[2,2],[4,4],[6,6],[8,8],[10,10],[12,12],[14,14],[16,16],[18,18],[20,20],[22,22],[24,24],[26,26],[28,28],[30,30],[32,32]],"runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","floor":-9223372036854775808,"runs":[{"slot":-9223372036854775808,"token":2}]}`,
	`{"ledger":"once/2","floor":9223372036854775807,"runs":[{"slot":9223372036854775807,"token":2}]}`,
	`{"ledger":"once/2","floor":9223372036854775807,"begun":[[3,4]],"runs":[{"slot":4,"token":2}]}`,
	`{"ledger":"once/2","floor":9223372036854775808}`,
	`{"ledger":"once/2","floor":4,"runs":[{"slot":4,"token":1,"state":"odd"}]}`,
	`{"ledger":"once/2","floor":5,"runs":[{"slot":5,"token":2},{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","runs":[{"slot":4,"token":1}]}`,
	`{"ledger":"once/2","floor":1,"runs":[` + strings.Repeat(`{"slot":1,"token":1},`, Kept) + `{"slot":1,"token":1}]}`,
	`{"ledger":"every/1","id":"x","n":3,"runs":[{"slot":3,"token":99}]}`,
	`{"ledger":"every/1"}`,
	`{"ledger":"every/1","id":"x","n":0,"age":0}`,
	`{"ledger":"every/1","id":"x","n":3,"age":2500,"period":5000,"runs":[{"slot":3,"token":1,"state":"done"}]}`,
	`{"ledger":"every/1","id":"x","n":9223372036854775807,"age":0}`,
	`{"ledger":"every/1","id":"x","n":9223372036854775806,"age":60000}`,
	`{"ledger":"every/1","id":"x","n":1,"age":6324480000000}`,
	`{"ledger":"every/1","id":"x","n":1,"age":9223372036854775807}`,
	`{"ledger":"every/1","id":"x","n":-1,"age":-1}`,
	`{"ledger":"every/2","id":"x","n":1}`,
}

func addLedgers(f *testing.F) {
	for _, data := range ledgers {
		f.Add([]byte(data), uint64(5), int64(4))
	}
	f.Add([]byte(`{"ledger":"every/1","id":"x","n":1,"age":6324480000000}`), uint64(5), int64(time.Hour))
	full := ledger{}
	for slot := range int64(2 * Kept) {
		full = full.begin(entry{Slot: slot, Token: uint64(slot) + 1, Owner: "a"}, slot)
	}
	f.Add(full.bytes(), uint64(2*Kept), int64(2*Kept))
	f.Add(full.bytes()[:len(full.bytes())-1], uint64(2*Kept), int64(2*Kept))
}

// refusesTrailing fails the test if data that are a ledger are one with something
// behind them, too.
func refusesTrailing(t *testing.T, data []byte, parse func([]byte) error) {
	t.Helper()
	for _, more := range []string{"}", "]", "x", `{"ledger":"once/2"}`} {
		if parse(append(bytes.Clone(data), more...)) == nil {
			t.Errorf("%q is a ledger with %q behind it", data, more)
		}
	}
}

// checkRead fails the test unless runs that were read are those of a ledger.
func checkRead(t *testing.T, runs []entry, token uint64) {
	t.Helper()
	last := uint64(1)
	for _, e := range runs {
		if e.Token < last || e.Token > token || e.Took < 0 || e.Missed < 0 {
			t.Fatalf("%+v was read of a record with token %d", runs, token)
		}
		last = e.Token
	}
	if len(runs) > Kept {
		t.Fatalf("%d runs were read", len(runs))
	}
}

// The difference of two slots fits in no int64.
func TestAheadOfAll(t *testing.T) {
	l := ledger{}.begin(entry{Slot: math.MinInt64 + 1, Token: 1}, math.MinInt64)
	for _, slot := range []int64{0, math.MaxInt64} {
		if err := l.refuse(slot, &Options{MaxAhead: 10}, 0); !errors.Is(err, ErrSlotAhead) {
			t.Errorf("slot %d: %v", slot, err)
		}
	}
	if err := l.refuse(math.MinInt64+11, &Options{MaxAhead: 10}, 0); err != nil {
		t.Error(err)
	}
}

// FuzzLedger: whatever the data are, they are read as the ledger that they are, or
// refused; and the rules of Once hold for each ledger that is read.
func FuzzLedger(f *testing.F) {
	addLedgers(f)
	f.Fuzz(func(t *testing.T, data []byte, token uint64, slot int64) {
		l, err := parseOnce(data, token)
		if err != nil {
			if len(data) == 0 || !errors.Is(err, tenure.ErrUnreadable) || l.Begun != nil || l.Runs != nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%+v, %v", l, err)
			}
			return
		}
		newest, any := l.newest()
		if any && newest.State != StateReset && !l.Begun.has(newest.Slot) {
			t.Fatalf("%q is read as %+v", data, l)
		}
		checkRead(t, l.Runs, token)
		if len(data) > 0 {
			refusesTrailing(t, data, func(data []byte) error { _, err := parseOnce(data, token); return err })
			if shown, ok := Read(tenure.Status{Name: LockName("x"), Data: data, Token: token}); ok != (len(shown.Runs) > 0) || shown.Period < 0 {
				t.Fatalf("%q is shown as %+v, %v", data, shown, ok)
			}
		}
		again, err := parseOnce(l.bytes(), token)
		if err != nil || !bytes.Equal(again.bytes(), l.bytes()) {
			t.Fatalf("%s was written, and read as %s, %v", l.bytes(), again.bytes(), err)
		}
		n := 1 + int(uint64(slot)%uint64(len(l.bytes())-1))
		if cut, err := parseOnce(l.bytes()[:n], token); err == nil {
			t.Fatalf("%s was cut off, and read as %s", l.bytes()[:n], cut.bytes())
		}

		// No slot is begun that was begun before, but one of a run that has no end, with
		// redo, if its holder is dead: the newest run alone where slots only rise.
		run, known := l.of(slot)
		for _, o := range []Options{{}, {Redo: true}, {OutOfOrder: true}, {Redo: true, OutOfOrder: true}} {
			o.MaxAhead = -1
			for _, alive := range []uint64{0, run.Token} {
				why := l.refuse(slot, &o, alive)
				redo := o.Redo && known && run.open() && alive == 0 && (o.OutOfOrder || newest.Slot == slot)
				if want := !l.Begun.has(slot) || redo; (why == nil) != want {
					t.Fatalf("slot %d of %s, %+v, alive %d: %v", slot, l.bytes(), o, alive, why)
				}
			}
		}
		if token == 0 || l.Begun.has(slot) {
			return
		}
		for _, first := range []int64{slot, math.MinInt64} {
			begun := l.begin(entry{Slot: slot, Token: token, Owner: "b"}, first)
			if err := begun.refuse(slot, &Options{MaxAhead: -1}, 0); !errors.Is(err, ErrDone) {
				t.Fatalf("slot %d was begun: %v", slot, err)
			}
			ended := begun.end(entry{Slot: slot, Token: token, State: StateFailed, Error: textOf(errors.New(string(data)))})
			opened := ended.reset(entry{Slot: slot, Token: token, State: StateReset})
			for _, next := range []ledger{begun, ended, opened} {
				if _, err := parseOnce(next.bytes(), token); err != nil || len(next.Runs) > Kept {
					t.Fatalf("%s: %v", next.bytes(), err)
				}
				for _, s := range l.Begun {
					if !next.Begun.has(s.First) || !next.Begun.has(s.Last) {
						t.Fatalf("%s after %s: slots %d to %d were begun", next.bytes(), l.bytes(), s.First, s.Last)
					}
				}
			}
			if slot != math.MinInt64 && opened.refuse(slot, &Options{MaxAhead: -1}, 0) != nil {
				t.Fatalf("slot %d was opened in %s", slot, opened.bytes())
			}
		}
	})
}

// What is known of another ledger, or of another period, says nothing of this one.
func TestSince(t *testing.T) {
	known := since{id: "x", n: 3, age: time.Minute, at: time.Hour}
	for _, c := range []struct {
		other        since
		older, newer bool // other says more, by an hour; it is of a later period
	}{
		{since{id: "x", n: 3, age: time.Minute, at: 0}, true, false},
		{since{id: "x", n: 3, age: 0, at: time.Hour}, false, false},
		{since{id: "x", n: 2, age: time.Minute, at: 0}, false, false},
		{since{id: "x", n: 4, age: time.Minute, at: 0}, false, true},
		{since{id: "y", n: 3, age: time.Minute, at: 0}, false, false},
		{since{id: "y", n: 4, age: time.Minute, at: 0}, false, false},
		{since{}, false, false},
	} {
		want := known
		if c.older {
			want.age += time.Hour
		}
		if got := known.older(c.other); got != want {
			t.Errorf("%+v after %+v: %+v, want %+v", known, c.other, got, want)
		}
		if want = known; c.newer {
			want = c.other
		}
		if got := known.newer(c.other); got != want {
			t.Errorf("of %+v and %+v the newer is %+v", known, c.other, got)
		}
	}
}

// FuzzEveryLedger is as FuzzLedger, for Every.
func FuzzEveryLedger(f *testing.F) {
	addLedgers(f)
	f.Fuzz(func(t *testing.T, data []byte, token uint64, at int64) {
		l, err := parseEvery(data, token)
		if err != nil {
			if len(data) == 0 || !errors.Is(err, tenure.ErrUnreadable) || l.ID != "" || l.Runs != nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%+v, %v", l, err)
			}
			return
		}
		if len(data) == 0 {
			return
		}
		refusesTrailing(t, data, func(data []byte) error { _, err := parseEvery(data, token); return err })
		if l.ID == "" || l.Kind != everyKind {
			t.Fatalf("%q is read as %+v", data, l)
		}
		checkRead(t, l.Runs, token)
		again, err := parseEvery(l.bytes(), token)
		if err != nil || !bytes.Equal(again.bytes(), l.bytes()) {
			t.Fatalf("%s was written, and read as %s, %v", l.bytes(), again.bytes(), err)
		}

		// A claim makes a ledger of the next period, whose age is not above what was
		// carried over.
		const period = time.Minute
		now := time.Duration(max(at, 0) % int64(maxPeriod))
		s := l.noted(0)
		aged := l.aged(s, now)
		if aged.age() < l.age() || aged.age() > l.age()+now || aged.N != l.N {
			t.Fatalf("%s after %v: %s", l.bytes(), now, aged.bytes())
		}
		if _, err := parseEvery(aged.bytes(), token); err != nil {
			t.Fatalf("%s after %v: %v", l.bytes(), now, err)
		}
		age := s.now(now)
		if age < period || token == 0 || l.N == math.MaxInt64 { // no count goes so far
			return
		}
		for _, catchUp := range []int{0, 1, math.MaxInt} {
			next := l.claimed(age, period, catchUp, entry{Token: token})
			if next.N != l.N+1 || next.ID != l.ID || next.age() > age-period || catchUp == 0 && next.Age != 0 || catchUp == 1 && next.age() > period ||
				next.Runs[len(next.Runs)-1].Slot != next.N {
				t.Fatalf("catch up %d: %s after %s at %v", catchUp, next.bytes(), l.bytes(), age)
			}
			if _, err := parseEvery(next.bytes(), token); err != nil {
				t.Fatalf("%s: %v", next.bytes(), err)
			}
		}
	})
}
