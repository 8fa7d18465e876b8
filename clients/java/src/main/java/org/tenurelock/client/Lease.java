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
 *   <li>The first heartbeat of a session counts only if it is confirmed within usable of the instant before the
 *       opening was sent. Otherwise the session is lost.
 *   <li>A lock under a session has one heartbeat, which attaches it. From its confirmation on the deadline of the
 *       session counts; before, the earlier of both does. The end of the session is the end of its locks.
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
    private final Lease session; // null without one
    private final String stable;

    private State state = State.UNCONFIRMED;
    private String confirmed;
    private Heartbeat open; // sent, not answered; may be null
    private long deadline; // counts while held
    private OptionalLong nextAt = OptionalLong.empty(); // when the next heartbeat is due; empty: at once
    private AskedException asked; // null without a request
    private long stopBy; // no heartbeats from then on, after a request
    private String refusedBy = "";
    private OptionalLong opened = OptionalLong.empty(); // of a session: before its opening was sent
    private boolean closing; // of a session: its locks are not held any more
    private Heartbeat attachment; // of a lock under a session: null before it is made
    private boolean attached; // that is confirmed

    Lease(final Grant grant, final long stopTimeout, final Supplier<String> random) {
        this(grant, stopTimeout, random, null);
    }

    /** Makes the lease of a lock under a session. */
    Lease(final Grant grant, final long stopTimeout, final Supplier<String> random, final Lease session) {
        this.grant = grant;
        this.stopTimeout = stopTimeout;
        this.random = random;
        this.session = session;
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

    /** Records that it is the lease of a session, whose opening was sent after the instant sent. */
    void opened(final long sent) {
        opened = OptionalLong.of(sent);
    }

    /** Begins to close a session: it ends all its locks, and has heartbeats until its release. */
    void close() {
        closing = true;
    }

    /** Returns what the lease is. Once it has said that it has ended it says so for ever. */
    State state(final long now) {
        if (session != null && (state == State.UNCONFIRMED || state == State.HELD)) {
            final State above = session.closing ? State.RELEASED : session.state(now);
            if (above == State.UNCONFIRMED) {
                return above;
            }
            if (above != State.HELD) {
                state = above;
            } else if (outlasts(now)) {
                state = State.EXPIRED;
            }
        }
        if (state == State.HELD && !attached && now >= deadline) {
            state = State.EXPIRED;
        }
        // A confirmation then would be past its deadline.
        final boolean late = open != null && now >= open.firstSent() + grant.lease()
                || opened.isPresent() && now >= opened.getAsLong() + grant.lease();
        if (state == State.UNCONFIRMED && late) {
            state = State.EXPIRED;
        }
        return state;
    }

    /** Returns how long the holder may still act if no more heartbeat is confirmed. */
    long remaining(final long now) {
        if (state(now) != State.HELD) {
            return 0;
        }
        if (session == null) {
            return deadline - now;
        }
        final long own = attached ? Long.MAX_VALUE : deadline - now;
        return Math.min(Math.min(own, asked == null ? own : stopBy - now), session.remaining(now));
    }

    /** Returns the time until the next heartbeat is due; empty after the last one. */
    OptionalLong due(final long now) {
        if (!lives(now) || asked != null && now >= stopBy) {
            return OptionalLong.empty(); // if the work did not stop in time the lock expires
        }
        if (session != null) {
            return attached ? OptionalLong.empty() : OptionalLong.of(0);
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
            open = next(now);
        }
        return Optional.of(open);
    }

    private Heartbeat next(final long now) {
        String next;
        do {
            next = stable + random.get();
        } while (next.equals(confirmed));
        final Heartbeat made = new Heartbeat(confirmed, next, now);
        attachment = session == null ? null : made;
        return made;
    }

    /** Records that the server has confirmed the heartbeat; now is an instant after that answer. */
    void confirm(final Heartbeat heartbeat, final Answer.Confirmed answer, final long now) {
        if (!awaits(heartbeat, now)) {
            return;
        }
        if (state == State.UNCONFIRMED && opened.isPresent() && now >= opened.getAsLong() + answer.usable()) {
            state = State.LOST; // a late duplicate may have opened it once more
            return;
        }
        final long until = heartbeat.firstSent() + answer.usable();
        deadline = state == State.HELD ? Math.max(deadline, until) : until;
        state = State.HELD;
        open = null;
        confirmed = heartbeat.next();
        nextAt = OptionalLong.of(heartbeat.firstSent() + answer.period());
        answer.asked().ifPresent(request -> ask(request, now));
        state(now);
    }

    /** Records that the server has attached the lock to its session by this heartbeat. */
    void attached(final Heartbeat heartbeat, final long now) {
        if (!awaits(heartbeat, now)) {
            return;
        }
        open = null;
        attached = true;
        state = State.HELD;
        state(now);
    }

    /**
     * Records a request to the holder. Others keep the heartbeats of a session going: so a lock under it expires if
     * its work does not stop in time.
     */
    void ask(final AskedException request, final long now) {
        if (asked == null && lives(now)) {
            asked = request;
            stopBy = now + stopTimeout;
        }
    }

    /** Records that the server does not know the session any more. */
    void lose(final long now) {
        if (lives(now)) {
            state = State.LOST;
        }
    }

    /** Records that the server has answered 410 to the heartbeat: the lock is lost. */
    void refuse(final Heartbeat heartbeat, final String holder, final long now) {
        if (awaits(heartbeat, now)) {
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
        if (session != null) {
            // Attached or not, as long as the session lives: it would keep the lock alive.
            return new Release(List.of(attachment().next()), at -> session.state(at) != State.HELD);
        }
        // A lock that is not held yet is freed anyway: its user must not wait for that.
        return new Release(beats, now + (before == State.HELD ? grant.lease() : grant.lease() / IDLE_PART));
    }

    /** Returns what names a lock under a session in its release: its attachment, whether that was sent or not. */
    Heartbeat attachment() {
        return attachment == null ? next(0) : attachment; // its instant counts no more
    }

    /** Returns the request to the holder. */
    Optional<AskedException> asked() {
        return Optional.ofNullable(asked);
    }

    /** Returns the holder that a refusal named, empty if it named none. */
    String refusedBy() {
        return refusedBy;
    }

    /** Says that the time to stop has passed of a lock under a session. */
    boolean outlasts(final long now) {
        return session != null && asked != null && now >= stopBy;
    }

    /**
     * Says that the lock is to be released although its work has not returned: with heartbeats of its own, others
     * could have it now.
     */
    boolean overdue(final long now) {
        return outlasts(now - grant.lease());
    }

    private boolean awaits(final Heartbeat heartbeat, final long now) {
        return heartbeat.equals(open) && lives(now);
    }

    private boolean lives(final long now) {
        final State at = state(now);
        return at == State.UNCONFIRMED || at == State.HELD;
    }
}
