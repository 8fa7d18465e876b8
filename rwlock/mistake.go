// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

// mistake is a deliberate mistake in this package. Each breaks a rule of the package, as
// the model in spec does, and must be found, by random schedules or by a scene. They are
// made under the build tag tenure_wrong alone: see making.
type mistake int

// The mistakes.
const (
	noMistake           mistake = iota
	gateBeforeSlot              // a reader looks at the gate before it has its slot, not after
	cheapLook                   // a reader looks at the gate by a read that may be behind
	slotsBeforeGate             // a writer looks at the slots before it has the gate, not after
	numberBefore                // a writer goes by a number of slots from before it had the gate
	readerNotWaited             // a writer waits for a silent reader for less than its lease
	writerNotWaited             // a reader waits for a silent writer for less than its lease
	gateReleasedFirst           // a downgrade releases the gate before it has a slot
	downgradeBelieves           // a downgrade does not ask whether the gate was its own
	writersToken                // a reader has the token of the writer before it
	nextWritersToken            // a reader has the token of the writer after it
	downgradeKeepsToken         // a reader that was a writer goes on with the token of the writer
	epochBefore                 // a reader's epoch is from before it had its slot
	waitsForFree                // a writer waits for a look that shows a slot free
	giveBackForgets             // a gate given back unused counts as a writer
)

func (m mistake) String() string {
	return [...]string{
		"none", "gate looked at before the slot is taken", "eventual read of the gate", "slots looked at before the gate is taken",
		"number of slots from before the gate", "reader's lease not waited for", "writer's lease not waited for",
		"gate released before the slot in a downgrade", "downgrade believes though its gate was taken",
		"reader with the writer's token", "reader with the next writer's token", "downgraded reader with the writer's token",
		"epoch from before the slot was taken", "writer waits for a slot to be free", "gate given back counts as a writer",
	}[m]
}
