// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.interop;

import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import com.amazonaws.services.dynamodbv2.model.LockNotGrantedException;
import com.google.gson.JsonObject;

/** A request that the peer answers with a kind of its own choice. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1L;

    static final String HELD = "held";
    static final String TIMEOUT = "timeout";
    static final String LOST = "lost";
    static final String UNSUPPORTED = "unsupported";
    static final String OTHER = "other";

    private final String kind;

    Refusal(final String kind, final String message) {
        super(message);
        this.kind = kind;
    }

    Refusal(final String kind, final Throwable cause) {
        super(cause.getMessage(), cause);
        this.kind = kind;
    }

    String kind() {
        return kind;
    }

    /** The kind of what acquireLock threw: the client has no type of its own for a timeout. */
    static String kindOfAcquire(final Throwable thrown) {
        if (thrown instanceof LockCurrentlyUnavailableException) {
            return HELD;
        }
        if (thrown instanceof LockNotGrantedException) {
            final String message = String.valueOf(thrown.getMessage());
            return message.startsWith("Didn't acquire lock after sleeping") ? TIMEOUT : HELD;
        }
        return OTHER;
    }

    static JsonObject of(final Throwable thrown) {
        final JsonObject answer = new JsonObject();
        final Throwable said =
                thrown instanceof Refusal && thrown.getCause() != null ? thrown.getCause() : thrown;
        answer.addProperty("ok", false);
        answer.addProperty("kind", thrown instanceof Refusal r ? r.kind() : OTHER);
        answer.addProperty("class", said.getClass().getName());
        answer.addProperty("message", String.valueOf(said.getMessage()));
        return answer;
    }
}
