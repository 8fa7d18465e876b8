// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package notification has the rules by which processes give each other hints: a waiter
// for a lock tells its holder so, and the holder notifies it when the lock is free. It has no
// clock, no I/O and no goroutine: the caller hands in the instant and what has come,
// and sends what is returned.
//
// A message is a hint. It may be late, lost, doubled, or forged by whoever can read the
// store. It has a record looked at, or a heartbeat sent, a bounded number of times, and
// it changes nothing else: no message is an observation of a record, and none confirms a
// write.
//
// # The messages
//
//	waiter ──Wait──▶ holder    after a poll that shows an address, and again each L/3
//	waiter ◀──Ack─── holder    with the word that the next Wait has to repeat
//	waiter ◀─Notify─ holder    when the lock is free, to those who have repeated it
//	asker  ──Asked─▶ holder    when a request is in the record
//
// A holder notifies no address that has not repeated a word which was sent there. So
// nobody can have a third party notified.
//
// None of the types may be used concurrently.
package notification
