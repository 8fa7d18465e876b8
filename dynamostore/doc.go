// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package dynamostore keeps Tenure's records in an Amazon DynamoDB table, one
// item for a lock.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	if err != nil {
//		return err
//	}
//	store, err := dynamostore.Open(ctx, dynamodb.NewFromConfig(cfg), "locks", nil)
//	if err != nil {
//		return err
//	}
//	client, err := tenure.New(store, nil)
//
// [CreateTable] creates the table. An item has the format of the Amazon
// DynamoDB Lock Client for Java, plus Tenure's own attributes, so that a table
// may be shared with that client, or with cirello.io/dynamolock, while a fleet
// migrates; see [Options.SharedTable] and [Options.Dialect].
//
// # Guarantees
//
//   - Every decision is a condition that DynamoDB checks together with the
//     write. What was read before decides nothing.
//   - Acquiring a lock that is free or released, each heartbeat and each release is
//     one request. If the lock is held, the same request returns the holder's
//     record. DynamoDB counts the token. A client that only tries, and knows
//     nothing of the lock, reads it first, since a refused write is billed: see
//     [Store.ChargesRefusals].
//   - Every error says whether the write was applied, was not, or may have been,
//     and what to do. The SDK's retries are switched off for these calls: a
//     second attempt of a write whose first reply was lost would mistake the
//     caller's own record for another's.
//   - An item that cannot be decoded, whichever client wrote it, is an error that
//     matches [driver.ErrUnreadable], never a free lock.
//   - Attributes that Tenure does not know stay as they are.
//
// # What is not guaranteed
//
//   - Anything between regions whose replicas are eventually consistent; [Open]
//     refuses such tables. Replicas with multi-region strong consistency are one
//     table.
//   - Tokens, if another client writes the table and SharedTable is not set, or
//     if the table is restored from a backup, which has older tokens, until they
//     are raised by the client's RaiseTokens, or "tenure tokens raise".
//   - Locks, if the table's time to live (TTL) uses an attribute that locks have.
//   - A hint that a lock was released: DynamoDB has no watches, so a waiter
//     sees the release at its next poll, within the client's RefreshPeriod.
//
// # Fencing
//
// A lease cannot stop a write that is on its way. [Fence] guards single items
// of the program, [FenceItem] whole transactions.
//
// # Items
//
// A lock's item has the attributes ownerName, leaseDuration,
// recordVersionNumber, isReleased and data of the Java client. In addition,
// fencingToken is the token, stamp the recordVersionNumber that Tenure wrote last
// (another client has written since if they differ), tenureState the state, tenure the
// rest of the record, as text of package recordcodec, and tenureBefore the end of the
// term before. A lock under a session, and a session's own item, have the leaseDuration
// "session", which no other client can parse, so that no client takes them, although a
// lock under a session is written only when it changes hands. Keys that begin with
// "tenure/" are not locks: the history of locks, sessions, and, in a table that is
// shared, the tokens of locks.
package dynamostore
