// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.service;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.Future;
import org.tenurelock.client.HeldException;
import org.tenurelock.client.Lock;
import org.tenurelock.client.LostException;
import org.tenurelock.client.TenureClient;
import org.tenurelock.client.TenureException;

/** The work command: acquire, hold and release until the time is up, with a log of the holds. */
final class Work {
    private static final long CHECK_MS = 1;
    private static final long ERROR_PAUSE_MS = 50;

    private final Peer peer;
    private final TenureClient client;
    private final String owner;
    private final Request request;
    private final boolean notice;
    private final FileChannel log;
    private final Optional<Resource> resource;
    private long acquired;
    private long refused;
    private long expired;
    private long released;
    private long errors;
    private String lastError = "";

    Work(
            final Peer peer,
            final TenureClient client,
            final String owner,
            final Request request,
            final boolean notice)
            throws IOException {
        this.peer = peer;
        this.client = client;
        this.owner = owner;
        this.request = request;
        this.notice = notice;
        log = FileChannel.open(
                Path.of(request.text("log")),
                StandardOpenOption.CREATE,
                StandardOpenOption.WRITE,
                StandardOpenOption.APPEND);
        final String url = request.text("resource");
        resource = url.isEmpty() ? Optional.empty() : Optional.of(new Resource(url, owner));
    }

    static boolean holds(final Lock lock) {
        try {
            lock.check();
            return true;
        } catch (final TenureException e) {
            return false;
        }
    }

    Map<String, Object> run() throws IOException, InterruptedException {
        final long deadline = System.nanoTime() + request.nanos("durationMs");
        try (log) {
            while (System.nanoTime() - deadline < 0 && peer.ending().isEmpty()) {
                try {
                    round();
                } catch (final HeldException e) {
                    refused++;
                } catch (final TenureException e) {
                    errors++;
                    lastError = e.toString();
                    Thread.sleep(ERROR_PAUSE_MS);
                }
                Thread.sleep(request.number("pauseMs").orElse(0L));
            }
        }
        final Map<String, Object> counts = new HashMap<>();
        counts.put("acquired", acquired);
        counts.put("refused", refused);
        counts.put("expired", expired);
        counts.put("released", released);
        counts.put("errors", errors);
        counts.put("lastError", lastError);
        return counts;
    }

    private void round() throws InterruptedException {
        final Lock lock = client.acquire(request.text("name"), request.acquire(owner));
        acquired++;
        final long begin = System.nanoTime();
        if (!holds(lock)) {
            expired++; // it came too late to be claimed for a single instant
            return;
        }
        write("begin", begin, " " + lock.token());
        if (notice) {
            lock.over().thenAccept(reason -> {
                if (reason instanceof LostException) {
                    write("notice", System.nanoTime(), "");
                }
            });
        }
        final OptionalLong drain = hold(lock, begin);
        if (drain.isPresent()) {
            Thread.sleep(drain.getAsLong() / 1_000_000);
            write("end", System.nanoTime(), "");
        }
        try {
            lock.release();
            released++;
        } catch (final LostException e) {
            expired++;
        }
    }

    /** Works under the lock. Returns how long the work goes on if it was told to end. */
    private OptionalLong hold(final Lock lock, final long begin) throws InterruptedException {
        final long until = begin + request.nanos("holdMs");
        final long every = request.nanos("effectMs");
        long last = begin;
        long effect = begin;
        long no = 0;
        OptionalLong drain = OptionalLong.empty();
        final Future<?> stopping = lock.stopping(); // each call makes another one
        while (last - until < 0 && !stopping.isDone() && drain.isEmpty()) {
            // The instant first, then the check: what is logged was not expired.
            final long now = System.nanoTime();
            if (!holds(lock)) {
                no = System.nanoTime();
                break;
            }
            final long before = last;
            last = now;
            if (resource.isPresent() && now - effect >= 0) {
                Thread.sleep(request.number("hesitateMs").orElse(0L));
                resource.get().effect(lock, now);
                effect = now + every;
            }
            if (peer.hurries(now) || peer.hurried(before, now)) {
                continue;
            }
            drain = peer.ending();
            Thread.sleep(CHECK_MS);
        }
        if (no == 0 && !holds(lock)) {
            no = System.nanoTime();
        }
        if (notice && no > 0) {
            write("no", no, "");
        }
        if (drain.isEmpty()) {
            write("end", last, "");
        }
        return drain;
    }

    private void write(final String what, final long ns, final String token) {
        final String line = what + " " + owner + " " + ns + token + "\n";
        try {
            log.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
