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

/**
 * An acquire under way, or the opening of a session. For one use, by one thread.
 *
 * @param <T> what comes of a grant
 */
abstract class Acquiring<T> {
    private static final Duration LONGEST_WAIT = Duration.ofSeconds(20); // of one call: the server's limit
    private static final Duration LONGEST_DRAIN = Duration.ofSeconds(5); // then the gate is looked after
    private static final Duration MARGIN = Duration.ofSeconds(10); // how long an answer may take beyond it

    private static final Duration SILENCE = Duration.ofSeconds(15); // without an answer, before the log says so
    private static final System.Logger LOG = System.getLogger("org.tenurelock.client");
    private static final int STREAMS = 2; // that may fail in a row, before it asks for none any more

    /** The service has not done what was asked, but a retry may succeed. */
    private static final Set<String> AGAIN = Set.of("unknown", "unavailable", "limited", "unanswered", "lost");

    private final Wanted wanted; // null for a session
    private final AcquireOptions options;
    private final Env env;
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

    /** What is wanted may be null: then a session is opened. */
    Acquiring(final Wanted wanted, final AcquireOptions options, final Env env) {
        this.wanted = wanted;
        this.options = options;
        this.env = env;
        caller = env.callers().get();
        tries = caller.servers();
    }

    /**
     * Returns what comes of a grant that answered the call which was sent after that instant, once it is held; null
     * if it was lost before.
     */
    abstract T take(Grant grant, long sent) throws InterruptedException;

    T run() throws InterruptedException {
        final Map<String, Object> body = body();
        // Without a first try the waiting call would report only the next holder. An opening does not wait.
        Duration wait = wanted == null || options.waiting().isPresent() ? Duration.ZERO : left();
        while (true) {
            final long called = System.nanoTime();
            if (wanted != null) {
                body.put("wait_ms", wait.toMillis());
            }
            final long sent = env.now();
            final Answer answer = ask(body, wait);
            if (answer instanceof Answer.Granted granted) {
                final T taken = take(granted.grant(), sent);
                if (taken != null) {
                    return taken;
                }
                pause(Duration.ZERO, new UnavailableException("the grant was lost before a heartbeat"));
            } else {
                refused(answer, called, wait);
            }
            wait = wanted == null ? Duration.ZERO : left();
        }
    }

    /** Takes any other answer to a call that began then and could wait: throws, or returns when the next one is due. */
    private void refused(final Answer answer, final long called, final Duration wait) throws InterruptedException {
        if (answer.is("held")) {
            failures = 0;
            wrong = 0;
            waitFor(Answers.heldBy(name(), ((Answer.Problem) answer).more()));
            if (System.nanoTime() - called < wait.toNanos() / 2) {
                pause(Duration.ZERO, held); // it had no patience; we have not to hurry
            } else {
                caller.hurry();
            }
        } else if (answer instanceof Answer.Problem problem && !AGAIN.contains(problem.kind())) {
            throw ProblemException.of(problem);
        } else {
            again(answer);
        }
    }

    /** Returns when the same call is due after an answer that decides nothing; throws if there is no time for it. */
    private void again(final Answer answer) throws InterruptedException {
        final Duration least = answer instanceof Answer.Problem problem ? problem.retryAfter() : Duration.ZERO;
        final UnavailableException error = new UnavailableException("no answer: " + answer.describe());
        fails(answer, error);
        pause(least, error);
    }

    /**
     * Waits until the readers are gone that were there when the lock was granted. Returns whether it is held then,
     * and its holder was not asked to give it up meanwhile.
     */
    private boolean drains(final Lock lock) throws InterruptedException {
        final Map<String, Object> body = new HashMap<>(Map.of("name", lock.name(), "token", lock.token()));
        while (lock.holds() && lock.asked().isEmpty()) {
            final Duration left = left();
            final Duration wait = left.compareTo(LONGEST_DRAIN) < 0 ? left : LONGEST_DRAIN;
            body.put("wait_ms", wait.toMillis());
            final long called = System.nanoTime();
            final Answer answer = caller.exchange("/v1/drain", body, wait.plus(MARGIN), Answers::done);
            answered = !(answer instanceof Answer.Unknown);
            hear(answer, called);
            if (answer instanceof Answer.Done) {
                return true;
            }
            if (answer.is("lost")) {
                return false;
            }
            if (answer instanceof Answer.Problem problem && problem.mayPass()) {
                again(answer); // also without a right: who holds the gate keeps it
            } else {
                refused(answer, called, wait);
            }
        }
        return false;
    }

    /** Waits, with a lock that is kept alive, until it may be used. Returns whether it is held then. */
    final boolean ready(final Lock lock) throws InterruptedException {
        return (!lock.grant().part().drains() || drains(lock)) && lock.hand();
    }

    /**
     * Makes one call. It is a stream if the caller wants to know the holders; the call after an unanswered
     * one is not, and after several failed streams no call is.
     */
    private Answer ask(final Map<String, Object> body, final Duration wait) throws InterruptedException {
        final boolean streams = options.waiting().isPresent() && !wait.isZero() && answered && failedStreams < STREAMS;
        final String path = wanted == null ? "/v1/sessions/open" : "/v1/acquire";
        final Duration limit = wait.plus(MARGIN);
        final long began = System.nanoTime();
        final Answer answer = streams
                ? caller.exchange(path, body, limit, this::read, new Events(said -> met(Answers.heldBy(name(), said))))
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
                LOG.log(System.Logger.Level.WARNING, "acquire \"{0}\": the service answers again", name());
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
                    name(),
                    silence.toSeconds(),
                    unknown.why());
        }
    }

    private Answer read(final Reply reply) {
        return wanted == null ? Answers.opening(reply) : Answers.acquire(reply, wanted);
    }

    private String name() {
        return wanted == null ? "a session" : wanted.name();
    }

    /** Returns for how long the next call may wait. */
    final Duration left() {
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

    private Map<String, Object> body() {
        final Map<String, Object> body = new HashMap<>();
        if (wanted != null) {
            body.putAll(wanted.fields());
            body.put("name", wanted.name());
            if (options.keepsHistory()) {
                body.put("history", true);
            }
        }
        body.put("owner", options.owner().isEmpty() ? madeOwner() : options.owner());
        body.put("host", host());
        if (!options.label().isEmpty()) {
            body.put("label", options.label());
        }
        options.data().ifPresent(data ->
                body.put("data", new String(Base64.getEncoder().encode(data), StandardCharsets.US_ASCII)));
        return body;
    }

    /** Makes the name of a holder that gave none. */
    static String madeOwner() {
        return host() + "-" + ProcessHandle.current().pid() + "-"
                + Beats.randomPart().substring(0, 6).toLowerCase(Locale.ROOT);
    }

    private static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (final UnknownHostException error) {
            return "localhost";
        }
    }
}
