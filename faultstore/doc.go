// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package faultstore puts faults between a program and a real store, so that
// tests can show what the program does when a reply is lost, a write comes
// late or twice, a read is stale, or nothing answers at all.
//
// The faults are real: a write whose reply is lost has been made to the inner
// store, a late one is made to it later.
//
//	faults := faultstore.New(memstore.New(), nil)
//	defer faults.Close()
//	faults.Inject(faultstore.Rule{
//		Ops:   []faultstore.Op{faultstore.OpHeartbeat},
//		Skip:  2,
//		Count: 1,
//		Fault: faultstore.LoseReply(),
//	})
//	client, err := tenure.New(faults.Driver(), nil)
//
// Delays are timers of package time, so that tests inside a testing/synctest
// bubble need not wait. Create the Store inside the bubble then.
package faultstore
