// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package access says which principal of the lock service may do what to which lock.
//
// A [Principal] is a program or a person, known by a secret or a client certificate. It
// has rights, each for the names that begin with a prefix. Package server knows them, and the
// dashboard asks it, so that both refuse the same.
//
// A right covers what is derived from a name as well: its history, the ledgers of package
// once (NAME:once), the slots of a semaphore, the locks of readers and writers, the partitions
// of shards. A derived record is
// reached by the right to the name that it is derived from, and by no other: see [Base].
package access
