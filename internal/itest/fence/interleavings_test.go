// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package fence

// gateInterleavings is how many orders TestGateInterleavings tries.
const gateInterleavings = 10_000
