// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcdstore keeps Tenure's records in etcd, for every process that can reach
// the cluster.
//
//	store, err := etcdstore.Open(ctx, clientv3.Config{
//		Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
//	}, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// # Guarantees
//
//   - Claim, Swap and Delete are one transaction of etcd each, which compares the
//     revision of the record. A refusal returns the current record.
//   - Taking a free lock, renewing it and releasing it take one request each. Taking
//     a lock that another process has released, and that this one has not read since,
//     takes two.
//   - Strong reads are linearizable, also through a member that is behind.
//   - A watch reports a release, a request and a deletion. Heartbeats do not reach a
//     watcher.
//   - What a later version of Tenure writes into a record is kept.
//
// # What is not guaranteed
//
//   - Anything that the cluster has lost. After a restore from a snapshot, tokens are
//     granted a second time: stop all programs, and raise the tokens with the client's
//     RaiseTokens, or "tenure tokens raise".
//   - Writes when the quota is full. etcd keeps every write until it is compacted, and
//     by default it compacts nothing: a lock that is held writes 1 kB each heartbeat,
//     29 MB a day at 3 s. When the quota (2 GB by default) is used up, the cluster
//     refuses all writes, and every lease ends at its deadline. Start etcd with
//     --auto-compaction-retention=1h, and defragment it now and then.
//
// # Layout
//
// Below [Options.Prefix] there are three keys for a record. "r/" and its key has the
// record, as text of package recordcodec. "w/" and its key is written with each change
// that waiters must see: it is what watches watch. "d/" and its key has the data of
// the holder, if they are long, so that heartbeats do not store them again. All three
// change in one transaction.
//
// # Why no lease of etcd
//
// The beat in a lock's record shows whether its holder lives, as on every store. A lease of etcd is
// counted by the leader of the cluster: by the clock of a third machine, which begins to count
// again with each change of leader, and in older releases revoked leases that another leader had
// kept alive (https://github.com/etcd-io/etcd/issues/15247).
//
// Tokens are Tenure's own, too. They have no gaps, so that the history of a lock can be
// read by its tokens; revisions of etcd have gaps.
package etcdstore
