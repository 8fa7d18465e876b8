// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package fence tests the SQL guards of package fence on a real SQLite and a real
// PostgreSQL, whose drivers the root module cannot import.
package fence
