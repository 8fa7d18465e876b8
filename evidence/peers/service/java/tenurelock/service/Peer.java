// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.service;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.tenurelock.client.HeldException;
import org.tenurelock.client.Lines;
import org.tenurelock.client.Lock;
import org.tenurelock.client.LostException;
import org.tenurelock.client.TenureClient;

/**
 * The Java client of the lock service as a peer: one JSON request a line on standard input, answers on
 * standard output. The language is that of the Go package peers/wire.
 */
public final class Peer {
    /** Work that is to be stopped by a signal asks without a pause, for so long at most. */
    private static final long HURRY_BOUND = 500_000_000;

    /** And for so long when it goes on: a check is the first thing that it does then. */
    private static final long HURRY_AFTER = 20_000_000;

    private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);
    private final Map<String, Lock> locks = new ConcurrentHashMap<>();
    private final Set<Thread> waiting = ConcurrentHashMap.newKeySet();
    private volatile TenureClient client;
    private volatile String owner;
    private volatile boolean notice;
    private volatile long drain = -1;
    private volatile long hurry;

    private Peer() {}

    public static void main(final String[] args) throws IOException {
        new Peer().serve();
    }

    private void serve() throws IOException {
        final Map<String, Object> ready = new HashMap<>();
        ready.put("event", "ready");
        ready.put("ok", true);
        ready.put("peer", "tenure-client (Java)");
        ready.put("version", "this checkout");
        ready.put("runtime", "Java " + System.getProperty("java.version"));
        ready.put("pid", ProcessHandle.current().pid());
        say(ready, System.nanoTime());
        // A thread for each request: one that waits for a lock must not hold up the others.
        final ExecutorService threads = Executors.newCachedThreadPool();
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final Request request = new Request(Lines.read(line));
            threads.execute(() -> answer(request));
        }
        Runtime.getRuntime().halt(0); // as in a crash
    }

    private void answer(final Request request) {
        final Map<String, Object> answer = new HashMap<>();
        final long sent = System.nanoTime();
        try {
            answer.putAll(run(request));
            answer.put("ok", true);
        } catch (final Throwable thrown) {
            // Throwable: an error of the virtual machine is an answer too.
            final boolean refused = thrown instanceof Refusal;
            answer.put("ok", false);
            answer.put("kind", refused ? ((Refusal) thrown).kind() : "other");
            answer.put("class", refused ? ((Refusal) thrown).type() : thrown.getClass().getName());
            answer.put("message", String.valueOf(thrown.getMessage()));
        }
        answer.put("id", request.fields().get("id"));
        say(answer, sent);
    }

    private void say(final Map<String, Object> line, final long sent) {
        final long got = System.nanoTime();
        line.put("sentNs", sent);
        line.put("gotNs", got);
        line.put("elapsedMs", (got - sent) / 1_000_000);
        final byte[] bytes = (Lines.write(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (out) {
            try {
                out.write(bytes);
            } catch (final IOException e) {
                Runtime.getRuntime().halt(1);
            }
        }
    }

    private Map<String, Object> run(final Request request) throws Exception {
        final String command = request.text("cmd");
        switch (command) {
            case "open":
                open(request);
                return Map.of();
            case "ping":
                return Map.of();
            case "hurry":
                hurry = System.nanoTime() + HURRY_BOUND;
                return Map.of();
            default:
        }
        final TenureClient open = client;
        if (open == null) {
            throw new Refusal("other", "not open");
        }
        switch (command) {
            case "acquire":
                return acquire(open, request);
            case "release":
                release(lock(request));
                return Map.of();
            case "holds":
                return Map.of("holds", Work.holds(lock(request)));
            case "work":
                return Map.of("counts", new Work(this, open, owner, request, notice).run());
            case "close":
                // The acquires that wait end. There is nothing else to close: a lock is its own.
                client = null;
                waiting.forEach(Thread::interrupt);
                return Map.of();
            case "end":
                drain = request.nanos("drainMs");
                return Map.of();
            default:
                throw new Refusal("unsupported", "no command " + command);
        }
    }

    private void open(final Request request) throws Refusal {
        if (client != null) {
            throw new Refusal("other", "already open");
        }
        final String given = request.text("owner");
        owner = given.isEmpty() ? Long.toString(ProcessHandle.current().pid()) : given;
        notice = request.flag("notice");
        client = TenureClient.of(request.text("endpoint").split(",")).token(request.text("secret")).build();
    }

    private Map<String, Object> acquire(final TenureClient open, final Request request) throws Exception {
        waiting.add(Thread.currentThread());
        try {
            final Lock lock = open.acquire(request.text("name"), request.acquire(owner));
            locks.put(lock.name(), lock);
            return Map.of("name", lock.name(), "owner", owner, "token", lock.token());
        } catch (final HeldException e) {
            throw new Refusal(request.flag("tryOnly") ? "held" : "timeout", e);
        } finally {
            waiting.remove(Thread.currentThread());
        }
    }

    private Lock lock(final Request request) throws Refusal {
        final Lock lock = locks.get(request.text("name"));
        if (lock == null) {
            throw new Refusal("other", "no handle of " + request.text("name"));
        }
        return lock;
    }

    private static void release(final Lock lock) throws Refusal {
        try {
            lock.release();
        } catch (final LostException e) {
            throw new Refusal("lost", e);
        }
    }

    // What work asks of its peer.

    boolean hurries(final long now) {
        return now < hurry;
    }

    /**
     * Says whether work that stood from one instant to another was to hurry, and has it hurry for a
     * moment more.
     */
    boolean hurried(final long last, final long now) {
        if (hurry == 0 || now - last <= HURRY_BOUND) {
            return false;
        }
        hurry = now + HURRY_AFTER;
        return true;
    }

    /** For how long work goes on after it was told to end, in nanoseconds; empty: it was not. */
    OptionalLong ending() {
        return drain < 0 ? OptionalLong.empty() : OptionalLong.of(drain);
    }
}
