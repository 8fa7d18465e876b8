// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** What an answer means to a client. */
sealed interface Answer {
    /** An acquire was answered by a grant. */
    record Granted(Grant grant) implements Answer {}

    /** A heartbeat was confirmed. Lengths are in nanoseconds. */
    record Confirmed(long usable, long period, Optional<AskedException> asked) implements Answer {}

    /** A release was applied. */
    record Done() implements Answer {}

    /** The service refused the call, or could not carry it out. */
    record Problem(String kind, int status, String detail, Map<String, Object> more, Duration retryAfter)
            implements Answer {}

    /**
     * The outcome of the call is not known. Permanent: this server answers no call until its address or a
     * certificate is fixed.
     */
    record Unknown(String why, boolean permanent) implements Answer {
        Unknown(final String why) {
            this(why, false);
        }
    }

    /** Says that another server may know better. */
    default boolean wantsAnother() {
        return this instanceof Unknown || this instanceof Problem problem && problem.status() >= 500;
    }

    /** Says that it is a problem of the kind. */
    default boolean is(final String kind) {
        return this instanceof Problem problem && problem.kind().equals(kind);
    }

    /** Returns the answer for people. */
    default String describe() {
        if (this instanceof Problem problem) {
            return problem.kind() + " (" + problem.status() + "): " + problem.detail();
        }
        return this instanceof Unknown unknown ? unknown.why() : toString();
    }
}
