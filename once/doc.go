// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package once runs each occurrence of a schedule on one of several hosts, at most
// once, and work of a period on one of them, spaced by elapsed time. No clocks of
// two machines are compared.
//
//	// On three hosts, at 03:00 by the clock of each:
//	slot := once.Minute(scheduled) // of the schedule, not of now
//	_, err := once.Once(ctx, client, "nightly", slot, nil,
//		func(ctx context.Context, turn *once.Turn) error {
//			return report(ctx, turn.Token())
//		})
//	if errors.Is(err, once.ErrDone) || errors.Is(err, once.ErrRunning) {
//		// another host has it
//	}
//
// [Once] is for a schedule by the wall clock: the caller gives the occurrence a number,
// and the store decides whether it may run. [Every] is for "an hour after the last
// time": the store keeps how much time has passed.
//
// # The ledger
//
// What was begun, and how it ended, is in the data of a lock of its own:
// [LockName] for Once, [EveryLockName] for Every. It keeps the last 20 runs, which
// [Show] and [ShowEvery] read. Only the holder of the lock writes it, by a write
// that fails if anybody else has written since. Data that are not a ledger are an
// error, [tenure.ErrUnreadable], and never an empty ledger. Only this package may write
// the data of these locks: the store refuses them in a table that is shared with other
// lock clients.
//
// # The rule of Once
//
// The ledger has a set of slots that count as begun: all up to a floor, and above it at
// most 16 spans. A slot may begin if it is not in the set. The write that marks a slot
// adds it, before its work begins. A slot leaves the set only if the same holder takes
// the mark back, because the work has not begun, or by [Reset].
//
// In order, a slot that begins adds all lower slots to the set: the floor is the
// highest slot. With [Options.OutOfOrder] it adds only the numbers between the previous
// slot of the schedule and itself, so that consecutive slots are one span, and a missed
// slot is a gap between two. A slot in a gap may begin, although a later slot was
// begun. A seventeenth span raises the floor over the lowest gap; that shuts out, and
// never lets in.
//
// So a host whose clock is ahead costs the slots that it runs, and no others. A host
// whose clock is behind can at worst run, once, a slot that was missed, or a slot from
// before the first run. Missed slots do not run otherwise, except with [Options.CatchUp].
//
// With [Options.Schedule] the ledger records the schedule of its slots. Another schedule
// is refused, until [Reschedule] raises the floor to the present.
//
// A run that was begun and has no end in the ledger had a lost holder: [Options.Redo]
// marks its slot again, and never one whose end is known.
//
// # Guarantees
//
// Once begins the work for a slot at most once, whatever the clocks say: with lost,
// late and doubled requests, crashes, pauses and clock steps. Without OutOfOrder it
// begins slots in rising order alone.
//
// Every begins its periods at least P/(1+ρ) apart, for a period P and a bound ρ on
// the rate error of clocks ([tenure.Options.MaxClockDrift]).
//
// # What is not guaranteed
//
// A slot may not run: a holder that crashes leaves its slot begun; [Options.Redo] runs
// it again. A host that is ahead begins slots early, and the others find them begun,
// or, in order, passed. An error or the ledger reports each of these.
//
// The work of two runs may overlap: a process can be paused between its last check and
// its action. Fence at the resource with [Turn.Token].
//
// If the lock's record is deleted, its ledger is lost too: slots can run again, and a new
// period begins.
//
// # What it costs
//
// A run of Once costs three requests, and a heartbeat each heartbeat period while
// the work runs. A call that finds its slot begun costs one to three. Every costs
// its leader a write each heartbeat period, and waiting processes their reads, as an
// election does. The ledger makes the record some 3 KB larger.
package once
