// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

// before and after are what the page says around its tables.
const before = `<!-- Made by evidence/faults from evidence/faults/results.json. Do not edit. -->

# Faults

This page answers: what does a holder of a lock learn, and when, if a reply is lost, the store
does not answer, the process is stopped or the machine sleeps; and how do other lock libraries
do under the same faults.

    scripts/engines run dynoxide postgres zookeeper kubernetes versitygw -- go run ./evidence/faults -write

throws the faults again and writes this page: at Tenure, at
[dynamolock](https://github.com/cirello-io/dynamolock) and the
[Amazon DynamoDB Lock Client](https://github.com/awslabs/amazon-dynamodb-lock-client) for Java,
at [etcd's concurrency package](https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency), at
[client-go's leaderelection](https://pkg.go.dev/k8s.io/client-go/tools/leaderelection) with its
lease lock, and at the election among the clients of
[River](https://github.com/riverqueue/river), a job queue on PostgreSQL. Then it throws them at
Tenure on PostgreSQL, on etcd, on ZooKeeper and on Kubernetes, and in a bucket. All cells are of one run, and none is
written by hand.
`

// aboutStores is what stands over the second table.
const aboutStores = `
## Tenure on its stores

In the table above Tenure is on DynamoDB, as two of the clients are that it is compared with. Here
it is on PostgreSQL, on etcd, on ZooKeeper and on Kubernetes as well, and in a bucket, under the same
faults and by the same rules.
`

const after = `
dynamolock's session monitor, which tells the holder, is set to half of the lease: its rule of
thumb would be one heartbeat here, and fires when nothing is wrong. The Java client's monitor is
not set; its check is asked each millisecond. client-go has its default lease: who waits sees of
a renewal the second alone, so that a shorter lease would make it look worse than it is.

On PostgreSQL Tenure sends the text of its statements each time, as behind a pooler of transactions,
since that is by what the gate knows a write. By default it prepares them. It may have more
connections than by default, which would hardly be enough for 1,000 heartbeats a second.

River elects a client for the work of its own that one is to do: to enqueue periodic jobs, to
rescue stuck ones. Programs are not offered that election for work of theirs, and neither the
lease nor the periods can be set. Rows that are about a program's own work are left out. No call
says who leads. The instant of the grant is that of the client's log, "Gained leadership". The
check is the context that ` + "`HookPeriodicJobsStart`" + ` is called in: it is that of a leader's service, and
ends when that is to stop. Each lock is a schema of its own. The other process runs eight clients
for a lock, so that one of them bids within a second or so of the instant at which it can win.

## How it is done

**The libraries are the real ones**, each in processes of its own. Tenure, dynamolock and the Java
client work on one DynamoDB engine, etcd's on a real etcd of one member, client-go on an API
server for leases that checks resource versions as Kubernetes does, and River on a PostgreSQL. On
its other stores Tenure is on that PostgreSQL, on that etcd, on a ZooKeeper of one server, and on
Kubernetes' own API server with an etcd of its own, which is another one than client-go's here; and
in a bucket of versitygw, a gateway to files.

**Faults are made by a gate** between one process and its store. The other processes have gates of
their own, and nothing happens to them. The gates of etcd, PostgreSQL, ZooKeeper,
Tenure's Kubernetes and the bucket carry bytes, the others requests. That of River knows a renewal and the commit of a bid by the text of River's
statements, which pgx is told to send each time. Those of Tenure's stores know the write of a record
in the engine's protocol: a statement that inserts, updates or deletes, a transaction of etcd that
puts or deletes, a transaction of ZooKeeper that does more than check, a request of HTTP to the API
server that is no GET, and one to the bucket of an object that is a record. That server is spoken to by TLS, in which no gate knows a write: a process
sends HTTP to its gate, and TLS, and the token that goes with it, begin behind it. etcd's own package
has all that it sends counted as a write.

**The truth is another process.** It waits for the lock through the same library, and looks each
20 ms where looking is all it can do; Tenure and etcd need no telling, and River cannot be told. The instant at which its
acquire returns is the instant at which there are two holders, if the first one has not stopped.

**A holder is told** when its check says no for the first time, or when the library tells it by
itself (a context, a channel, a callback), whichever is earlier. Checks are made each
millisecond; one that hangs has not said no. For client-go the check is the context of the work:
` + "`IsLeader`" + ` does not look at the clock. All instants are of one clock of one machine.

## The faults and the rules
`
