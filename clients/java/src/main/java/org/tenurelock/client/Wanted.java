// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** What an acquire asks for. */
record Wanted(String name) {
    Wanted {
        if (name.isEmpty()) {
            throw new IllegalArgumentException("the lock's name is empty");
        }
        AcquireOptions.checkText("the lock's name", name);
    }

    static Wanted lock(final String name) {
        return new Wanted(name);
    }

    /** Says whether a lock of the name answers it. */
    boolean fits(final Object granted) {
        return name.equals(granted);
    }
}
