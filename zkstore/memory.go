// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// state is a record as its node has it.
type state struct {
	rec driver.Record // zero if there is no record
	err error         // it cannot be understood
	// there says that there is a node, of this version, with a child of this name.
	there   bool
	version int32
	mark    string
}

// View says what there is, for the writer that the stores share.
func (s state) View() versioned.View {
	return versioned.View{Record: s.rec, Found: s.there, Err: s.err}
}

// Kept is all of the state.
func (s state) Kept() (state, bool) {
	s.rec = s.rec.Clone()
	return s, true
}

// Overtakes compares the versions of one node. A later node of the same name has another mark.
func (s state) Overtakes(other state) bool {
	return s.mark == other.mark && s.version > other.version
}
