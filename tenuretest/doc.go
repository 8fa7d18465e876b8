// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenuretest helps to test a program that holds locks: a store in memory,
// clients that contend for its locks as replicas in production do, and what happens
// to replicas: a network that is cut, a process that is killed or stopped, a machine
// that is suspended, a store that is slow or loses its replies.
//
//	synctest.Test(t, func(t *testing.T) {
//		w := tenuretest.New(t)
//		for _, name := range []string{"a", "b"} {
//			c := w.Client(name)
//			c.Go(func(ctx context.Context) error { return serve(ctx, c.Client) }) // the program under test
//		}
//		first := w.Leader("scheduler") // waits until one of them leads
//		first.Partition()
//		second := w.LeaderAfter(first) // waits until the other one has taken over
//		...
//	})
//
// In a bubble of testing/synctest, as here, time passes as soon as all goroutines
// wait: a failover with a lease of 15 seconds takes milliseconds. Make the [World] in
// the bubble then. Outside of bubbles everything works as well, in real time: use a
// short [tenure.Options.LeaseDuration] there.
//
// The clients are real ones, on the real protocol. Everything is closed with the test,
// and a test that fails shows what each client reported about its locks, and when.
//
// # What is simulated
//
// A partition: requests of the client do not reach the store, and hang until their
// timeout. Hints of the store do not reach the client. The client runs on.
//
// A pause, which is what SIGSTOP does to a process, and a long stop by a garbage
// collector or a hypervisor:
//
//   - The clock of the client stands still. So do its timers, which go by that clock:
//     no heartbeat is due, no deadline passes, no context ends, Check says what
//     it said before.
//   - Nothing goes in or out. A request that begins in the pause reaches the store
//     after it, and a reply or a hint that comes in the pause is seen after it.
//   - Afterwards the clock shows all the time that has passed, at once. What became
//     due in the pause happens within a quarter of [tenure.Options.Grace], and a
//     second at most.
//
// A kill, which is what SIGKILL does: nothing of the client reaches the store any
// more, not even a release. Its record stays as it is.
//
// A stop, which is what SIGTERM does to a program that ends in good order: the context
// of [Client.Go] ends.
//
// # What is not simulated
//
// No test can stop the goroutines of the program itself, nor its own timers. What
// they do in a pause, under a lease that still seems good, is what a real process
// does when it was stopped between its Check and its write: its write comes late.
// A [github.com/tenurelock/tenure/fence] refuses that, and a pause in a test is how to
// see it.
//
// A killed client fails every Check, and ends all contexts of its leases, so that the
// program ends and the test can go on. A real process would not get that far: what
// the program does to clean up then proves nothing.
//
// The timeout of a request is a timer of package time, and goes on in a pause. A
// request that has no reply by then fails in the pause instead of right after it. The
// clock of a paused client moves on by a microsecond each time that it is read.
//
// Clocks run right, and are not set, unless the test says so: [Client.SetRate],
// [Client.Step]. A suspended machine is the same as a paused process here, because the
// clock of Tenure counts both.
package tenuretest
