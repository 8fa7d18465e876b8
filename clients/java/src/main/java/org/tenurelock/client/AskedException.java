// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** Somebody asked the holder to stop. The lock is held until the work has returned. */
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

    private static String text(final String kind, final String by, final String reason, final String heir) {
        return "asked to "
                + kind.replace('-', ' ')
                + (heir.isEmpty() ? "" : " to \"" + heir + "\"")
                + " by \""
                + by
                + "\""
                + (reason.isEmpty() ? "" : ": " + reason);
    }

    /** {@code step-down} or {@code hand-over}. */
    public String kind() {
        return kind;
    }

    /** The name of the one that asked. */
    public String by() {
        return by;
    }

    /** Why, in the words of the one that asked. */
    public String reason() {
        return reason;
    }

    /** The owner that is to have the lock next, empty if none was named. */
    public String to() {
        return to;
    }

    /** The label of those that are to have the lock next, empty if none was named. */
    public String toLabel() {
        return toLabel;
    }
}
