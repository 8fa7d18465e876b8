// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"strconv"
	"strings"
)

// MaxDataLen is also package tenure's limit. It is checked here first, so that an invalid
// argument does not look like a store error.
const MaxDataLen = 256 << 10

// ParseSlot splits a lock's name into a name, an infix and the number of a slot below
// most. It returns false for any other name.
func ParseSlot(lock, infix string, most int) (name string, slot int, ok bool) {
	i := strings.LastIndex(lock, infix)
	if i <= 0 {
		return "", 0, false
	}
	digits := lock[i+len(infix):]
	slot, err := strconv.Atoi(digits)
	if err != nil || slot < 0 || slot >= most || strconv.Itoa(slot) != digits {
		return "", 0, false
	}
	return lock[:i], slot, true
}
