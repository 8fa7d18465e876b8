// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package mysqlstore keeps Tenure's records in a table of MySQL, 8.0 or later, or MariaDB, 10.6 or later.
//
//	config, err := mysql.ParseDSN("app:password@tcp(db-1:3306)/app?tls=true")
//	if err != nil {
//		return err
//	}
//	store, err := mysqlstore.Open(ctx, config, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// The table must exist: "tenure table create" makes it, or [Store.Create], or the statements of [Schema].
//
// # Cost
//
// A call is one statement by primary key, and one round trip: a heartbeat, a release, a read, any number of reads at
// once, the claim of a lock that this process has released last, or that is held. Two are needed to claim any other
// free lock, and to say with what a write conflicts. A heartbeat does not write the data of the record. Nothing tells
// a waiter of a release: it polls, or takes notifications of package notify.
//
// # Guarantees
//
//   - A write is one statement in autocommit mode, which compares version and token, whatever the isolation level of
//     the server, the database or the session.
//   - The store examines the server with each connection that it makes, so after a failover as well, and refuses one
//     that may lose what it has confirmed: see [Open].
//   - Every read refuses a server that is read-only.
//   - No statement is sent twice, and none is killed. A call whose context ends closes its connection, and its outcome
//     is unknown.
//   - [Store.Guard] has the program's own transaction commit only under a token that still holds the lock.
//
// # What is not guaranteed
//
//   - Anything after a failover to a replica that lacked confirmed writes: it is a restored backup. MySQL names no
//     life of a server that a promotion changes, and nothing stops a primary that is cut off, so the store cannot wait
//     for lost leases to end, as package redisstore does.
//   - That the server sees its replicas: it does not count those that are away, or that the user may not see.
//   - That settings which are changed later, and replicas which come later, are noticed before the next connection. A
//     connection lives for 10 minutes at most.
package mysqlstore
