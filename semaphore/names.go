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

// MaxNameLen is the longest name of a semaphore in bytes: what a lock's name
// may have, less what its slots put behind it.
const MaxNameLen = 1008

// LockName returns the name of the lock that is a slot of the semaphore. It is
// what [Lease.Name] returns: the resource that the slot's token fences.
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

// ParseSize returns how many slots the semaphore has whose lock of [SizeName]
// this is the status of. It returns false if it is no such lock.
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
