// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim is a small deterministic world around the protocol's machines, the same that run
// in the engine: processes with clocks that drift and are set, a model of a store, a network
// that loses, delays and repeats, pauses of processes and of whole machines, crashes, users who
// acquire some locks, work, stall and stop, and people who ask holders to make way, free locks,
// revoke them, and delete their records. Each process may have a timing of its own. The world
// runs in virtual time, without goroutines. Every choice comes from a [Source], so that the
// same source repeats a run.
//
// One schedule of eight has clients of a lock service: programs without the store, with clocks
// of their own, better or worse than the replicas', that hold locks through replicas. The
// replicas run the same machines: a [protocol.Acquirer] for an acquire, a
// [protocol.UnconfirmedGrant] for each grant, a [protocol.RemoteWrite] for each heartbeat and
// release. A second network lies between the two, which loses, delays and repeats calls, and
// answers 502 for what is carried out. A client is no machine of the core. It follows the rules
// that every client of the service has to, in serviceholder.go.
//
// In some schedules the engine of the store loses the writes that it has answered: a replica
// takes the place of the primary, which goes on for a while for the processes that still reach it,
// or the primary starts again with an earlier state. Each begins a life of the engine, as package
// driver says, and each process has its own [protocol.Lives].
//
// After every step it checks what must always hold: no two processes whose lease check passes
// hold one lock, tokens rise, no write of an earlier holder passes a real [fence.Gate] after
// one of a later holder, every write changes what it may and nothing else. Of a client's
// heartbeats, which several replicas may carry out, one write at most is applied; a client
// learns of a request, and of a loss only when it has lost the lock; a grant that it neither
// uses nor may count is freed. A holder whose record has survived a loss of the engine goes on, and writes its
// data again. When the faults have ended it checks that each lock has a holder within a stated
// bound, and that the history is complete except for terms that two crashes in a row may hide.
// The first violation ends the run, and [Shrink] makes it small.
//
// [Explore] runs many seeds; the program in run does it until it is stopped. Each file of
// testdata/mutants is one mistake in the machines, or in the world around them, and names
// the shape of schedules that must find it.
package sim
