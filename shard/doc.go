// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard spreads P partitions over the workers that are running. Each
// partition has one owner at a time, which holds a lease on it, with a token and a
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
// per heartbeat, whatever their number. Workers find each other in the store;
// nothing has to be configured. A worker that joins gets its share from the others, a
// worker that leaves hands its partitions over, and the partitions of a crashed worker
// are claimed by the others when its lease has run out. The number of partitions can be
// changed while all are at work: see [Group.Resize].
//
// # Guarantees
//
// Under the same conditions as for a lock, no two handlers whose
// [Partition.Check] returns nil have the same partition. Each partition is a lock,
// see [LockName], and only that lock decides which worker owns it; nothing else
// described here does. Its tokens rise with every change of owner, and a
// checkpoint of a former owner is refused.
//
// A worker works on a partition until it moves. The next owner, by a new plan,
// asks the present one: the context of the owner's handler ends, the handler works on
// until it returns, and the partition is reserved for the worker that asked, which
// takes it at once. So a partition has no owner for as long as that hand-over takes,
// whatever else happens; see [Options.Prepare] for what can be done before it. A worker
// asks for [Options.Budget] partitions at a time.
//
// A leaving worker hands its partitions over by itself, in batches, for at most
// [Options.LeaveTimeout]. Only workers with Prepare or [Options.Max] set ask it as
// usual. To each of the others it hands over at most that worker's Budget at a
// time, once that worker has seen that it leaves. Each such partition is free when
// its handler has returned, and its next owner, which waits for it, takes it.
//
// Leaving workers learn of each other from the membership. So a group whose
// workers are all stopped at once does not wait for itself: all have gone within a
// refresh period and the time that the slowest handler takes, whatever their
// number. Nothing is reserved for any of them; workers that come back find
// everything free. If one was killed at the same moment, the others may wait until
// its lease has run out.
//
// All workers compute the same plan from the same membership, which lists the workers,
// their places and weights. The plan is balanced by the weights, and moves little: a
// worker that joins gets about its share, a worker that leaves gives up its own, and
// nothing moves between the others; a restarted worker takes its former place, and with
// it its former partitions.
//
// No worker has more than [Options.Max] partitions. Those that no worker has room
// for are unassigned: an event says so, and [Stats] and [Status] show it.
//
// Nothing depends on one process. The membership is written by a coordinator, a
// worker like the others; when it dies, another one continues. Without one, all
// workers go on, and nothing moves. A partition that has had no owner for two
// leases, because its planned owner does not come, is claimed by any worker that
// finds it, and moved later.
//
// # Tokens and checkpoints
//
// Tokens of two partitions cannot be compared. Fence one resource for each
// partition, under [Partition.Name], in the manner of package fence; a [Partition]
// is a grant there.
//
// [Partition.Checkpoint] writes data into the partition's record; the next owner
// finds it in [Partition.Last]. What a crashed owner did after its last checkpoint
// is done again. Work that must not be done twice writes its checkpoint where its
// effects go, in one transaction.
//
// # What is not guaranteed
//
// A handler that does not return when its context ends keeps its partition from
// the next owner for as long as [tenure.Options.StopTimeout], and keeps its
// worker, if that has lost its session, from joining again.
//
// When workers come or go faster than partitions can be handed over, the
// partitions that were asked for are handed over, whatever the plan says by then,
// and then move on. When many workers join at once, the coordinator waits for a
// few polls, so that they enter one plan.
//
// Two full workers that should exchange partitions release a few before they are
// taken: these have no owner for a few polls.
//
// While workers of two versions of this package run whose plans differ, each kind
// ignores the membership of the other: they keep what they have.
//
// # Locks
//
// A group takes locks with names of its own: NAME:member/K for each worker,
// NAME:part/ID for each partition, NAME:lead and NAME:roll for the coordinator,
// and NAME:spec, which no process holds. Like any lock's, their status can be shown,
// and their holders can be asked to step down.
//
// # What it costs
//
// A worker sends one write per heartbeat, whatever it has. In a refresh period
// ([tenure.Options.RefreshPeriod], a fifth of a lease at most) it reads the
// coordinator's record, and its session when that has a heartbeat due; and in four
// periods [Options.Audit] partitions, and now and then a session that one of them is
// held under. The coordinator reads the record of each worker instead of its own, those
// of two vacant places, and the sessions of the workers when these have a heartbeat due;
// and those of all vacant places (as many as workers, and at least about ten): every
// five periods, or every twenty if the membership has not changed for that long. The
// worker that would succeed it reads the sessions of the workers, and the one after that
// in line reads the session of the first. While nothing changes, these reads may be
// behind ([tenure.ReadOptions]), and cost half on DynamoDB. A change of the membership
// costs two writes, and each worker two reads.
//
// A partition costs a read and a write to be claimed. To move one costs a write to
// ask, one to make way and one to take it, and two reads a refresh period while
// that goes on. From a leaving worker it costs the same, though no worker asks: a
// process that begins to wait for a lock tries to take it. A leaving worker polls four
// times as often, for some polls after a change, and polls the places of the workers to
// which it hands over. A worker that must hand partitions over sends up to two
// heartbeats a refresh period. A partition that stays where it is costs nothing. Where
// the store has no watch, a move takes about a refresh period, plus the time that the
// handler needs to stop: so a single worker that asks gets about [Options.Budget]
// partitions in a refresh period.
package shard
