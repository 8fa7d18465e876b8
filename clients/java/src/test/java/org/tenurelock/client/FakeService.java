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
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;

/**
 * A small lock service in memory, with faults. Its leases end only when a test says so. The lock "n" is what a test
 * means that names none.
 */
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
    /** A lock in the store. */
    private static final class Entry {
        private long token;
        private String holder; // null if nobody
        private String beat = "";
        private String session; // null without one
        private Object data; // null: none
        private Object releasedWith;
    }

    /** A session in the store. */
    private static final class Opened {
        private String owner;
        private String beat;
        private boolean closed;
        private final List<Map<String, Object>> requests = new ArrayList<>();
    }

    /** What the gate of a lock for readers and writers is released with if nobody wrote. */
    static final String UNWRITTEN = "dW53cml0dGVu";

    private final Map<String, Entry> locks = new TreeMap<>();
    private final Map<String, Opened> sessions = new TreeMap<>();
    private Map<String, Object> lastWriter; // null: nobody has ever written
    private Object failed;
    private Map<String, Object> asked; // null: nobody

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

    private Entry lock(final Object name) {
        return locks.computeIfAbsent((String) name, n -> new Entry());
    }

    /** Gives the lock to another holder. */
    void takeAway() {
        takeAway("n");
    }

    synchronized void takeAway(final String name) {
        final Entry lock = lock(name);
        lock.token++;
        lock.holder = "another";
        lock.session = null;
        lock.beat = "ooooooooooooo-0000000000000";
    }

    void free() {
        free("n");
    }

    synchronized void free(final String name) {
        lock(name).holder = null;
    }

    synchronized void ask(final String kind) {
        asked = Map.of("kind", kind, "by", "ops", "reason", "deploy");
    }

    /** Asks the holder of a lock under a session, by a request with the id. */
    synchronized void ask(final String id, final String name, final long token) {
        sessions.values().forEach(session -> session.requests.add(Map.of(
                "id", id, "name", name, "token", token, "kind", "step-down", "by", "ops", "reason", "deploy")));
    }

    /** Ends the sessions, as if they had expired. */
    synchronized void endSessions() {
        sessions.values().forEach(session -> session.closed = true);
    }

    synchronized List<String> requests() {
        return sessions.values().stream()
                .flatMap(session -> session.requests.stream())
                .map(request -> (String) request.get("id"))
                .toList();
    }

    boolean held() {
        return held("n");
    }

    synchronized boolean held(final String name) {
        return lock(name).holder != null;
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
            case "/v1/release" -> release(body);
            case "/v1/drain" -> drain(body);
            case "/v1/sessions/open" -> open(body);
            case "/v1/sessions/heartbeat" -> renew(body);
            case "/v1/sessions/attach" -> attach(body);
            case "/v1/sessions/release" -> detach(body);
            case "/v1/sessions/close" -> close(body);
            default -> throw new AssertionError(path);
        };
    }

    private Reply heldBy(final String name) {
        final Entry lock = lock(name);
        return problem(
                "held", 409, Map.of("holder", lock.holder, "token", lock.token, "free_in_ms", 500, "reserved", false));
    }

    private List<String> readers(final String name) {
        return locks.keySet().stream().filter(one -> one.startsWith(name + ":read/") && held(one)).toList();
    }

    private Reply acquire(final Map<String, Object> body) {
        final String name = (String) body.get("name");
        final String gate = name + ":gate";
        if (body.containsKey("slots")) {
            final long slots = (Long) body.get("slots");
            for (int slot = 0; slot < slots; slot++) {
                if (!held(name + ":slot/" + slot)) {
                    return grant(name + ":slot/" + slot, body, Map.of("slot", slot, "slots", slots));
                }
            }
            return heldBy(name + ":slot/0");
        }
        final Map<String, Object> more = new HashMap<>();
        if (lastWriter != null) {
            more.put("last_writer", lastWriter);
        }
        if (body.containsKey("shared")) {
            if (held(gate)) {
                return heldBy(gate);
            }
            more.put("fence_token", lastWriter == null ? 1 : 2 * (Long) lastWriter.get("token") + 1);
            return grant(name + ":read/" + readers(name).size(), body, more);
        }
        if (body.containsKey("exclusive")) {
            final List<String> readers = readers(name);
            if (held(gate) || !readers.isEmpty() && body.get("wait_ms").equals(0L)) {
                return heldBy(held(gate) ? gate : readers.get(0));
            }
            more.put("fence_token", 2 * (lock(gate).token + 1));
            more.put("unwritten", UNWRITTEN);
            if (!readers.isEmpty()) {
                more.put("drain", true);
            }
            return grant(gate, body, more);
        }
        return held(name) ? heldBy(name) : grant(name, body, Map.of());
    }

    private Reply grant(final String name, final Map<String, Object> body, final Map<String, Object> more) {
        final Entry lock = lock(name);
        lock.token++;
        lock.holder = (String) body.get("owner");
        lock.session = null;
        lock.beat = String.format("t%012d-0000000000000", lock.token);
        lock.data = body.getOrDefault("data", lock.data);
        final Map<String, Object> grant = new LinkedHashMap<>(Map.of(
                "name", name,
                "token", lock.token,
                "beat", lock.beat,
                "lease_ms", leaseMs,
                "heartbeat_ms", heartbeatMs,
                "free_after_ms", leaseMs / 3));
        grant.putAll(more);
        if (counts) {
            grant.put("usable_ms", usableMs);
        }
        if (lock.data != null) {
            grant.put("data", lock.data);
        }
        return answer(grant);
    }

    private Reply drain(final Map<String, Object> body) {
        final String gate = (String) body.get("name");
        if (!held(gate) || !body.get("token").equals(lock(gate).token)) {
            return problem("lost", 410, Map.of());
        }
        final List<String> readers = readers(gate.substring(0, gate.indexOf(":gate")));
        return readers.isEmpty() ? answer(Map.of()) : heldBy(readers.get(0));
    }

    private Reply heartbeat(final Map<String, Object> body) {
        final Entry lock = lock(body.get("name"));
        final boolean ours = lock.beat.equals(body.get("after")) || lock.beat.equals(body.get("next"));
        if (lock.holder == null || lock.session != null || !body.get("token").equals(lock.token) || !ours) {
            return problem("lost", 410, Map.of("holder", lock.holder == null ? "" : lock.holder, "token", lock.token));
        }
        lock.beat = (String) body.get("next");
        final Map<String, Object> renewal = new LinkedHashMap<>(Map.of("usable_ms", usableMs, "heartbeat_ms", heartbeatMs));
        if (asked != null) {
            renewal.put("asked", asked);
        }
        return answer(renewal);
    }

    private Reply release(final Map<String, Object> body) {
        final Entry lock = lock(body.get("name"));
        final boolean again = lock.holder == null && body.get("after").equals(lock.releasedWith);
        final boolean held = lock.holder != null
                && lock.session == null
                && body.get("token").equals(lock.token)
                && lock.beat.equals(body.get("after"));
        if (!again && !held) {
            return problem("lost", 410, Map.of());
        }
        end(body, lock, body.get("after"));
        return answer(Map.of());
    }

    private void end(final Map<String, Object> body, final Entry lock, final Object with) {
        final boolean writer = ((String) body.get("name")).endsWith(":gate");
        if (lock.holder != null && writer && !UNWRITTEN.equals(body.get("data"))) {
            final String end = body.containsKey("failed") ? "failed" : "released";
            lastWriter = Map.of("owner", lock.holder, "token", lock.token, "end", end);
        }
        lock.holder = null;
        lock.releasedWith = with;
        lock.data = body.getOrDefault("data", lock.data);
        failed = body.get("failed");
    }

    private Reply open(final Map<String, Object> body) {
        final Opened session = new Opened();
        session.owner = (String) body.get("owner");
        session.beat = String.format("s%012d-0000000000000", sessions.size() + 1);
        sessions.put("S" + (sessions.size() + 1), session);
        return answer(Map.of(
                "session", "S" + sessions.size(),
                "beat", session.beat,
                "lease_ms", leaseMs,
                "heartbeat_ms", heartbeatMs));
    }

    private Reply renew(final Map<String, Object> body) {
        final Opened session = sessions.get(body.get("session"));
        if (session.closed || !session.beat.equals(body.get("after")) && !session.beat.equals(body.get("next"))) {
            return problem("lost", 410, Map.of());
        }
        session.beat = (String) body.get("next");
        final List<?> answered = (List<?>) body.getOrDefault("answered", List.of());
        session.requests.removeIf(request -> answered.contains(request.get("id")));
        return answer(Map.of("usable_ms", usableMs, "heartbeat_ms", heartbeatMs, "requests", session.requests));
    }

    /** Has the result for each lock of the call. */
    private static Reply each(final Map<String, Object> body, final Predicate<Map<String, Object>> carriesOut) {
        final List<Map<String, Object>> results = new ArrayList<>();
        for (final Object one : (List<?>) body.get("locks")) {
            final Map<String, Object> lock = Answers.object(Json.write(one));
            final Map<String, Object> result = new LinkedHashMap<>(Map.of("name", lock.get("name")));
            if (!carriesOut.test(lock)) {
                result.put("problem", Json.read(problem("lost", 410, Map.of()).body()));
            }
            results.add(result);
        }
        return answer(Map.of("results", results));
    }

    private Reply attach(final Map<String, Object> body) {
        final String id = (String) body.get("session");
        final Opened session = sessions.get(id);
        if (session.closed || !((String) body.get("beat")).startsWith(session.beat.substring(0, 14))) {
            return problem("lost", 410, Map.of());
        }
        return each(body, one -> {
            final Entry lock = lock(one.get("name"));
            final boolean again = id.equals(lock.session) && lock.beat.equals(one.get("next"));
            final boolean granted = lock.session == null && lock.beat.equals(one.get("after"));
            if (!session.owner.equals(lock.holder) || !one.get("token").equals(lock.token) || !again && !granted) {
                return false;
            }
            lock.session = id;
            lock.beat = (String) one.get("next");
            return true;
        });
    }

    private Reply detach(final Map<String, Object> body) {
        final Object id = body.get("session");
        return each(body, one -> {
            final Entry lock = lock(one.get("name"));
            final boolean again = lock.holder == null && one.get("next").equals(lock.releasedWith);
            final boolean attached = id.equals(lock.session) && lock.beat.equals(one.get("next"));
            final boolean granted = lock.session == null && lock.beat.equals(one.get("after"));
            if (!again && (lock.holder == null || !one.get("token").equals(lock.token) || !attached && !granted)) {
                return false;
            }
            end(one, lock, one.get("next"));
            return true;
        });
    }

    private Reply close(final Map<String, Object> body) {
        final Opened session = sessions.get(body.get("session"));
        if (!session.beat.equals(body.get("after"))) {
            return problem("lost", 410, Map.of());
        }
        session.closed = true;
        locks.values().stream()
                .filter(lock -> body.get("session").equals(lock.session))
                .forEach(lock -> lock.holder = null);
        return answer(Map.of());
    }
}
