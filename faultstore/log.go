// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// maxLog is how many calls the log keeps: enough for a test, too few to fill
// the memory in a soak.
const maxLog = 1 << 16

// Call is one call of a method of the store.
type Call struct {
	// Op is its kind and N its number among those of its kind, from 1.
	Op Op
	N  int
	// Begin is when it was made.
	Begin time.Time
	// Key is its key, or the prefix of a List.
	Key string
	// Prev and Next are its records, if it has them.
	Prev, Next driver.Record
	// Consistency is set for a Get, Cursor for a List.
	Consistency driver.Consistency
	Cursor      string
}

// Logged is a call, the fault that it got, and its result. Do not change what
// it points to.
type Logged struct {
	Call
	// Fault is the fault that the call got.
	Fault Fault
	// Done says that the call has returned, End when, and Err with what.
	Done bool
	End  time.Time
	Err  error
	// Reply is the record that the call returned, if it returned one.
	Reply driver.Record
}

// String returns the call in one line.
func (l Logged) String() string {
	outcome := "under way"
	if l.Done {
		outcome = "ok"
		if l.Err != nil {
			outcome = l.Err.Error()
		}
	}
	return fmt.Sprintf("%s %q #%d: %s", l.Op, l.Key, l.N, outcome)
}

// Log returns the last calls in the order in which they began, at most 65536.
func (s *Store) Log() []Logged {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := make([]Logged, len(s.log))
	for i, entry := range s.log {
		log[i] = *entry
	}
	return log
}

// Count returns how many calls of the given kinds, or of all kinds except
// OpWatch and OpHint if none is given, were made since the store was created
// or [Store.ResetLog]: the requests that a real store would have charged for.
// Late writes and copies count once, as the call that caused them.
func (s *Store) Count(ops ...Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, op := range ops {
		n += s.counts[op]
	}
	if len(ops) == 0 {
		for op, count := range s.counts {
			if op != OpWatch && op != OpHint {
				n += count
			}
		}
	}
	return n
}

// ResetLog empties the log and sets the counters, and so Call.N, to zero.
func (s *Store) ResetLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
	clear(s.counts)
}

// Replay sends the write of a call to the inner store once more, at once and
// without any fault, and returns the inner store's answer: a duplicate of a
// write, or a late one if the call's request was lost. Replaying a call that
// is not a write is an error.
func (s *Store) Replay(ctx context.Context, call Call) (driver.Record, error) {
	if !call.Op.IsWrite() {
		return driver.Record{}, errors.New("replay of a call that is not a write: " + string(call.Op))
	}
	r, err := s.send(ctx, call, 0)
	return r.now, err
}

func (s *Store) begin(call Call) (*Logged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.NotApplied(driver.ErrClosed)
	}
	s.counts[call.Op]++
	call.N, call.Begin = s.counts[call.Op], time.Now()
	entry := &Logged{Call: call}
	if len(s.log) == maxLog {
		s.log = append(s.log[:0:0], s.log[maxLog/2:]...)
	}
	s.log = append(s.log, entry)
	return entry, nil
}

func (s *Store) end(entry *Logged, fault Fault, r reply, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.Fault, entry.Done, entry.End, entry.Err = fault, true, time.Now(), err
	entry.Reply = r.now.Clone()
}
