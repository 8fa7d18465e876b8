// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package access

import "strings"

// What is put behind a name, or into it, by the packages that make several locks of one
// name: once, semaphore and shard.
var (
	derivedInfixes  = []string{":slot/", ":part/", ":member/"}
	derivedSuffixes = []string{":once", ":every", ":slots", ":line", ":lead", ":roll", ":spec"}
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
	for cut := true; cut; {
		cut = false
		for _, suffix := range derivedSuffixes {
			if base, found := strings.CutSuffix(name, suffix); found && base != "" {
				name, cut = base, true
			}
		}
	}
	return name
}
