// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenureclient holds locks through the lock service, for programs that may not reach its store. Other programs
// use package tenure, which needs no service and can do more.
//
//	client, err := tenureclient.New(tenureclient.Options{
//		Servers: []string{"http://127.0.0.1:8368"}, TokenFile: "token",
//	})
//	...
//	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenureclient.Lease) error {
//		// One process at a time is here. ctx ends when it must stop.
//		if err := lease.Check(); err != nil {
//			return err // ask before every side effect
//		}
//		return report(ctx, lease.Token())
//	})
//
// It needs the standard library and three small packages of this module; the engine and the stores are not among
// them. The names are those of package tenure where they mean the same. The last element of the import path, go, is no
// name that a package can have; this one can stand in a file beside package tenure.
//
// # Guarantees
//
// At most one process at a time has a lease whose [Lease.Check] returns nil, whatever servers, proxies and networks do
// to calls. The conditions are those of package tenure, and that no clock's rate is wrong by more than 9 %; or by 1 %
// where the client counts by the raw clock of Linux, which no time service slews. It tells the service so. All count
// suspends. docs/reference/service.md has the rules.
//
// The context of a lease is cancelled at the deadline, by a timer that needs no network and reads the clock at least
// each second.
//
// # What is not guaranteed
//
// A process that is paused between its check and its write can write while another one holds the lock. Only the
// resource can refuse that: a lease is a grant of package fence.
//
// A lock that is not released is held for as long as the process lives.
//
// # What it costs
//
// Two calls for a lock, and one each heartbeat period, a fifth of the lease, while it is held; a grant that waited for
// a holder needs one more. A [Session] sends one heartbeat for all its locks, and two more calls for a lock.
package tenureclient
