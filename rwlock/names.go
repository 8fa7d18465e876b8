// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
	"github.com/tenurelock/tenure/internal/text"
)

const (
	// MaxNameLen is the longest name in bytes: that of a lock, less the suffix of its
	// slots.
	MaxNameLen = 1008
	// MaxSlots is how many processes can read at the same time.
	MaxSlots   = 1000
	firstSlots = 8
)

// GateName returns the name of the lock that the writer holds.
func GateName(name string) string { return name + text.GateSuffix }

// SlotName returns the name of a lock that a reading process holds.
func SlotName(name string, slot int) string { return name + text.ReadInfix + strconv.Itoa(slot) }

// SizeName returns the name of the lock whose data is the number of slots.
func SizeName(name string) string { return name + text.ReadersSuffix }

// LineName returns the name of the lock that the next writer holds.
func LineName(name string) string { return name + text.GateLineSuffix }

// ParseGateName is the reverse of [GateName]. It returns false if lock is no gate.
func ParseGateName(lock string) (name string, ok bool) {
	name, ok = strings.CutSuffix(lock, text.GateSuffix)
	return name, ok && name != ""
}

// ParseSlotName is the reverse of [SlotName]. It returns false if lock is no slot.
func ParseSlotName(lock string) (name string, slot int, ok bool) {
	return slots.ParseSlot(lock, text.ReadInfix, MaxSlots)
}

// ParseSize returns how many slots there are, by the status of the lock of [SizeName]. It
// returns false for another lock.
func ParseSize(st tenure.Status) (name string, n int, ok bool) {
	name, z, ok := slots.SizeOf(st, text.ReadersSuffix, size.good)
	return name, z.Slots, ok
}

// size is how many slots there are: the data of the lock of [SizeName].
type size struct {
	Slots int `json:"slots"`
}

func (z size) good() bool    { return z.Slots >= 1 && z.Slots <= MaxSlots }
func (z size) bytes() []byte { return fmt.Appendf(nil, `{"slots":%d}`, z.Slots) }

// maxEpoch is the highest token of a gate that has tokens of readers and writers.
const maxEpoch = 1<<62 - 1

func writerToken(epoch uint64) uint64 { return 2 * epoch }
func readerToken(epoch uint64) uint64 { return 2*epoch + 1 }

func checkEpoch(epoch uint64) error {
	if epoch > maxEpoch {
		return fmt.Errorf("%w: the gate has token %d, and the writer's token would be twice that", tenure.ErrTokenLimit, epoch)
	}
	return nil
}

// errNoSize says that the number of slots is gone: it is not known any more where readers
// are.
var errNoSize = fmt.Errorf("%w: the lock is in use, but the number of its slots is not stored: its record was deleted, or another lock has the name of its gate or of a slot; stop all users of the lock and delete its other records too", tenure.ErrUnreadable)
