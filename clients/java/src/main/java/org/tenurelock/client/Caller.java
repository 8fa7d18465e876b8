// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.nio.channels.UnresolvedAddressException;
import java.security.InvalidAlgorithmParameterException;
import java.security.cert.CertificateException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import javax.net.ssl.SSLException;

/** Sends the calls of one user to one server after the other, one call at a time. */
final class Caller {
    private static final String OURS = "application/json, application/problem+json";
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
            throw new IllegalArgumentException("no server: give at least one address, such as http://127.0.0.1:8368");
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

    /** Sends a call once and reads its answer; without one the next call goes to the next server. */
    Answer exchange(
            final String path, final Map<String, Object> body, final Duration limit, final Function<Reply, Answer> read)
            throws InterruptedException {
        return exchange(OURS, headers -> read.apply(spoken(transport.post(servers.get(at) + path, headers, Json.write(body), limit))));
    }

    /** Does the same, and asks for a stream of events. */
    Answer exchange(
            final String path,
            final Map<String, Object> body,
            final Duration limit,
            final Function<Reply, Answer> read,
            final Events events)
            throws InterruptedException {
        return exchange(Events.EVENT_STREAM + ", " + OURS, headers -> {
            final Reply reply = spoken(transport.post(servers.get(at) + path, headers, Json.write(body), limit, events));
            return read.apply(events.answer().orElse(reply));
        });
    }

    private interface Call {
        Answer with(Map<String, String> headers) throws IOException, InterruptedException;
    }

    private Answer exchange(final String accept, final Call call) throws InterruptedException {
        final Map<String, String> headers = new HashMap<>();
        headers.put("Content-Type", "application/json");
        headers.put("Accept", accept);
        credentials.header().ifPresent(token -> headers.put("Authorization", token));
        Answer answer;
        try {
            answer = call.with(headers);
        } catch (final IOException | Answers.NotOurs error) {
            answer = noAnswer(error);
        }
        if (answer.wantsAnother()) {
            at = (at + 1) % servers.size();
        }
        return answer;
    }

    /**
     * Says what is wrong on the way to the server, and whether it stays: a certificate is refused, here or
     * there, or the port speaks another protocol. The JDK often says least where it knows most.
     */
    private Answer noAnswer(final Throwable error) {
        boolean stays = error instanceof WrongProtocolException;
        String text = stays ? error.getMessage() : error.toString();
        if (error instanceof ConnectException && error.getMessage() == null) {
            text = "no server listens there, or it cannot be reached";
        }
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            final String said = String.valueOf(cause.getMessage()).toLowerCase(Locale.ROOT);
            if (cause instanceof UnresolvedAddressException) {
                text = "the host name has no address";
            } else if (cause instanceof InvalidAlgorithmParameterException) {
                stays = true;
                text = "the trust store is empty, or has a password: " + cause.getMessage();
            } else if (cause instanceof SSLException && said.contains("unrecognized ssl message")) {
                stays = true;
                text = "use http; the server does not speak TLS";
            } else if (cause instanceof CertificateException || cause instanceof SSLException && said.contains("certificate")) {
                stays = true;
            }
        }
        return new Answer.Unknown(servers.get(at) + ": " + text, stays);
    }

    /** A server that wants https was asked by http. */
    static final class WrongProtocolException extends IOException {
        private static final long serialVersionUID = 1L;

        WrongProtocolException(final String said) {
            super("use https; the server says: " + said);
        }
    }

    private static Reply spoken(final Reply reply) throws WrongProtocolException {
        if (reply.status() == 400 && !reply.contentType().startsWith("application/problem+json") && reply.body().contains("HTTPS")) {
            throw new WrongProtocolException(reply.body().substring(0, Math.min(100, reply.body().length())).strip());
        }
        return reply;
    }

    /** Returns the next of growing pauses with jitter, from 50 ms to a second. */
    Duration backoff() {
        final Duration now = pause;
        pause = now.multipliedBy(2).compareTo(LONGEST_PAUSE) < 0 ? now.multipliedBy(2) : LONGEST_PAUSE;
        return Duration.ofNanos((long) (now.toNanos() * ThreadLocalRandom.current().nextDouble(0.5, 1)));
    }

    /** Starts again with the shortest pause. */
    void hurry() {
        pause = Duration.ofMillis(50);
    }

    int servers() {
        return servers.size();
    }
}
