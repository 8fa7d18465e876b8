// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Map;

/** The work command: acquire, hold and release until the time is up, with a log of the holds. */
final class Work {
    private static final long CHECK_MS = 1;
    private static final long ERROR_PAUSE_MS = 50;

    private final Peer peer;
    private final Library library;
    private final Library.Request request;
    private final boolean notice;
    private final FileChannel log;
    private final HttpClient http = HttpClient.newHttpClient();
    private long released;
    private long errors;
    private String lastError = "";

    Work(final Peer peer, final Library library, final Library.Request request, final boolean notice)
            throws IOException {
        this.peer = peer;
        this.library = library;
        this.request = request;
        this.notice = notice;
        log = FileChannel.open(
                Path.of(request.text("log")),
                StandardOpenOption.CREATE,
                StandardOpenOption.WRITE,
                StandardOpenOption.APPEND);
    }

    Map<String, Object> run() throws IOException, InterruptedException {
        final long deadline = System.nanoTime() + request.nanos("durationMs");
        try (log) {
            while (System.nanoTime() - deadline < 0 && peer.ending().isEmpty()) {
                try {
                    round();
                } catch (final InterruptedException e) {
                    throw e;
                } catch (final Exception e) {
                    if (library.kind(e, request).equals("other")) { // else somebody has it still, or again
                        errors++;
                        lastError = e.toString();
                        Thread.sleep(ERROR_PAUSE_MS);
                    }
                }
                Thread.sleep(request.number("pauseMs").orElse(0L));
            }
        }
        return Map.of("released", released, "errors", errors, "lastError", lastError);
    }

    private void round() throws Exception {
        final Library.Held lock = library.acquire(request);
        final long begin = System.nanoTime();
        if (!lock.check()) {
            return; // it came too late to be claimed for a single instant
        }
        write(lock, "begin", begin, lock.token().isEmpty() ? "" : lock.token() + " " + lock.name(request));
        if (notice) {
            lock.whenLost(() -> write(lock, "notice", System.nanoTime(), ""));
        }
        hold(lock, begin);
        if (peer.ending().isPresent()) { // by which the check may have failed
            Thread.sleep(peer.ending().getAsLong() / 1_000_000);
            write(lock, "end", System.nanoTime(), "");
        }
        lock.release(new Library.Request(Map.of()));
        released++;
    }

    /** Works under the lock, until a check fails, the time is up, or the work is told to stop. */
    private void hold(final Library.Held lock, final long begin) throws InterruptedException {
        final long until = begin + request.nanos("holdMs");
        long last = begin;
        long effect = begin;
        long no = 0;
        while (last - until < 0 && !lock.stopping() && peer.ending().isEmpty()) {
            // The instant first, then the check: what is logged was not expired.
            final long now = System.nanoTime();
            if (!lock.check()) {
                no = System.nanoTime();
                break;
            }
            final long before = last;
            last = now;
            if (request.has("resource") && now - effect >= 0) {
                Thread.sleep(request.number("hesitateMs").orElse(0L));
                effect(lock, now);
                effect = now + request.nanos("effectMs");
            }
            if (!peer.hurries(before, now)) {
                Thread.sleep(CHECK_MS);
            }
        }
        if (peer.ending().isPresent()) {
            return;
        }
        if (no == 0 && !lock.check()) {
            no = System.nanoTime();
        }
        if (no > 0 && notice) {
            write(lock, "no", no, "");
        }
        write(lock, "end", last, "");
    }

    /** Has the holder write to the resource, which notes it with the instant before the check that allowed it. */
    private void effect(final Library.Held lock, final long checked) throws InterruptedException {
        final HttpRequest effect = HttpRequest.newBuilder(URI.create(request.text("resource") + "/effect"))
                .version(HttpClient.Version.HTTP_1_1)
                .timeout(Duration.ofSeconds(2))
                .header("Tenure-Lock", lock.name(request))
                .header("Tenure-Token", lock.token())
                .header("Effect", library.write(Map.of("owner", lock.owner(), "checked", checked)))
                .POST(HttpRequest.BodyPublishers.noBody())
                .build();
        try {
            http.send(effect, HttpResponse.BodyHandlers.discarding());
        } catch (final IOException e) {
            // It was noted, or it was not: the resource's log says so.
        }
    }

    private void write(final Library.Held lock, final String what, final long ns, final String more) {
        final String line = (what + " " + lock.owner() + " " + ns + " " + more).strip() + "\n";
        try {
            log.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
