// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.util.Map;

/** A lock client, as the commands of a peer need it. */
interface Library {
    /** What the peer says of it first: its name, version and runtime. */
    Map<String, Object> about();

    /** Reads a line of JSON. */
    Map<String, Object> read(String line);

    /** Writes one. */
    String write(Map<String, Object> line);

    void open(Request request) throws Exception;

    /** Waits for a lock as the request says. A refusal says that it was not granted. */
    Held acquire(Request request) throws Exception;

    /** Closes the client. Acquires that wait end. */
    void close() throws Exception;

    /** What a program does at once that is told to end while its work goes on for a moment. */
    default void end() throws Exception {}

    /** What this client alone has; the lock may be null. */
    default Map<String, Object> other(final Request request, final Held lock) throws Exception {
        throw new Refusal("unsupported", "no command " + request.text("cmd"));
    }

    /** A lock in hand. */
    interface Held {
        boolean check();

        String owner();

        /** What an acquire answers. */
        Map<String, Object> describe();

        /** Releases the lock. A refusal as lost says that it was another's. */
        void release(Request request) throws Exception;

        /** Empty if the client has none. */
        default String token() {
            return "";
        }

        /** Has something be done when the client says by itself that the lock is lost. */
        default void whenLost(final Runnable told) {}

        /** Whether the client asks the work to stop. */
        default boolean stopping() {
            return false;
        }
    }
}
