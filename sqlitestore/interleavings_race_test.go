// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package sqlitestore

// interleavings is how many orders TestGuardInterleavings tries. The race detector,
// which has nothing to find there, makes the engine fifteen times slower.
const interleavings = 3000
