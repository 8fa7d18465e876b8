// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package fence

// gateInterleavings is how many orders TestGateInterleavings tries. The race detector
// makes SQLite, which is in Go, fifteen times slower; make nightly-engines runs all of them
// without it.
const gateInterleavings = 500
