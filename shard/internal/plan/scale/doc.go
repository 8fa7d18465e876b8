// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package scale counts what large groups move when members come and go: by our
// plan, and by the rules of the lease taker of the Kinesis Client Library 2.
//
// The taker's rules are those of its source: every worker looks every 20 s,
// takes its part of what is free, or else one lease of the most loaded worker.
// The model is kind to it: looks see the present state, no two workers take the
// same lease, and no look is late. Version 3 of the library gives out leases by
// throughput and CPU, which a plan of names knows nothing of: it is not modelled.
package scale
