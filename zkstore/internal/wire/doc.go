// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire speaks ZooKeeper's protocol, as much of it as a store of leases needs:
// nodes that outlive their session, transactions, one-shot watches, sync, digest users
// and TLS. It is for servers from 3.6 on.
//
// A client has one connection at a time, over which calls are pipelined: the requests of
// one call leave together and are answered in order, so that a sync and the read behind
// it take one round trip. A call that ends with its context before it was written is
// withdrawn, and never sent.
//
// The client keeps nothing on a server but watches. So each connection begins a session
// of its own, and nothing is lost when a session expires. When a connection is lost,
// what was written on it has an unknown outcome, and [Options.Connected] is called for
// the next one: watches have to be set again then.
//
// The protocol is that of zookeeper.jute and of the classes that it makes:
// https://github.com/apache/zookeeper/blob/branch-3.9/zookeeper-jute/src/main/resources/zookeeper.jute
package wire
