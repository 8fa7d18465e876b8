// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/**
 * The answer to an acquire, or to the opening of a session, whose name is its id. Lengths are in nanoseconds. The
 * holder may act for usable after it sent that; if 0, the grant must not be counted. A heartbeat is due each period.
 */
record Grant(
        String name, long token, String beat, long lease, Optional<byte[]> data, long usable, long period, Part part) {
    /**
     * What a grant has of a semaphore, or of a lock for readers and writers. If it drains, readers were there when it
     * was granted. Unwritten is the data to release it with if nothing was written under it.
     */
    record Part(
            OptionalInt slot,
            OptionalInt slots,
            OptionalLong fenceToken,
            Optional<LastWriter> lastWriter,
            boolean drains,
            Optional<byte[]> unwritten) {
        /** For a plain lock. */
        static final Part NONE = new Part(
                OptionalInt.empty(),
                OptionalInt.empty(),
                OptionalLong.empty(),
                Optional.empty(),
                false,
                Optional.empty());
    }

    Grant(
            final String name,
            final long token,
            final String beat,
            final long lease,
            final Optional<byte[]> data,
            final long usable,
            final long period) {
        this(name, token, beat, lease, data, usable, period, Part.NONE);
    }
}
