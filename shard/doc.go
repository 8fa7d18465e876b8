// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard spreads P partitions over the workers that are there: each
// partition has one owner at a time, which has a lease of it, with a token and a
// checkpoint of its own.
//
//	orders, err := shard.New(client, "orders", &shard.Options{Partitions: 256})
//	...
//	err = orders.Run(ctx, func(ctx context.Context, p *shard.Partition) error {
//		// This worker has the partition until ctx ends.
//		return consume(ctx, p)
//	})
//
// A worker holds all of its partitions under one session, so it sends one write
// a heartbeat, whatever their number. Workers that come and go are seen in the
// store; there is nothing to be told who they are. A worker that comes gets its
// share from the others, one that leaves hands over what it has, and the
// partitions of one that has crashed are claimed by the others when its lease
// has run out. How many partitions there are can be changed while all are at
// work: see [Group.Resize].
//
// # Guarantees
//
// Under the same conditions as for a lock, no two handlers whose
// [Partition.Check] returns nil have the same partition. Each partition is a lock,
// see [LockName], and that alone decides who has it; nothing else that is said
// here does. Its tokens rise with every change of owner, and a checkpoint is
// refused from who is not the owner any more.
//
// A partition is worked on until it moves. Who is to have it, by a new plan,
// asks its owner: the owner's handler is told to stop, works on until it
// returns, and the partition is reserved for who has asked, which takes it at
// once. So it has nobody for as long as that hand-over takes, whatever else
// happens; see [Options.Prepare] for what can be done before it. A worker asks
// for [Options.Budget] partitions at a time. One that leaves is not asked, but by
// those that prepare, or have a [Options.Max]: when the others have seen that it
// leaves, it hands over to each of them as many at a time as that one would ask
// for, for [Options.LeaveTimeout] at most. Each such partition is free when its
// handler has returned, and its next owner, which waits for it, takes it.
//
// Workers that leave learn of each other from the roll. So a group of which all
// workers are stopped at once does not wait for itself: all have gone within a
// refresh period, and the time that the slowest handler takes, however many they
// are. Nothing is kept for any of them; those that come back find all free. For
// one that was killed at the same moment the others may wait until its lease has run
// out.
//
// All workers go by the same plan, made from the same roll: who is in the group,
// in which place, with which weight. It is balanced by the weights, and moves
// little: a worker that comes gets about its share and nothing moves between
// the others; one that leaves gives what it has, and nothing moves between the
// others; and one that is started again takes its former place, and with it
// what it had.
//
// No worker has more than [Options.Max] partitions. Those that nobody has room
// for are unassigned: an event says so, [Stats] and [Status] do.
//
// Nothing waits for one process. The roll is written by a coordinator, a worker
// like the others; when it dies, another one writes on. Without one, everybody
// works on, and nothing moves. A partition that has had nobody for two leases,
// because its planned owner does not come, is claimed by who finds it, and moved
// later.
//
// # Tokens and checkpoints
//
// Tokens of two partitions cannot be compared. What is to be fenced is one
// resource for each partition, under [Partition.Name], in the manner of package
// fence; a [Partition] is a grant there.
//
// [Partition.Checkpoint] lays data down with the partition; the next owner finds
// it in [Partition.Last]. What a crashed owner did after its last checkpoint is
// done again. Who cannot have that writes the checkpoint where the effects go,
// in one transaction.
//
// # What is not guaranteed
//
// A handler that does not return when its context ends keeps its partition from
// the next owner for as long as [tenure.Options.StopTimeout], and keeps its
// worker, if that has lost its session, from joining again.
//
// When workers come or go faster than partitions can be handed over, what has
// been asked for is handed over, whatever the plan says by then; and moves on.
// Many workers that come at once are waited for, for a few looks, so that they
// come into one plan.
//
// Two workers that are full, and are each to have what the other one has, release
// a few partitions before they are taken: they have nobody for a few looks.
//
// While workers of two versions of this package run whose plans differ, the older
// ones take no notice of the newer ones' roll, and the other way round: they keep
// what they have.
//
// # Locks
//
// A group takes locks with names of its own: NAME:member/K for each worker,
// NAME:part/ID for each partition, NAME:lead and NAME:roll for the coordinator,
// and NAME:spec, which nobody holds. They can be looked at, and their holders
// asked to step down, as any lock's.
//
// # What it costs
//
// A worker sends one write a heartbeat, whatever it has. In a refresh period
// ([tenure.Options.RefreshPeriod], a fifth of a lease at most) it reads the
// coordinator's record and its session's, and [Options.Audit] partitions with
// the sessions of their owners: six reads at most by default. The coordinator
// reads the record and the session of each worker besides, and as many records
// of vacant places as there are workers, ten or so at least; who comes after it
// reads the records and sessions. A change of the roll costs two writes, and
// each worker two reads.
//
// A partition costs a read and a write to be claimed. To move one costs a write to
// ask, one to make way and one to take it, and two reads a refresh period while
// that goes on. From a worker that leaves it costs the same, though nobody asks: who
// begins to wait for a lock tries to take it. One that leaves looks four times as
// often, for some looks after a change, and looks at the places of those to whom it
// hands over. A worker that others are to have partitions of sends up to
// two heartbeats a refresh period. A partition that stays where it is costs
// nothing. A move takes about a refresh period where the store cannot watch,
// beside what the handler takes to stop: so a worker that is alone in asking gets
// about [Options.Budget] partitions in a refresh period.
package shard
