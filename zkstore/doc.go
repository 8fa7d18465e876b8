// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package zkstore keeps Tenure's records in ZooKeeper, for every process that can reach
// the ensemble. It needs servers from 3.6 on.
//
//	store, err := zkstore.Open(ctx, []string{"10.0.0.1:2181", "10.0.0.2:2181", "10.0.0.3:2181"}, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// # Guarantees
//
//   - Claim, Swap and Delete are one transaction of ZooKeeper each.
//   - Taking a free lock, renewing it, releasing it and a strong read take one round trip
//     each. A strong read sees all writes that were confirmed before: it is sent together
//     with a transaction of the whole ensemble that changes nothing. A sync would not do:
//     the leader answers it before it has applied what a follower has confirmed.
//   - A watch reports a release, a request and a deletion. Heartbeats do not reach a
//     watcher, and a watch that was ended leaves nothing behind on the server.
//   - A request that has not been sent when its context ends is never sent.
//   - Nothing depends on a session of ZooKeeper. If it expires, watches are set again.
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - Anything that the ensemble has lost. After a restore of its data, or if they were
//     wiped, tokens are granted a second time. After a restore, stop all programs, and
//     raise the tokens with the client's RaiseTokens, or "tenure tokens raise".
//
// # Layout
//
// Below [Options.Root] there are 64 folders, and below these a node for each record, by
// its escaped key. The node's data are a line with the record's mark, and the record as
// text of package recordcodec. The node has one child, which is named by the mark. The
// mark is new with each change that waiters must see. So the child tells a record from
// the next record under its key, which counts its versions from 0 again; and a watch on
// the children does not report heartbeats.
//
// # Why a client of its own
//
// github.com/go-zookeeper/zk knows no contexts: a write whose caller had given up a second
// before was sent and applied. It sends one request of a goroutine at a time, so that a
// strong read takes two round trips, cannot end a watch, and pauses for a second between
// two attempts to connect. The package internal/wire implements the thirteen requests that
// are needed here.
package zkstore
