// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package service starts the lock service, as the processes of tenured that share a store,
// and programs in Python, TypeScript and Java that hold locks by it.
//
// The programs are made of the clients in clients/, and speak the language of package
// wire, so that all that is thrown at other lock clients can be thrown at them. Where they
// find the service is the Endpoint of their first request: addresses, with commas between.
package service
