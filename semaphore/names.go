// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure"
)

// The locks that a semaphore is made of.
const (
	sizeSuffix = ":slots" // whose data is the number of slots
	lineSuffix = ":line"  // held by the process that takes the next slot
	slotInfix  = ":slot/"
)

// MaxNameLen is the longest name of a semaphore in bytes: what a lock's name
// may have, less what its slots put behind it.
const MaxNameLen = 1008

// What package tenure has limits for, too. They are checked here first, so that
// a mistake is not taken for an error of the store.
const (
	ownPrefix  = "tenure/"
	maxDataLen = 256 << 10
)

// LockName returns the name of the lock that is a slot of the semaphore. It is
// what [Lease.Name] returns: the resource that the slot's token fences.
func LockName(name string, slot int) string {
	return name + slotInfix + strconv.Itoa(slot)
}

// SizeName returns the name of the lock whose data is the number of slots.
func SizeName(name string) string { return name + sizeSuffix }

// ParseLockName is the reverse of [LockName]. It returns false if lock is not
// the name of a slot.
func ParseLockName(lock string) (name string, slot int, ok bool) {
	i := strings.LastIndex(lock, slotInfix)
	if i <= 0 {
		return "", 0, false
	}
	digits := lock[i+len(slotInfix):]
	slot, err := strconv.Atoi(digits)
	if err != nil || slot < 0 || slot >= MaxSlots || strconv.Itoa(slot) != digits {
		return "", 0, false
	}
	return lock[:i], slot, true
}

// ParseSize returns how many slots the semaphore has whose lock of [SizeName]
// this is the status of. It returns false if it is no such lock.
func ParseSize(st tenure.Status) (name string, slots int, ok bool) {
	name, ok = strings.CutSuffix(st.Name, sizeSuffix)
	if !ok || name == "" {
		return "", 0, false
	}
	z, ok, err := parseSize(st.Data)
	if !ok || err != nil {
		return "", 0, false
	}
	return name, z.Slots, true
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("semaphore name is empty: it must have 1 to %d bytes", MaxNameLen)
	case len(name) > MaxNameLen:
		return fmt.Errorf("semaphore name %.20q... has %d bytes: at most %d are allowed", name, len(name), MaxNameLen)
	case strings.HasPrefix(name, ownPrefix):
		return fmt.Errorf("semaphore name %.40q begins with %q: such names are for records of Tenure itself", name, ownPrefix)
	case !utf8.ValidString(name):
		return fmt.Errorf("semaphore name %q is not valid UTF-8", name)
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("semaphore name %q has %U at byte %d: only printable characters and the ordinary space are allowed", name, r, i)
		}
	}
	return nil
}

func checkSlots(slots int) error {
	if slots < 1 || slots > MaxSlots {
		return fmt.Errorf("slots %d must be from 1 to %d", slots, MaxSlots)
	}
	return nil
}
