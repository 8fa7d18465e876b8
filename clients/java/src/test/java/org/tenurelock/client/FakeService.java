// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;

/** A small lock service in memory, with faults: one lock. Its leases end only when a test says so. */
final class FakeService implements Transport {
    /** Answers one call in place of the service. */
    interface Fault {
        Reply answer(FakeService service, String path, Map<String, Object> body)
                throws IOException, InterruptedException;
    }

    /** Carries the call out, and loses the answer. */
    static final Fault LOST = (service, path, body) -> {
        service.carryOut(path, body);
        throw new IOException("the answer was lost");
    };

    /** Loses the call. */
    static final Fault DROPPED = (service, path, body) -> {
        throw new IOException("the call was lost");
    };

    /** Carries the call out; a proxy answers 502 in HTML. */
    static final Fault BAD_GATEWAY = (service, path, body) -> {
        service.carryOut(path, body);
        return new Reply(502, "text/html", "<h1>502 Bad Gateway</h1>", "");
    };

    /** Carries the call out twice, and gives the second answer. */
    static final Fault DOUBLED = (service, path, body) -> {
        service.carryOut(path, body);
        return service.carryOut(path, body);
    };

    /** No answer, until the thread is interrupted. */
    static final Fault HANG = (service, path, body) -> {
        new CountDownLatch(1).await();
        throw new AssertionError();
    };

    /** A clock that tests move, in milliseconds. */
    static final class ManualClock {
        private final AtomicLong now = new AtomicLong();

        long read() {
            return now.get() * 1_000_000;
        }

        void advance(final long ms) {
            now.addAndGet(ms);
        }
    }

    record Call(String url, String path, Map<String, Object> body) {}

    private final List<Call> calls = new ArrayList<>();
    private final Map<String, Deque<Fault>> faults = new HashMap<>();
    private final Map<String, Fault> always = new HashMap<>();
    private final Deque<Object> streams = new ArrayDeque<>();
    private final List<Object> streamed = new ArrayList<>();
    long leaseMs = 15000;
    long heartbeatMs = 3000;
    long usableMs = 12000;
    boolean counts; // its grants may be counted
    private long token;
    private String holder; // null if nobody
    private String beat = "";
    private Object data; // null: none
    private Object failed;
    private Map<String, Object> asked; // null: nobody
    private Object releasedWith;

    static Reply problem(final String kind, final int status, final Map<String, Object> more) {
        final Map<String, Object> body = new LinkedHashMap<>(more);
        body.put("type", "urn:tenure:problem:" + kind);
        body.put("title", kind);
        body.put("status", status);
        body.put("detail", kind);
        return new Reply(status, "application/problem+json", Json.write(body), "");
    }

    private static Reply answer(final Map<String, Object> body) {
        return new Reply(200, "application/json", Json.write(body), "");
    }

    /** Has the next calls of the path answered by the faults. */
    synchronized void next(final String path, final Fault... given) {
        faults.computeIfAbsent(path, p -> new ArrayDeque<>()).addAll(List.of(given));
    }

    /** Has all calls of the path answered by the fault. */
    synchronized void always(final String path, final Fault fault) {
        always.put(path, fault);
    }

    synchronized void heal() {
        faults.clear();
        always.clear();
    }

    synchronized List<Call> calls() {
        return List.copyOf(calls);
    }

    List<Map<String, Object>> bodies(final String path) {
        return calls().stream().filter(call -> call.path().equals(path)).map(Call::body).toList();
    }

    /** Gives the lock to another holder. */
    synchronized void takeAway() {
        token++;
        holder = "another";
        beat = "ooooooooooooo-0000000000000";
    }

    synchronized void free() {
        holder = null;
    }

    synchronized void ask(final String kind) {
        asked = Map.of("kind", kind, "by", "ops", "reason", "deploy");
    }

    synchronized boolean held() {
        return holder != null;
    }

    synchronized Object failed() {
        return failed;
    }

    /** Has the next streams say this before their answer: a list of holders, or an exception. */
    synchronized void stream(final Object... given) {
        streams.addAll(List.of(given));
    }

    /** Returns wait_ms of the calls for a stream. */
    synchronized List<Object> streamed() {
        return List.copyOf(streamed);
    }

    @Override
    public Reply post(
            final String url,
            final Map<String, String> headers,
            final String body,
            final Duration limit,
            final Predicate<byte[]> events)
            throws IOException, InterruptedException {
        final Object says;
        synchronized (this) {
            streamed.add(((Map<?, ?>) Json.read(body)).get("wait_ms"));
            says = streams.isEmpty() ? List.of() : streams.removeFirst();
        }
        if (says instanceof IOException error) {
            throw error;
        }
        for (final Object said : (List<?>) says) {
            events.test(("event: waiting\ndata: " + Json.write(said) + "\n\n").getBytes(StandardCharsets.UTF_8));
        }
        return post(url, headers, body, limit);
    }

    @Override
    @SuppressWarnings("unchecked") // all keys of an object are strings
    public Reply post(final String url, final Map<String, String> headers, final String body, final Duration limit)
            throws IOException, InterruptedException {
        final String path = url.substring(url.indexOf("/v1/"));
        final Map<String, Object> fields = (Map<String, Object>) Json.read(body);
        final Fault fault;
        synchronized (this) {
            calls.add(new Call(url, path, fields));
            final Deque<Fault> next = faults.get(path);
            fault = next == null || next.isEmpty() ? always.get(path) : next.removeFirst();
        }
        return fault == null ? carryOut(path, fields) : fault.answer(this, path, fields);
    }

    synchronized Reply carryOut(final String path, final Map<String, Object> body) {
        return switch (path) {
            case "/v1/acquire" -> acquire(body);
            case "/v1/heartbeat" -> heartbeat(body);
            default -> release(body);
        };
    }

    private Reply acquire(final Map<String, Object> body) {
        if (holder != null) {
            return problem("held", 409, Map.of("holder", holder, "token", token, "free_in_ms", 500, "reserved", false));
        }
        token++;
        holder = (String) body.get("owner");
        beat = String.format("t%012d-0000000000000", token);
        data = body.getOrDefault("data", data);
        final Map<String, Object> grant = new LinkedHashMap<>(Map.of(
                "name", body.get("name"),
                "token", token,
                "beat", beat,
                "lease_ms", leaseMs,
                "heartbeat_ms", heartbeatMs,
                "free_after_ms", leaseMs / 3));
        if (counts) {
            grant.put("usable_ms", usableMs);
        }
        if (data != null) {
            grant.put("data", data);
        }
        return answer(grant);
    }

    private Reply heartbeat(final Map<String, Object> body) {
        final boolean ours = beat.equals(body.get("after")) || beat.equals(body.get("next"));
        if (holder == null || !body.get("token").equals(token) || !ours) {
            return problem("lost", 410, Map.of("holder", holder == null ? "" : holder, "token", token));
        }
        beat = (String) body.get("next");
        final Map<String, Object> renewal = new LinkedHashMap<>(Map.of("usable_ms", usableMs, "heartbeat_ms", heartbeatMs));
        if (asked != null) {
            renewal.put("asked", asked);
        }
        return answer(renewal);
    }

    private Reply release(final Map<String, Object> body) {
        final boolean again = holder == null && body.get("after").equals(releasedWith);
        final boolean held = holder != null && body.get("token").equals(token) && beat.equals(body.get("after"));
        if (!again && !held) {
            return problem("lost", 410, Map.of());
        }
        holder = null;
        releasedWith = body.get("after");
        data = body.getOrDefault("data", data);
        failed = body.get("failed");
        return answer(Map.of());
    }
}
