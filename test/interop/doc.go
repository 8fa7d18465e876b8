// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package interop holds Tenure against the lock clients that it shares tables
// with: the Amazon DynamoDB Lock Client for Java, and cirello.io/dynamolock. It
// has no code of its own. Its tests run the real clients, each in a process of
// its own (see package peers), and Tenure, in this process and in others that
// are killed, on one table and one lock.
//
// What they show, in both directions and for both clients: a living holder is
// respected; a killed one is succeeded, and not too early; a release is seen;
// data, and attributes that are nobody's, survive; tokens rise whatever the
// other client does to them; and what Tenure alone understands, a reservation,
// a request, or a lock under a session, does not make the other client take a
// lock that it must not.
//
// The longest test lets processes of both sides contend and kills them, for half
// a minute. TENURE_TEST_CHAOS=10m, in the environment, makes it longer.
package interop
