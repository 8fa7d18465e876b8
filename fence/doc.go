// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package fence guards what a lock's holder writes to, at the place where it is
// written: a guard remembers the highest fencing token that it has seen for
// each resource, and refuses lower ones.
//
// A lease alone cannot do that. Its holder can be paused between its last check
// and its write, and write after another has begun. Only the resource can still
// distinguish the two.
//
//	gate := fence.NewGate(nil)                             // in memory, of one process
//	err := gate.Do(ctx, "ledger", token, write)            // *StaleError if a higher token was here
//
//	http.Handle("/ledger", fence.Handler(gate, next, nil)) // at the server
//	client.Transport = fence.NewTransport(nil, nil)        // at the holder
//
//	guard, err := fence.NewSQL(nil)                        // in the user's own transaction
//	err = guard.Guard(ctx, tx, "ledger", token)
//
// [Gate] keeps the tokens in memory, [SQL] in a table beside the data, and
// [SQLGate] in a table, for effects of any kind. Gate and SQLGate are each a
// [Guard], which [Handler] stands on.
//
// # Guarantees
//
// Once a write, or an Admit, under some token has passed a guard, no write to
// the same resource under a lower token happens. That holds from before the
// first of them takes effect, since the guard compares, writes, and only then
// lets the next one in. For SQL, to pass is to be committed.
//
// The same token passes any number of times: a holder writes often.
//
// # What is not guaranteed
//
// A guard learns of a new holder by its first request. Until then a late
// write of the former holder passes. So a new holder that reads before it
// writes sends Admit first: what it reads after that stays as it is.
//
// A guard believes the token that it is given. The resource decides which caller
// may write under which lock, and a token that is too high, by a slip or on
// purpose, shuts the true holder out until Forget is called.
//
// Tokens of two locks cannot be compared. A resource must always be written
// under the same lock.
//
// A guard does not make a write happen once: a holder that repeats a request
// after a lost reply, under the same token, is admitted again.
//
// Writes to the resource that do not go through the guard are not guarded.
package fence
