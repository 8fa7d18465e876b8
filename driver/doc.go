// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver is the contract between Tenure and the stores that keep its
// records. It is for people who write a store; to use one you need only the
// store's own package and package tenure.
//
// A store is a linearizable map from key to a small [Record] with
// compare-and-swap on the record's version and token. That is all a store has
// to be: it keeps no time, runs nothing in the background except for its
// watches, and knows nothing of leases. Everything about time, retry, jitter and
// renewal lives above it, in one place, so that all stores behave alike.
//
// # Invariants
//
// Package drivertest checks these on every store:
//
//  1. A key has at most one live holder.
//  2. The token of a key rises by one with every change of holder, for the
//     life of the key, across release, expiry and takeover. Only a [Raiser]
//     leaves a gap, when all programs are stopped, and the opening of a new life of a
//     [Guarded] engine.
//  3. Renewing and releasing name the exact version and token, and fail
//     otherwise.
//  4. Once another holder is granted, the former term can never be renewed.
//  5. No decision compares the clocks of two machines.
//  6. A lost reply, a delayed write or a duplicated write never makes two
//     holders.
//  7. A released record stays released under any late heartbeat, data write or
//     release of its former holder, and releasing again changes nothing. A
//     late duplicate of a claim may open a term that no process believes in; it
//     runs out after its lease.
//  8. A session that is closed stays closed under any late heartbeat and request
//     to it, and under a late duplicate of the claim that opened it, until its
//     record is deleted.
//
// # Sessions
//
// A session is a record of its own, under a key that begins with
// [SessionPrefix] and an id that is never used again. Its holder renews it like a
// lock. A held record whose Session names it is written only when the lock
// changes hands, and so one heartbeat renews any number of locks. A store treats
// the record of a session as any other: Claim opens it, if the key is absent;
// Swap renews it, adds requests, and closes it; Delete removes it in the end. For
// a store, sessions mean this:
//
//   - Claim takes only Released. A Closed record blocks it, also for a late
//     duplicate of the Claim that opened the session: otherwise the session
//     would live again, and with it all locks that it has left.
//   - A record that names a session looks dead, since its beat does not change. A
//     program that does not know of sessions, such as an older version on the same
//     database or another client of the same table, must not read it as a lock
//     whose holder is gone. Store it so that they cannot decode it, in a state of
//     its own for example.
//   - When a client closes a session, the next strong read of every other client
//     shows it, and only a strong read that finds no session proves that it does
//     not exist. Get with Eventual promises no more than for locks.
//
// # Engines that lose what they have answered
//
// Some engines go back to an earlier state in a crash or a failover: they answer before a
// write is on their disk, or on the server that takes over. A store on such an engine is
// [Guarded], or it refuses such a configuration when it is opened. No process is then
// granted a lock before all leases have ended that the engine may have forgotten. The
// state goes back as a whole: all records of a store are in one stream of replication.
//
//   - A life of the engine begins at each start and each promotion after which writes may
//     be missing. It has a name of at most 57 letters, digits and dashes, which no life of any
//     server ever has again, and which the engine itself knows in the atomic step of a
//     write. Every record that the store returns, in a conflict too, names it in Life.
//   - The store keeps which life is open. In a closed life it carries out no write
//     that would raise the token of a lock: no Claim of Held, no Swap to a higher token, no
//     Raise. It carries out any other write as usual.
//   - A write whose Opens names the life of the engine opens it, before anything else is
//     decided, and whatever becomes of the write. The caller has seen that life for Waits, by
//     a clock of its own. It never infers that from a wait for something else: a process for
//     which a lock is reserved has not waited.
//   - A write that is refused because the life is closed is a conflict, and changes nothing. A
//     lock that has no record, or is Released or Reserved, shows there as [InClosedLife] says,
//     so that contenders wait. Get and List show the same. A record that is Held shows as it is, and so
//     does any key that begins with [OwnPrefix], which is no lock.
//   - A Swap, Raise or Delete whose prev names another life than that of the engine is a conflict: a
//     server that is cut off, and its successor, show different states, and a process that decides by both
//     could be wrong. A prev without a life is bound to none.
//   - Nobody takes a lock over before it has seen the sign of life unchanged for Waits, in one
//     life of the engine, even if the record's lease is shorter, and no failover has happened:
//     an old server that is cut off does not see the heartbeats that its successor takes. A
//     write with a lease that is too long for that is unsupported.
//   - Tokens do not repeat. The writes that were lost cannot be asked for, so each opening
//     sets a base for the tokens of its life ([Opening.NextBase]), which is 0 in the first life
//     of the store. If a write that would be applied would raise a token from below the
//     base, the store writes what [RaisedAtOpening] returns instead, and answers that the write
//     conflicts with it. This holds for a Swap from what InClosedLife has shown, too. The
//     caller then claims.
//   - A session ends with the life in which it was opened, which its record tells the store. A
//     Swap from Alive to Alive in another life is a conflict with a record that shows
//     Closed, with EndExpired: a claim under the session may be lost, and its heartbeats would keep the holder
//     believing in it for ever. Until its deadline that holder may act. Get shows what is stored.
//   - A store that finds nothing about its lives was [ErrReplaced].
//
// # Writing a store
//
// Implement [Store]; call drivertest.Run from a test of yours; add the
// optional interfaces, such as [Watcher], that the engine makes cheap, and [Raiser] if
// the engine can be restored from a backup.
//
//   - Decide conditions on the engine, in one atomic step, never by reading
//     first and writing after. On an engine that compares a revision of its own, a
//     store may remember which revision a version and token had: that is a guess,
//     which the engine checks. If the engine answers that the guess was wrong, a call
//     may read and try again, a bounded number of times. After an unknown outcome it
//     must not.
//   - A counter that the engine keeps for a key, and that begins again with the key's
//     next life, does not stand for version and token: a late heartbeat of a record
//     that was deleted would be applied to its successor.
//   - Sort every error. A mismatch is a [*ConflictError]. An error after which
//     the write has certainly not happened, and never will, is wrapped with
//     [NotApplied]. Any other error of a write means that the outcome is
//     unknown: that is always a safe answer, and a wrong "not applied" never is.
//   - Never sleep, retry, log, or read a clock; switch off the retries of
//     writes that an engine's client library makes by itself. A hidden retry
//     of a write that had been applied looks like a lost race. Watches are the
//     exception: a store may connect again, with pauses, for as long as there is a
//     watch. Then it calls all hints, since the changes in between are not known. Where
//     an engine limits how often a key is written or read, return [Throttled], and the
//     caller tries again later; package gcsstore spaces its writes of an object
//     instead, within the context, since the limit is one a second.
//   - Return soon after the context of a call is done, with the outcome
//     unknown if the engine may still carry it out. Do not have the engine cancel
//     a write where that could show an unsafe write to others.
//   - Keep fields that you do not know, where the engine can hold them: an
//     older version of a program may renew a record of a newer one. The heartbeats,
//     data, requests and the release of a term keep them; the next term, and a
//     reservation, may be without.
//   - Where the engine keeps text or bytes, let package recordcodec make them of
//     a record. The tests of drivertest have a store that needs nothing else.
package driver
