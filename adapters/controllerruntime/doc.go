// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenurectrl runs managers of Kubernetes' controller-runtime by leases of Tenure, on
// any of its stores, and again and again in one process.
//
//	election := client.Election("operator", nil)
//	err := tenurectrl.RunManager(ctx, election, config, ctrl.Options{Scheme: scheme}, setup)
//
// [RunManager] runs a manager for each term, while this process leads. [RunStandby] runs
// one all the time, whose caches are warm when this process is elected.
//
// Both end the contexts of all controllers at the deadline of the lease, before another
// process can begin; release the lock when all that the manager runs has returned, and not
// before; and campaign again after a loss, where a manager of its own accord ends its program.
//
// # What controller-runtime cannot give
//
// A manager starts once, so setup builds a new one for each term. A reconcile that ignores
// its context goes on beside the next leader, and holds up the next term in this process:
// call [tenure.Lease.Check] before each write that matters. An API server can refuse a
// former leader's write only by its token: see [tenure.Lease.Token].
//
// A manager by itself cancels its controllers only when all other runnables have returned.
// Here all of them are cancelled at once when the lease ends.
package tenurectrl
