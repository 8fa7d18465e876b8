// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A lock that this process holds: a plain one, a slot of a {@link Semaphore}, or the right to read or to write of a
 * {@link RwLock}. Made by {@link TenureClient#acquire}, or under a {@link Session}, which keeps it alive then.
 *
 * <p>Call {@link #check} before every side effect: it reads the clock itself, and is right where timers
 * and threads are late. All methods may be called concurrently.
 */
public final class Lock implements AutoCloseable {
    private static final int LONGEST_REASON = 1024;

    private final Grant grant;
    private final Env env;
    private final Session session; // null without one
    private final Consumer<TenureException> onStop;
    private final Duration limit; // of a call
    private final CompletableFuture<TenureException> stopping = new CompletableFuture<>();
    private final CompletableFuture<TenureException> over = new CompletableFuture<>();
    private final CountDownLatch released = new CountDownLatch(1);

    private final Object mutex; // guards what follows, and is held over no call; of a session, its own
    private final Lease lease;
    private boolean handed; // to the program: before, no callback hears anything
    private boolean toldAsked;
    private boolean toldOver;
    private boolean releasing;
    private TenureException endedWith; // null after a release that is as it should be
    private final Heart heart; // null under a session
    private volatile Consumer<TenureException> interrupter = reason -> {};

    /** The session may be null. */
    Lock(final Grant grant, final AcquireOptions options, final Env env, final Session session) {
        this.grant = grant;
        this.env = env;
        this.session = session;
        onStop = options.onStop();
        limit = Heart.limit(grant.lease());
        final long stop = options.stopTimeout().map(Duration::toNanos).orElse(grant.lease());
        mutex = session == null ? new Object() : session.mutex();
        lease = new Lease(grant, stop, Beats::randomPart, session == null ? null : session.lease());
        heart = session == null ? new Beating() : null;
    }

    /** The heartbeats of a lock without a session. */
    private final class Beating extends Heart {
        Beating() {
            super(grant.name(), lease, mutex, env, grant.lease());
        }

        @Override
        Answer send(final Heartbeat heartbeat, final Caller by, final Duration within) throws InterruptedException {
            return by.exchange("/v1/heartbeat", body(heartbeat), within, Answers::heartbeat);
        }

        @Override
        void answered(final Answer answer) {
            tellAsked();
        }

        @Override
        boolean tellOver() {
            return Lock.this.tellOver();
        }
    }

    /** The name of the lock. For a slot, or a right to read or write, the service derives it from the name given. */
    public String name() {
        return grant.name();
    }

    /** The fencing token: higher than that of every earlier holder. */
    public long token() {
        return grant.token();
    }

    /**
     * The token that the resource compares. Under a {@link RwLock} it belongs to the name that was asked for, and is
     * the same for all who read between two writers; otherwise it is {@link #token}.
     */
    public long fenceToken() {
        return grant.part().fenceToken().orElse(grant.token());
    }

    /** What the former holder left in the record. */
    public Optional<byte[]> data() {
        return grant.data().map(byte[]::clone);
    }

    /** The number of the slot, from 0; empty if it is no slot of a semaphore. */
    public OptionalInt slot() {
        return grant.part().slot();
    }

    /** How many slots the semaphore had when this one was granted; empty if it is no slot of one. */
    public OptionalInt slots() {
        return grant.part().slots();
    }

    /** The last writer before this term; empty if nobody has ever written, or if it is not of a {@link RwLock}. */
    public Optional<LastWriter> lastWriter() {
        return grant.part().lastWriter();
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
            final Lease.State state = lease.state(env.now());
            if (state != Lease.State.HELD) {
                throw error(state);
            }
        }
    }

    /** Returns the time until the right ends if no more heartbeat is confirmed. */
    public Duration remaining() {
        synchronized (mutex) {
            return Duration.ofNanos(lease.remaining(env.now()));
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
     * in a thread that is interrupted. A second call waits for the first, and ends as that did. Under a session the
     * call is made again until it is answered, or the session ends; {@link Session#close} releases it too.
     *
     * @param data is kept in the record for the next holder, 256 KiB at most; may be null, and is null under a
     *     {@link RwLock}
     * @param failed says that the work failed, and why; null if it did not
     * @throws LostException if the lock had been lost, or had expired, before
     * @throws UncertainException if no answer came for the time of a lease, or until the session ended
     */
    public void release(final byte[] data, final String failed) {
        if (data != null) {
            AcquireOptions.checkData(data);
        }
        if (data != null && grant.part().fenceToken().isPresent()) {
            throw new IllegalArgumentException("data: a lock for readers and writers stores its own in its records; "
                    + "keep yours with the resource");
        }
        give(data, failed);
    }

    /** Releases a lock that no caller waits for any more, and under which nothing was written. */
    void giveBack() {
        quietly(grant.part().unwritten().orElse(null));
    }

    private void give(final byte[] data, final String failed) {
        final boolean first;
        final Lease.State before;
        final Release release;
        synchronized (mutex) {
            first = !releasing;
            releasing = true;
            before = lease.state(env.now());
            release = first ? lease.release(env.now()) : null;
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

    /** Counts the grant, if it can be counted: it answered the acquire that was sent after that instant. */
    void granted(final long sent) {
        synchronized (mutex) {
            lease.granted(sent, env.now());
        }
    }

    /**
     * Begins to hold a granted lock that is under no session: at once if the grant counts, else when the first
     * heartbeat is confirmed. Heartbeats go on in the background then. Returns false if the grant was lost before.
     */
    boolean start() throws InterruptedException {
        if (!heart.start()) {
            return false;
        }
        heart.run();
        return true;
    }

    /** Returns what attaches the lock to its session, empty if it is attached, or has ended. */
    Optional<Heartbeat> attachment() {
        synchronized (mutex) {
            return lease.send(env.now());
        }
    }

    /** Takes the result of the attachment; other problems than that it is lost change nothing. */
    void attached(final Heartbeat attachment, final Answer result) {
        synchronized (mutex) {
            final long now = env.now();
            if (result instanceof Answer.Attached attached) {
                lease.attached(attachment, now);
                attached.asked().ifPresent(request -> lease.ask(request, now));
            } else if (result.is("lost")) {
                lease.refuse(attachment, Answers.text(((Answer.Problem) result).more(), "holder"), now);
            }
        }
    }

    /** Releases a lock under a session whose work was asked to end, and has not for too long: in another thread. */
    void releaseOverdue() {
        synchronized (mutex) {
            if (releasing || !lease.overdue(env.now())) {
                return;
            }
        }
        Heart.thread(() -> quietly(null), "release of " + grant.name());
    }

    private void quietly(final byte[] data) {
        try {
            give(data, null);
        } catch (final TenureException error) {
            // It is freed, or expires.
        }
    }

    /** Hands the lock to the program, which hears from now on what happens to it. Returns whether it is held. */
    boolean hand() {
        synchronized (mutex) {
            if (lease.state(env.now()) != Lease.State.HELD) {
                return false;
            }
            handed = true;
        }
        tellAsked();
        return true;
    }

    /** Takes a request that came by the session. */
    void ask(final AskedException request) {
        synchronized (mutex) {
            lease.ask(request, env.now());
        }
        tellAsked();
    }

    /** Says whether it is held. */
    boolean holds() {
        synchronized (mutex) {
            return lease.state(env.now()) == Lease.State.HELD;
        }
    }

    /** Says that the thread begins, or ends, to work under the lock. */
    void works(final Thread thread, final boolean begins) {
        if (session != null) {
            session.works(thread, begins);
        }
    }

    /** What the call of a heartbeat, or an attachment, says of the lock. */
    Map<String, Object> body(final Heartbeat heartbeat) {
        return Map.of(
                "name", grant.name(),
                "token", grant.token(),
                "after", heartbeat.after(),
                "next", heartbeat.next());
    }

    Grant grant() {
        return grant;
    }

    private void tellAsked() {
        final AskedException asked;
        synchronized (mutex) {
            asked = lease.asked().orElse(null);
            if (asked == null || toldAsked || toldOver || !handed) {
                return;
            }
            toldAsked = true;
        }
        tell(asked, false);
    }

    /** Tells that the lock has ended by itself, if it has. Returns whether it has ended. */
    boolean tellOver() {
        final TenureException reason;
        synchronized (mutex) {
            final Lease.State state = lease.state(env.now());
            if (!handed || state != Lease.State.EXPIRED && state != Lease.State.LOST) {
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
        interrupter.accept(reason);
        complete(reason, end);
        Heart.thread(() -> onStop.accept(reason), "call of " + grant.name());
    }

    private void complete(final TenureException reason, final boolean end) {
        Heart.thread(
                () -> {
                    if (end) {
                        over.complete(reason);
                    }
                    stopping.complete(reason);
                },
                "end of " + grant.name());
    }

    /** Has the interrupter called by the thread that sees the end; it must not block. */
    void listen(final Consumer<TenureException> given) {
        final TenureException told;
        synchronized (mutex) {
            interrupter = given;
            final Lease.State state = lease.state(env.now());
            told = toldOver ? error(state) : toldAsked ? lease.asked().orElse(null) : null;
        }
        if (told != null) {
            given.accept(told);
        }
    }

    private String describe() {
        return "\"" + grant.name() + "\" (token " + grant.token() + ")";
    }

    /** Returns why the holder may not act. The caller has the mutex. */
    private TenureException error(final Lease.State state) {
        final String lock = describe();
        switch (state) {
            case LOST:
                final String by = lease.refusedBy();
                if (session != null && by.isEmpty()) {
                    return new LostException(lock + " is lost, or its session is");
                }
                return new LostException(lock + " is lost" + (by.isEmpty() ? "" : ": \"" + by + "\" is there now"));
            case EXPIRED:
                if (lease.outlasts(env.now())) {
                    return new ExpiredException(lock + " has expired: its work did not end within the stop timeout");
                }
                final String last = session == null ? heart.last() : session.last();
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
        TenureException ended = null;
        synchronized (mutex) {
            if (before == Lease.State.EXPIRED || before == Lease.State.LOST) {
                ended = error(before);
            }
        }
        tellReleased();
        if (heart != null) {
            heart.end();
        }
        final Map<String, Object> fields = new HashMap<>();
        fields.put("name", grant.name());
        fields.put("token", grant.token());
        if (data != null) {
            fields.put("data", new String(Base64.getEncoder().encode(data), StandardCharsets.US_ASCII));
        }
        if (failed != null) {
            fields.put("failed", failed);
        }
        try {
            final TenureException result = releasing(fields).run(release);
            ended = ended == null ? result : ended;
        } finally {
            ended(ended);
        }
    }

    /** Tells that the lock is not held any more, without an error. */
    private void tellReleased() {
        final TenureException said;
        synchronized (mutex) {
            said = error(lease.state(env.now()));
            toldOver = true;
        }
        complete(said, true);
    }

    private void ended(final TenureException with) {
        synchronized (mutex) {
            endedWith = with;
        }
        if (session != null) {
            session.forget(this);
        }
        released.countDown();
    }

    private Releasing releasing(final Map<String, Object> fields) {
        final String lock = describe();
        if (session == null) {
            final Function<String, Map<String, Object>> body = beat -> {
                fields.put("after", beat);
                return fields;
            };
            return new Releasing(lock, "/v1/release", body, Answers::done, mutex, env, limit);
        }
        synchronized (mutex) {
            fields.put("after", lease.attachment().after());
        }
        final Function<String, Map<String, Object>> body = beat -> {
            fields.put("next", beat);
            return Map.of("session", session.id(), "locks", List.of(fields));
        };
        final Function<Reply, Answer> read = reply -> Answers.released(reply, grant.name());
        return new Releasing(lock, "/v1/sessions/release", body, read, mutex, env, limit);
    }

    /** Ends the lock without a call: the closing of its session releases it. */
    void closes() {
        final boolean first;
        final boolean told;
        synchronized (mutex) {
            first = !releasing;
            releasing = true;
            told = toldOver;
            final Lease.State state = lease.state(env.now());
            if (first && (state == Lease.State.EXPIRED || state == Lease.State.LOST)) {
                endedWith = error(state);
            }
        }
        if (!first) {
            return; // its own release is under way
        }
        released.countDown();
        if (!told) {
            tellReleased();
            interrupter.accept(new ReleasedException(describe() + " is released with its session"));
        }
    }
}
