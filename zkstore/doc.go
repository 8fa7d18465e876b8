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
//   - A free lock is taken, renewed and released by one round trip each; so is a strong
//     look. It is as new as all that was confirmed before: a transaction of the whole
//     ensemble that changes nothing leaves together with the read behind it. A sync would
//     not do: the leader answers it before it has applied what a follower has confirmed.
//   - A watch tells of a release, of a request and of a deletion. No heartbeat reaches a
//     watcher, and a watch that was ended leaves nothing behind on the server.
//   - What has not left this process when its context ends is never sent.
//   - Nothing depends on a session of ZooKeeper. If it expires, watches are set again.
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - Anything that the ensemble has lost. After a restore of its data, or if they were
//     wiped, tokens that were given are given again. After a restore, stop all programs,
//     and raise the tokens by the client's RaiseTokens, or "tenure tokens raise".
//
// # Layout
//
// Below [Options.Root] there are 64 folders, and below these a node for each record, by
// its escaped key. The node's data are a line with the record's mark, and the record as
// text of package recordcodec. The node has one child, which is named by the mark. The
// mark is new with each change that somebody waits for. So the child tells a record from
// the next record under its key, which counts its versions from 0 again; and a watch on
// the children does not report heartbeats.
//
// # Why a client of its own
//
// github.com/go-zookeeper/zk knows no contexts: a write whose caller had given up a second
// before was sent and applied. It sends one request of a goroutine at a time, so that a
// strong look takes two round trips, cannot end a watch, and pauses for a second between
// two attempts to connect. The package internal/wire has the thirteen requests that are
// needed here.
package zkstore
