// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/**
 * A lock that this process holds. Made by {@link TenureClient#acquire}.
 *
 * <p>Call {@link #check} before every side effect: it reads the clock itself, and is right where timers
 * and threads are late. All methods may be called concurrently.
 */
public final class Lock implements AutoCloseable {
    private static final long SHORTEST_LIMIT = TimeUnit.MILLISECONDS.toNanos(250);
    private static final int LONGEST_REASON = 1024;

    private final Grant grant;
    private final LongSupplier clock;
    private final Caller beats;
    private final Caller releases;
    private final Consumer<TenureException> onStop;
    private final long step; // the longest sleep: after a suspend the clock is read this soon
    private final Duration limit; // of a call
    private final CompletableFuture<TenureException> stopping = new CompletableFuture<>();
    private final CompletableFuture<TenureException> over = new CompletableFuture<>();
    private final CountDownLatch ending = new CountDownLatch(1); // open once the release has begun
    private final CountDownLatch released = new CountDownLatch(1);

    private final Object mutex = new Object(); // guards what follows, and is held over no call
    private final Lease lease;
    private String last = ""; // what the last heartbeat that was not confirmed was answered
    private boolean toldAsked;
    private boolean toldOver;
    private boolean releasing;
    private TenureException endedWith; // null after a release that is as it should be
    private volatile Thread heart; // null before the start
    private volatile Consumer<TenureException> interrupter = reason -> {};

    Lock(
            final Grant grant,
            final AcquireOptions options,
            final LongSupplier clock,
            final Duration step,
            final Caller beats,
            final Caller releases) {
        this.grant = grant;
        this.clock = clock;
        this.step = step.toNanos();
        this.beats = beats;
        this.releases = releases;
        onStop = options.onStop();
        limit = Duration.ofNanos(Math.max(grant.lease() / 10, SHORTEST_LIMIT));
        final long stop = options.stopTimeout().map(Duration::toNanos).orElse(grant.lease());
        lease = new Lease(grant, stop, Beats::randomPart);
    }

    /** The name of the lock. */
    public String name() {
        return grant.name();
    }

    /** The fencing token: higher than that of every earlier holder. */
    public long token() {
        return grant.token();
    }

    /** What the former holder left in the record. */
    public Optional<byte[]> data() {
        return grant.data().map(byte[]::clone);
    }

    /**
     * Throws if the holder may not act. It sends nothing.
     *
     * @throws LostException if the lock is lost
     * @throws ExpiredException if the deadline has passed
     * @throws ReleasedException if the lock is released
     */
    public void check() {
        synchronized (mutex) {
            final Lease.State state = lease.state(clock.getAsLong());
            if (state != Lease.State.HELD) {
                throw error(state);
            }
        }
    }

    /** Returns the time until the right ends if no more heartbeat is confirmed. */
    public Duration remaining() {
        synchronized (mutex) {
            return Duration.ofNanos(lease.remaining(clock.getAsLong()));
        }
    }

    /** Returns the request to the holder. */
    public Optional<AskedException> asked() {
        synchronized (mutex) {
            return lease.asked();
        }
    }

    /**
     * Returns a future that is completed with the reason when the work must stop: by a request, or
     * the lock is over. Between the two {@link #check} passes, so that work which was asked can end in
     * order.
     */
    public CompletableFuture<TenureException> stopping() {
        return stopping.copy();
    }

    /** Returns a future that is completed with the reason when the lock is not held any more. */
    public CompletableFuture<TenureException> over() {
        return over.copy();
    }

    /** Releases the lock, as {@link #release(byte[], String)} does, with neither data nor failure. */
    public void release() {
        release(null, null);
    }

    /**
     * Releases the lock, so that others need not wait. Call it when the work has returned. It goes on
     * in a thread that is interrupted. A second call waits for the first, and ends as that did.
     *
     * @param data is kept in the record for the next holder; may be null
     * @param failed says that the work failed, and why; null if it did not
     * @throws LostException if the lock had been lost, or had expired, before
     * @throws UncertainException if no answer came for the time of a lease
     */
    public void release(final byte[] data, final String failed) {
        final boolean first;
        final Lease.State before;
        final Release release;
        synchronized (mutex) {
            first = !releasing;
            releasing = true;
            before = lease.state(clock.getAsLong());
            release = first ? lease.release(clock.getAsLong()) : null;
        }
        if (first) {
            end(before, release, data, failed);
        }
        Patience.uninterrupted(released::await);
        final TenureException ended;
        synchronized (mutex) {
            ended = endedWith;
        }
        if (ended != null) {
            throw ended;
        }
    }

    /**
     * Releases the lock at the end of a try block. A release without an answer is no failure of the
     * work, and throws nothing.
     *
     * @throws LostException if the lock was lost before the work was done
     */
    @Override
    public void close() {
        close(null);
    }

    /** Releases the lock after work that failed with the error, or did not. */
    void close(final Throwable error) {
        try {
            release(null, failure(error));
        } catch (final LostException ended) {
            if (error == null) {
                throw ended;
            }
        } catch (final UncertainException ended) {
            // It is released, or expires: see the comment of close.
        }
    }

    private static String failure(final Throwable error) {
        if (error == null || error instanceof AskedException || error instanceof LostException) {
            return null;
        }
        final String text = error.toString().replaceAll("\\p{C}", " ");
        return text.substring(0, Math.min(text.length(), LONGEST_REASON));
    }

    /**
     * Begins to hold the lock that answered an acquire sent after that instant: at once if the grant counts, else
     * when the first heartbeat is confirmed. Heartbeats go on in the background then. Returns false if the grant
     * was lost before.
     */
    boolean start(final long sent) throws InterruptedException {
        synchronized (mutex) {
            lease.granted(sent, clock.getAsLong());
        }
        while (state() == Lease.State.UNCONFIRMED) {
            final Optional<Heartbeat> heartbeat = nextHeartbeat();
            if (heartbeat.isEmpty() || exchange(heartbeat.get())) {
                break;
            }
            rest(beats.backoff());
        }
        beats.hurry();
        if (state() != Lease.State.HELD) {
            return false;
        }
        tellAsked();
        heart = thread(this::keep, "heartbeats");
        thread(this::watch, "deadline");
        return true;
    }

    private Thread thread(final Patience.Task task, final String what) {
        final Thread thread = new Thread(
                () -> {
                    try {
                        task.run();
                    } catch (final InterruptedException end) {
                        // The release has begun.
                    }
                },
                "tenure " + what + " of " + grant.name());
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private Lease.State state() {
        synchronized (mutex) {
            return lease.state(clock.getAsLong());
        }
    }

    private Optional<Heartbeat> nextHeartbeat() {
        synchronized (mutex) {
            return lease.send(clock.getAsLong());
        }
    }

    /** Sends a heartbeat once, and returns whether it was answered. */
    private boolean exchange(final Heartbeat heartbeat) throws InterruptedException {
        final Map<String, Object> body = Map.of(
                "name", grant.name(),
                "token", grant.token(),
                "after", heartbeat.after(),
                "next", heartbeat.next());
        final Answer answer = beats.exchange("/v1/heartbeat", body, limit, Answers::heartbeat);
        synchronized (mutex) {
            final long now = clock.getAsLong();
            if (answer instanceof Answer.Confirmed confirmed) {
                last = "";
                lease.confirm(heartbeat, confirmed, now);
            } else if (answer.is("lost")) {
                lease.refuse(heartbeat, Answers.text(((Answer.Problem) answer).more(), "holder"), now);
            } else {
                last = answer.describe();
                return false;
            }
        }
        return true;
    }

    /** Sends heartbeats as they are due, until the last one. */
    private void keep() throws InterruptedException {
        while (ending.getCount() > 0) {
            final OptionalLong due;
            synchronized (mutex) {
                due = lease.due(clock.getAsLong());
            }
            if (due.isEmpty()) {
                return;
            }
            if (due.getAsLong() > 0) {
                rest(Duration.ofNanos(Math.min(due.getAsLong(), step)));
                continue;
            }
            final Optional<Heartbeat> heartbeat = nextHeartbeat();
            if (heartbeat.isEmpty()) {
                return;
            }
            if (exchange(heartbeat.get())) {
                beats.hurry();
                tellAsked();
                tellOver();
            } else {
                rest(beats.backoff());
            }
        }
    }

    /** Ends the work at the deadline. It needs no network. */
    private void watch() throws InterruptedException {
        while (!tellOver() && ending.getCount() > 0) {
            final long wait = Math.max(remaining().toNanos(), TimeUnit.MILLISECONDS.toNanos(1));
            rest(Duration.ofNanos(Math.min(wait, step)));
        }
    }

    private void rest(final Duration pause) throws InterruptedException {
        ending.await(pause.toNanos(), TimeUnit.NANOSECONDS);
    }

    private void tellAsked() {
        final AskedException asked;
        synchronized (mutex) {
            asked = lease.asked().orElse(null);
            if (asked == null || toldAsked || toldOver) {
                return;
            }
            toldAsked = true;
        }
        tell(asked, false);
    }

    /** Tells that the lock has ended by itself, if it has. Returns whether it has ended. */
    private boolean tellOver() {
        final TenureException reason;
        synchronized (mutex) {
            final Lease.State state = lease.state(clock.getAsLong());
            if (state != Lease.State.EXPIRED && state != Lease.State.LOST) {
                return state != Lease.State.HELD;
            }
            if (toldOver) {
                return true;
            }
            toldOver = true;
            reason = error(state);
        }
        tell(reason, true);
        return true;
    }

    /** Whatever hears it runs in a thread of its own: it holds up neither heartbeats nor the deadline. */
    private void tell(final TenureException reason, final boolean end) {
        thread(
                () -> {
                    if (end) {
                        over.complete(reason);
                    }
                    stopping.complete(reason);
                },
                "end");
        thread(() -> onStop.accept(reason), "call");
        interrupter.accept(reason);
    }

    /** Has the interrupter called by the thread that sees the end; it must not block. */
    void listen(final Consumer<TenureException> given) {
        final TenureException told;
        synchronized (mutex) {
            interrupter = given;
            final Lease.State state = lease.state(clock.getAsLong());
            told = toldOver ? error(state) : toldAsked ? lease.asked().orElse(null) : null;
        }
        if (told != null) {
            given.accept(told);
        }
    }

    /** Returns why the holder may not act. The caller has the mutex. */
    private TenureException error(final Lease.State state) {
        final String lock = "\"" + grant.name() + "\" (token " + grant.token() + ")";
        switch (state) {
            case LOST:
                final String by = lease.refusedBy();
                return new LostException(lock + " is lost" + (by.isEmpty() ? "" : ": \"" + by + "\" is there now"));
            case EXPIRED:
                final String answer = last.isEmpty() ? "" : "; last answer: " + last;
                return new ExpiredException(lock + " has expired: no heartbeat was confirmed in time" + answer);
            case UNCONFIRMED:
                return new NotConfirmedException(lock + ": no heartbeat is confirmed yet");
            default:
                return new ReleasedException(lock + " is released");
        }
    }

    /** Ends the heartbeats and releases the lock. */
    private void end(final Lease.State before, final Release release, final byte[] data, final String failed) {
        ending.countDown();
        TenureException ended = null;
        final TenureException said;
        synchronized (mutex) {
            if (before == Lease.State.EXPIRED || before == Lease.State.LOST) {
                ended = error(before);
            }
            said = error(lease.state(clock.getAsLong()));
            toldOver = true;
        }
        thread(
                () -> {
                    over.complete(said);
                    stopping.complete(said);
                },
                "end");
        final Thread kept = heart;
        if (kept != null) {
            kept.interrupt();
            Patience.uninterrupted(() -> kept.join(limit.toMillis()));
        }
        final Map<String, Object> body = new HashMap<>();
        body.put("name", grant.name());
        body.put("token", grant.token());
        if (data != null) {
            body.put("data", new String(Base64.getEncoder().encode(data), StandardCharsets.US_ASCII));
        }
        if (failed != null) {
            body.put("failed", failed);
        }
        try {
            final TenureException result = carryOut(release, body);
            ended = ended == null ? result : ended;
        } finally {
            synchronized (mutex) {
                endedWith = ended;
            }
            released.countDown();
        }
    }

    /** Sends a call of the release once. */
    private Answer call(final Map<String, Object> body) {
        final AtomicReference<Answer> answer = new AtomicReference<>();
        Patience.uninterrupted(() -> {
            // Of the second try of a call that was interrupted nothing is known but that it was none.
            final boolean again = answer.getAndSet(new Answer.Unknown("interrupted")) != null;
            if (!again) {
                answer.set(releases.exchange("/v1/release", body, limit, Answers::release));
            }
        });
        return answer.get();
    }

    private TenureException carryOut(final Release release, final Map<String, Object> body) {
        final String lock = "\"" + grant.name() + "\" (token " + grant.token() + ")";
        String unknown = "";
        for (Optional<String> beat = release.call(clock.getAsLong());
                beat.isPresent();
                beat = release.call(clock.getAsLong())) {
            body.put("after", beat.get());
            final Answer answer = call(body);
            if (answer instanceof Answer.Done) {
                release.applied();
            } else if (answer.is("lost")) {
                release.refused();
            } else {
                release.unknown();
                unknown = answer.describe();
                Patience.uninterrupted(() -> TimeUnit.NANOSECONDS.sleep(releases.backoff().toNanos()));
            }
        }
        switch (release.outcome().orElseThrow()) {
            case UNKNOWN:
                return new UncertainException("the release of "
                        + lock
                        + " got no answer: the lock is released, or expires by itself; last answer: "
                        + unknown);
            case LOST:
                return new LostException(lock + " was lost before it was released");
            default:
                return null;
        }
    }
}
