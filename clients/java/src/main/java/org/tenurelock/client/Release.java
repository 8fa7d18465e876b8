// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.Optional;
import java.util.function.LongPredicate;

/**
 * The calls of a release: the newest beat sent, then the confirmed one. Without an answer the same call is
 * made again, for a lease at most; then the record expires by itself. A lock under a session does not: its call is
 * made again as long as the session lives.
 */
final class Release {
    /** What came of it. */
    enum Outcome {
        RELEASED,
        /** The lock was free, or another holder's, before it was released. */
        LOST,
        /** Released, or it expires by itself. */
        UNKNOWN
    }

    private final Deque<String> beats;
    private final LongPredicate over; // whether no more call is made at an instant
    private boolean doubt; // a call may have been applied
    private Outcome outcome; // null while it goes on

    Release(final Collection<String> beats, final long until) {
        this(beats, now -> now >= until);
    }

    Release(final Collection<String> beats, final LongPredicate over) {
        this.beats = new ArrayDeque<>(beats);
        this.over = over;
        outcome = beats.isEmpty() ? Outcome.LOST : null;
    }

    /** Returns the beat that the next call names, empty after the last call. */
    Optional<String> call(final long now) {
        if (outcome == null && over.test(now)) {
            outcome = Outcome.UNKNOWN;
        }
        return outcome == null ? Optional.of(beats.getFirst()) : Optional.empty();
    }

    /** Records that the server has answered 200. */
    void applied() {
        outcome = Outcome.RELEASED;
    }

    /** Records that the server has answered 410. */
    void refused() {
        beats.removeFirst();
        if (beats.isEmpty()) {
            // After an unknown answer it is our own release, or a later write.
            outcome = doubt ? Outcome.RELEASED : Outcome.LOST;
        }
    }

    /** Records that no answer came, or not the service's. */
    void unknown() {
        doubt = true;
    }

    Optional<Outcome> outcome() {
        return Optional.ofNullable(outcome);
    }
}
