// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Sends the heartbeats of one lease, of a lock or of a session, and sees its deadline: each in a thread. */
abstract class Heart {
    private static final long SHORTEST_LIMIT = TimeUnit.MILLISECONDS.toNanos(250);

    private final String what;
    private final Lease lease;
    private final Object mutex; // guards the lease
    private final Env env;
    private final Caller caller;
    private final Duration limit;
    private final CountDownLatch ending = new CountDownLatch(1); // open once no more heartbeat is sent
    private volatile String last = ""; // what the last heartbeat that was not confirmed was answered
    private volatile Thread thread; // null before it runs

    /** What names the lease in those of the threads. */
    Heart(final String what, final Lease lease, final Object mutex, final Env env, final long length) {
        this.what = what;
        this.lease = lease;
        this.mutex = mutex;
        this.env = env;
        caller = env.callers().get();
        limit = limit(length);
    }

    /** Returns for how long a call about a lease of the length waits for its answer. */
    static Duration limit(final long length) {
        return Duration.ofNanos(Math.max(length / 10, SHORTEST_LIMIT));
    }

    /** Sends a heartbeat once. */
    abstract Answer send(Heartbeat heartbeat, Caller by, Duration within) throws InterruptedException;

    /** Is called after each answer while it runs. */
    abstract void answered(Answer answer);

    /** Tells that the lease has ended by itself, if it has. Returns whether it has ended. */
    abstract boolean tellOver();

    /** Returns what the last heartbeat was answered if that was not confirmed, else nothing. */
    String last() {
        return last;
    }

    /** Sends the first heartbeat, unless the lease counts without one. Returns whether it is held then. */
    boolean start() throws InterruptedException {
        while (state() == Lease.State.UNCONFIRMED) {
            final Optional<Heartbeat> heartbeat = next();
            if (heartbeat.isEmpty() || exchange(heartbeat.get()).isPresent()) {
                break;
            }
            rest(caller.backoff());
        }
        caller.hurry();
        return state() == Lease.State.HELD;
    }

    /** Goes on in the background, until the lease ends. */
    void run() {
        thread = thread(this::keep, "heartbeats of " + what);
        thread(this::watch, "deadline of " + what);
    }

    /** Ends the heartbeats, and waits for the one under way, for as long as a call may take. */
    void end() {
        ending.countDown();
        final Thread kept = thread;
        if (kept != null) {
            kept.interrupt();
            Patience.uninterrupted(() -> kept.join(limit.toMillis()));
        }
    }

    static Thread thread(final Patience.Task task, final String name) {
        final Thread thread = new Thread(
                () -> {
                    try {
                        task.run();
                    } catch (final InterruptedException end) {
                        // The release has begun.
                    }
                },
                "tenure " + name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private Lease.State state() {
        synchronized (mutex) {
            return lease.state(env.now());
        }
    }

    private Optional<Heartbeat> next() {
        synchronized (mutex) {
            return lease.send(env.now());
        }
    }

    /** Sends a heartbeat once, and returns the answer if there is one that decides. */
    private Optional<Answer> exchange(final Heartbeat heartbeat) throws InterruptedException {
        final Answer answer = send(heartbeat, caller, limit);
        synchronized (mutex) {
            final long now = env.now();
            if (answer instanceof Answer.Confirmed confirmed) {
                last = "";
                lease.confirm(heartbeat, confirmed, now);
            } else if (answer.is("lost")) {
                lease.refuse(heartbeat, Answers.text(((Answer.Problem) answer).more(), "holder"), now);
            } else {
                last = answer.describe();
                return Optional.empty();
            }
        }
        return Optional.of(answer);
    }

    /** Sends heartbeats as they are due, until the last one. */
    private void keep() throws InterruptedException {
        while (ending.getCount() > 0) {
            final OptionalLong due;
            synchronized (mutex) {
                due = lease.due(env.now());
            }
            if (due.isEmpty()) {
                return;
            }
            if (due.getAsLong() > 0) {
                rest(Duration.ofNanos(Math.min(due.getAsLong(), env.step().toNanos())));
                continue;
            }
            final Optional<Heartbeat> heartbeat = next();
            if (heartbeat.isEmpty()) {
                return;
            }
            final Optional<Answer> answer = exchange(heartbeat.get());
            if (answer.isPresent()) {
                caller.hurry();
                answered(answer.get());
                tellOver();
            } else {
                rest(caller.backoff());
            }
        }
    }

    /** Ends the work at the deadline. It needs no network. */
    private void watch() throws InterruptedException {
        while (!tellOver() && ending.getCount() > 0) {
            final long left;
            synchronized (mutex) {
                left = lease.remaining(env.now());
            }
            final long wait = Math.max(left, TimeUnit.MILLISECONDS.toNanos(1));
            rest(Duration.ofNanos(Math.min(wait, env.step().toNanos())));
        }
    }

    private void rest(final Duration pause) throws InterruptedException {
        ending.await(pause.toNanos(), TimeUnit.NANOSECONDS);
    }
}
