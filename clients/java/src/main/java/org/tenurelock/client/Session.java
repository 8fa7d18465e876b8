// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * One heartbeat that keeps many locks alive: they are held until one deadline, and are lost together. Made by {@link
 * TenureClient#session}.
 *
 * <p>A lock of a session is an ordinary {@link Lock} without heartbeats and threads of its own. An operator can ask
 * for each one alone. If its work does not end within its stop timeout then, it expires for its holder, and is
 * released a lease later.
 *
 * <p>All methods may be called concurrently.
 */
public final class Session implements AutoCloseable {
    private static final int MOST_LOCKS = 100; // of one call: the limit of the server
    private static final int SOON_PART = 10; // of a lease, after which a grant waits for no other one
    private static final Duration PAUSE = Duration.ofMillis(50);

    /** Names are compared by code points, as clients in all languages can. */
    private static final Comparator<String> BY_CODE_POINTS =
            (a, b) -> Arrays.compare(a.codePoints().toArray(), b.codePoints().toArray());

    private final Grant grant;
    private final String owner;
    private final Env env;
    private final Consumer<TenureException> onStop;
    private final Duration stopTimeout;
    private final Duration limit; // of a call
    private final CompletableFuture<TenureException> over = new CompletableFuture<>();
    private final CountDownLatch closed = new CountDownLatch(1);

    private final Object mutex = new Object(); // guards what follows and the leases of the locks; held over no call
    private final Lease lease;
    private final Members<Lock> locks = new Members<>(); // from before their attachment until they are released
    private final Map<Thread, Integer> working = new HashMap<>(); // how many works of run each thread is in
    private boolean closing;
    private boolean toldOver;
    private TenureException endedWith; // null after a closing that is as it should be
    private final Heart heart;

    Session(final Grant grant, final AcquireOptions options, final Env env) {
        this.grant = grant;
        this.env = env;
        owner = options.owner();
        onStop = options.onStop();
        stopTimeout = options.stopTimeout().orElse(Duration.ofNanos(grant.lease()));
        limit = Heart.limit(grant.lease());
        lease = new Lease(grant, grant.lease(), Beats::randomPart);
        heart = new Beating();
    }

    private final class Beating extends Heart {
        Beating() {
            super("session " + grant.name(), lease, mutex, env, grant.lease());
        }

        @Override
        Answer send(final Heartbeat heartbeat, final Caller by, final Duration within) throws InterruptedException {
            return by.exchange("/v1/sessions/heartbeat", body(heartbeat), within, Answers::renewal);
        }

        @Override
        void answered(final Answer answer) {
            if (answer instanceof Answer.Confirmed confirmed) {
                asked(confirmed.requests());
            }
        }

        @Override
        boolean tellOver() {
            return Session.this.tellOver();
        }
    }

    /** Returns the body of a heartbeat. It is the same each time that the heartbeat is sent. */
    private Map<String, Object> body(final Heartbeat heartbeat) {
        synchronized (mutex) {
            final Map<String, Object> body = new HashMap<>(
                    Map.of("session", id(), "after", heartbeat.after(), "next", heartbeat.next()));
            final List<String> answered = locks.answered(heartbeat);
            if (!answered.isEmpty()) {
                body.put("answered", answered);
            }
            return body;
        }
    }

    private void asked(final List<Answer.Request> given) {
        final Map<Lock, AskedException> asked;
        synchronized (mutex) {
            asked = locks.hear(given);
        }
        asked.forEach(Lock::ask);
    }

    /** The id of the session, as the status of its locks shows it. */
    public String id() {
        return grant.name();
    }

    /** The owner of all its locks. */
    public String owner() {
        return owner;
    }

    /**
     * Throws if no lock of the session may be held. It sends nothing. Before a side effect call {@link Lock#check},
     * which finds the end of its lock too.
     *
     * @throws LostException if the session is lost
     * @throws ExpiredException if its deadline has passed
     * @throws ReleasedException if it is closed, or its closing has begun
     */
    public void check() {
        synchronized (mutex) {
            final Lease.State state = lease.state(env.now());
            if (closing || state != Lease.State.HELD) {
                throw error(state);
            }
        }
    }

    /** Returns the time until all locks of the session end if no more heartbeat is confirmed. */
    public Duration remaining() {
        synchronized (mutex) {
            return closing ? Duration.ZERO : Duration.ofNanos(lease.remaining(env.now()));
        }
    }

    /** Returns a future that is completed with the reason when no lock of the session is held any more. */
    public CompletableFuture<TenureException> over() {
        return over.copy();
    }

    /** Acquires a lock and waits for it without an end: see {@link #acquire(String, AcquireOptions)}. */
    public Lock acquire(final String name) throws InterruptedException {
        return acquire(name, AcquireOptions.defaults());
    }

    /**
     * Acquires a lock and returns it held under the session.
     *
     * @param options have no owner, or that of the session
     * @throws HeldException if another holder has it until the wait is over
     * @throws UnavailableException if no server answered
     * @throws ProblemException if the call was refused, for example for lack of rights
     * @throws LostException if the session ended meanwhile; {@link ReleasedException} if it was closed. A wait for
     *     another holder notices it within 20 s
     * @throws InterruptedException if the thread is interrupted; nothing is held then
     */
    public Lock acquire(final String name, final AcquireOptions options) throws InterruptedException {
        return acquire(Wanted.lock(name), options);
    }

    /**
     * Acquires several locks, or none: one after the other in the order of their names, so that two who want the same
     * ones do not wait for each other. The options count for all of them together.
     *
     * @return the locks, held, in the order in which they were named
     * @throws HeldException if another holder has one of them until the wait is over; otherwise as {@link
     *     #acquire(String, AcquireOptions)}
     */
    public List<Lock> acquireAll(final List<String> names, final AcquireOptions options) throws InterruptedException {
        if (names.isEmpty() || new HashSet<>(names).size() < names.size()) {
            throw new IllegalArgumentException("names are " + names + ": want at least one, and each once");
        }
        final List<Wanted> all = names.stream().sorted(BY_CODE_POINTS).map(Wanted::lock).toList();
        final long began = System.nanoTime();
        while (true) {
            final Map<String, Lock> got = new HashMap<>();
            try {
                if (acquireEach(all, owned(options), began, got)) {
                    return names.stream().map(got::remove).toList();
                }
            } finally {
                got.values().forEach(Lock::giveBack);
            }
            TimeUnit.NANOSECONDS.sleep(PAUSE.toNanos()); // one was lost before it was attached
        }
    }

    private boolean acquireEach(
            final List<Wanted> all, final AcquireOptions options, final long began, final Map<String, Lock> got)
            throws InterruptedException {
        final List<Lock> granted = new ArrayList<>(); // and not attached: they do not wait for long
        long first = 0;
        for (final Wanted wanted : all) {
            Lock lock = null;
            if (!granted.isEmpty()) {
                try {
                    lock = acquiring(wanted, options.waitAtMost(Duration.ZERO), false).run();
                } catch (final HeldException | UnavailableException error) {
                    if (left(options, began).filter(Duration::isZero).isPresent()) {
                        throw error;
                    }
                    attach(granted);
                    granted.clear();
                }
            }
            if (lock == null) {
                final AcquireOptions rest = left(options, began).map(options::waitAtMost).orElse(options);
                lock = acquiring(wanted, rest, false).run();
            }
            got.put(wanted.name(), lock);
            granted.add(lock);
            first = granted.size() == 1 ? env.now() : first;
            if (granted.size() == MOST_LOCKS || env.now() - first > grant.lease() / SOON_PART) {
                attach(granted);
                granted.clear();
            }
        }
        attach(granted);
        check();
        return got.values().stream().allMatch(Lock::hand);
    }

    private static Optional<Duration> left(final AcquireOptions options, final long began) {
        return options.waitAtMost()
                .map(wait -> wait.minusNanos(System.nanoTime() - began))
                .map(left -> left.isNegative() ? Duration.ZERO : left);
    }

    /**
     * Acquires the lock, does the work in this thread, releases the lock, and returns what came of it.
     *
     * @throws ReleasedException if the session was closed before the work was done
     * @throws Exception as {@link TenureClient#run}
     */
    public <T> T run(final String name, final AcquireOptions options, final TenureClient.Work<T> work)
            throws Exception {
        return Working.under(acquire(name, options), work);
    }

    /** Returns a semaphore whose slots are held under the session: see {@link TenureClient#semaphore}. */
    public Semaphore semaphore(final String name, final int slots) {
        return new Semaphore(new Wanted(name, Wanted.Kind.SLOT, slots), this::acquire);
    }

    /** Returns a lock for readers and writers, held under the session: see {@link TenureClient#rwlock}. */
    public RwLock rwlock(final String name) {
        return new RwLock(name, this::acquire);
    }

    /**
     * Closes the session, which frees all its locks by one call. From the beginning on none of them is held. It
     * interrupts the work of {@link #run} in other threads, and waits for that with heartbeats, for the stop timeout
     * at most: if it does not end the locks expire. Call it when all other work under its locks has returned. It goes
     * on in a thread that is interrupted. A second call waits for the first. A closing without an answer throws
     * nothing: the session expires.
     *
     * @throws LostException if the session was lost, or had expired, before
     */
    @Override
    public void close() {
        final boolean first;
        final Lease.State before;
        synchronized (mutex) {
            first = !closing;
            closing = true;
            before = lease.state(env.now());
            lease.close();
        }
        if (first) {
            end(before);
        }
        Patience.uninterrupted(closed::await);
        final TenureException ended;
        synchronized (mutex) {
            ended = endedWith;
        }
        if (ended instanceof LostException lost) {
            throw lost;
        }
    }

    private void end(final Lease.State before) {
        TenureException ended = null;
        final boolean tells;
        synchronized (mutex) {
            if (before != Lease.State.HELD) {
                ended = error(before);
            }
            tells = !toldOver;
            toldOver = true;
        }
        if (tells) {
            Heart.thread(() -> over.complete(error(Lease.State.RELEASED)), "end of session " + id());
        }
        all().forEach(Lock::closes);
        try {
            final boolean idle = awaitWork();
            final Release release;
            synchronized (mutex) {
                release = lease.release(env.now());
            }
            heart.end();
            final TenureException result = idle
                    ? new Releasing(
                                    describe(),
                                    "/v1/sessions/close",
                                    beat -> Map.of("session", id(), "after", beat),
                                    Answers::done,
                                    mutex,
                                    env,
                                    limit)
                            .run(release)
                    : new UncertainException(describe() + " expires: work under its locks did not end in time");
            ended = ended == null ? result : ended;
        } finally {
            synchronized (mutex) {
                endedWith = ended;
            }
            closed.countDown();
        }
    }

    /** Waits until no other thread works under a lock, as long as the session lives. Returns whether that is so. */
    private boolean awaitWork() {
        final long began = System.nanoTime();
        final boolean[] idle = new boolean[1];
        Patience.uninterrupted(() -> {
            synchronized (mutex) {
                while (true) {
                    idle[0] = working.keySet().stream().allMatch(Thread.currentThread()::equals);
                    final long left = stopTimeout.toNanos() - (System.nanoTime() - began);
                    if (idle[0] || left <= 0 || lease.state(env.now()) != Lease.State.HELD) {
                        return;
                    }
                    TimeUnit.NANOSECONDS.timedWait(mutex, Math.min(left, env.step().toNanos()));
                }
            }
        });
        return idle[0];
    }

    /** Begins the session, whose opening was sent after that instant; returns false if it was lost before. */
    boolean start(final long opened) throws InterruptedException {
        synchronized (mutex) {
            lease.opened(opened);
        }
        if (!heart.start()) {
            return false;
        }
        heart.run();
        return true;
    }

    private Lock acquire(final Wanted wanted, final AcquireOptions options) throws InterruptedException {
        return acquiring(wanted, owned(options), true).run();
    }

    private AcquireOptions owned(final AcquireOptions options) {
        if (!options.owner().isEmpty() && !options.owner().equals(owner)) {
            throw new IllegalArgumentException("owner is \"" + options.owner()
                    + "\": the locks of a session have its owner, \"" + owner + "\"; leave it out");
        }
        return options.owner(owner);
    }

    /** Returns an acquire whose lock is held under the session at its end; or granted, to be attached later. */
    private Acquiring<Lock> acquiring(final Wanted wanted, final AcquireOptions options, final boolean attaches) {
        check();
        return new Acquiring<>(wanted, options, env) {
            @Override
            Lock take(final Grant granted, final long from) throws InterruptedException {
                final Lock lock = new Lock(granted, options, env, Session.this);
                lock.granted(from);
                boolean taken = false;
                try {
                    synchronized (mutex) {
                        check();
                        locks.add(granted, lock);
                    }
                    if (attaches) {
                        attach(List.of(lock));
                    }
                    taken = !attaches || ready(lock);
                } finally {
                    if (!taken) {
                        lock.giveBack();
                    }
                }
                check();
                return taken ? lock : null;
            }
        };
    }

    /**
     * Attaches granted locks to the session, by a call that is sent again until it is answered for all of them. A lock
     * is held then, unless it or the session has ended.
     */
    private void attach(final List<Lock> granted) throws InterruptedException {
        final Caller caller = env.callers().get();
        while (true) {
            final List<Lock> open = new ArrayList<>();
            final List<Heartbeat> attachments = new ArrayList<>();
            for (final Lock lock : granted) {
                lock.attachment().ifPresent(attachment -> {
                    open.add(lock);
                    attachments.add(attachment);
                });
            }
            if (open.isEmpty()) {
                return;
            }
            final List<Object> bodies = new ArrayList<>();
            for (int i = 0; i < open.size(); i++) {
                bodies.add(open.get(i).body(attachments.get(i)));
            }
            final Map<String, Object> body = Map.of("session", id(), "beat", grant.beat(), "locks", bodies);
            final List<String> names = open.stream().map(Lock::name).toList();
            final Answer answer =
                    caller.exchange("/v1/sessions/attach", body, limit, reply -> Answers.results(reply, names));
            if (answer instanceof Answer.Results results) {
                for (int i = 0; i < open.size(); i++) {
                    refuse(results.of().get(i));
                    open.get(i).attached(attachments.get(i), results.of().get(i));
                }
            } else if (answer.is("lost")) {
                synchronized (mutex) {
                    lease.lose(env.now());
                }
                tellOver();
            } else {
                refuse(answer);
            }
            if (open.stream().anyMatch(lock -> lock.attachment().isPresent())) {
                TimeUnit.NANOSECONDS.sleep(caller.backoff().toNanos());
            }
        }
    }

    /** Throws a problem that stays. */
    private static void refuse(final Answer answer) {
        if (answer instanceof Answer.Problem problem && !answer.is("lost") && !problem.mayPass()) {
            throw ProblemException.of(problem);
        }
    }

    Object mutex() {
        return mutex;
    }

    /** Returns the lease, which the mutex guards. */
    Lease lease() {
        return lease;
    }

    /** Returns what the last heartbeat was answered if that was not confirmed, else nothing. */
    String last() {
        return heart.last();
    }

    /** Says that a thread begins, or ends, to work under a lock. */
    void works(final Thread thread, final boolean begins) {
        synchronized (mutex) {
            working.merge(thread, begins ? 1 : -1, (n, more) -> n + more == 0 ? null : n + more);
            mutex.notifyAll();
        }
    }

    /** Forgets a lock that is released: a request for it is answered. */
    void forget(final Lock lock) {
        synchronized (mutex) {
            locks.remove(lock.grant(), lock);
        }
    }

    private List<Lock> all() {
        synchronized (mutex) {
            return locks.all();
        }
    }

    /** Tells each lock that has ended by itself, and all of them with the session. Returns whether that has ended. */
    private boolean tellOver() {
        final Lease.State state;
        final TenureException reason;
        synchronized (mutex) {
            state = lease.state(env.now());
            reason = error(state);
        }
        for (final Lock lock : all()) {
            lock.tellOver();
            lock.releaseOverdue();
        }
        if (state == Lease.State.HELD) {
            return false;
        }
        synchronized (mutex) {
            if (toldOver) {
                return true;
            }
            toldOver = true;
        }
        Heart.thread(() -> over.complete(reason), "end of session " + id());
        Heart.thread(() -> onStop.accept(reason), "call of session " + id());
        return true;
    }

    private String describe() {
        return "session " + id();
    }

    /** Returns why no lock may be held. */
    private TenureException error(final Lease.State state) {
        switch (state) {
            case LOST:
                return new LostException(describe() + " is lost");
            case EXPIRED:
                final String answer = last().isEmpty() ? "" : "; last answer: " + last();
                return new ExpiredException(describe() + " has expired: no heartbeat was confirmed in time" + answer);
            default:
                return new ReleasedException(describe() + " is closed");
        }
    }
}
