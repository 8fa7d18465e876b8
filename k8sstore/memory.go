// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"strconv"

	"k8s.io/api/coordination/v1"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// state is a record as an object had it.
type state struct {
	rec driver.Record // zero if there is no record
	rev string        // the resourceVersion; empty: there is no object
	err error         // it cannot be understood

	foreign bool   // another client wrote the Lease last
	parts   parts  // what is kept outside of the Lease
	wake    string // as it stands in the annotation
	spec    v1.LeaseSpec
}

// found says that there is an object, readable or not.
func (s state) found() bool { return s.rev != "" }

// View says what there is, for the writer that the stores share.
func (s state) View() versioned.View {
	return versioned.View{Record: s.rec, Found: s.found(), Err: s.err}
}

// Kept is the state without long data. Leases of other clients are not remembered: no
// call is refused because of a state that such a client may have changed.
func (s state) Kept() (state, bool) {
	if s.parts.Data != nil {
		s.rec.Data = nil
	}
	s.rec = s.rec.Clone()
	return s, !s.foreign
}

// Overtakes compares the resourceVersions.
func (s state) Overtakes(other state) bool { return later(s.rev, other.rev) }

// later reports whether a resourceVersion is known to be later than another one. They are
// numbers, and ascend, in all API servers on etcd; only the use of the memory depends on
// that.
func later(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x > y
}
