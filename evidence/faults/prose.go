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
[River](https://github.com/riverqueue/river), a job queue on PostgreSQL. All cells are of one run, and
none is written by hand.
`

// aboutStores is what stands behind the table.
const aboutStores = `
In the table Tenure is on DynamoDB, as two of the clients are that it is compared with. It was looked
at on its other stores as well, under the same faults and by the same rules.
`

const after = `
dynamolock's session monitor, which tells the holder, is set to half of the lease: its rule of
thumb would be one heartbeat here, and fires when nothing is wrong. The Java client's check is asked
each millisecond. client-go has its default lease: who waits sees of a renewal the second alone, so
that a shorter lease would make it look worse than it is. River elects a client for work of its own,
and neither the lease nor the periods can be set: the grant is "Gained leadership" in its log, the
check is the context of ` + "`HookPeriodicJobsStart`" + `, and rows about a program's own work are left out.

## How it is done

**The libraries are the real ones**, each in processes of its own, on real engines of one server.

**Faults are made by a gate** between one process and its store. The other processes have gates of
their own, and nothing happens to them. A gate knows the write of a record in the engine's protocol.
Where that is TLS, a process sends HTTP to its gate, and TLS begins behind it.

**The truth is another process.** It waits for the lock through the same library, and looks each
20 ms where looking is all it can do. The instant at which its acquire returns is the instant at
which there are two holders, if the first one has not stopped.

**A holder is told** when its check says no for the first time, or when the library tells it by
itself (a context, a channel, a callback), whichever is earlier. Checks are made each millisecond;
one that hangs has not said no. All instants are of one clock of one machine.

## The faults and the rules
`
