// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgstore keeps Tenure's records in a table of PostgreSQL, 12 or later.
//
//	store, err := pgstore.Open(ctx, "postgres://app@db-1,db-2/app?sslmode=verify-full", nil)
//	client, err := tenure.New(store, &tenure.Options{})
//
// The table must exist: use [CreateTable], [Schema], or `tenure table create`. All roles
// use one table, whatever their search_path: see [Options.Table].
//
// # Cost
//
// Every call is one statement and one round trip: a claim, whether the lock is free, held
// or unknown; a heartbeat, a release, a read, any number of reads at once. A second
// statement is needed only when two calls meet in the same millisecond. After releases a
// statement notifies others, at most each 5 ms; no caller waits for it. A heartbeat writes one
// small row, and not the data of the record.
//
// # The table
//
// A row is a lock. It has columns for what statements compare, and for the data; the rest is
// a text in JSON, which the view beside the table shows in columns: see [Schema]. A table of
// another layout is refused.
//
// A connection is a process of the server. [Open] makes at most 16, and one more listens if
// something is watched. A process with many locks should hold them under a session: one
// heartbeat for all.
//
// # Safety
//
// Every write waits until it is durable (synchronous_commit is set in its statement),
// whatever the settings of the role and the server. With a synchronous standby it is then
// on two machines. Without one, a failover loses the last confirmed writes, and their
// tokens: a lock could be granted twice within one lease, under one token. So [Open] refuses
// a primary that has asynchronous standbys alone, where the role may see them, unless the table is
// guarded ([Options.Guarded]): then no lock is granted after a failover until that cannot happen.
// See docs/guides/postgres.md.
//
// While a commit waits for a standby, it is not visible. If the wait is cancelled, it
// becomes visible, though a fail-over would lose it. So the store never asks the server to
// cancel: a call whose context ends abandons its statement, and the connection is used
// again when the server has answered.
//
// The user's own writes can be guarded in their transaction: [Store.Guard].
//
// # Poolers
//
// Behind a transaction pooler, add default_query_exec_mode=exec to the URL, since prepared
// statements belong to a connection, and set [Options.Listen]: to the server itself, or
// off. The store reports an error if LISTEN gets no notifications.
package pgstore
