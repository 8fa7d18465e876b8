// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package protocol holds the rules of Tenure as pure state machines: the
// [Holder] of a lease, the [Contender] for a lock, and the [Sight] that a
// process has of a record. They have no clock, no I/O, no goroutine and no
// randomness of their own: each step takes the local instant and what
// happened, and answers with what to do. The same machines run under the real
// shell, in tests of virtual time, and under a simulator.
//
// Instants are time.Durations since the origin of a local clock. A Holder and
// a Contender may run on different clocks (package clock says why); neither
// ever sees an instant of another process.
//
// # The timing argument
//
// A holder counts its lease from the instant before its write was sent; the
// write takes effect at the store after that. A contender counts from the
// instant after the reply that first showed the holder's beat; the store had
// applied the write before that. So the contender's count begins later than
// the holder's, on any clocks. It waits L; the holder acts for at most
// L·(1−ρ)/(1+ρ). If no clock runs wrong by more than the rate ρ, the real time
// that the contender waits is at least L/(1+ρ), and the real time that the
// holder acts is at most L·(1−ρ)/(1+ρ)/(1−ρ) = L/(1+ρ): the holder has ended
// when the contender begins. The grace G before that is kept for stopping.
//
// # What a write's outcome may be
//
// Applied, not applied (with the record that stood in the way, or without),
// or unknown. An unknown write may still be applied later. So every attempt
// writes a version never used before, and is remembered with the instant at
// which it was sent: if its version turns up, it was applied, and its own
// instant counts.
//
// None of the machines may be used concurrently.
package protocol
