// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Instant;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Tells elapsed time, suspends included, in nanoseconds: the greater of what the monotonic clock and
 * the wall clock say has passed. Java has no monotonic clock that counts suspends.
 *
 * <p>The wall clock's lead over the monotonic clock is compared with the smallest lead seen since the
 * last step: what it grew by counts, so a suspend after a step back counts in full. A wall clock that
 * is set forward counts too, and ends a lease early: it looks like a suspend.
 *
 * <p>May be used concurrently.
 */
public final class GreaterClock implements LongSupplier {
    private static final long MILLISECOND = 1_000_000;

    /** By how much two readings may differ without a cause. */
    private static final long TOLERANCE = 2 * MILLISECOND;

    private static final int TRIES = 3;

    /** One reading of both clocks, in nanoseconds. */
    record Reading(long mono, long wall) {}

    private final Supplier<Reading> read;
    private final long origin;
    private long lead;
    private long more;

    /** Makes a clock of this machine's clocks. It starts at zero. */
    public GreaterClock() {
        this(GreaterClock::readBoth);
    }

    GreaterClock(final Supplier<Reading> read) {
        this.read = read;
        final Reading first = read.get();
        origin = first.mono();
        lead = first.wall() - first.mono();
    }

    @Override
    public synchronized long getAsLong() {
        final Reading at = read.get();
        final long now = at.wall() - at.mono();
        if (now - lead > TOLERANCE) {
            more += now - lead;
            lead = now;
        }
        lead = Math.min(lead, now);
        return at.mono() - origin + more;
    }

    /** Reads both clocks as nearly at once as can be: a pause between the two would count. */
    private static Reading readBoth() {
        long before = System.nanoTime();
        for (int tries = 1; ; tries++) {
            final Instant instant = Instant.now();
            final long wall = instant.getEpochSecond() * 1_000_000_000L + instant.getNano();
            final long after = System.nanoTime();
            if (after - before < MILLISECOND || tries == TRIES) {
                return new Reading(after, wall);
            }
            before = after;
        }
    }
}
