// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;

/** Another holder has the lock, and the wait is over. Not an accident: try again later. */
public final class HeldException extends TenureException {
    private static final long serialVersionUID = 1L;

    private final String holder;
    private final long token;
    private final Duration freeIn;
    private final boolean reserved;
    private final String label;

    HeldException(
            final String name,
            final String holder,
            final long token,
            final Duration freeIn,
            final boolean reserved,
            final String label) {
        super("\"" + name + "\" is held by \"" + holder + "\" (token " + token + ")");
        this.holder = holder;
        this.token = token;
        this.freeIn = freeIn;
        this.reserved = reserved;
        this.label = label;
    }

    /** The holder's owner. */
    public String holder() {
        return holder;
    }

    /** The holder's token. */
    public long token() {
        return token;
    }

    /** The time until the lock can be free at the earliest if its holder shows no sign of life. */
    public Duration freeIn() {
        return freeIn;
    }

    /** Says that the lock is kept for the holder, to whom it was handed over. */
    public boolean reserved() {
        return reserved;
    }

    /** The holder's label, empty if it has none. */
    public String label() {
        return label;
    }
}
