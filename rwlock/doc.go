// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package rwlock lets any number of processes read under a name, or one write.
//
//	catalog, err := rwlock.New(client, "catalog", nil)
//	...
//	err = catalog.RunRead(ctx, nil, func(ctx context.Context, lease *rwlock.Lease) error {
//		// Others may read too. No process writes. ctx ends when this reader must stop.
//		return report(ctx, lease.Token())
//	})
//	err = catalog.RunWrite(ctx, nil, func(ctx context.Context, lease *rwlock.Lease) error {
//		// No other process is here.
//		return rebuild(ctx, lease.Token())
//	})
//
// It is made of plain locks. A writer holds the gate, see [GateName]. A process that
// reads holds a slot, see [SlotName], which its goroutines share. Everything that holds
// for a lease of package tenure holds for these: its context, its check, what a crash, a
// pause or an unreachable store does to it. There are 8 slots at first. A process that
// finds all of them held makes twice as many, up to [MaxSlots].
//
// A plain lock of the same name is another lock: it excludes neither readers nor writers.
//
// # Guarantees
//
// Under the same conditions as for a lock, no writer whose [Lease.Check] returns nil has
// beside it a reader or another writer whose Check returns nil.
//
// A reader first takes a slot, and then looks at the gate. A writer first takes the gate,
// and then looks at the slots. The store is linearizable, so one of the two sees the
// other. The reader turns back; the writer waits until the term that it has seen has
// ended, or has shown no life for its lease, as a strong read that begins after that says; it
// ends such a term by a write, since a client of the lock service may send its first
// heartbeat at any time. It reads how many slots there are after it has the gate, because a
// reader may have made more just before.
//
// # Tokens
//
// The epoch is the gate's token w in the term of the last writer. A writer has token
// 2w, and those who read after it 2w+1. So tokens rise in the order in which terms exclude
// each other, and any fence works: package fence, or a comparison at the resource, under the
// name of the lock.
//
// A fence protects readers from a late write of a former writer only where it has seen
// their token: so a reader shows it before it reads, once in its term, and once more
// after [Lease.Downgrade].
//
// # What a crash leaves
//
// A writer that crashes may leave its data half written. The next lease says how the last
// writer ended: see [Lease.LastWriter]. Readers cannot repair the data; a writer can.
//
// # Who comes next
//
// Writers that find the gate held stand in a line. The one at its front lets the gate
// stand open for two refresh periods, which is the readers' turn, and shuts it then. It
// waits for the readers that are there, and not for later ones. So a writer waits for
// the longest read and three refresh periods in its turn, and for at most two turns of
// each other writer; a reader waits for a few writers' terms. No writer depends on the
// line alone: it tries a gate that has been free for five refresh periods and more. A
// process that writes again and again, alone, lets readers in when it sees that some
// have come. There is no order between processes beyond that.
//
// Readers of a process join its slot as long as the gate was seen open less than a
// refresh period ago. Once it was seen shut, no reader joins.
//
// [Lock.TryAcquireRead] and [Lock.TryAcquireWrite] stand in no line: a process that calls
// TryAcquireWrite again and again comes before the waiters.
//
// # What is not guaranteed
//
// A reader cannot become a writer: two of them would wait for each other. A process that
// reads and asks to write gets [ErrReading] at once. A lease cannot be acquired again by
// its own holder: a goroutine that writes, and asks to read, waits for itself.
//
// A writer that crashes while it waits for readers counts as having written, because that
// is not known. A fence that has seen later readers then refuses the readers that it
// waited for, though they may act.
//
// Without a fence a process that was paused between its check and its write can write
// while others read. See package tenure.
//
// If the record of [SizeName] is deleted by hand, writers no longer know in which slots
// readers may be. All acquires that need it fail then, and no process writes.
//
// # What it costs
//
// A process begins to read by a write and a strong read, and ends by a write; further
// readers in it cost nothing, but one read for each refresh period in which some come. A
// writer without readers costs a write, a batch read of all slots, and the write that
// ends it. A writer that waits reads the slots that it waits for once in a refresh
// period, and has two writes more for its place in the line, from which it reads the gate
// once in five refresh periods; a process that waits to read reads the gate once in a refresh
// period, or watches it. Each slot and gate costs a
// lock's heartbeats, or that of the session: see [Options.Session]. The first use writes
// the number of slots: six calls more. After a crash others wait for the lease and a
// refresh period, and a writer writes once for each reader that has crashed.
package rwlock
