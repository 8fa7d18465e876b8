// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** Acquires locks: a client, or a session. */
@FunctionalInterface
interface Acquirer {
    Lock acquire(Wanted wanted, AcquireOptions options) throws InterruptedException;
}
