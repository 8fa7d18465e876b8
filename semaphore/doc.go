// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package semaphore gives at most N processes at a time the right to do a kind
// of work: a slot each, which is a lease with a token of its own.
//
//	renders, err := semaphore.New(client, "renders", 3, nil)
//	...
//	err = renders.Run(ctx, nil, func(ctx context.Context, lease *semaphore.Lease) error {
//		// At most three are here at a time. ctx ends when this one must stop.
//		return render(ctx, lease.Slot(), lease.Token())
//	})
//
// A slot is a lock of its own, see [LockName], and all that holds for a lease of
// package tenure holds for a slot's: its context, its check, what a crash, a
// pause or a store that is away does to it. A crashed holder's slot is free after
// its lease. How many slots there are is one number in the store, the data of
// the lock [SizeName], that counts for all processes, and that any of them may
// change while all are at work: see [Semaphore.Resize].
//
// # Guarantees
//
// Under the same conditions as for a lock, no two holders whose [Lease.Check]
// returns nil have the same slot.
//
// Nobody gets a slot that is gone. A holder reads the number of slots after its
// slot was granted, from the store itself, and counts as a holder only if its
// slot is below that number. So after a change to fewer slots, of those that
// were granted a slot that is gone, each was granted it before the change: its
// slot's record shows it to whoever looks after the change, which is how Resize
// waits for them. Whatever a process believed about the number before does not
// matter.
//
// It follows that at most as many hold as there are slots, and after a change to
// fewer, at most as many as there were before, until the last holder of a slot
// that is gone has left. From the return of a Resize that waits for that, at most
// the new number hold.
//
// # Tokens
//
// Tokens of two slots cannot be compared: several holders at once have no order.
// What is to be fenced is one resource for each slot, such as a working folder,
// a connection, a shard of the data, under the name [Lease.Name], in the manner
// of package fence; the lease is a grant there. Something that all holders write
// to cannot be fenced by a semaphore.
//
// The data of a lease stays with its slot as well. The next holder of that slot
// finds it in [tenure.Lease.Previous], as work that its former holder has left.
//
// # Who comes next
//
// Waiters of one process come in their order. Of all processes that wait, one is
// at the front of a line, which is a lock too. It looks at the slots several
// times in a refresh period; each of the others looks at one, after a refresh
// period at the earliest, so that many free slots are not left to one process to
// fill. Who has just released a slot, and wants one again, stands in the line
// like everybody. When the front has its slot, one of those who wait comes next,
// each with about the same chance; the process that was at the front lets the
// others go first for two refresh periods.
//
// So nobody starves: the chance of being passed over falls with every turn. There
// is no bound in turns, and no order between processes.
//
// # What is not guaranteed
//
// A slot that is free is not taken at once where others hold the line: it is
// found by looking, within as many refresh periods as the number of slots has
// [Options.Looks] in it. A semaphore is for work that takes seconds and more.
//
// [Semaphore.TryAcquire] stands in no line. Who calls it again and again comes
// before those who wait.
//
// A waiter that crashed at the front leaves the others with their one look a
// refresh period until its lease has run out.
//
// A lock with the name of a slot, taken by hand, is a slot that is held. Data laid
// by hand into [SizeName] that is no number of slots makes the semaphore refuse
// to work, with [tenure.ErrUnreadable].
//
// # What it costs
//
// A slot that is free costs two writes and three reads, from Acquire to the end
// of Release, and one read less from the second one of a process on; TryAcquire
// costs two writes and one read then. To hold it costs what a lock costs, a write
// each heartbeat. The first use of a semaphore lays down its size: three writes.
//
// A process that waits, with however many waiters, sends about three reads a
// refresh period; the one at the front Options.Looks and one more, and a write each
// heartbeat. Its turn costs two writes besides. TryAcquire, with all slots held,
// costs a look at each. Slots under a session cost its heartbeat, however many
// they are: see [Options.Session].
package semaphore
