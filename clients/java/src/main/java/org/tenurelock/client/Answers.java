// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
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
    static Answer acquire(final Reply reply, final Wanted wanted) {
        return read(reply, body -> {
            final String beat = text(body, "beat");
            if (!wanted.fits(body.get("name")) || !isBeat(beat)) {
                throw new NotOurs("not a grant of this lock");
            }
            whole(body, "free_after_ms", 0, LONGEST);
            final long token = whole(body, "token", 1, Long.MAX_VALUE);
            final long lease = whole(body, "lease_ms", 1, LONGEST) * MILLISECOND;
            final long usable = body.containsKey("usable_ms") ? whole(body, "usable_ms", 0, LONGEST) * MILLISECOND : 0;
            final long period = whole(body, "heartbeat_ms", 1, LONGEST) * MILLISECOND;
            final String granted = text(body, "name");
            final Grant.Part part = part(body, wanted.kind());
            return new Answer.Granted(
                    new Grant(granted, token, beat, lease, bytes(body, "data"), usable, period, part));
        });
    }

    private static boolean isBeat(final String beat) {
        return beat.indexOf('-') >= 0 && beat.indexOf('-') == beat.lastIndexOf('-');
    }

    /** Reads what the grant of a slot, a reader or a writer has besides. */
    private static Grant.Part part(final Map<String, Object> body, final Wanted.Kind kind) {
        if (kind == Wanted.Kind.LOCK) {
            return Grant.Part.NONE;
        }
        if (kind == Wanted.Kind.SLOT) {
            final OptionalInt slot = OptionalInt.of((int) whole(body, "slot", 0, Integer.MAX_VALUE));
            final OptionalInt slots = OptionalInt.of((int) whole(body, "slots", 1, Integer.MAX_VALUE));
            return new Grant.Part(slot, slots, OptionalLong.empty(), Optional.empty(), false, Optional.empty());
        }
        final OptionalLong fenceToken = OptionalLong.of(whole(body, "fence_token", 1, Long.MAX_VALUE));
        Optional<LastWriter> last = Optional.empty();
        if (body.get("last_writer") instanceof Map<?, ?> writer) {
            final long token = writer.get("token") instanceof Long given ? given : 0;
            last = Optional.of(new LastWriter(text(writer, "owner"), token, text(writer, "end")));
        }
        final boolean drains = body.getOrDefault("drain", false) instanceof Boolean given
                ? given
                : true; // whatever else it is, it is not the permission to write
        return new Grant.Part(
                OptionalInt.empty(), OptionalInt.empty(), fenceToken, last, drains, bytes(body, "unwritten"));
    }

    /** Reads the answer to the opening of a session. */
    static Answer opening(final Reply reply) {
        return read(reply, body -> {
            final String id = text(body, "session");
            final String beat = text(body, "beat");
            if (id.isEmpty() || !isBeat(beat)) {
                throw new NotOurs("not a session");
            }
            final long lease = whole(body, "lease_ms", 1, LONGEST) * MILLISECOND;
            final long period = whole(body, "heartbeat_ms", 1, LONGEST) * MILLISECOND;
            return new Answer.Granted(new Grant(id, 0, beat, lease, Optional.empty(), 0, period));
        });
    }

    /** Reads the answer to a heartbeat of a session. */
    static Answer renewal(final Reply reply) {
        return read(reply, body -> {
            final List<Answer.Request> requests = new ArrayList<>();
            for (final Object one : list(body, "requests")) {
                final AskedException asked = asked(one).orElseThrow(() -> new NotOurs("a request is null"));
                final Map<?, ?> request = (Map<?, ?>) one;
                final long token = request.get("token") instanceof Long given ? given : 0;
                requests.add(new Answer.Request(text(request, "id"), text(request, "name"), token, asked));
            }
            return new Answer.Confirmed(
                    whole(body, "usable_ms", 0, LONGEST) * MILLISECOND,
                    whole(body, "heartbeat_ms", 1, LONGEST) * MILLISECOND,
                    Optional.empty(),
                    List.copyOf(requests));
        });
    }

    /** Reads the answer to a call for the locks under a session. */
    static Answer results(final Reply reply, final List<String> names) {
        return read(reply, body -> {
            final List<?> results = list(body, "results");
            if (results.size() != names.size()) {
                throw new NotOurs(results.size() + " results for " + names.size() + " locks");
            }
            final List<Answer> of = new ArrayList<>();
            for (int i = 0; i < names.size(); i++) {
                if (!(results.get(i) instanceof Map<?, ?> result) || !names.get(i).equals(result.get("name"))) {
                    throw new NotOurs("result " + i + " is of another lock");
                }
                of.add(result.get("problem") == null
                        ? new Answer.Attached(asked(result.get("asked")))
                        : problem(object(result.get("problem")), Duration.ZERO));
            }
            return new Answer.Results(List.copyOf(of));
        });
    }

    private static List<?> list(final Map<String, Object> body, final String key) {
        if (body.get(key) instanceof List<?> list) {
            return list;
        }
        throw new NotOurs(key + " is " + body.get(key));
    }

    /** Reads the answer to a heartbeat. */
    static Answer heartbeat(final Reply reply) {
        return read(reply, body -> new Answer.Confirmed(
                whole(body, "usable_ms", 0, LONGEST) * MILLISECOND,
                whole(body, "heartbeat_ms", 1, LONGEST) * MILLISECOND,
                asked(body.get("asked"))));
    }

    /** Reads the answer to a release, to the closing of a session, or to a wait for readers. */
    static Answer done(final Reply reply) {
        return read(reply, body -> new Answer.Done());
    }

    /** Reads the answer to the release of one lock under a session. */
    static Answer released(final Reply reply, final String name) {
        final Answer answer = results(reply, List.of(name));
        final Answer of = answer instanceof Answer.Results results ? results.of().get(0) : answer;
        return of instanceof Answer.Attached ? new Answer.Done() : of;
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
        if (!Long.valueOf(reply.status()).equals(body.get("status"))) {
            throw new NotOurs("a problem with another status than the answer has");
        }
        final boolean waits = reply.retryAfter().matches("[0-9]{1,9}");
        return problem(body, waits ? Duration.ofSeconds(Long.parseLong(reply.retryAfter())) : Duration.ZERO);
    }

    private static Answer.Problem problem(final Map<String, Object> body, final Duration wait) {
        final String type = text(body, "type");
        if (!type.startsWith(PREFIX)) {
            throw new NotOurs("a problem of a type that the service does not have");
        }
        final int status = (int) whole(body, "status", 400, 599);
        return new Answer.Problem(type.substring(PREFIX.length()), status, text(body, "detail"), body, wait);
    }

    /** Returns the JSON object that a body is. */
    static Map<String, Object> object(final String body) {
        try {
            return object(Json.read(body));
        } catch (final IllegalArgumentException error) {
            throw new NotOurs(error.getMessage());
        }
    }

    @SuppressWarnings("unchecked") // all keys of an object are strings
    private static Map<String, Object> object(final Object value) {
        if (value instanceof Map<?, ?> map) {
            return (Map<String, Object>) map;
        }
        throw new NotOurs("not a JSON object");
    }

    private static long whole(final Map<String, Object> body, final String key, final long least, final long most) {
        if (body.get(key) instanceof Long value && value >= least && value <= most) {
            return value;
        }
        throw new NotOurs(key + " is " + body.get(key));
    }

    private static Optional<byte[]> bytes(final Map<String, Object> body, final String key) {
        final Object value = body.get(key);
        if (value == null) {
            return Optional.empty();
        }
        try {
            return Optional.of(Base64.getDecoder().decode((String) value));
        } catch (final IllegalArgumentException | ClassCastException error) {
            throw new NotOurs(key + " is not base64");
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
