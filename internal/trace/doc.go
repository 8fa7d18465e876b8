// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package trace records what processes and their store did, to check it against the
// model in spec/. The simulator and the recorder of the engine's tests write traces; no
// program reads a trace while it is made.
//
// A trace is a sequence of [Event] in the order in which they happened, by the
// time of a reference clock that no process of the protocol reads. Events of one
// instant stand in the order of cause and effect: a Send before its Apply, the
// Apply before its Reply, the Reply before the Grant that it leads to.
package trace
