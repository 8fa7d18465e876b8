// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.Base64;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;

/** Reads answers. An answer that is not certainly the service's own is unknown. */
final class Answers {
    private static final String PREFIX = "urn:tenure:problem:";
    private static final long MILLISECOND = 1_000_000;
    private static final long LONGEST = Duration.ofDays(365).toMillis(); // more is no answer of ours

    private Answers() {}

    /** An answer that the service does not give. */
    static final class NotOurs extends RuntimeException {
        private static final long serialVersionUID = 1L;

        NotOurs(final String message) {
            super(message);
        }
    }

    /** Reads the answer to an acquire of the lock. */
    static Answer acquire(final Reply reply, final String name) {
        return read(reply, body -> {
            final String beat = text(body, "beat");
            final boolean fits = beat.indexOf('-') >= 0 && beat.indexOf('-') == beat.lastIndexOf('-');
            if (!name.equals(body.get("name")) || !fits) {
                throw new NotOurs("not a grant of this lock");
            }
            whole(body, "free_after_ms", 0, LONGEST);
            final long token = whole(body, "token", 1, Long.MAX_VALUE);
            final long lease = whole(body, "lease_ms", 1, LONGEST) * MILLISECOND;
            final long usable = body.containsKey("usable_ms") ? whole(body, "usable_ms", 0, LONGEST) * MILLISECOND : 0;
            final long period = whole(body, "heartbeat_ms", 1, LONGEST) * MILLISECOND;
            return new Answer.Granted(new Grant(name, token, beat, lease, data(body), usable, period));
        });
    }

    /** Reads the answer to a heartbeat. */
    static Answer heartbeat(final Reply reply) {
        return read(reply, body -> new Answer.Confirmed(
                whole(body, "usable_ms", 0, LONGEST) * MILLISECOND,
                whole(body, "heartbeat_ms", 1, LONGEST) * MILLISECOND,
                asked(body.get("asked"))));
    }

    /** Reads the answer to a release. */
    static Answer release(final Reply reply) {
        return read(reply, body -> new Answer.Done());
    }

    /** Returns a field that is text, else nothing. */
    static String text(final Map<?, ?> body, final String key) {
        return body.get(key) instanceof String text ? text : "";
    }

    /** Returns the media type of a header Content-Type, without its parameters. */
    static String mediaType(final String contentType) {
        return contentType.split(";", 2)[0].strip().toLowerCase(Locale.ROOT);
    }

    /** Returns the exception that says what the body does of the holder of the lock. */
    static HeldException heldBy(final String name, final Map<String, Object> body) {
        return new HeldException(
                name,
                text(body, "holder"),
                body.get("token") instanceof Long token ? token : 0,
                Duration.ofMillis(body.get("free_in_ms") instanceof Long ms ? ms : 0),
                Boolean.TRUE.equals(body.get("reserved")),
                text(body, "label"));
    }

    private static Answer read(final Reply reply, final Function<Map<String, Object>, Answer> ok) {
        final String media = mediaType(reply.contentType());
        try {
            if (reply.status() == 200 && media.equals("application/json")) {
                return ok.apply(object(reply.body()));
            }
            if (media.equals("application/problem+json")) {
                return problem(reply);
            }
        } catch (final NotOurs error) {
            return new Answer.Unknown("status " + reply.status() + ": " + error.getMessage());
        }
        return new Answer.Unknown(
                "status " + reply.status() + " of type \"" + media + "\", which is not an answer of the service");
    }

    private static Answer.Problem problem(final Reply reply) {
        final Map<String, Object> body = object(reply.body());
        final String type = text(body, "type");
        if (!type.startsWith(PREFIX) || !Long.valueOf(reply.status()).equals(body.get("status"))) {
            throw new NotOurs("a problem of a type that the service does not have");
        }
        final boolean waits = reply.retryAfter().matches("[0-9]{1,9}");
        final Duration wait = waits ? Duration.ofSeconds(Long.parseLong(reply.retryAfter())) : Duration.ZERO;
        final String kind = type.substring(PREFIX.length());
        return new Answer.Problem(kind, reply.status(), text(body, "detail"), body, wait);
    }

    /** Returns the JSON object that a body is. */
    @SuppressWarnings("unchecked") // all keys of an object are strings
    static Map<String, Object> object(final String body) {
        try {
            if (Json.read(body) instanceof Map<?, ?> map) {
                return (Map<String, Object>) map;
            }
        } catch (final IllegalArgumentException error) {
            throw new NotOurs(error.getMessage());
        }
        throw new NotOurs("not a JSON object");
    }

    private static long whole(final Map<String, Object> body, final String key, final long least, final long most) {
        if (body.get(key) instanceof Long value && value >= least && value <= most) {
            return value;
        }
        throw new NotOurs(key + " is " + body.get(key));
    }

    private static Optional<byte[]> data(final Map<String, Object> body) {
        final Object value = body.get("data");
        if (value == null) {
            return Optional.empty();
        }
        try {
            return Optional.of(Base64.getDecoder().decode((String) value));
        } catch (final IllegalArgumentException | ClassCastException error) {
            throw new NotOurs("data is not base64");
        }
    }

    private static Optional<AskedException> asked(final Object value) {
        if (value == null) {
            return Optional.empty();
        }
        if (!(value instanceof Map<?, ?> request) || !(request.get("kind") instanceof String kind)) {
            throw new NotOurs("asked is not a request");
        }
        return Optional.of(new AskedException(
                kind,
                text(request, "by"),
                text(request, "reason"),
                text(request, "to"),
                text(request, "to_label")));
    }
}
