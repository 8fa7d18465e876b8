// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.Optional;

/**
 * The calls of a release: the newest beat sent, then the confirmed one. An answer that is none has
 * the same call made again, for a lease at most; then the record runs out by itself.
 */
final class Release {
    /** What came of it. */
    enum Outcome {
        RELEASED,
        /** The lock was another's, or nobody's, before it was released. */
        LOST,
        /** Released, or it runs out by itself. */
        UNKNOWN
    }

    private final Deque<String> beats;
    private final long until;
    private boolean doubt; // a call may have been applied
    private Outcome outcome; // null while it goes on

    Release(final Collection<String> beats, final long until) {
        this.beats = new ArrayDeque<>(beats);
        this.until = until;
        outcome = beats.isEmpty() ? Outcome.LOST : null;
    }

    /** Returns the beat that the next call names, empty if there is no call any more. */
    Optional<String> call(final long now) {
        if (outcome == null && now >= until) {
            outcome = Outcome.UNKNOWN;
        }
        return outcome == null ? Optional.of(beats.getFirst()) : Optional.empty();
    }

    /** Says that the server has answered 200. */
    void applied() {
        outcome = Outcome.RELEASED;
    }

    /** Says that the server has answered 410. */
    void refused() {
        beats.removeFirst();
        if (beats.isEmpty()) {
            // After an unknown answer that is our own release, and what came after it.
            outcome = doubt ? Outcome.RELEASED : Outcome.LOST;
        }
    }

    /** Says that no answer came, or none of the service's. */
    void unknown() {
        doubt = true;
    }

    Optional<Outcome> outcome() {
        return Optional.ofNullable(outcome);
    }
}
