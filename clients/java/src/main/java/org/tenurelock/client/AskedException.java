// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The holder was asked to stop. The lock is held until the work has returned. */
public final class AskedException extends TenureException {
    private static final long serialVersionUID = 1L;

    private final String kind;
    private final String by;
    private final String reason;
    private final String to;
    private final String toLabel;

    AskedException(
            final String kind, final String by, final String reason, final String to, final String toLabel) {
        super(text(kind, by, reason, to.isEmpty() ? toLabel : to));
        this.kind = kind;
        this.by = by;
        this.reason = reason;
        this.to = to;
        this.toLabel = toLabel;
    }

    private static String text(final String kind, final String by, final String reason, final String successor) {
        return "asked to "
                + kind.replace('-', ' ')
                + (successor.isEmpty() ? "" : " to \"" + successor + "\"")
                + " by \""
                + by
                + "\""
                + (reason.isEmpty() ? "" : ": " + reason);
    }

    /** {@code step-down} or {@code hand-over}. */
    public String kind() {
        return kind;
    }

    /** The name of the requester. */
    public String by() {
        return by;
    }

    /** The requester's reason. */
    public String reason() {
        return reason;
    }

    /** The owner that is to hold the lock next, empty if none was named. */
    public String to() {
        return to;
    }

    /** The label that the next holder must have, empty if none was named. */
    public String toLabel() {
        return toLabel;
    }
}
