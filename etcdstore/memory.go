// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// state is a record as it was at a revision of etcd.
type state struct {
	rec driver.Record // zero if there is no record
	rev int64         // in which it was written last; 0: there is no record
	err error         // it cannot be understood
	// apart says that its data are under a key of their own.
	apart bool
}

// View says what there is, for the writer that the stores share.
func (s state) View() versioned.View {
	return versioned.View{Record: s.rec, Found: s.rev != 0, Err: s.err}
}

// Kept is the state without long data.
func (s state) Kept() (state, bool) {
	if s.apart {
		s.rec.Data = nil
	}
	s.rec = s.rec.Clone()
	return s, true
}

// Overtakes compares the revisions.
func (s state) Overtakes(other state) bool { return s.rev > other.rev }
