// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package world is a small deterministic world for tests of the protocol's
// machines: processes with clocks of their own, a model of a store, a network
// that loses, delays and repeats, users who acquire, work, stall, stop, crash and
// pause, and people who ask holders to make way, free locks and revoke them. It
// runs in virtual time, without goroutines, and every choice comes
// from a [Source], so that a run is repeated by its source.
//
// After every step it checks what must always hold; the first violation ends
// the run. A [Wrong] makes one deliberate mistake in the world around the
// machines, which a check worth having must find.
package world
