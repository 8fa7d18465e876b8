// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.service;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import org.tenurelock.client.AcquireOptions;

/** One command, as the Go package peers/wire has it. */
record Request(Map<String, Object> fields) {
    String text(final String name) {
        return fields.getOrDefault(name, "").toString();
    }

    Optional<Long> number(final String name) {
        return Optional.ofNullable((Long) fields.get(name));
    }

    /** The nanoseconds of a field in milliseconds. */
    long nanos(final String name) {
        return number(name).orElse(0L) * 1_000_000;
    }

    boolean flag(final String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    /** How a lock is acquired. */
    AcquireOptions acquire(final String owner) {
        final AcquireOptions options = AcquireOptions.defaults().owner(owner);
        if (flag("tryOnly")) {
            return options.waitAtMost(Duration.ZERO);
        }
        return number("waitMs").map(ms -> options.waitAtMost(Duration.ofMillis(ms))).orElse(options);
    }
}
