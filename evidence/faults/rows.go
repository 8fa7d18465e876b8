// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"time"
)

// Rows that need something built.
const (
	suspendRow = "suspend"
	childRow   = "child"
)

// Rows that not every library can be tried in.
const (
	manyRow      = "many"
	endAtWorkRow = "end-at-work"
)

// rows are the faults, in the order of the table.
var rows = []row{
	{
		id: "lost-acquire", title: "Reply lost on acquire", try: lostOnAcquire,
		how:  "The write that takes a free lock reaches the store, and its reply is lost. etcd's caller calls again at once.",
		rule: "the lock is got within a lease.",
	},
	{
		id: "lost-heartbeat", title: "Reply lost on a heartbeat", try: lostOnHeartbeat,
		how:  "The reply to a holder's heartbeat is lost; another process waits.",
		rule: "the holder still has the lock after two and a half leases.",
	},
	{
		id: "lost-cut", title: "Reply lost on a heartbeat, then cut off", try: lostThenCut,
		how:  "As before, and then nothing reaches the store any more. The lease in the store is longer than the holder knows.",
		rule: "the holder is told before the other has the lock.",
	},
	{
		id: "slow-reply", title: "Slow reply just inside the lease", try: slowReply,
		how:  "A heartbeat reaches the store at once, and its reply takes 0.3, 0.6 and 0.9 of the lease. Nothing that is sent later arrives.",
		rule: "the holder is told before the other has the lock.",
	},
	{
		id: "black-hole", title: "Black-holed store", try: blackHole,
		how:  "From a random instant on nothing that the holder sends arrives, nothing comes back, and no connection ends.",
		rule: "the holder is told before the other has the lock.",
	},
	{
		id: "stopped", title: "Holder stopped and continued", try: stopAndContinue,
		how:  "SIGSTOP, until another has the lock, and SIGCONT a heartbeat later.",
		rule: "the first check after SIGCONT says no.",
	},
	{
		id: suspendRow, title: "Machine suspended and resumed", try: suspend,
		how:  "As before, and the clocks are those after a suspend of the machine: the monotonic clock has stood still.",
		rule: "the first check says no.",
	},
	{
		id: "close-waiting", title: "Close while waiting", try: closeWaiting,
		how:  "A process waits for a held lock, and its client is closed.",
		rule: "Close and the waiting call return within 0.5 s.",
	},
	{
		id: manyRow, title: "1,000 locks at 10 ms", try: holdMany, lease: manyLease,
		groups: [][]string{{tenureName}, {dynamolockName, javaName, etcdName}, {kubeName}, {riverName}, {onPostgresName}, {onEtcdName}, {onZooKeeperName}, {onKubernetesName}, {inBucketName}},
		how:    "One process holds 1,000 locks with a lease of 5 s for 20 s; each request takes 10 ms longer. On Kubernetes and in a bucket Tenure holds them under a session.",
		rule:   "the holder's checks say yes for all in the end.",
	},
	{
		id: "dead-try", title: "Dead holder, caller that does not wait", try: tryDead,
		how:  "A holder is killed. A process that does not wait asks each 0.1 s.",
		rule: "it gets the lock within two leases of the death.",
	},
	{
		id: endAtWorkRow, title: "Release while work still runs", try: endAtWork,
		how:  "A program closes its client, tells its work to stop, which takes 1.5 s, and then releases the lock.",
		rule: "another gets the lock after the work has ended.",
	},
	{
		id: childRow, title: "Command under a lock that is lost", try: childAfterLoss,
		how:  "The library's own program runs a command under a lock, and is cut off from the store; a second one waits to run it.",
		rule: "the first command has ended before the second begins.",
	},
	{
		id: "tokens", title: "Token after release and re-creation", try: tokens,
		how:  "The lock is taken and released twice, taken by one that is killed, taken over, and taken once more after its record was deleted by hand.",
		rule: "a number rises with each of the four grants; the deletion is shown, not judged.",
	},
}

// row is a fault, thrown at each subject.
type row struct {
	id, title string
	// how is how the fault is made, rule what a pass is.
	how, rule string
	lease     time.Duration
	try       func(context.Context, *scene) (cell, error)
	// groups are the subjects that are looked at at the same time, a group after the other.
	// Nil: those of usualGroups.
	groups [][]string
}

func (r row) name() string { return r.id }
