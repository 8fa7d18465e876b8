// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine holds the tests of the API that need third-party modules: for leaks,
// races, and leases under suspends and steps of the wall clock.
package engine
