// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The lock was released, or its release has begun. */
public final class ReleasedException extends TenureException {
    private static final long serialVersionUID = 1L;

    ReleasedException(final String message) {
        super(message);
    }
}
