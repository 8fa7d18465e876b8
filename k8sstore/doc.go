// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package k8sstore keeps Tenure's records in Leases of a Kubernetes cluster
// (coordination.k8s.io/v1), one for a lock.
//
//	config, namespace, err := k8sstore.Config("", "")
//	if err != nil {
//		return err
//	}
//	store, err := k8sstore.Open(ctx, config, namespace, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// [Policy] prints the Role that it needs. "kubectl get lease" shows who holds what.
//
// # Guarantees
//
//   - Claim, Swap and Delete are one request each, with the resourceVersion that the Lease
//     must have. The API server decides.
//   - A free lock is taken, renewed and released by one request each. A lock that was
//     released by another process, and that this one has not seen since, takes three.
//   - Strong reads are read from etcd by its quorum, whichever API server is asked.
//   - A watch tells of a release, of a request and of a deletion.
//   - A Lease that another client has written, such as an elector of client-go, is never
//     taken before its own duration has passed without a sign of life, by the clock of who
//     takes it; and only with [Options.SharedLease].
//   - Annotations, labels and fields of others stay as they are, and so does what a later
//     version of Tenure writes into a record.
//
// # What is not guaranteed
//
//   - Tokens, if a Lease is deleted by others than Tenure, if a client wipes its
//     annotations (electors of client-go keep them), or if etcd is restored from a
//     snapshot: they begin again, or are given again.
//   - Requests that a proxy between the program and the API server repeats: an applied
//     request then looks like a lost race, and the lock is free after its lease.
//
// # Layout
//
// The name of a Lease is [Options.Prefix] and the key, or, for a key that cannot be part
// of a name, what can be read of it and a hash. The record is in an annotation, as text of
// package recordcodec; others have its key, its token, a mark of what watches are for, and
// a stamp: what stands for the spec that belongs to the record. If the spec is another
// one, somebody else has written the Lease, and of the record the token alone counts, from
// which the next one goes on.
//
// The spec is filled as an elector of client-go does it. renewTime is the wall clock of
// the writer, and nothing goes by it.
//
// Data of more than 4 kB, and a record of more than 64 kB, do not fit into a Lease. Each
// is in a ConfigMap, which is written before the Lease that names it, under a name that is
// never used again, and removed after the Lease has named another one. So a Lease and
// what it names are always one state. A process that dies between the two leaves a
// ConfigMap behind, which the next writer of such data removes.
//
// # Logs
//
// Nothing is logged by the store. client-go itself reports credentials that it cannot
// renew, by klog.
package k8sstore
