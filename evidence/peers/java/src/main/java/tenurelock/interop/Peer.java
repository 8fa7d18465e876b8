// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.interop;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The interop rig's peer on com.amazonaws:dynamodb-lock-client: it reads one JSON request per line
 * from standard input and writes answers to standard output. The language is that of the Go package
 * peer/wire.
 */
public final class Peer {
    private static final String POM_PROPERTIES =
            "/META-INF/maven/com.amazonaws/dynamodb-lock-client/pom.properties";

    private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);
    private final Commands commands = new Commands();

    private Peer() {}

    public static void main(final String[] args) throws IOException {
        new Peer().run();
    }

    private void run() throws IOException {
        write(ready());
        // A thread for each request: one that waits for a lock must not hold up the others.
        final ExecutorService threads = Executors.newCachedThreadPool();
        final BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            threads.execute(() -> answer(request));
        }
        // The rig is gone. Leave as in a crash: the lock client would release in an orderly exit.
        Runtime.getRuntime().halt(0);
    }

    private void answer(final JsonObject request) {
        JsonObject answer;
        final long sent = System.nanoTime();
        try {
            answer = commands.run(request);
            if (!answer.has("ok")) {
                answer.addProperty("ok", true);
            }
        } catch (final Throwable thrown) {
            // Throwable: an error of the virtual machine is an answer too.
            answer = Refusal.of(thrown);
        }
        final long got = System.nanoTime();
        // A command that knows its call more narrowly has set these.
        if (!answer.has("sentNs")) {
            Commands.instants(answer, sent, got);
        }
        answer.add("id", request.get("id"));
        write(answer);
    }

    private static JsonObject ready() throws IOException {
        final Properties pom = new Properties();
        try (InputStream in = Peer.class.getResourceAsStream(POM_PROPERTIES)) {
            if (in != null) {
                pom.load(in);
            }
        }
        final JsonObject ready = new JsonObject();
        ready.addProperty("event", "ready");
        ready.addProperty("ok", true);
        ready.addProperty("peer", "dynamodb-lock-client");
        ready.addProperty("version", pom.getProperty("version", ""));
        ready.addProperty("runtime", "java " + System.getProperty("java.version"));
        ready.addProperty("pid", ProcessHandle.current().pid());
        Commands.instants(ready, System.nanoTime(), System.nanoTime());
        return ready;
    }

    private void write(final JsonObject line) {
        final byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (out) {
            try {
                out.write(bytes);
            } catch (final IOException e) {
                Runtime.getRuntime().halt(1);
            }
        }
    }
}
