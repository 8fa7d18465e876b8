// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;

/** A lock client, as the commands of a peer need it. */
interface Library {
    /** What the peer says of it first: its version and runtime. */
    Map<String, Object> about();

    /** Reads a line of JSON. */
    Map<String, Object> read(String line);

    /** Writes one. */
    String write(Map<String, Object> line);

    void open(Request request) throws Exception;

    /** Waits for a lock as the request says. */
    Held acquire(Request request) throws Exception;

    /** Closes the client. Acquires that wait end. */
    void close() throws Exception;

    /** What a program does at once that is told to end while its work goes on for a moment. */
    default void end() throws Exception {}

    /** What this client alone has; the lock may be null. */
    default Map<String, Object> other(final Request request, final Held lock) throws Exception {
        throw new UnsupportedOperationException(request.text("cmd"));
    }

    /** What kind of a refusal this is of a request, of those of package wire. */
    String kind(Throwable thrown, Request request);

    /** A lock in hand. */
    interface Held {
        boolean check();

        String owner();

        /** What an acquire answers. */
        Map<String, Object> describe();

        /** Releases the lock, or throws what is of the kind lost if it was another's. */
        void release(Request request) throws Exception;

        /** Empty if the client has none. */
        default String token() {
            return "";
        }

        /** The name under which the resource compares the token. */
        default String name(final Request request) {
            return request.text("name");
        }

        /** Has something be done when the client says by itself that the lock is lost. */
        default void whenLost(final Runnable told) {}

        /** Whether the client asks the work to stop. */
        default boolean stopping() {
            return false;
        }
    }

    /** One command, as the Go package peers/wire has it. */
    record Request(Map<String, Object> fields) {
        boolean has(final String name) {
            return fields.containsKey(name);
        }

        String text(final String name) {
            return fields.getOrDefault(name, "").toString();
        }

        Optional<Long> number(final String name) {
            return Optional.ofNullable((Long) fields.get(name));
        }

        /** The nanoseconds of a field in milliseconds. */
        long nanos(final String name) {
            return number(name).orElse(0L) * 1_000_000;
        }

        boolean flag(final String name) {
            return Boolean.TRUE.equals(fields.get(name));
        }

        ByteBuffer data() {
            return ByteBuffer.wrap(Base64.getDecoder().decode(text("dataBase64")));
        }
    }
}
