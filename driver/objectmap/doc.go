// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectmap makes a [driver.Store] of any engine with named objects and conditional
// writes: a bucket of S3, of Google Cloud Storage, a container of Azure. A store for such
// an engine fills in [Objects], five methods, and sorts the engine's errors.
//
// A record is one object. Its name is made of the key, its body is the text that package
// recordcodec makes of the record, and its tag is the engine's own: an ETag, a generation.
//
// # Requests
//
//   - A claim of a lock whose current record this store has seen takes 1 request, any
//     other claim 2 or more. Opening a session takes 1.
//   - A heartbeat, a request to a holder, a release and a takeover take 1.
//   - A write that conflicts takes 2: the second one reads the current record.
//   - If the engine answers that the tag differs, a call writes once more, if the record
//     still allows it. After an unknown outcome it never does.
//   - The first write of a store tries the engine before: see [Options.Trust].
//
// # Tags
//
// A tag need not be new with each write: the tag of S3 is a hash of the body, and the same
// body has the same tag. So the body contains the record's version and token. The version
// is never used twice, and the text of a record is a function of the record alone: equal
// tags mean the same write.
//
// # Deletion
//
// Some engines delete without a condition. There a deleted lock leaves an object that
// counts as absent and keeps its token: the next claim continues from it. Sessions and
// the history of locks, whose keys are never used again, are read, compared and removed.
package objectmap
