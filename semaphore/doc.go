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
// A slot is a lock of its own, see [LockName]. Everything that holds for a lease
// of package tenure holds for a slot's: its context, its check, what a crash, a
// pause or an unreachable store does to it. A crashed holder's slot is free after
// its lease. The number of slots is one number in the store, the data of the lock
// [SizeName], that counts for all processes. Any of them may change it while all
// are at work: see [Semaphore.Resize].
//
// # Guarantees
//
// Under the same conditions as for a lock, no two holders whose [Lease.Check]
// returns nil have the same slot.
//
// No process gets a removed slot. A holder reads the number of slots after its slot was
// granted, from the store itself, and counts as a holder only if its slot is below that
// number. So after a change to fewer slots, every holder of a removed slot was granted
// it before the change: its slot's record shows it to any process that reads it after
// the change, which is how Resize waits for them. It does not matter what a process
// believed about the number before.
//
// It follows that there are at most as many holders as slots, and after a change
// to fewer, at most as many as before, until the last holder of a removed slot has
// left. After a Resize with Wait there are at most the new number.
//
// # Tokens
//
// Tokens of two slots cannot be compared: holders at the same time have no order.
// Fence one resource for each slot, such as a working folder, a connection, a
// shard of the data, under the name [Lease.Name], in the manner of package fence;
// the lease is a grant there. Something that all holders write to cannot be fenced
// by a semaphore.
//
// The data of a lease stays with its slot as well. The next holder of that slot
// finds it in [tenure.Lease.Previous], as work that its former holder has left.
//
// # Which waiter comes next
//
// Waiters of one process come in their order. Of all processes that wait, one is
// at the front of a line, which is a lock too. It polls the slots several times in
// a refresh period. Each of the others polls one slot, after a refresh period and
// then each five of them, so that many free slots are not left to one process to fill. A
// process that has just released a slot, and wants one again, joins the line like
// any other. When the front has its slot, one of the waiting processes comes next,
// each with about the same chance; the process that was at the front lets the
// others go first for two refresh periods.
//
// So no waiter starves: the chance of being passed over falls with every turn. There is
// no bound in turns, and no order between processes.
//
// # What is not guaranteed
//
// Where other processes hold the line, a free slot is not taken at once: it is
// found by polling, within N / [Options.Looks] refresh periods for N slots. A
// semaphore is for work that takes seconds and more.
//
// [Semaphore.TryAcquire] joins no line. A process that calls it again and again
// comes before those that wait.
//
// If a waiter crashes at the front, the others have only their one poll in five
// refresh periods until its lease has run out.
//
// A lock with the name of a slot, taken by hand, is a slot that is held. If data
// that is no number of slots is written into [SizeName] by hand, the semaphore
// refuses to work, with [tenure.ErrUnreadable].
//
// # What it costs
//
// A slot that is free costs two writes and three reads, from Acquire to the end
// of Release, and one read less from the second one of a process on; TryAcquire
// costs two writes and one read then. To hold it costs what a lock costs, a write
// per heartbeat. The first use of a semaphore writes its size: three writes.
//
// A process that waits, with any number of waiters, sends somewhat more than one read
// a refresh period; the one at the front sends Options.Looks and one more, and a write
// per heartbeat. Most of these reads may be behind, and cost half on DynamoDB. Its turn costs two writes besides. With all slots held,
// TryAcquire reads each of them. Slots under a session cost its heartbeat, whatever
// their number: see [Options.Session].
package semaphore
