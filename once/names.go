// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The locks whose data are the ledgers.
const (
	onceSuffix  = ":once"
	everySuffix = ":every"
)

// MaxNameLen is the longest name in bytes: what a lock's name may have, less what
// is put behind it.
const MaxNameLen = 1018

// ownPrefix is checked here first, so that a mistake is not taken for an error of
// the store.
const ownPrefix = "tenure/"

// LockName returns the name of the lock under which [Once] runs, whose data are
// the ledger of its slots. It is what [Turn.Name] returns in the work: the resource
// that the token fences.
func LockName(name string) string { return name + onceSuffix }

// EveryLockName is as [LockName], for [Every].
func EveryLockName(name string) string { return name + everySuffix }

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("name is empty: it must have 1 to %d bytes", MaxNameLen)
	case len(name) > MaxNameLen:
		return fmt.Errorf("name %.20q... has %d bytes: at most %d are allowed", name, len(name), MaxNameLen)
	case strings.HasPrefix(name, ownPrefix):
		return fmt.Errorf("name %.40q begins with %q: such names are for records of Tenure itself", name, ownPrefix)
	case !utf8.ValidString(name):
		return fmt.Errorf("name %q is not valid UTF-8", name)
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("name %q has %U at byte %d: only printable characters and the ordinary space are allowed", name, r, i)
		}
	}
	return nil
}
