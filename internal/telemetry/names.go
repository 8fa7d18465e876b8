// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import "slices"

// Other is the label of all locks that were not named, so that the number of series does
// not follow the number of locks.
const Other = "other"

// Names returns the function that gives a lock its label: label, if it is not nil, or else
// the name itself if it is one of the names, and [Other] if not.
func Names(label func(lock string) string, names ...[]string) func(lock string) string {
	if label != nil {
		return label
	}
	known := map[string]bool{}
	for _, name := range slices.Concat(names...) {
		known[name] = true
	}
	return func(lock string) string {
		if known[lock] {
			return lock
		}
		return Other
	}
}
