// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

/** An answer that is a refusal of a kind. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1L;

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
}
