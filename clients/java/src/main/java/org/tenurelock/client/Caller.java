// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;

/** Sends the calls of one user to one server after the other, one call at a time. */
final class Caller {
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

    private final List<String> servers;
    private final Credentials credentials;
    private final Transport transport;
    private int at;
    private Duration pause;

    Caller(final List<String> servers, final Credentials credentials, final Transport transport) {
        this.servers = servers;
        this.credentials = credentials;
        this.transport = transport;
        at = ThreadLocalRandom.current().nextInt(servers.size());
        hurry();
    }

    /** Checks the addresses, and returns them without a slash at their end. */
    static List<String> addresses(final List<String> servers) {
        if (servers.isEmpty()) {
            throw new IllegalArgumentException("no server: give at least one address, as http://127.0.0.1:8368");
        }
        return servers.stream().map(Caller::address).toList();
    }

    private static String address(final String server) {
        final String wanted = "server \"" + server + "\": want http://HOST:PORT or https://HOST:PORT";
        final URI url;
        try {
            url = URI.create(server);
        } catch (final IllegalArgumentException error) {
            throw new IllegalArgumentException(wanted, error);
        }
        final boolean web = "http".equals(url.getScheme()) || "https".equals(url.getScheme());
        if (!web
                || url.getHost() == null
                || url.getQuery() != null
                || url.getFragment() != null
                || url.getUserInfo() != null) {
            throw new IllegalArgumentException(wanted);
        }
        return server.replaceAll("/+$", "");
    }

    /** Sends a call once and reads its answer; one that is none moves to the next server. */
    Answer exchange(
            final String path, final Map<String, Object> body, final Duration limit, final Function<Reply, Answer> read)
            throws InterruptedException {
        final Map<String, String> headers = new HashMap<>();
        headers.put("Content-Type", "application/json");
        headers.put("Accept", "application/json, application/problem+json");
        credentials.header().ifPresent(token -> headers.put("Authorization", token));
        Answer answer;
        try {
            answer = read.apply(transport.post(servers.get(at) + path, headers, Json.write(body), limit));
        } catch (final IOException error) {
            answer = new Answer.Unknown(error.toString());
        }
        if (answer.wantsAnother()) {
            at = (at + 1) % servers.size();
        }
        return answer;
    }

    /** Returns the next of growing pauses with jitter, from 50 ms to a second. */
    Duration backoff() {
        final Duration now = pause;
        pause = now.multipliedBy(2).compareTo(LONGEST_PAUSE) < 0 ? now.multipliedBy(2) : LONGEST_PAUSE;
        return Duration.ofNanos((long) (now.toNanos() * ThreadLocalRandom.current().nextDouble(0.5, 1)));
    }

    /** Has the pauses begin anew. */
    void hurry() {
        pause = Duration.ofMillis(50);
    }

    int servers() {
        return servers.size();
    }
}
