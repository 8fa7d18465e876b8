// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify carries the hints of [github.com/tenurelock/tenure.Options.Notify] over
// UDP.
//
// A store without a watch, such as DynamoDB, does not report that a lock is free: a waiting
// process notices it half a refresh period later. With notifications the holder reports it, in
// the time that a datagram takes. A process that asks a holder to stop need not wait for the
// holder's next heartbeat.
//
//	udp, err := notify.Listen("192.0.2.7:4711", nil)
//	...
//	defer udp.Close() // after client.Close
//	client, err := tenure.New(store, &tenure.Options{Notify: udp})
//
// # Guarantees
//
// None. A datagram may be lost, late, duplicated or forged: it never grants or ends a
// lease, and costs a bounded number of requests. A blocked port makes nothing slower
// than it is without notifications.
//
// # What others can do
//
// The address and a secret are in the records of the store. Anyone who can read the store
// can make each waiting process read a lock four times in a refresh period, and each
// holder send four more heartbeats in a heartbeat period. Anyone who can write a record
// can have processes that wait for its lock send datagrams of at most 300 bytes to an
// address of their choice: at most 20 in a lease, and one for each poll that shows another
// holder, for each lock and process. They begin with the bytes TENUREB1, and go to no port
// below 1024, no multicast and no broadcast address.
package notify
