// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// store is the model of a store with one key. It keeps every state that the
// record ever had, for reads that are behind.
type store struct {
	key   string
	rec   driver.Record
	found bool
	older []driver.Record // before rec; no record came before the first

	deleted bool             // once
	closed  driver.EndReason // how a session was, which its record shows for a while only
	since   time.Duration    // when it was
	beats   int              // of a session
}

// storeOf returns what the store has under a key.
func (w *World) storeOf(key string) *store {
	if w.stores[key] == nil {
		w.stores[key] = &store{key: key}
	}
	return w.stores[key]
}

// get returns the record, or a state that it had back writes ago.
func (s *store) get(back int) (driver.Record, error) {
	switch {
	case !s.found || back > len(s.older):
		return driver.Record{}, driver.ErrNotFound
	case back > 0:
		return s.older[len(s.older)-back].Clone(), nil
	}
	return s.rec.Clone(), nil
}

func (s *store) claim(next driver.Record) (now, prev driver.Record, err error) {
	if err := driver.CheckClaim(next); err != nil {
		return now, prev, err
	}
	if s.found && s.rec.State != driver.Released {
		return now, prev, s.conflict()
	}
	prev = s.rec
	s.put(driver.Claimed(next, prev, s.found))
	return s.rec.Clone(), prev.Clone(), nil
}

func (s *store) swap(prev, next driver.Record) (driver.Record, error) {
	if err := driver.CheckSwap(prev, next); err != nil {
		return driver.Record{}, err
	}
	same := s.rec.Version == prev.Version && s.rec.Token == prev.Token
	if !s.found || !same {
		return driver.Record{}, s.conflict()
	}
	s.put(next)
	return s.rec.Clone(), nil
}

func (s *store) put(rec driver.Record) {
	if s.found {
		s.older = append(s.older, s.rec)
	}
	s.rec, s.found = rec.Clone(), true
}

func (s *store) remove(prev driver.Record) error {
	switch {
	case !s.found:
		return nil
	case s.rec.Version != prev.Version || s.rec.Token != prev.Token:
		return s.conflict()
	}
	s.older = append(s.older, s.rec)
	s.rec, s.found, s.deleted = driver.Record{}, false, true
	return nil
}

func (s *store) conflict() error {
	return &driver.ConflictError{Key: s.key, Current: s.rec.Clone(), Absent: !s.found}
}

// do carries out a call; a read may be back writes behind.
func (s *store) do(r *protocol.Call, back int) (rec, former driver.Record, err error) {
	switch r.Kind {
	case protocol.Read:
		if r.Consistency == driver.Strong {
			back = 0
		}
		rec, err = s.get(back)
	case protocol.Claim, protocol.HistoryPut:
		rec, former, err = s.claim(r.Next)
	case protocol.Delete:
		err = s.remove(r.Prev)
	default:
		rec, err = s.swap(r.Prev, r.Next)
	}
	return rec, former, err
}

// shown is a record that is formatted only if the trace is kept.
type shown driver.Record

func (r shown) String() string {
	return fmt.Sprintf("%s %s token %d data %q", r.State, r.Version, r.Token, r.Data)
}
