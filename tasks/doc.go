// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tasks runs an application as a group of tasks: some run in every replica, some
// only in the leader, some only in its followers.
//
//	group := tasks.New(client.Election("scheduler", nil), nil)
//	group.Always("http", serve)          // func(ctx context.Context) error
//	group.Leading("scheduler", schedule) // func(ctx context.Context, lease *tenure.Lease) error
//	group.Following("proxy", forward)    // func(ctx context.Context, followed *tasks.Followed) error
//	group.Every("clean up", time.Hour, nil, cleanUp) // func(ctx context.Context, turn *once.Turn) error
//	err := group.Run(ctx)
//
// Tasks are started in the order in which they were added, and stopped in the
// reverse order, each one when the one after it has returned: a task can count
// on those that were added before it. The group stops a task by ending its context, and
// waits for it to return. The cause of the context says why.
//
// A replica follows until it is elected. Then its following tasks are stopped,
// and after them its leading tasks are started. When the leadership ends, the
// leading tasks are stopped, the replica campaigns again, and the following
// tasks are started again. A leading task that returns nil is done for this term; the
// replica goes on leading, even if nothing is left to do, because the next leader would
// begin all over again. A task that has done what the whole group is for returns
// [ErrStop].
//
// The leader passes values to the others in its data: [tenure.ElectionOptions], and
// [tenure.Lease.SetData] in a leading task. Following tasks see it in [Followed]. An
// Always task that needs to know the leader uses [tenure.Election.Observe].
//
// # Each period
//
// [Group.Every] runs a task of the leader each period. The time is kept in the store, by
// package once: a change of the leader neither doubles a run nor restarts the period.
// Its ledger is in a lock of its own, so that it costs a heartbeat, and does not change
// the record of the group's lock.
//
// # The stop
//
// The group stops on a signal, at the end of Run's context, on the first error
// or panic of a task, and when the election cannot be used any more. First the leading
// tasks are stopped, and the lock is released; or the candidacy is withdrawn and the
// following tasks are stopped. Then the Always tasks are stopped.
//
// If the error or panic of a task stops a group that leads, the term ends as
// [tenure.EndFailed], with that error as the reason.
//
// # Guarantees
//
// A leading task is started only while the lease is good, and no leading task
// is under way when the lock is released: not after an error, not after a
// panic, not in a stop that takes too long. While a leading task runs on after its
// context has ended, heartbeats cover it, until the group has given it up and
// [tenure.Options.StopTimeout] has passed after that. Then the lease expires.
//
// Leading and following tasks of one group never run at the same time.
//
// When the lease is lost, or the leader is asked to step down, the contexts of all
// leading tasks end at once, not one after the other: no task has time to wait for
// another. Following tasks are started again, and the next campaign begins, when all of
// them have returned.
//
// A panic is never swallowed. Run panics with the first one when the group has stopped
// and the lock is released; further ones are logged.
//
// # Health
//
// [tenure.ElectionOptions] Health checks the leader beside its tasks. When it has
// failed too often in a row, the contexts of all leading tasks end at once, with
// [tenure.ErrUnhealthy], the term ends as [tenure.EndFailed], and the replica campaigns
// again: with a CoolDown, after others.
//
// # What is not guaranteed
//
// The group does not know when a task is ready, only that it was started. A
// task that needs another one to be ready asks it.
//
// A task that ignores its context cannot be stopped. After [Options.StopTimeout]
// Run gives it up, stops the others, and returns an error that names it, while it
// still runs: the process should end then. A leading task in that state can run
// beside the next leader's, as any work can that was paused between its last
// check and its write. Fence where that matters: see [tenure.Lease.Token].
//
// Following tasks learn of a new leader with a delay. In a process that is paused
// at that moment they can see this replica itself, just elected. Between two
// leaders, and right after the start, there may be neither leading nor following
// tasks.
//
// # Testing
//
// A group runs as it is inside a bubble of testing/synctest. No signal is caught
// there: end the context of Run instead. Package tenuretest has what else a test
// needs.
package tasks
