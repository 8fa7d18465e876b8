// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// model is what a store must do with one key.
type model struct {
	key   string
	rec   driver.Record
	found bool

	outlive bool   // tokens outlive a delete
	deleted uint64 // the highest of them
}

// op is a kind of write of the driver's interface.
type op string

const (
	opClaim  op = "claim"
	opSwap   op = "swap"
	opDelete op = "delete"
)

// write is a write that may be sent more than once.
type write struct {
	op         op
	prev, next driver.Record
}

// apply changes the model as w changes a store, and reports whether its
// condition held.
func (m *model) apply(w write) bool {
	switch w.op {
	case opClaim:
		if m.found && m.rec.State != driver.Released {
			return false
		}
		m.rec, m.found = driver.Claimed(w.next, m.rec, m.found), true
		m.rec.Token = max(m.rec.Token, m.deleted+1)
	case opSwap:
		if !m.found || m.rec.Version != w.prev.Version || m.rec.Token != w.prev.Token {
			return false
		}
		m.rec = w.next
	case opDelete:
		if m.found && (m.rec.Version != w.prev.Version || m.rec.Token != w.prev.Token) {
			return false
		}
		if m.outlive {
			m.deleted = max(m.deleted, m.rec.Token)
		}
		m.rec, m.found = driver.Record{}, false
	}
	return true
}

// send makes the write w to c and fails the test unless the store does what
// the model does.
func (e *env) send(t *testing.T, m *model, c driver.Store, what string, w write) {
	t.Helper()
	var now, prev driver.Record
	var err error
	switch w.op {
	case opClaim:
		now, prev, err = c.Claim(t.Context(), w.next.Clone())
	case opSwap:
		now, err = c.Swap(t.Context(), w.prev.Clone(), w.next.Clone())
	case opDelete:
		err = c.Delete(t.Context(), w.prev.Clone())
	}
	m.outlive = e.h.TokensOutliveDelete
	before := *m
	ok := m.apply(w)
	if ok && w.op == opClaim && !before.found && now.Token == 1 && strings.HasPrefix(m.key, driver.OwnPrefix) {
		m.rec.Token = 1 // it is no lock: the token need not outlive its record
	}
	switch {
	case ok && err != nil:
		t.Errorf("%s: %v", what, err)
	case ok && w.op == opClaim:
		e.wantEqual(t, what+": record after it", now, m.rec)
		e.wantEqual(t, what+": record that it replaced", prev, before.rec)
	case ok && w.op == opSwap:
		e.wantEqual(t, what+": record after it", now, m.rec)
	case !ok && before.found:
		e.wantConflict(t, what, err, before.rec)
	case !ok:
		e.wantAbsentConflict(t, what, m.key, err)
	}
}

// wantModel fails the test unless every client sees what the model holds.
func (e *env) wantModel(t *testing.T, m *model) {
	t.Helper()
	if m.found {
		e.wantStored(t, m.rec)
	} else {
		e.wantAbsent(t, m.key)
	}
}
