// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package rwlock tests readers and writers with real processes, which are killed and
// stopped.
package rwlock
