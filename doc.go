// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenure gives one process at a time the right to do a piece of work,
// and makes sure that this process knows when the right ends.
//
// A term is one holder's time with a lock, from grant to end. The right to it is a
// lease on a record in a store that is already in use. The holder renews the lease by
// heartbeats; a contender watches the record, and takes over when it has not changed
// for the lease duration. Every term has a fencing token, one higher than the one
// before.
//
//	client, err := tenure.New(store, nil)
//	...
//	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
//		// Only one process is here at a time. ctx ends when it must stop.
//		return writeReports(ctx, lease.Token())
//	})
//
// [Client.Run] takes a lock around a piece of work, [Client.Acquire] and
// [Client.TryAcquire] hand out the [Lease], and an [Election] campaigns again
// and again. An error that matches [ErrHeld] says that another holder has the lock; an
// error that matches [ErrLost] says that a lease ended before its work.
//
// [Client.Status] shows the holder of a lock, and [Client.History] its former holders.
// [Client.StepDown] asks a holder to stop, or to hand over. [Options.OnEvent] and
// [Options.Logger] get all events of the leases of a process.
//
// A [Session] keeps any number of locks of a process alive by one heartbeat. Other packages
// of this module build on these calls: once runs a job once for each occasion, tasks runs
// the work of a leader, semaphore allows several holders, rwlock has readers and writers,
// and shard spreads partitions over many workers. Package fence keeps a former holder out
// of a resource, admin has the operators' calls, and tenuretest helps to test programs that
// hold locks.
//
// # Guarantees
//
// As long as no clock's rate is wrong by more than [Options.MaxClockDrift], at most one
// process at a time has a lease whose [Lease.Check] returns nil. A lease counts from
// before its request was sent, never from the reply. Clocks of different machines are
// never compared. Suspends count. Replies may be lost, and writes may arrive late or
// twice.
//
// The context of the work is cancelled at the deadline, by a timer that waits
// for no request and no lock. The deadline lies [Options.Grace] before the
// instant at which another process can begin.
//
// The fencing token of a lock never decreases, across releases, expiries and takeovers.
//
// # What is not guaranteed
//
// A lease alone does not exclude two actors: a process can be paused between its
// last check and its write, and then write after another has begun. A resource that
// must never be overwritten needs a fence: it remembers the highest token that it has
// seen and rejects lower ones. See docs/reference/guarantees.md.
//
// After a holder is cut off, the lock may have no holder for a while, until a
// successor begins.
//
// There is no fairness between processes. Within one process, waiters of a
// lock come in their order.
package tenure
