// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The lock is not held any more: stop at once. It never comes back; acquire it again. */
public class LostException extends TenureException {
    private static final long serialVersionUID = 1L;

    LostException(final String message) {
        super(message);
    }
}
