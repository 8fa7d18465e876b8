// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine holds those tests of the API that need third-party modules or
// the clocks of package internal/clock: suspends and steps of the wall clock,
// leaks, races, and many faults at once.
package engine
