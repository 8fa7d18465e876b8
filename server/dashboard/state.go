// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
)

// state is what people call what a lock is in.
type state string

const (
	held       state = "held"
	asked      state = "asked"      // held, and asked to make way
	inDoubt    state = "in doubt"   // held, and a heartbeat is late
	expired    state = "expired"    // seen without a sign of life for a lease
	reserved   state = "reserved"   // for an owner or a label after a hand-over, or after a revoke
	free       state = "free"       // released
	unreadable state = "unreadable" // nobody understands the record
	neverHeld  state = "never held" // there is no record
)

// states are those that a list of locks can be narrowed to, in the order in which an
// operator wants to see them.
var states = []state{held, asked, inDoubt, expired, reserved, free, unreadable}

// Class is the state as a word of the style sheet.
func (s state) Class() string { return strings.ReplaceAll(string(s), " ", "-") }

// lock is what was seen of one lock.
type lock struct {
	tenure.Status
	state state
	bytes int   // of its data
	err   error // of a record that cannot be read
}

// missedBeats is after how many heartbeat periods without a sign of life a holder is in
// doubt: one heartbeat is late by a whole period then.
const missedBeats = 2

// lockOf judges what the record of a lock shows. The data are left out of it: there may
// be many locks.
func lockOf(st tenure.Status) lock {
	l := lock{Status: st, state: expired, bytes: len(st.Data)}
	l.Data = nil
	switch {
	case st.Token == 0:
		l.state = neverHeld
	case st.Held && late(st.Unchanged, st.Heartbeat, st.Lease):
		l.state = inDoubt
	case st.Held && st.Request != nil:
		l.state = asked
	case st.Held:
		l.state = held
	case st.State == tenure.StateReserved && st.FreeIn > 0:
		l.state = reserved
	case st.State == tenure.StateReleased, st.State == tenure.StateReserved:
		l.state = free
	}
	return l
}

// late says whether a sign of life that has stood for so long should have been followed
// by another one.
func late(unchanged, heartbeat, lease time.Duration) bool {
	if heartbeat <= 0 {
		heartbeat = lease / 5 // as by default
	}
	return unchanged >= missedBeats*heartbeat
}

// unreadableLock is a lock whose record nobody understands.
func unreadableLock(name string, err error) lock {
	return lock{Status: tenure.Status{Name: name}, state: unreadable, err: err}
}

// holds says whether the record shows a holder, alive or not.
func (l *lock) holds() bool {
	return l.State == tenure.StateHeld && l.state != free
}

// reason returns why a record cannot be read, without the name of the lock, which stands
// beside it.
func (l *lock) reason() string {
	var e *tenure.Error
	if errors.As(l.err, &e) {
		return e.Err.Error()
	}
	if l.err != nil {
		return l.err.Error()
	}
	return ""
}

// endText says how a tenure ended.
func endText(t tenure.Tenure) string {
	if t.End == "" && t.Unknown {
		return "unknown"
	}
	return t.Ended()
}

// askedText says what a holder was asked.
func askedText(q *tenure.Request) string {
	switch {
	case q == nil:
		return ""
	case q.Kind == tenure.RequestHandOver && q.To != "":
		return "hand over to " + q.To
	case q.Kind == tenure.RequestHandOver && q.ToLabel != "":
		return "hand over to label " + q.ToLabel
	}
	return strings.NewReplacer("_", " ", "-", " ").Replace(kindName(q.Kind))
}
