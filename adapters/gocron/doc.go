// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenuregocron lets several processes share the jobs of gocron v2: one process
// runs each occurrence.
//
//	locker, err := tenuregocron.NewLocker(client, tenuregocron.Cron("0 3 * * *"), nil)
//	...
//	scheduler.NewJob(gocron.CronJob("0 3 * * *", false),
//		gocron.NewTask(locker.Task("nightly", work)),
//		gocron.WithName("nightly"), gocron.WithDistributedJobLocker(locker))
//
// [Locker] runs each occurrence of a job at most once, whatever the clocks of the processes
// say: the store knows which occurrence was begun last. [Elector] has all jobs run in one
// process, the leader. [Locker.Task] and [Elector.Task] give the work a context that ends
// with the lease: gocron's own context ends with the scheduler alone.
//
// # Which one
//
// A Locker, for a job with a schedule that all processes share. An Elector, for jobs with
// random intervals, or whose state is in one process. Where an elector is set gocron asks no
// locker; [LockerOptions].Elector joins the two.
//
// # Guarantees
//
// With a Locker the work for an occurrence begins at most once: see package
// [github.com/tenurelock/tenure/once]. Where clocks are apart, or a process is slow, a later
// occurrence may begin before an earlier one. A process that dies takes one occurrence with
// it, and delays those within its lease. No occurrence is skipped silently: the error of
// [Locker.Lock] goes to gocron.AfterLockError.
//
// With an Elector no work begins in a process whose lease has ended, by its own clock. The
// lock is released when all tasks have returned, and so before the next leader begins.
//
// # What gocron cannot give
//
// A function that is not wrapped in Task runs on when the lease is lost: gocron has no
// way to stop it. gocron drops the error of Unlock: that a lease was lost while a task
// ran is in the error of the task.
//
// With an Elector alone the same occurrence can run twice, or not at all, when the leader
// changes and the clock of the next one is behind, or ahead.
package tenuregocron
