// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package adapters has tests of the adapters with real processes, on a SQLite file: some are
// killed in the middle of what they do.
package adapters
