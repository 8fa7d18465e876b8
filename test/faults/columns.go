// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenurelock/tenure/test/harness/page"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/serve"
	"github.com/tenurelock/tenure/test/peers/service"
)

// column is a client under faults. In its process it is a [serve.Library].
type column struct {
	named
	engine *engine // what it keeps its locks in; nil: something of this process
	ours   bool    // it is Tenure's, and must pass every row
	group  int     // columns of one group are looked at at the same time
	open   openFunc

	lease    time.Duration // where the row does not say
	beats    time.Duration // how many heartbeats there are in a lease
	together int           // how many runs of a row go on at the same time

	// Shares of the lease, in the proportions of the library's own defaults; zero: as the
	// library does by itself.
	heartbeat, refresh float64

	kind      peers.Kind        // of a program of its own; empty: this one, in the role of the id
	replicas  int               // of the service whose client it is
	command   *lockCommand      // the library's program that runs a command under a lock
	crowded   bool              // it holds 1,000 locks under one session
	lacksRows map[string]string // why rows cannot be tried, by their ids
}

// onLibc says that the process gets its time from libc; its log uses that time then.
func (c column) onLibc() bool { return c.kind != "" }

// otherStore says that it is Tenure on another store than in the table of the libraries.
func (c column) otherStore() bool { return c.ours && c.engine.place != "" }

// kubeID is of a column that not its own line of the table below alone speaks of.
const kubeID = "client-go"

const (
	// usualLease is long enough for a busy machine, and as short as etcd allows it.
	usualLease = 3 * time.Second
	// kubeLease is client-go's default. Scaling it down would be unfair: a waiter
	// sees only the second of a renewal, and so may count up to a second less than
	// the lease.
	kubeLease = 15 * time.Second
	// riverLease cannot be set.
	riverLease = 15 * time.Second
)

// groups is how many groups of columns there are.
const groups = 3

// columns are the libraries, Tenure on DynamoDB as two of the others are, and then Tenure on
// its other stores.
var columns = []column{
	{
		named: named{"tenure", "Tenure"}, engine: dynamoDB, ours: true, open: onDynamoDB, command: tenureRun,
		lease: usualLease, beats: 5, together: 8,
	},
	{
		named: named{"dynamolock", "dynamolock"}, engine: dynamoDB, open: onDynamoDB,
		lease: usualLease, beats: 4, together: 8, heartbeat: 1.0 / 4, refresh: 1.0 / 20,
	},
	{
		named: named{"java", "Java lock client"}, engine: dynamoDB, open: onDynamoDB, kind: peers.Java,
		lease: usualLease, beats: 4, together: 2, heartbeat: 1.0 / 4, refresh: 1.0 / 20,
	},
	{
		named: named{"etcd", "etcd concurrency"}, engine: etcd, open: onEtcd, command: etcdctlLock,
		lease: usualLease, beats: 3, together: 8,
	},
	{
		named: named{kubeID, "client-go"}, open: onLeaseAPI,
		lease: kubeLease, beats: 7, together: 8, refresh: 2.0 / 15,
	},
	{
		named: named{"river", "River"}, engine: postgreSQL, open: onRiver,
		lease: riverLease, beats: 3, together: 8, refresh: 1.0 / 3,
		lacksRows: map[string]string{
			manyRow:      "has one election per database schema",
			endAtWorkRow: "its leader does only River's own work",
		},
	},
	onStore(column{named: named{"tenure-postgres", "Tenure on PostgreSQL"}, engine: postgreSQL, group: 1}),
	onStore(column{named: named{"tenure-etcd", "Tenure on etcd"}, engine: etcd, group: 1}),
	onStore(column{named: named{"tenure-zookeeper", "Tenure on ZooKeeper"}, engine: zookeeper, group: 1}),
	// Its API server is the largest of the engines: all at once would be too much for a
	// machine with two cores.
	onStore(column{
		named: named{"tenure-kubernetes", "Tenure on Kubernetes"}, engine: kubernetes, group: 2, crowded: true,
	}),
	onStore(column{named: named{"tenure-bucket", "Tenure in a bucket"}, engine: bucket, group: 1, crowded: true}),
}

// redisColumns are the libraries on Redis, in their own table: it has rows of what the engine loses.
var redisColumns = []column{
	onStore(column{named: named{"tenure-redis", "Tenure"}, engine: redisEngine}),
	{
		named: named{"redsync", "redsync"}, engine: redisEngine, open: onRedis,
		lease: usualLease, beats: 3, together: 8,
	},
	{
		named: named{"redislock", "bsm/redislock"}, engine: redisEngine, open: onRedis,
		lease: usualLease, beats: 3, together: 8, refresh: 1.0 / 30,
	},
}

func onStore(c column) column {
	c.ours, c.open, c.command = true, openStore, tenureRun
	c.lease, c.beats, c.together = usualLease, 5, 8
	return c
}

// clients are the clients of the lock service, in their own table: each with one replica of
// tenured, and with several.
var clients = append(behind(1, 0), behind(3, 1)...)

func behind(replicas, group int) []column {
	all := []column{
		{named: named{"python", "Python"}, kind: service.Python, together: 3},
		{named: named{"typescript", "TypeScript"}, kind: service.TypeScript, together: 3},
		{named: named{"java", "Java"}, kind: service.Java, together: 2},
	}
	for i := range all {
		c := &all[i]
		c.id, c.title = fmt.Sprintf("%s-%d", c.id, replicas), c.title+", "+page.Plural(replicas, "replica")
		c.engine, c.ours, c.open, c.lease, c.beats = dynamoDB, true, onService, usualLease, 5
		c.replicas, c.group = replicas, group
	}
	return all
}

// roles are what this program can be: a process that holds locks with one of the libraries in Go.
var roles = func() map[string]proc.Role {
	all := map[string]proc.Role{}
	for _, l := range []serve.Library{
		serve.Tenure, serve.Dynamolock, etcdLibrary, kubeLibrary, riverLibrary, redsyncLibrary, redislockLibrary,
	} {
		all[l.Name] = l.Role
	}
	for _, c := range slices.Concat(columns, redisColumns) {
		if c.otherStore() {
			all[c.id] = tenureOn(c.engine).Role
		}
	}
	return all
}()
