// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tenure_wrong

package rwlock

// Mistake is a mistake, for the tests that are to find it.
type Mistake = mistake

// The mistakes that random schedules find seldom, or never.
const (
	WaitsForFree      = waitsForFree
	GateReleasedFirst = gateReleasedFirst
	DowngradeBelieves = downgradeBelieves
	WriterNotWaited   = writerNotWaited
)

// Mistakes are the others.
func Mistakes() []Mistake {
	var list []Mistake
	for m := noMistake + 1; m <= giveBackForgets; m++ {
		if m != WaitsForFree && m != GateReleasedFirst && m != DowngradeBelieves && m != WriterNotWaited {
			list = append(list, m)
		}
	}
	return list
}

// Make has the package make a mistake from now on, until stop is called.
func Make(m Mistake) (stop func()) {
	made = m
	return func() { made = noMistake }
}
