// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** An acquire under way. For one use, by one thread. */
final class Acquiring {
    private static final Duration LONGEST_WAIT = Duration.ofSeconds(20); // of one call: the server's limit
    private static final Duration MARGIN = Duration.ofSeconds(10); // how long an answer may take beyond it

    private static final Duration SILENCE = Duration.ofSeconds(15); // without an answer, before the log says so
    private static final System.Logger LOG = System.getLogger("org.tenurelock.client");
    private static final int STREAMS = 2; // that may fail in a row, before it asks for none any more

    /** The service has not done what was asked, but a retry may succeed. */
    private static final Set<String> AGAIN = Set.of("unknown", "unavailable", "limited", "unanswered", "lost");

    private final String name;
    private final AcquireOptions options;
    private final Supplier<Caller> callers;
    private final LongSupplier clock;
    private final Duration step;
    private final Caller caller;
    private final long began = System.nanoTime();
    private int tries; // calls that may fail before a try without a wait gives up
    private HeldException held; // null until a holder is met
    private int failures; // in a row: calls without an answer, or without the store's
    private int wrong; // of them at last, by a fault that stays
    private Long silent; // since when, of System.nanoTime; null while the servers answer
    private boolean warned;
    private int failedStreams; // in a row
    private boolean answered = true; // the last call

    Acquiring(
            final String name,
            final AcquireOptions options,
            final Supplier<Caller> callers,
            final LongSupplier clock,
            final Duration step) {
        this.name = name;
        this.options = options;
        this.callers = callers;
        this.clock = clock;
        this.step = step;
        caller = callers.get();
        tries = caller.servers();
    }

    Lock run() throws InterruptedException {
        final Map<String, Object> body = body();
        // Without a first try the waiting call would report only the next holder.
        Duration wait = options.waiting().isPresent() ? Duration.ZERO : left();
        while (true) {
            final long called = System.nanoTime();
            body.put("wait_ms", wait.toMillis());
            final long sent = clock.getAsLong();
            final Answer answer = ask(body, wait);
            if (answer instanceof Answer.Granted granted) {
                final Lock lock = hold(granted.grant(), sent);
                if (lock != null) {
                    return lock;
                }
                pause(Duration.ZERO, new UnavailableException("the grant was lost before a heartbeat"));
            } else if (answer.is("held")) {
                failures = 0;
                wrong = 0;
                waitFor(Answers.heldBy(name, ((Answer.Problem) answer).more()));
                if (System.nanoTime() - called < wait.toNanos() / 2) {
                    pause(Duration.ZERO, held); // it had no patience; we have not to hurry
                } else {
                    caller.hurry();
                }
            } else if (answer instanceof Answer.Problem problem && !AGAIN.contains(problem.kind())) {
                throw new ProblemException(problem.kind(), problem.status(), problem.detail());
            } else {
                final Duration least = answer instanceof Answer.Problem problem ? problem.retryAfter() : Duration.ZERO;
                final UnavailableException error = new UnavailableException("no answer: " + answer.describe());
                fails(answer, error);
                pause(least, error);
            }
            wait = left();
        }
    }

    /**
     * Makes one call. It is a stream if the caller wants to know the holders; the call after an unanswered
     * one is not, and after several failed streams no call is.
     */
    private Answer ask(final Map<String, Object> body, final Duration wait) throws InterruptedException {
        final boolean wanted = options.waiting().isPresent() && !wait.isZero();
        final boolean streams = wanted && answered && failedStreams < STREAMS;
        final String path = "/v1/acquire";
        final Duration limit = wait.plus(MARGIN);
        final long began = System.nanoTime();
        final Answer answer = streams
                ? caller.exchange(path, body, limit, this::read, new Events(said -> met(Answers.heldBy(name, said))))
                : caller.exchange(path, body, limit, this::read);
        answered = !(answer instanceof Answer.Unknown);
        hear(answer, began);
        if (streams) {
            failedStreams = answered ? 0 : failedStreams + 1;
        }
        return answer;
    }

    /** Counts an unanswered call; throws the error if no call will be answered. */
    private void fails(final Answer answer, final UnavailableException error) {
        failures++;
        wrong = answer instanceof Answer.Unknown unknown && unknown.permanent() ? wrong + 1 : 0;
        if (wrong >= caller.servers()) {
            throw error;
        }
    }

    /** Warns once if no server answers for some time. */
    private void hear(final Answer answer, final long began) {
        if (!(answer instanceof Answer.Unknown unknown)) {
            if (warned) {
                LOG.log(System.Logger.Level.WARNING, "acquire \"{0}\": the service answers again", name);
            }
            silent = null;
            warned = false;
            return;
        }
        if (silent == null) {
            silent = began;
        }
        final Duration silence = Duration.ofNanos(System.nanoTime() - silent);
        if (!warned && silence.compareTo(SILENCE) >= 0) {
            warned = true;
            LOG.log(
                    System.Logger.Level.WARNING,
                    "acquire \"{0}\": no answer for {1} s: {2}; trying again",
                    name,
                    silence.toSeconds(),
                    unknown.why());
        }
    }

    private Answer read(final Reply reply) {
        return Answers.acquire(reply, name);
    }

    /** Returns for how long the next call may wait. */
    private Duration left() {
        if (options.waitAtMost().isEmpty()) {
            return LONGEST_WAIT;
        }
        final Duration left = options.waitAtMost().get().minusNanos(System.nanoTime() - began);
        return left.isNegative() ? Duration.ZERO : left.compareTo(LONGEST_WAIT) < 0 ? left : LONGEST_WAIT;
    }

    private void waitFor(final HeldException by) {
        if (left().isZero()) {
            throw by;
        }
        met(by);
    }

    /** Reports a holder, once. */
    private void met(final HeldException by) {
        final boolean fresh = held == null || !held.holder().equals(by.holder()) || held.token() != by.token();
        held = by;
        if (fresh) {
            options.waiting().ifPresent(waiting -> waiting.accept(by));
        }
    }

    /** Waits before the next call; throws the error if there is no time for one. */
    private void pause(final Duration least, final TenureException error) throws InterruptedException {
        tries--;
        final long left = left().toNanos();
        if (left == 0) {
            if (tries > 0) {
                return; // another server may know better
            }
            if (failures >= caller.servers()) {
                throw error; // the present holder is not known
            }
            throw held != null ? held : error;
        }
        final long asked = (long) (Math.min(least.toNanos(), LONGEST_WAIT.toNanos())
                * ThreadLocalRandom.current().nextDouble(1, 1.2));
        TimeUnit.NANOSECONDS.sleep(Math.min(Math.max(caller.backoff().toNanos(), asked), left));
    }

    /** Returns the lock of a grant once it is held; null if it was lost before. */
    private Lock hold(final Grant grant, final long sent) throws InterruptedException {
        final Lock lock = new Lock(grant, options, clock, step, callers.get(), callers.get());
        boolean held = false;
        try {
            held = lock.start(sent);
        } finally {
            if (!held) {
                giveBack(lock);
            }
        }
        return held ? lock : null;
    }

    /** Releases a lock that no caller waits for any more. */
    private static void giveBack(final Lock lock) {
        try {
            lock.release();
        } catch (final TenureException error) {
            // It is freed, or expires.
        }
    }

    private Map<String, Object> body() {
        final String host = host();
        final String made = host + "-" + ProcessHandle.current().pid() + "-"
                + Beats.randomPart().substring(0, 6).toLowerCase(Locale.ROOT);
        final Map<String, Object> body = new HashMap<>();
        body.put("name", name);
        body.put("owner", options.owner().isEmpty() ? made : options.owner());
        body.put("host", host);
        if (!options.label().isEmpty()) {
            body.put("label", options.label());
        }
        options.data().ifPresent(data ->
                body.put("data", new String(Base64.getEncoder().encode(data), StandardCharsets.US_ASCII)));
        return body;
    }

    private static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (final UnknownHostException error) {
            return "localhost";
        }
    }
}
