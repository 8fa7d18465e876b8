// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package redisstore keeps Tenure's records in Redis, 7.0 or later, or Valkey.
//
//	store, err := redisstore.Open(ctx, rueidis.ClientOption{InitAddress: []string{"10.0.0.1:6379"}}, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// The store must exist: "tenure table create" makes it, or [Store.Create].
//
// # Guarantees
//
//   - Claim, Swap, Raise and Delete are one script each, which compares version and token. So an operation is
//     one request, also if it is refused: a refusal returns the current record.
//   - Redis confirms a write before it is on a disk or on a replica, so that a restart or a failover may lose it. The
//     store is [driver.Guarded]: until every lease has ended that may have been lost, [Store.Waits], no lock is granted.
//     No token is granted twice. Clients refuse what rests on several records: sessions, semaphores, readers and
//     writers, groups.
//   - A primary that was cut off takes no write once fewer replicas have answered it than [Options.Replicas] says. It may
//     go on for [Options.Lag] and 2 seconds, which is part of the wait.
//   - Every call refuses a replica, and a server that no longer has the store: [driver.ErrReplaced].
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - Anything after a snapshot of a running server was started again, or after someone deleted keys of the store.
//   - That a primary stops which has more replicas than Options.Replicas says, behind another replica for example.
//   - Grants right after a restart, a failover, the first replica after none, and an hour without replicas. Each begins
//     a new life of the server, which costs the wait.
//   - History of terms that were lost.
//
// # Why neither WAIT nor WAITAOF
//
// A write that WAIT has confirmed is lost if another replica is promoted, and every other client may have seen it
// before. Of WAITAOF, Valkey 8 and 9 have confirmed writes before they were on the disk.
package redisstore
