// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package protocol holds the rules of Tenure as pure state machines. They have no
// clock, no I/O, no goroutine and no randomness of their own: each step takes the
// local instant and what happened, and answers with what to do. The same machines
// run under the engine, in tests of virtual time, and under a simulator, so
// that a rule stands in one place.
//
// # One loop
//
// All machines have one shape, [Machine], and are driven by one loop:
//
//	act := m.Step(now)              // or GiveUp, or what the machine's own methods return
//	for !m.Over() {
//		if act.Call != nil {    // never two under way
//			act = m.Reply(now, result of act.Call)
//			continue
//		}
//		wait until m.Next()     // or until somebody tells the machine something
//		act = m.Step(now)
//	}
//
// An [Action] has besides: notes for people; machines that have something to do
// now, which are stepped (Wake); and new ones, which are driven from then on
// (Begin). Package engine has the loop on real time, package sim in a simulated
// world.
//
// # Who drives whom
//
//	SessionOpener ──grant──▶ SessionHolder ──wakes──▶ Holder (tied), one for each lock
//	                           │  ▲                     │
//	                           │  └────last returned────┘
//	                           └──begins──▶ OrphanReleaser
//	Acquirer ──grant──▶ Holder, on its own or tied to a SessionHolder
//	    │                  └─grant shows the past─▶ HistoryWriter, one for each term
//	    └──────────┐
//	Requester ─────┼──share──▶ View of a lock ──▶ View of its session ◀── Reaper
//	Observer ──────┘
//	Acquirer ──grant──▶ UnconfirmedGrant, for a remote holder; RemoteWrite writes for it
//
// An [Acquirer] wants a lock, a [Holder] has one, a [SessionOpener] wants a session and a
// [SessionHolder] has one. A [Requester] wants something of a holder, an [Observer] wants to
// know who the holder is. An [OrphanReleaser] releases a lock that its session does not
// know of, a [Reaper] clears dead sessions, a [HistoryWriter] writes ended terms into
// the history. For a holder in another process that has no store, an [UnconfirmedGrant] keeps
// the grant until that shows life, and a [RemoteWrite] carries out each [RemoteHeartbeat] of it.
// When a call without an answer is tried again, and when a machine gives up, is one rule for all
// but the Holder: see retrier. What a process has seen of a record is a [View]; all machines of
// the process that read the record share it.
//
// Instants are time.Durations since the origin of a local clock. A Holder and
// an Acquirer may run on different clocks (package clock says why); neither
// ever sees an instant of another process.
//
// # The timing argument
//
// A holder counts its lease from the instant before its write was sent; the
// write takes effect at the store after that. A contender counts from the
// instant after the reply that first showed the holder's heartbeat; the store had
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
// or unknown. A write of unknown outcome may still be applied later. So every
// attempt writes a new version, and the machine remembers it with the instant at
// which it was sent. If that version turns up, the attempt was applied, and the
// lease counts from that instant.
//
// None of the machines may be used concurrently.
package protocol
