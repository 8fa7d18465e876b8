// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
)

// The rules of [Once] are here: no clock, no store, no goroutine.

// Kept is how many runs a ledger keeps.
const Kept = 20

// maxErrorLen bounds the text of an error in the ledger: each heartbeat writes the
// ledger again.
const maxErrorLen = 200

const (
	onceKind  = "once/2"
	everyKind = "every/1"
)

// entry is a run in the form in which it is stored.
type entry struct {
	Slot     int64  `json:"slot"`
	Token    uint64 `json:"token"`
	Owner    string `json:"owner,omitempty"`
	Begun    int64  `json:"begun,omitempty"` // Unix milliseconds
	Ended    int64  `json:"ended,omitempty"`
	Took     int64  `json:"took,omitempty"` // milliseconds
	State    State  `json:"state,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	Exit     int    `json:"exit,omitempty"`
	Error    string `json:"error,omitempty"`
	Missed   int    `json:"missed,omitempty"`
	Left     string `json:"left,omitempty"`
}

// open says that the run has no end: its state is empty in the store.
func (e entry) open() bool { return e.State == "" }

func (e entry) valid() bool {
	switch e.State {
	case "", StateDone, StateFailed, StateReset, StateChanged:
		return e.Token > 0 && e.Took >= 0 && e.Missed >= 0
	case StateRunning, StateUnknown:
	}
	return false
}

// run returns the entry as others see it. Alive is the token of a holder that may be at
// work, 0 without one.
func (e entry) run(alive uint64) Run {
	r := Run{
		Slot: e.Slot, State: e.State, Token: e.Token, Owner: e.Owner, Took: time.Duration(e.Took) * time.Millisecond,
		Attempts: e.Attempts, Exit: e.Exit, Error: e.Error, Missed: e.Missed, Left: e.Left,
	}
	if e.Begun != 0 {
		r.Begun = time.UnixMilli(e.Begun)
	}
	if e.Ended != 0 {
		r.Ended = time.UnixMilli(e.Ended)
	}
	if e.open() {
		r.State = StateUnknown
		if e.Token == alive {
			r.State = StateRunning
		}
	}
	return r
}

// ledger is the data of the lock of [Once]. The newest run is the last one of Runs.
type ledger struct {
	Begun    begun
	Runs     []entry
	Schedule *known // nil: unknown
}

// stored is a ledger in the form in which it is stored.
type stored struct {
	Kind  string     `json:"ledger"`
	Floor *int64     `json:"floor,omitempty"` // nil: no floor
	Begun [][2]int64 `json:"begun,omitempty"` // above the floor: the first and the last slot of each span
	Runs  []entry    `json:"runs,omitempty"`

	Schedule *known `json:"schedule,omitempty"`

	Last *int64 `json:"last,omitempty"` // of oldKind: what the floor is now
}

// oldKind is the kind of a ledger whose slots only rose.
const oldKind = "once/1"

// parseOnce reads the data of a lock. No data means that no slot was begun. Token is
// that of the record: no run can have a higher one.
func parseOnce(data []byte, token uint64) (ledger, error) {
	if len(data) == 0 {
		return ledger{}, nil
	}
	var s stored
	err := json.Unmarshal(data, &s)
	if err == nil {
		err = s.check(token)
	}
	if err != nil {
		return ledger{}, unreadable(data, err)
	}
	return ledger{Begun: s.begun(), Runs: s.Runs, Schedule: s.Schedule}, nil
}

func (s stored) begun() begun {
	var b begun
	if floor := cmp.Or(s.Floor, s.Last); floor != nil {
		b = append(b, span{math.MinInt64, *floor})
	}
	for _, pair := range s.Begun {
		b = append(b, span{pair[0], pair[1]})
	}
	return b
}

func (s stored) check(token uint64) error {
	switch {
	case s.Kind == oldKind:
		if (s.Last == nil) != (len(s.Runs) == 0) || s.Floor != nil || s.Begun != nil {
			return fmt.Errorf("its last slot does not agree with its %d runs", len(s.Runs))
		}
	case s.Kind != onceKind:
		return fmt.Errorf("its kind is %.40q: it must be %q", s.Kind, onceKind)
	case s.Last != nil:
		return errors.New("it has a last slot, which only an older kind has")
	}
	slots := s.begun()
	if err := slots.check(); err != nil {
		return err
	}
	if err := checkRuns(s.Runs, token); err != nil {
		return err
	}
	if s.Schedule != nil && (s.Schedule.Text == "" || s.Schedule.Sum == "") {
		return errors.New("its schedule is invalid")
	}
	if n := len(s.Runs); n > 0 && s.Runs[n-1].State != StateReset && !slots.has(s.Runs[n-1].Slot) {
		return fmt.Errorf("its last run is for slot %d, which has not begun", s.Runs[n-1].Slot)
	}
	if len(s.Runs) == 0 && len(slots) > 0 {
		return errors.New("it has begun slots but no runs")
	}
	return nil
}

func unreadable(data []byte, err error) error {
	return fmt.Errorf("%w: the lock's data are not a ledger: %w: %.60q; find out which program wrote them, or start a new ledger with a reset",
		tenure.ErrUnreadable, err, data)
}

func checkRuns(runs []entry, token uint64) error {
	if len(runs) > Kept {
		return fmt.Errorf("it has %d runs: at most %d are kept", len(runs), Kept)
	}
	for i, e := range runs {
		if !e.valid() {
			return fmt.Errorf("run %d is invalid", i+1)
		}
		if e.Token > token || i > 0 && e.Token < runs[i-1].Token {
			return fmt.Errorf("run %d has token %d, which is out of order", i+1, e.Token)
		}
	}
	return nil
}

func (l ledger) bytes() []byte {
	s := stored{Kind: onceKind, Runs: l.Runs, Schedule: l.Schedule}
	for _, above := range l.Begun.spans() {
		s.Begun = append(s.Begun, [2]int64{above.First, above.Last})
	}
	if floor, ok := l.Begun.floor(); ok {
		s.Floor = &floor
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) //nolint:forbidigo // unreachable: numbers and strings
	}
	return b
}

// newest returns the run that was begun last.
func (l ledger) newest() (entry, bool) {
	if len(l.Runs) == 0 {
		return entry{}, false
	}
	return l.Runs[len(l.Runs)-1], true
}

// of returns the latest run of a slot, if the ledger still has it.
func (l ledger) of(slot int64) (entry, bool) {
	for _, e := range slices.Backward(l.Runs) {
		switch {
		case e.State == StateReset && (e.Slot == slot || e.Slot == math.MinInt64):
			return entry{}, false // what came before the reset may run again
		case e.State != StateReset && e.State != StateChanged && e.Slot == slot:
			return e, true
		}
	}
	return entry{}, false
}

// refuse returns why a slot must not be begun, nil if it may be: it was not begun, or
// it is to be redone, and the end of its run is not known. Alive is as for entry.run.
func (l ledger) refuse(slot int64, o *Options, alive uint64) error {
	highest, any := l.Begun.highest()
	if !l.Begun.has(slot) {
		// The difference of two int64 fits in no int64.
		if any && slot > highest && o.MaxAhead >= 0 && highest != math.MinInt64 && uint64(slot)-uint64(highest) > uint64(o.MaxAhead) { //nolint:gosec // wraps as it should: slot is higher
			return &SlotAheadError{Slot: slot, Last: highest, MaxAhead: o.MaxAhead, Run: l.runOf(highest, alive)}
		}
		return nil
	}
	e, ok := l.of(slot)
	switch floor, closed := l.Begun.floor(); {
	case ok:
	case o.OutOfOrder && (!closed || slot > floor): // begun, and not given up
		return &DoneError{Run: Run{Slot: slot}}
	default:
		last := l.runOf(highest, alive)
		for _, e := range l.Runs {
			if e.State == StateChanged && e.Slot >= slot {
				last = e.run(alive)
			}
		}
		return &PassedError{Slot: slot, Last: highest, Run: last}
	}
	newest, _ := l.newest()
	if o.Redo && e.open() && e.Token != alive && (o.OutOfOrder || newest.Slot == slot) {
		return nil
	}
	return &DoneError{Run: e.run(alive)}
}

// runOf returns the run of a slot. Its Token is 0 if the ledger has none.
func (l ledger) runOf(slot int64, alive uint64) Run {
	if e, ok := l.of(slot); ok {
		return e.run(alive)
	}
	return Run{Slot: slot}
}

// begin marks a slot as begun, and all from the first number on, between which and
// the slot the schedule has no other.
func (l ledger) begin(e entry, first int64) ledger {
	l.Begun = l.Begun.with(span{First: first, Last: e.Slot}).bounded(nil)
	l.Runs = appended(l.Runs, e)
	return l
}

// reset opens a slot again, or all if it is the lowest number.
func (l ledger) reset(e entry) ledger {
	if e.Slot == math.MinInt64 {
		l.Begun = nil
	} else {
		l.Begun = l.Begun.without(e.Slot).bounded(&e.Slot)
	}
	l.Runs = appended(l.Runs, e)
	return l
}

// end writes down how the newest run ended.
func (l ledger) end(e entry) ledger {
	l.Runs = append(slices.Clone(l.Runs[:len(l.Runs)-1]), e)
	return l
}

// appended adds a run to a copy of the runs, and drops the oldest.
func appended(runs []entry, e entry) []entry {
	return append(slices.Clone(runs[max(0, len(runs)-Kept+1):]), e)
}

// textOf returns the text of an error as a ledger keeps it.
func textOf(err error) string {
	return cut(text.Line(err.Error()))
}

func cut(line string) string {
	if len(line) > maxErrorLen {
		return strings.ToValidUTF8(line[:maxErrorLen-3], "") + "..."
	}
	return line
}
