// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package clock measures elapsed time, including the time in which the machine slept.
//
// A lease is a promise about elapsed time, and the monotonic clock that Go uses
// for that breaks it: on Linux and macOS it stands still while the machine is
// suspended (golang/go#24595). A process that sleeps for an hour in the middle
// of a lease of 15 s would wake up and find 10 s of its lease left, long after another
// process took the lock. The wall clock goes on in a suspend, but people and time
// services set it, forwards and back.
//
// So the package reads several clocks together. They differ as follows:
//
//	                            monotonic   boot      wall                           raw
//	a suspend                   stands      counts    counts                         stands
//	a paused virtual machine    stands      stands    stands, is set forward later   stands
//	the time is set             unmoved     unmoved   steps                          unmoved
//	the time is slewed (NTP)    follows     follows   follows                        unmoved
//
// The boot clock (CLOCK_BOOTTIME, Linux only) decides. What it cannot see is a
// pause of a whole virtual machine: the only sign of one is a later step of the
// wall clock, which looks exactly like a setting of the time. A holder has to assume
// the pause, and a contender has to assume that the time was set. That is why a [Clock]
// has two answers.
//
// The last line of the table is why comparing the first three works: on Linux the wall clock is
// the monotonic clock plus an offset, and both tick at the slewed rate, so they
// stay together exactly unless something happened. In the ordinary case
// the answer therefore costs one time.Now and a comparison.
//
// # The raw clock
//
// The same line is why [Elapsed] may be wrong by as much as time services slew: chrony by up to
// 8.3 % by default. [Raw] measures time by the raw clock (CLOCK_MONOTONIC_RAW, Linux only), whose
// rate is that of the machine's counter as the kernel has measured it: wrong by less than a
// thousandth, and never changed. It adds what Elapsed has counted beyond the monotonic clock.
// A reading costs a system call. So a caller that must be fast reads Elapsed, and turns an
// instant of Raw into one of Elapsed by [MaxSlowdown].
//
// # Guarantees
//
//   - Holder never misses a suspend, nor a forward step of the wall clock
//     (unless [Options] leave steps out), by more than one millisecond once the
//     clocks show it. Many small steps are seen too: they are compared with a fixed
//     reference, and count when they add up.
//   - Contender never counts a step of the wall clock, whatever its size.
//   - A backward step of the wall clock changes neither.
//   - Holder never falls behind Contender, if both start together: everything
//     that Contender counts, Holder counts.
//   - Raw counts what Elapsed counts beyond the monotonic clock, and neither slews nor steps.
//   - A call that starts after another one has returned, in whatever goroutine,
//     never gets a smaller answer from the same method. See [Elapsed].
//
// # What is not guaranteed
//
//   - Between the end of a pause of a virtual machine and the moment when the
//     wall clock is set right, nothing shows that there was a pause. A guest
//     whose wall clock is never set right never learns of it. No clock within
//     the guest can help; a fencing token at the resource does.
//   - A suspend, and within it a backward step of the wall clock of the same
//     length to the millisecond, hide each other until the clocks next disagree.
//   - Each backward step may hide a forward step of less than a millisecond
//     that stood unseen at that time.
//   - An answer is true at some instant between the call and its return. The
//     machine can stop right after it.
//   - The counter of a virtual machine is its host's. If the host slews it (an old one under
//     kvm-clock whose TSC is not stable), or the guest moves to a host whose counter has another
//     rate, and nothing scales it, Raw is wrong by as much.
//   - Off Linux there is no boot clock, so a suspend cannot be told from a setting of
//     the time. Holder counts both, Contender neither: a contender that slept waits
//     longer than it would have to.
//   - The wall clock must stand between the years 1885 and 2157 when a clock is
//     made: beyond that, time.Now has no monotonic part. Later it may show
//     anything.
package clock
