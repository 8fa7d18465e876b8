// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package schedules runs the library itself under random schedules: several
// clients do anything that the public API can do, over one store in memory, in
// a bubble of virtual time, while calls are lost, late, doubled or stale,
// processes crash, stop for a while and come again, and clocks run wrong
// within their bound. A referee says what must never be.
//
// A [Plan] is made from a seed alone: the processes, their options, the
// faults that may happen, and the steps. What a step does further is decided by
// a stream of its own, and the fault of a call by the call: by its process,
// its kind, its key, and how many of these came before. So a step that is left out
// changes the others little, and a failing plan can be shortened.
//
// A seed gives the same plan always, and the same schedule for as long as the Go
// runtime does: the tests have one processor (GOMAXPROCS=1) and seed crypto/rand.
// What is left to chance is the order of goroutines and timers that become ready
// at the same instant, of what a select finds ready, and of maps. Most of a
// schedule repeats with its seed, and so does a violation most often; if it does not,
// several runs of the same seed find it.
//
// It uses the public API alone, so that it tells what users see, whatever is
// inside.
package schedules
