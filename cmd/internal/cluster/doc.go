// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster writes what a stock etcd needs to keep leases: certificates, a
// configuration for each node, a unit of systemd. It adds and removes nodes, and tells how
// such a cluster is. It is what `tenured cluster` does.
//
// It starts nothing, and no etcd is in it: see docs/guides/etcd-cluster.md for why.
//
// All that it writes is in one folder, of which [Folder] knows the rooms. What the members
// are is decided by etcd alone; the folder has what they are called, where they are, and
// their certificates. So each step may be interrupted at any point, and repeated.
package cluster
