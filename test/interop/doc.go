// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package interop tests Tenure with the lock clients that it shares tables with: the Amazon
// DynamoDB Lock Client for Java, and cirello.io/dynamolock. It has no code of its own. Its tests
// run the real clients, each in its own process (see package peers), and Tenure, in this
// process and in others that are killed, on one table and one lock.
//
// Most of it is scripts in testdata, which run with each client. A line is an actor, a verb, a
// lock and options; the expected result follows an arrow:
//
//	us acquire x data=d
//	them acquire x wait=2s &
//	[java] them get x -> owner=us data=d
//	them join x -> timeout after=2s
//
// Actors whose names begin with "us" are clients of Tenure in the test's process, "tenure"
// processes of Tenure, "them" processes of the other client, "stranger" a process of the other
// dialect's client; "table" is the table. With & a command runs in the background until the
// actor's join; with for=2s it is repeated; a line after [java] is only for that client. Besides
// the expected results, each script checks that the tokens of Tenure rise.
//
// The longest test makes processes of both sides contend, and kills them, for half a minute.
// TENURE_TEST_CHAOS=10m, in the environment, makes it longer.
package interop
