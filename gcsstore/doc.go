// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package gcsstore keeps Tenure's records in a bucket of Google Cloud Storage.
//
//	client, err := storage.NewClient(ctx)
//	if err != nil {
//		return err
//	}
//	store, err := gcsstore.Open(ctx, client, "my-bucket", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// # Guarantees
//
//   - A record is one object. Each write is one upload under ifGenerationMatch, sent once: the
//     retries of the client are off in each call, whatever its settings.
//   - A heartbeat, a release and a takeover take one request; the claim of a lock takes one
//     if this store has seen it last, else two.
//   - Reads are strong, also in a bucket that all may read: objects are not to be cached.
//   - A truncated upload never becomes an object: its checksum is sent before it.
//   - Before its first write a store tries the server with writes that must fail, and
//     refuses a server that applies any of them: see [Options.TrustServer].
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - More than about one write a second to one lock: the service answers 429 to writes
//     that come sooner. After such an answer the store holds its next write of that object
//     back until a second has passed. A lock that changes hands each second is too busy for
//     it.
//   - Anything through the client of storage.NewGRPCClient: its first error says so and
//     ends it. Use the client of storage.NewClient, which speaks HTTP.
//   - A short wait on a connection that the network has dropped silently: the client notices
//     it after 46 s. See [Options.CloseIdleConnections].
//   - One request for a read whose answer is cut off: the client asks for the rest.
//   - Tokens after an object was lost: by a lifecycle rule, by hand, or because another
//     bucket took the place of this one. Stop all programs then, and raise the tokens with
//     the client's RaiseTokens.
//   - A watch. Waiters for a lock poll; package notify reports releases in milliseconds.
//
// # Cost
//
// Each heartbeat is an operation of class A, billed at $5 a million in a bucket of one region:
// with a lease of 60 s and a heartbeat each 12 s that is $1.08 a month for each holder or
// session, and $4.32 with a lease of 15 s. In a bucket with object versioning each of them is
// kept, and paid for, until a rule removes it; so it is for a week under soft delete, which
// new buckets have.
package gcsstore
