// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"slices"
	"strings"
)

// What a package that makes several locks of one name puts behind it. All of these stand
// here, so that no two are alike: two kinds of lock of one name have nothing to do with each
// other. Rights to names go by this list, too: see [Base].
const (
	OnceSuffix  = ":once"  // package once: whose data are the ledger of Once
	EverySuffix = ":every" // that of Every

	SlotsSuffix     = ":slots" // package semaphore: whose data is the number of slots
	SlotsLineSuffix = ":line"  // held by the process that takes the next slot
	SlotInfix       = ":slot/" // one for each slot

	GateSuffix     = ":gate"      // package rwlock: held by the writer
	GateLineSuffix = ":gate-line" // held by the writer that comes next
	ReadersSuffix  = ":readers"   // whose data is the number of slots of readers
	ReadInfix      = ":read/"     // one for each process that reads

	LeadSuffix       = ":lead"    // package shard: held by the coordinator; its data is the epoch
	MembershipSuffix = ":roll"    // held by the coordinator; its data is the roll
	SpecSuffix       = ":spec"    // whose data is what the partitions are
	MemberInfix      = ":member/" // one for each place in the group
	PartInfix        = ":part/"   // one for each partition

	TrialSuffix = ":doctor-trial" // held by tenure doctor --server; a release deletes it
)

var (
	derivedSuffixes = []string{
		OnceSuffix, EverySuffix, SlotsSuffix, SlotsLineSuffix, GateSuffix, GateLineSuffix, ReadersSuffix, LeadSuffix, MembershipSuffix, SpecSuffix, TrialSuffix,
	}
	derivedInfixes = []string{SlotInfix, ReadInfix, MemberInfix, PartInfix}
)

// Base returns the name that a lock's name is derived from, and the name itself if it is
// not derived: "nightly" for "nightly:once", "orders" for "orders:part/7". Where one could
// read a name in two ways, it returns the shorter base.
func Base(name string) string {
	for _, infix := range derivedInfixes {
		if i := strings.Index(name, infix); i > 0 {
			name = name[:i]
		}
	}
	for {
		i := slices.IndexFunc(derivedSuffixes, func(suffix string) bool { return len(name) > len(suffix) && strings.HasSuffix(name, suffix) })
		if i < 0 {
			return name
		}
		name = strings.TrimSuffix(name, derivedSuffixes[i])
	}
}
