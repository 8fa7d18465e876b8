// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package text

import (
	"slices"
	"strings"
)

// The suffixes and infixes that packages with several locks for one name append to it. They
// are all listed here, so that no two are alike: different kinds of lock of one name are
// independent. Access rights to names use this list, too: see [Base].
const (
	OnceSuffix  = ":once"  // package once: its data is the ledger of Once
	EverySuffix = ":every" // its data is the ledger of Every

	SlotsSuffix     = ":slots" // package semaphore: its data is the number of slots
	SlotsLineSuffix = ":line"  // held by the process that takes the next slot
	SlotInfix       = ":slot/" // one for each slot

	GateSuffix     = ":gate"      // package rwlock: held by the writer
	GateLineSuffix = ":gate-line" // held by the writer that comes next
	ReadersSuffix  = ":readers"   // its data is the number of slots of readers
	ReadInfix      = ":read/"     // one for each process that reads

	LeadSuffix       = ":lead"    // package shard: held by the coordinator; its data is the epoch
	MembershipSuffix = ":roll"    // held by the coordinator; its data is the membership
	SpecSuffix       = ":spec"    // its data is the definition of the partitions
	MemberInfix      = ":member/" // one for each member slot of the group
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
// not derived: "nightly" for "nightly:once", "orders" for "orders:part/7". If a name is
// ambiguous, it returns the shorter base.
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
