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
//   - Taking a free lock, renewing it and releasing it take one request each. Taking
//     a lock that another process has released, and that this one has not read since,
//     takes three.
//   - Strong reads are read from etcd by its quorum, whichever API server is asked.
//   - A watch reports a release, a request and a deletion.
//   - A Lease that another client has written, such as an elector of client-go, is never
//     taken before its own duration has passed without a renewal, by the clock of the new
//     holder; and only with [Options.SharedLease].
//   - Annotations, labels and fields of others stay as they are, and so does what a later
//     version of Tenure writes into a record.
//
// # What is not guaranteed
//
//   - Tokens, if a Lease is deleted by others than Tenure, if a client wipes its
//     annotations (electors of client-go keep them), or if etcd is restored from a
//     snapshot: they begin again, or are granted a second time.
//   - Requests that a proxy between the program and the API server repeats: an applied
//     request then looks like a lost race, and the lock is free after its lease.
//
// # Layout
//
// The name of a Lease is [Options.Prefix] and the key, or, for a key that cannot be part
// of a name, its readable part and a hash. The record is in an annotation, as text of
// package recordcodec; other annotations have its key, its token, a mark that changes with
// what watches report, and a stamp of the spec that belongs to the record. If the spec
// does not match the stamp, another client has written the Lease, and only the token of
// the record counts: the next token continues from it.
//
// The spec is filled as an elector of client-go does it. renewTime is the wall clock of
// the writer; Tenure does not use it.
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
