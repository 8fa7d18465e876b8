// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenurecertmagic gives any storage of certmagic, and so of Caddy, the locks of
// Tenure.
//
//	certmagic.Default.Storage = tenurecertmagic.Wrap(storage, client, nil)
//
// Certificates stay where they are: only Lock, Unlock, TryLock and RenewLockLease are
// replaced. All processes that share the certificates must be wrapped, on the same locks.
//
// # Guarantees
//
// At most one process at a time has a lock whose lease is good, by its own clock, however
// slow or faulty the storage of the certificates is. A lock is renewed for as long as its
// process lives; the lock of a dead process is free within the lease. Unlock frees the
// lock that this process has, and never that of a successor.
//
// # What certmagic cannot give
//
// certmagic does not notify an order under way that its lock was lost: it asks before each
// try, where [Storage.RenewLockLease] takes the lock again. [Storage.Issuer] ends the
// order at the deadline. The lock is taken by name and not by what is written: a process
// that was paused between its order and its write can write beside a successor. Both write
// a valid certificate then.
package tenurecertmagic
