// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.security.SecureRandom;

/** Makes what is new in each beat. */
final class Beats {
    private static final String LETTERS =
            "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    private static final int LENGTH = 13;
    private static final SecureRandom RANDOM = new SecureRandom();

    private Beats() {}

    static String randomPart() {
        final StringBuilder part = new StringBuilder(LENGTH);
        RANDOM.ints(LENGTH, 0, LETTERS.length()).forEach(i -> part.append(LETTERS.charAt(i)));
        return part.toString();
    }
}
