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
		how: `A process asks for a free lock. The write that takes it reaches the store, and in the place of
its reply the connection ends. The time is from the call until the caller has the lock. etcd's
client returns the error; its caller here calls again at once, on the same session.`,
		note: `River bids again about a second later, by the same name, and an insert that finds a record does
nothing, whosever that is.`,
		rule: "the lock is got before a lease has passed: the record that the lost reply was about is the caller's own.",
	},
	{
		id: "lost-heartbeat", title: "Reply lost on a heartbeat", try: lostOnHeartbeat,
		how: `The reply to one heartbeat of a holder is lost in the same way. Another process waits for the
lock. All else goes on as before.`,
		rule: "two and a half leases later the holder still has the lock.",
	},
	{
		id: "lost-cut", title: "Reply lost on a heartbeat, then cut off", try: lostThenCut,
		how: `As before, and once the reply is lost, nothing reaches the store any more. The heartbeat has
prolonged the lease in the store, and the holder does not know.`,
		rule: "the holder is told before the other process has the lock, in every run. What telling is stands above.",
		note: `River's elector gives up in time, a second before the record runs out. It tells the store before it
tells its own services: it tries to resign, up to three times, which takes seconds when the store
does not answer.`,
	},
	{
		id: "slow-reply", title: "Slow reply just inside the lease", try: slowReply,
		how: `A heartbeat reaches the store at once, and its reply takes 0.3, 0.6 and 0.9 of the lease, a run
each. Nothing that is sent later reaches the store. Who counts the lease from the reply, and
not from before the request, believes for too long.`,
		rule: "the holder is told before the other process has the lock, in every run.",
		note: `client-go is looked at twice. The verdict is on a lock made by ` + "`NewFromKubeconfig`" + `, which bounds each
request by half of the renew deadline; the package's own example sets no bound.`,
	},
	{
		id: "black-hole", title: "Black-holed store", try: blackHole,
		how: `From an instant on that is random between two heartbeats, nothing that the holder sends reaches
the store, nothing comes back, and no connection ends.`,
		rule: "the holder is told before the other process has the lock, in every run.",
		note: `client-go is looked at twice, too: with ` + "`ReleaseOnCancel`" + ` it tries to release the lock before it ends the
context of the work, and the store does not answer.`,
	},
	{
		id: "stopped", title: "Holder stopped and continued", try: stopAndContinue,
		how: `The holder's process is stopped with SIGSTOP. Another process gets the lock. A heartbeat's time
later the holder is continued with SIGCONT. It asks all the time whether it may go on (in the Java
client each millisecond).`,
		rule: "its first check after SIGCONT says no, in every run. No library can help who does not check; that is what fencing tokens are for.",
		note: `client-go does not look at the clock, and goes on until the renew deadline has passed once more. In
etcd's package a goroutine has to run first that ends the session.`,
	},
	{
		id: suspendRow, title: "Machine suspended and resumed", try: suspend,
		how: `As before, but the holder finds its clocks as after a suspend of the machine: wall clock and boot
clock have gone on, the monotonic clock has not. For that the programs in Go are built with a
runtime whose monotonic clock can be told to stand, and the Java virtual machine gets its time
from a library that can (see ` + "`evidence/faults/suspendable.go`" + `). Nothing else is changed, in Tenure
either.`,
		rule: "its first check says no, in every run.",
	},
	{
		id: "close-waiting", title: "Close while waiting", try: closeWaiting,
		how: `A process waits for a lock that another one holds and keeps. dynamolock and the Java client are
told to wait 5 s longer than a lease. Then the client is closed; for client-go, whose electors
have no Close, their context ends.`,
		rule: "Close and the waiting call both return within 0.5 s.",
	},
	{
		id: manyRow, title: "1,000 locks at 10 ms", try: holdMany, lease: manyLease,
		groups: [][]string{{tenureName}, {dynamolockName, javaName, etcdName}, {kubeName}, {riverName}, {onPostgresName}, {onEtcdName}, {onZooKeeperName}, {onKubernetesName}, {inBucketName}},
		how: `One process takes 1,000 locks, each request taking 10 ms longer than the store needs, and holds
them for 20 s. The lease is 5 s for all. Requests are those of the 20 s; of etcd, PostgreSQL,
ZooKeeper, Tenure's Kubernetes and the bucket they are packets that the client wrote.`,
		rule: "the holder's own checks say yes for all 1,000 in the end.",
		note: `etcd has one lease for all locks of a session, and client-go an elector for each lock. client-go's
limit of five requests a second is lifted. The machine's two cores are a part of this row:
dynamolock sends as many heartbeats at once as there are cores, the Java client one. client-go has an
API server that keeps all in memory. Tenure's is a real one, which takes some 800 writes a second
on two cores; 1,000 locks of their own would want 1,000 heartbeats a second, and the acquire says
so. Tenure holds them under a session there, as its error advises, and in a bucket, where each
heartbeat is paid for.`,
	},
	{
		id: "dead-try", title: "Dead holder, caller that does not wait", try: tryDead,
		how: `A holder is killed. A process that has asked for the lock before, each 0.1 s and without waiting,
goes on asking.`,
		rule: "it gets the lock within two leases of the death.",
	},
	{
		id: endAtWorkRow, title: "Release while work still runs", try: endAtWork,
		how: `A program that holds a lock is told to end: it closes its client (of client-go, it ends the
context, with ReleaseOnCancel), tells its work to stop, which takes 1.5 s, and then releases
the lock, if it still has it. Another process waits for the lock.`,
		rule: "the other process gets the lock after the work has ended.",
		note: `A program can wait for its work before it closes the client. The row shows what happens to one
that does not.`,
	},
	{
		id: childRow, title: "Command under a lock that is lost", try: childAfterLoss,
		how: `The library's own program runs a command under a lock, and is cut off from the store. A second one
waits to run the same command. Both commands note each millisecond that they run.`,
		rule: "the first command has ended before the second begins.",
		note: "etcdctl is of the client's version. dynamolock has had a program since v5; the version looked at has none.",
	},
	{
		id: "tokens", title: "Token after release and re-creation", try: tokens,
		how: `One process takes the lock and releases it, twice, in the library's ordinary way, which deletes
the record in the Java client and etcd. Another one takes it and is killed; the first one takes
it over and releases it. Then the record is deleted by hand, where a release leaves one, and
the lock is taken once more.`,
		rule: "there is a number that rises with each of the four grants. What a deletion by hand does is shown, and not judged.",
		note: `etcd's number is the revision that made the lock's key. client-go's is the count of transitions in
the record, which the work is not given, and of which its documentation says that it does not
fence. River's is the instant of the election in its record, by the database's clock, in
microseconds; the work is not given that either.`,
	},
}

// row is a fault, thrown at each subject.
type row struct {
	id, title string
	// how is how the fault is made, rule what a pass is. note may be empty.
	how, rule, note string
	lease           time.Duration
	try             func(context.Context, *scene) (cell, error)
	// groups are the subjects that are looked at at the same time, a group after the other.
	// Nil: those of usualGroups.
	groups [][]string
}

func (r row) name() string { return r.id }
