// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The lock is granted, and no heartbeat of it is confirmed yet: do not act on it. */
public final class NotConfirmedException extends TenureException {
    private static final long serialVersionUID = 1L;

    NotConfirmedException(final String message) {
        super(message);
    }
}
