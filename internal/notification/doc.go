// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package notification has the rules by which processes send each other hints: a waiter for a
// lock registers with the holder, and the holder notifies it when the lock is free. It has no
// clock, no I/O and no goroutine: the caller passes the instant and received messages,
// and sends the returned ones.
//
// A message is a hint. It may be late, lost, duplicated, or forged by anyone who can
// read the store. It causes a bounded number of reads or heartbeats, and changes nothing
// else: no message is an observation of a record, and none confirms a write.
//
// # The messages
//
//	waiter    ──Wait──▶ holder    after a poll that shows an address, and again each L/3
//	waiter    ◀──Ack─── holder    with the word that the next Wait must repeat
//	waiter    ◀─Notify─ holder    when the lock is free, to the waiters that have repeated it
//	requester ──Asked─▶ holder    when a request is in the record
//
// A holder only notifies an address that has repeated a word sent to it. So a process
// cannot have a third party notified.
//
// None of the types may be used concurrently.
package notification
