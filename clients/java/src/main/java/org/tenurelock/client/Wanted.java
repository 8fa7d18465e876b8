// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.Map;

/** What an acquire asks for: a plain lock, a slot of a semaphore, or to read or to write under a name. */
record Wanted(String name, Kind kind, int slots) {
    enum Kind {
        LOCK,
        SLOT,
        READ,
        WRITE
    }

    private static final int MOST_SLOTS = 1000; // the limit of the server

    Wanted {
        if (name.isEmpty()) {
            throw new IllegalArgumentException("the lock's name is empty");
        }
        AcquireOptions.checkText("the lock's name", name);
        if (kind == Kind.SLOT && (slots < 1 || slots > MOST_SLOTS)) {
            throw new IllegalArgumentException("slots is " + slots + ": a semaphore has 1 to " + MOST_SLOTS);
        }
    }

    static Wanted lock(final String name) {
        return new Wanted(name, Kind.LOCK, 0);
    }

    /** Returns what the call has beyond that for a plain lock. */
    Map<String, Object> fields() {
        return switch (kind) {
            case LOCK -> Map.of();
            case SLOT -> Map.of("slots", slots);
            case READ -> Map.of("shared", true);
            case WRITE -> Map.of("exclusive", true);
        };
    }

    /** Says whether a lock of the name answers it: itself, or one that is derived from it. */
    boolean fits(final Object granted) {
        return kind == Kind.LOCK
                ? name.equals(granted)
                : granted instanceof String derived && derived.startsWith(name + ":");
    }
}
