// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What an answer means to a client. */
sealed interface Answer {
    /** An acquire was answered by a grant. */
    record Granted(Grant grant) implements Answer {}

    /** A heartbeat was confirmed. Lengths are in nanoseconds. Only a session's has requests for its locks. */
    record Confirmed(long usable, long period, Optional<AskedException> asked, List<Request> requests)
            implements Answer {
        Confirmed(final long usable, final long period, final Optional<AskedException> asked) {
            this(usable, period, asked, List.of());
        }
    }

    /** A request to the holder of one lock under a session. */
    record Request(String id, String name, long token, AskedException asked) {}

    /** A lock was attached to its session. */
    record Attached(Optional<AskedException> asked) implements Answer {}

    /** A call for several locks has a result for each: attached, or a problem. */
    record Results(List<Answer> of) implements Answer {}

    /** A release was applied. */
    record Done() implements Answer {}

    /** The service refused the call, or could not carry it out. */
    record Problem(String kind, int status, String detail, Map<String, Object> more, Duration retryAfter)
            implements Answer {
        /** Says that the same call may have another answer: it is sent again by a client that holds something. */
        boolean mayPass() {
            return status == 401 || status == 403 || status == 429 || status >= 500;
        }
    }

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
