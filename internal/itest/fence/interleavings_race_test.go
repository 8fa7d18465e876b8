//go:build race

// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

// gateInterleavings is how many orders TestGateInterleavings tries. The race detector
// makes SQLite, which is in Go, fifteen times slower; make nightly-engines runs all of them
// without it.
const gateInterleavings = 500
