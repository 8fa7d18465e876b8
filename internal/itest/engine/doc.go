// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine holds those tests of the API that need third-party modules, and
// what suspends and steps of the wall clock do to it: leaks, races, lost leases.
package engine
