// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package protocol holds the rules of Tenure as pure state machines. They have no
// clock, no I/O, no goroutine and no randomness of their own: each step takes the local
// time and an event, and returns what to do. The same machines run under the engine, in
// tests of virtual time, and under a simulator, so that each rule is written once.
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
//		wait until m.Next()     // or until another event for the machine
//		act = m.Step(now)
//	}
//
// An [Action] also has notes for people, machines to step now (Wake), and new machines
// to drive from now on (Begin). Package engine has the loop on real time, package sim
// in a simulated world.
//
// # Who drives whom
//
//	SessionOpener ──grant──▶ SessionHolder ──wakes──▶ Holder, one for each lock
//	                         │  ▲                     │
//	                         │  └──all work returned──┘
//	                         └──begins──▶ OrphanReleaser
//	Acquirer ──grant──▶ Holder, on its own or under a SessionHolder
//	    │                  └─grant shows the past─▶ HistoryWriter, one for each term
//	    └──────────┐
//	Requester ─────┼──share──▶ View of a lock ──▶ View of its session ◀── Reaper
//	Observer ──────┘
//	Acquirer ──grant──▶ UnconfirmedGrant, for a remote holder; RemoteWrite writes for it
//	SessionOpener ─▶ RemoteWrite of a remote holder's session ─SessionLook─▶ RemoteWrite of its locks
//
// An [Acquirer] wants a lock, a [Holder] has one; a [SessionOpener] opens a session, a
// [SessionHolder] keeps it alive. A [Requester] wants something of a holder, an [Observer] wants
// to know who the holder is. An [OrphanReleaser] releases a lock that its session does not know
// of, a [Reaper] clears dead sessions, a [HistoryWriter] writes ended terms into the history.
// For a holder in another process without a store, an [UnconfirmedGrant] keeps the grant until
// that holder shows life or may count it, and a [RemoteWrite] carries out each [RemoteHeartbeat] that it
// sends, of a lock or of its session; a [SessionLook] reads the session before a lock is attached to it.
// The retrier decides when a machine retries an unanswered call, or gives up. Only the
// Holder has its own rule. A [View] has what a process has seen of a record; all
// machines of the process that read the record share it.
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
// when the contender begins. The holder keeps the grace G for stopping.
//
// Processes may have unlike bounds, as their clocks differ: ρ = 1 % by a clock that no time service
// slews, 9 % by any other. The record has its holder's. If ρ is the holder's bound and σ a lower
// one of the contender, the holder acts for L/(1+ρ) at most, and the contender waits L/(1+σ) at
// least, which is more. If σ is the higher one, the contender waits
// L·(1−ρ)/(1+ρ)·(1+σ)/(1−σ) by its clock: the longest that the holder may act even if its
// clock is as wrong as σ. A process without Tenure keeps no margin, and names no bound: for its
// record a contender keeps both margins, at the higher of σ and 9 %. Where such processes wait for
// Tenure's records, those keep 9 %.
//
// # What a write's outcome may be
//
// Applied, not applied (with or without the conflicting record), or unknown. A write of
// unknown outcome may still be applied later. So every attempt writes a new version,
// and the machine remembers that version and when it sent the write. If that version
// turns up, the attempt was applied, and the lease counts from that instant.
//
// None of the machines may be used concurrently.
package protocol
