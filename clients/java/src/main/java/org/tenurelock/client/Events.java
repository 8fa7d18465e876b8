// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.Predicate;

/**
 * An answer that comes as a stream of events: the holders that are waited for, and at last the result.
 * What is cut off before the end of its event does not count. For one use, by one thread.
 */
final class Events implements Predicate<byte[]> {
    static final String EVENT_STREAM = "text/event-stream";

    private static final int LONGEST_EVENT = 4 << 20;

    private final Consumer<Map<String, Object>> waiting;
    private final ByteArrayOutputStream line = new ByteArrayOutputStream(); // what has come of it
    private Map<String, List<String>> fields = new HashMap<>();
    private Reply answer; // null until it has come

    /** The consumer gets what the service says of each holder that is waited for. */
    Events(final Consumer<Map<String, Object>> waiting) {
        this.waiting = waiting;
    }

    /** Says whether an answer of the type is a stream of events. */
    static boolean isStream(final String contentType) {
        return Answers.mediaType(contentType).equals(EVENT_STREAM);
    }

    /** Returns the answer, if it has come. */
    Optional<Reply> answer() {
        return Optional.ofNullable(answer);
    }

    /**
     * Takes a part of the stream, and returns whether the answer is there.
     *
     * @throws Answers.NotOurs if it is not the service's
     */
    @Override
    public boolean test(final byte[] part) {
        for (int at = 0; at < part.length && answer == null; at++) {
            if (part[at] != '\n') {
                line.write(part[at]);
            } else {
                final String ended = line.toString(StandardCharsets.UTF_8);
                line.reset();
                line(ended.endsWith("\r") ? ended.substring(0, ended.length() - 1) : ended);
            }
        }
        if (line.size() > LONGEST_EVENT) {
            throw new Answers.NotOurs("a line of more than " + LONGEST_EVENT + " bytes");
        }
        return answer != null;
    }

    private void line(final String text) {
        if (!text.isEmpty()) {
            final String[] parts = text.split(":", 2);
            final String value = parts.length == 1 ? "" : parts[1].startsWith(" ") ? parts[1].substring(1) : parts[1];
            fields.computeIfAbsent(parts[0], name -> new ArrayList<>()).add(value);
            return;
        }
        final String body = String.join("\n", fields.getOrDefault("data", List.of()));
        final String kind = last("event");
        final String retry = last("retry");
        fields = new HashMap<>();
        switch (kind) {
            case "granted" -> answer = new Reply(200, "application/json", body, "");
            case "waiting" -> waiting.accept(Answers.object(body));
            case "problem" -> {
                final int status = Answers.object(body).get("status") instanceof Long given ? given.intValue() : 0;
                // In seconds, as the header is.
                final String after = retry.matches("[0-9]{1,9}") ? String.valueOf((Long.parseLong(retry) + 999) / 1000) : "";
                answer = new Reply(status, "application/problem+json", body, after);
            }
            default -> {} // it says nothing, such as that the server is alive
        }
    }

    private String last(final String field) {
        final List<String> values = fields.getOrDefault(field, List.of());
        return values.isEmpty() ? "" : values.get(values.size() - 1);
    }
}
