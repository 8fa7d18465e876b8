// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package history tests what is known of a lock's holders, with real processes
// that are killed on real SQLite files: the history is complete or shows its
// holes, and is never wrong; work that is stuck loses the lock while its
// process lives; and a lock goes to the process that it is handed over to.
//
// Only the order of events is asserted, never how long they take.
package history
