// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.interop;

import com.amazonaws.services.dynamodbv2.LockItem;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The work command: acquire, hold and release until the time is up, with a log of the holds. */
final class Work {
    private static final long CHECK_MS = 1;
    private static final long ERROR_PAUSE_MS = 50;

    private final Commands.Opened opened;
    private final JsonObject request;
    private long acquired;
    private long refused;
    private long expired;
    private long released;
    private long errors;
    private String lastError = "";

    Work(final Commands.Opened opened, final JsonObject request) {
        this.opened = opened;
        this.request = request;
    }

    JsonObject run() throws IOException, InterruptedException {
        final long deadline = System.nanoTime() + ms("durationMs");
        try (FileChannel log = FileChannel.open(
                Path.of(Commands.string(request, "log", "")),
                StandardOpenOption.CREATE,
                StandardOpenOption.WRITE,
                StandardOpenOption.APPEND)) {
            while (System.nanoTime() - deadline < 0 && !opened.drainMs().isDone()) {
                round(log);
                Thread.sleep(Commands.number(request, "pauseMs", 0));
            }
        }
        final JsonObject counts = new JsonObject();
        counts.addProperty("acquired", acquired);
        counts.addProperty("refused", refused);
        counts.addProperty("expired", expired);
        counts.addProperty("released", released);
        counts.addProperty("errors", errors);
        counts.addProperty("lastError", lastError);
        final JsonObject answer = new JsonObject();
        answer.add("counts", counts);
        return answer;
    }

    private void round(final FileChannel log) throws IOException, InterruptedException {
        final LockItem item;
        try {
            item = opened.client().acquireLock(Commands.acquireOptions(request));
        } catch (final RuntimeException e) {
            if (Refusal.kindOfAcquire(e).equals(Refusal.OTHER)) {
                failed(e);
            } else {
                refused++;
            }
            return;
        }
        acquired++;
        final long begin = System.nanoTime();
        if (item.isExpired()) {
            // It came too late to be claimed for a single instant.
            expired++;
            return;
        }
        append(log, "begin", item, begin);
        final long until = begin + ms("holdMs");
        long last = begin;
        boolean held = true;
        while (last - until < 0 && !opened.drainMs().isDone()) {
            // The instant first, then the check: what is logged was not expired.
            final long now = System.nanoTime();
            held = !item.isExpired();
            if (!held) {
                break;
            }
            last = now;
            Thread.sleep(CHECK_MS);
        }
        if (opened.drainMs().isDone()) {
            // By which the check may have failed.
            Thread.sleep(opened.drainMs().join());
            last = System.nanoTime();
            held = true;
        }
        append(log, "end", item, last);
        if (!held) {
            expired++;
        }
        try {
            if (opened.client().releaseLock(item)) {
                released++;
            }
        } catch (final RuntimeException e) {
            failed(e);
        }
    }

    private void failed(final RuntimeException e) throws InterruptedException {
        errors++;
        lastError = e.toString();
        Thread.sleep(ERROR_PAUSE_MS);
    }

    private long ms(final String name) {
        return Commands.number(request, name, 0) * 1_000_000;
    }

    private static void append(final FileChannel log, final String what, final LockItem item, final long ns)
            throws IOException {
        final String line = what + " " + item.getOwnerName() + " " + ns + "\n";
        log.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
    }
}
