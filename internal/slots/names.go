// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What package tenure has limits for, too. They are checked here first, so that a
// mistake is not taken for an error of the store.
const (
	OwnPrefix  = "tenure/"
	MaxDataLen = 256 << 10
)

// LineSuffix is behind the name of the lock that is held by the process that comes next.
const LineSuffix = ":line"

// CheckName returns what is wrong with the name of a kind of thing, such as
// "semaphore", which may have a number of bytes at most.
func CheckName(kind, name string, most int) error {
	switch {
	case name == "":
		return fmt.Errorf("%s name is empty: it must have 1 to %d bytes", kind, most)
	case len(name) > most:
		return fmt.Errorf("%s name %.20q... has %d bytes: at most %d are allowed", kind, name, len(name), most)
	case strings.HasPrefix(name, OwnPrefix):
		return fmt.Errorf("%s name %.40q begins with %q: such names are for records of Tenure itself", kind, name, OwnPrefix)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s name %q is not valid UTF-8", kind, name)
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s name %q has %U at byte %d: only printable characters and the ordinary space are allowed", kind, name, r, i)
		}
	}
	return nil
}

// ParseSlot is the reverse of a name, an infix and the number of a slot below most. It
// returns false if lock is no such name.
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
