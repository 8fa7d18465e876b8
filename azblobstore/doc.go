// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package azblobstore keeps Tenure's records in a container of Azure Blob Storage.
//
//	credential, err := azidentity.NewDefaultAzureCredential(nil)
//	if err != nil {
//		return err
//	}
//	client, err := container.NewClient("https://ACCOUNT.blob.core.windows.net/my-container", credential, nil)
//	if err != nil {
//		return err
//	}
//	store, err := azblobstore.Open(ctx, client, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// # Guarantees
//
//   - A record is one block blob. Each write is one Put Blob under If-Match or If-None-Match,
//     sent once: the retries of the SDK are off in each call.
//   - A heartbeat, a release and a takeover take one request; the claim of a lock takes one
//     if this store has seen it last, else two.
//   - Reads are strong: the primary location answers them.
//   - Before its first write a store tries the server with writes that must fail, and
//     refuses a server that applies any of them: see [Options.TrustServer].
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - Tokens after a blob was lost: by a rule of lifecycle management, by hand, or because
//     the account failed over to its secondary location, which is behind. Stop all programs
//     then, and raise the tokens with the client's RaiseTokens.
//   - Anything while a rule of lifecycle management moves blobs to the archive, or a policy
//     makes them immutable: such a lock cannot be written.
//   - A watch. Waiters for a lock poll; package notify reports releases in milliseconds.
//
// # Cost
//
// Each heartbeat is a Put Blob, which Azure bills at about $5.50 a million in the hot tier:
// with a lease of 15 s that is $4.75 a month for each holder or session, and $1.19 with one of
// 60 s. With soft delete or versioning each of them is kept, and paid for, until its time is
// over. The library of Azure depends on Apache Arrow: an uncached build takes about 40 s more
// processor time.
package azblobstore
