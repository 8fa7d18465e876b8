// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"
)

// Shrink looks for fewer and smaller choices that break the same rule, in at
// most so many runs. It returns what it has found, choices itself at worst.
// Whatever it returns breaks the rule when it is played.
func Shrink(choices []int, rule string, runs int, run func(Source) error) []int {
	best := trimmed(choices)
	try := func(next []int) bool {
		next = trimmed(next)
		if runs <= 0 || !smaller(next, best) {
			return false
		}
		runs--
		v, ok := run(Play(slices.Clone(next))).(*Violation) //nolint:errorlint // it is never wrapped
		if !ok || v.Rule != rule {
			return false
		}
		best = next
		return true
	}
	for again := true; again && runs > 0; {
		again = false
		for size := max(1, len(best)/2); size > 0; size /= 2 {
			for from := 0; from < len(best); {
				to := min(from+size, len(best))
				without := append(slices.Clone(best[:from]), best[to:]...)
				mild := slices.Clone(best)
				clear(mild[from:to])
				if try(without) {
					again = true
					continue
				}
				if try(mild) {
					again = true
				}
				from += size
			}
		}
		for i := 0; i < len(best); i++ {
			for step := best[i] / 2; step > 0 && i < len(best); step /= 2 {
				less := slices.Clone(best)
				less[i] -= step
				if try(less) {
					again = true
				}
			}
		}
	}
	return best
}

// trimmed drops choices at the end that are made without them, too.
func trimmed(choices []int) []int {
	n := len(choices)
	for n > 0 && choices[n-1] == 0 {
		n--
	}
	return choices[:n]
}

// smaller orders tapes: fewer choices first, then smaller ones.
func smaller(a, b []int) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b)) < 0
}
