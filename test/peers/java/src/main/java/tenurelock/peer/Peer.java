// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A lock client as a peer: one JSON request a line on standard input, answers on standard output. The
 * language is that of the Go package peers/wire.
 */
final class Peer {
    /** Work that is to be stopped by a signal asks without a pause, for so long at most. */
    private static final long HURRY_BOUND = 500_000_000;

    /** And for so long when it goes on: a check is the first thing that it does then. */
    private static final long HURRY_AFTER = 20_000_000;

    private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);
    private final Map<String, Library.Held> locks = new ConcurrentHashMap<>();
    private final Library library;
    private volatile boolean notice;
    private volatile long drain = -1;
    private volatile long hurry;

    Peer(final Library library) {
        this.library = library;
    }

    /** Answers until the input ends, and leaves as in a crash then: a client may release in an orderly exit. */
    void serve() throws IOException {
        final Map<String, Object> ready = new HashMap<>(library.about());
        ready.put("ok", true);
        say(ready, System.nanoTime());
        // A thread for each request: one that waits for a lock must not hold up the others.
        final ExecutorService threads = Executors.newCachedThreadPool();
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final Library.Request request = new Library.Request(library.read(line));
            threads.execute(() -> answer(request));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(final Library.Request request) {
        final Map<String, Object> answer = new HashMap<>();
        final long sent = System.nanoTime();
        try {
            answer.putAll(run(request));
            answer.put("ok", true);
        } catch (final Throwable thrown) {
            // Throwable: an error of the virtual machine is an answer too.
            final boolean unsupported = thrown instanceof UnsupportedOperationException;
            answer.put("ok", false);
            answer.put("kind", unsupported ? "unsupported" : library.kind(thrown, request));
            answer.put("class", thrown.getClass().getName());
            answer.put("message", String.valueOf(thrown.getMessage()));
        }
        answer.put("id", request.fields().get("id"));
        say(answer, sent);
    }

    private void say(final Map<String, Object> line, final long sent) {
        line.put("sentNs", sent);
        line.put("gotNs", System.nanoTime());
        final byte[] bytes = (library.write(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (out) {
            try {
                out.write(bytes);
            } catch (final IOException e) {
                Runtime.getRuntime().halt(1);
            }
        }
    }

    private Map<String, Object> run(final Library.Request request) throws Exception {
        final String name = request.text("name");
        switch (request.text("cmd")) {
            case "ping":
                return Map.of();
            case "hurry":
                hurry = System.nanoTime() + HURRY_BOUND;
                return Map.of();
            case "open":
                library.open(request);
                notice = request.flag("notice");
                return Map.of();
            case "acquire":
                final Library.Held granted = library.acquire(request);
                locks.put(name, granted);
                return granted.describe();
            case "release":
                locks.get(name).release(request);
                return Map.of();
            case "holds":
                return Map.of("holds", locks.get(name).check());
            case "work":
                return Map.of("counts", new Work(this, library, request, notice).run());
            case "end":
                drain = request.nanos("drainMs");
                library.end();
                return Map.of();
            case "close":
                library.close();
                return Map.of();
            default:
                return library.other(request, locks.get(name));
        }
    }

    // What work asks of its peer.

    /** Whether work that checked at two instants, one after the other, goes on without a pause. */
    boolean hurries(final long last, final long now) {
        if (hurry != 0 && now - last > HURRY_BOUND) {
            hurry = now + HURRY_AFTER; // it was stopped meanwhile
        }
        return now < hurry;
    }

    /** For how long work goes on after it was told to end, in nanoseconds; empty: it was not. */
    OptionalLong ending() {
        return drain < 0 ? OptionalLong.empty() : OptionalLong.of(drain);
    }
}
