// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package semaphore

import (
	"fmt"
	"strconv"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
	"github.com/tenurelock/tenure/internal/text"
)

// MaxNameLen is the longest name of a semaphore in bytes: that of a lock, less the suffix
// of its slots.
const MaxNameLen = 1008

// LockName returns the name of the lock of a slot. [Lease.Name] returns it: the resource
// that the slot's token fences.
func LockName(name string, slot int) string {
	return name + text.SlotInfix + strconv.Itoa(slot)
}

// SizeName returns the name of the lock whose data is the number of slots.
func SizeName(name string) string { return name + text.SlotsSuffix }

// lineName returns the name of the lock that is held by the process that takes the next
// slot.
func lineName(name string) string { return name + text.SlotsLineSuffix }

// ParseLockName is the reverse of [LockName]. It returns false if lock is not
// the name of a slot.
func ParseLockName(lock string) (name string, slot int, ok bool) {
	return slots.ParseSlot(lock, text.SlotInfix, MaxSlots)
}

// ParseSize returns how many slots a semaphore has, by the status of its lock of
// [SizeName]. It returns false for another lock.
func ParseSize(st tenure.Status) (name string, n int, ok bool) {
	name, z, ok := slots.SizeOf(st, text.SlotsSuffix, size.good)
	return name, z.Slots, ok
}

func checkSlots(n int) error {
	if n < 1 || n > MaxSlots {
		return fmt.Errorf("slots %d must be from 1 to %d", n, MaxSlots)
	}
	return nil
}
