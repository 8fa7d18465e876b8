// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"encoding/json"
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
	onceKind  = "once/1"
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
}

// open says that the run has no end: its state is empty in the store.
func (e entry) open() bool { return e.State == "" }

func (e entry) valid() bool {
	switch e.State {
	case "", StateDone, StateFailed, StateReset:
		return e.Token > 0 && e.Took >= 0 && e.Missed >= 0
	case StateRunning, StateUnknown:
	}
	return false
}

// run returns the entry as others see it. Alive is the token of a holder that may
// be at work, 0 if there is none.
func (e entry) run(alive uint64) Run {
	r := Run{
		Slot: e.Slot, State: e.State, Token: e.Token, Owner: e.Owner, Took: time.Duration(e.Took) * time.Millisecond,
		Attempts: e.Attempts, Exit: e.Exit, Error: e.Error, Missed: e.Missed,
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

// ledger is what the lock of [Once] has as its data. The newest run is the last
// one of Runs, and Last its slot: slots only rise, but for a reset.
type ledger struct {
	Kind string  `json:"ledger"`
	Last *int64  `json:"last,omitempty"` // nil: no slot was begun
	Runs []entry `json:"runs,omitempty"`
}

// parseOnce reads the data of a lock. No data means that no slot was begun. Token is
// that of the record: no run can have a higher one.
func parseOnce(data []byte, token uint64) (ledger, error) {
	var l ledger
	if len(data) == 0 {
		return ledger{Kind: onceKind}, nil
	}
	err := json.Unmarshal(data, &l)
	switch {
	case err != nil:
	case l.Kind != onceKind:
		err = fmt.Errorf("its kind is %.40q: it must be %q", l.Kind, onceKind)
	case (l.Last == nil) != (len(l.Runs) == 0):
		err = fmt.Errorf("it has %d runs, and no last slot, or the other way round", len(l.Runs))
	case l.Last != nil && l.Runs[len(l.Runs)-1].Slot != *l.Last:
		err = fmt.Errorf("its last slot is %d, and its last run that of slot %d", *l.Last, l.Runs[len(l.Runs)-1].Slot)
	default:
		err = checkRuns(l.Runs, token)
	}
	if err != nil {
		return ledger{}, unreadable(data, err)
	}
	return l, nil
}

func unreadable(data []byte, err error) error {
	return fmt.Errorf("%w: the data of the lock are no ledger: %w: %.60q; see which program wrote them, or begin a new ledger with a reset",
		tenure.ErrUnreadable, err, data)
}

func checkRuns(runs []entry, token uint64) error {
	if len(runs) > Kept {
		return fmt.Errorf("it has %d runs: at most %d are kept", len(runs), Kept)
	}
	for i, e := range runs {
		if !e.valid() {
			return fmt.Errorf("run %d of it cannot be understood", i+1)
		}
		if e.Token > token || i > 0 && e.Token < runs[i-1].Token {
			return fmt.Errorf("run %d of it has token %d, out of order", i+1, e.Token)
		}
	}
	return nil
}

func (l ledger) bytes() []byte {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) //nolint:forbidigo // unreachable: numbers and strings
	}
	return b
}

// newest returns the run of the last slot.
func (l ledger) newest() (entry, bool) {
	if len(l.Runs) == 0 {
		return entry{}, false
	}
	return l.Runs[len(l.Runs)-1], true
}

// of returns the latest run of a slot, if the ledger still has it.
func (l ledger) of(slot int64) (entry, bool) {
	for _, e := range slices.Backward(l.Runs) {
		if e.Slot == slot && e.State != StateReset {
			return e, true
		}
		if e.State == StateReset && e.Slot < slot {
			break // what came before the reset may run again
		}
	}
	return entry{}, false
}

// refuse returns why a slot must not be begun, nil if it may be. Alive is as for
// entry.run.
func (l ledger) refuse(slot int64, redo bool, maxAhead int64, alive uint64) error {
	last, any := l.newest()
	switch {
	case !any:
		return nil
	case slot == last.Slot && redo && last.open() && last.Token != alive:
		return nil
	case slot > last.Slot:
		// The difference of two int64 fits in no int64.
		if ahead := uint64(slot) - uint64(last.Slot); maxAhead >= 0 && last.Slot != math.MinInt64 && ahead > uint64(maxAhead) { //nolint:gosec // wraps as it should: slot is higher
			return &SlotAheadError{Slot: slot, Last: last.Slot, MaxAhead: maxAhead, Run: last.run(alive)}
		}
		return nil
	}
	if e, ok := l.of(slot); ok {
		return &DoneError{Run: e.run(alive)}
	}
	return &PassedError{Slot: slot, Last: last.Slot, Run: last.run(alive)}
}

// begin marks a slot as begun.
func (l ledger) begin(e entry) ledger {
	l.Kind = onceKind
	l.Runs = appended(l.Runs, e)
	l.Last = &e.Slot
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
	line := text.Line(err.Error())
	if len(line) > maxErrorLen {
		line = strings.ToValidUTF8(line[:maxErrorLen-3], "") + "..."
	}
	return line
}
