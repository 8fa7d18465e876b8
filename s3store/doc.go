// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package s3store keeps Tenure's records in a bucket of S3, or of a server that speaks its
// protocol and keeps its conditional writes.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	if err != nil {
//		return err
//	}
//	store, err := s3store.Open(ctx, s3.NewFromConfig(cfg), "my-bucket", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// # Guarantees
//
//   - A record is one object. Each write is one PutObject under If-Match or If-None-Match,
//     sent once: the retries of the SDK are off in each call.
//   - A heartbeat, a release and a takeover take one request; the claim of a lock takes one
//     if this store has seen it last, else two.
//   - Reads are strong.
//   - Before its first write a store tries the server with writes that must fail, and
//     refuses a server that applies any of them: see [Options.TrustServer].
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - Anything on a server that keeps the conditions only without concurrent writes. No
//     trial of a single process finds that: "tenure doctor" races 16 writers, and the guide
//     to object stores names the servers that are known to be sound.
//   - Tokens after an object was lost: by a lifecycle rule, by hand, or because another
//     bucket, a replica, took the place of this one. Stop all programs then, and raise the
//     tokens with the client's RaiseTokens, or "tenure tokens raise".
//   - A watch. Waiters for a lock poll; package notify reports releases in milliseconds.
//
// # Cost
//
// Each heartbeat is a PutObject, which S3 bills at $5 a million: with a lease of 15 s that
// is $4.32 a month for each holder or session, and $1.08 with one of 60 s. In a bucket with
// versioning each of them is kept, and paid for, until a rule removes it.
package s3store
