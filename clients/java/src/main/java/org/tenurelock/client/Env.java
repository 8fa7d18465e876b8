// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * What a client reaches the service by. The clock is in nanoseconds; step is the longest sleep between two readings
 * of it, so that a suspend is seen this soon. May be used concurrently.
 */
record Env(Supplier<Caller> callers, LongSupplier clock, Duration step) {
    long now() {
        return clock.getAsLong();
    }
}
