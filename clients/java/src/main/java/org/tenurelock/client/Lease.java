// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Supplier;

/**
 * A lock from its grant to its end: a state machine without I/O. Instants and lengths are in
 * nanoseconds of one clock that counts suspends. The rules:
 *
 * <ul>
 *   <li>A grant is no lease. The lock is held from the first confirmed heartbeat on; or at once if the grant may
 *       be counted and came in less than a tenth of the lease. It counts from the instant before its acquire was
 *       sent.
 *   <li>A confirmed heartbeat counts from the instant before its first sending.
 *   <li>An unanswered heartbeat is sent again as it was.
 *   <li>The deadline never moves back. Expired, lost and released are final.
 * </ul>
 *
 * <p>The methods must not be called concurrently.
 */
final class Lease {
    /** The part of a lease in which a grant must come to be counted. */
    private static final int COUNTED_PART = 10;

    /** The part of a lease for which the release of a lock that is not held is tried. */
    private static final int IDLE_PART = 5;

    /** What a lease is at an instant. */
    enum State {
        /** Granted; nothing counts yet, so the holder must not act. */
        UNCONFIRMED,
        HELD,
        EXPIRED,
        LOST,
        /** Or its release has begun. */
        RELEASED
    }

    private final Grant grant;
    private final long stopTimeout;
    private final Supplier<String> random;
    private final String stable;

    private State state = State.UNCONFIRMED;
    private String confirmed;
    private Heartbeat open; // sent, not answered; may be null
    private long deadline; // counts while held
    private OptionalLong nextAt = OptionalLong.empty(); // when the next heartbeat is due; empty: at once
    private AskedException asked; // null without a request
    private long stopBy; // no heartbeats from then on, after a request
    private String refusedBy = "";

    Lease(final Grant grant, final long stopTimeout, final Supplier<String> random) {
        this.grant = grant;
        this.stopTimeout = stopTimeout;
        this.random = random;
        confirmed = grant.beat();
        stable = grant.beat().substring(0, grant.beat().indexOf('-') + 1);
    }

    /**
     * Records that the grant has answered the acquire that was sent after the instant sent, and no other one; now
     * is an instant after that answer.
     */
    void granted(final long sent, final long now) {
        final boolean soon = now >= sent && now - sent < grant.lease() / COUNTED_PART;
        if (state == State.UNCONFIRMED && grant.usable() > 0 && soon) {
            deadline = sent + grant.usable();
            nextAt = OptionalLong.of(sent + grant.period());
            state = State.HELD;
            state(now);
        }
    }

    /** Returns what the lease is. Once it has said that it has ended it says so for ever. */
    State state(final long now) {
        if (state == State.HELD && now >= deadline) {
            state = State.EXPIRED;
        }
        // A confirmation then would be past its deadline.
        if (state == State.UNCONFIRMED && open != null && now >= open.firstSent() + grant.lease()) {
            state = State.EXPIRED;
        }
        return state;
    }

    /** Returns how long the holder may still act if no more heartbeat is confirmed. */
    long remaining(final long now) {
        return state(now) == State.HELD ? deadline - now : 0;
    }

    /** Returns the time until the next heartbeat is due; empty after the last one. */
    OptionalLong due(final long now) {
        if (!lives(now) || asked != null && now >= stopBy) {
            return OptionalLong.empty(); // if the work did not stop in time the lock expires
        }
        if (open != null || nextAt.isEmpty()) {
            return OptionalLong.of(0);
        }
        return OptionalLong.of(Math.max(0, nextAt.getAsLong() - now));
    }

    /** Returns the heartbeat to send now: an unanswered one as it was, else a new one. */
    Optional<Heartbeat> send(final long now) {
        if (due(now).isEmpty()) {
            return Optional.empty();
        }
        if (open == null) {
            String next;
            do {
                next = stable + random.get();
            } while (next.equals(confirmed));
            open = new Heartbeat(confirmed, next, now);
        }
        return Optional.of(open);
    }

    /** Records that the server has confirmed the heartbeat; now is an instant after that answer. */
    void confirm(final Heartbeat heartbeat, final Answer.Confirmed answer, final long now) {
        if (!heartbeat.equals(open) || !lives(now)) {
            return;
        }
        final long until = heartbeat.firstSent() + answer.usable();
        deadline = state == State.HELD ? Math.max(deadline, until) : until;
        state = State.HELD;
        open = null;
        confirmed = heartbeat.next();
        nextAt = OptionalLong.of(heartbeat.firstSent() + answer.period());
        if (answer.asked().isPresent() && asked == null) {
            asked = answer.asked().get();
            stopBy = now + stopTimeout;
        }
        state(now);
    }

    /** Records that the server has answered 410 to the heartbeat: the lock is lost. */
    void refuse(final Heartbeat heartbeat, final String holder, final long now) {
        if (heartbeat.equals(open) && lives(now)) {
            state = State.LOST;
            refusedBy = holder;
        }
    }

    /** Begins the release: from now on the holder must not act, whatever the answer. */
    Release release(final long now) {
        // An open heartbeat may be applied already, or between two calls.
        final List<String> beats =
                open == null ? List.of(confirmed) : List.of(open.next(), confirmed, open.next());
        final State before = state(now);
        if (before == State.LOST) {
            return new Release(List.of(), now);
        }
        if (before != State.EXPIRED) {
            state = State.RELEASED;
        }
        // A lock that is not held yet is freed anyway: its user must not wait for that.
        return new Release(beats, now + (before == State.HELD ? grant.lease() : grant.lease() / IDLE_PART));
    }

    /** Returns the request to the holder. */
    Optional<AskedException> asked() {
        return Optional.ofNullable(asked);
    }

    /** Returns the holder that a refusal named, empty if it named none. */
    String refusedBy() {
        return refusedBy;
    }

    private boolean lives(final long now) {
        final State at = state(now);
        return at == State.UNCONFIRMED || at == State.HELD;
    }
}
