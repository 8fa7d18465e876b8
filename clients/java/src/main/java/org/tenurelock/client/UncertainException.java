// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** No answer to the release came: the lock is released, or expires by itself. */
public final class UncertainException extends TenureException {
    private static final long serialVersionUID = 1L;

    UncertainException(final String message) {
        super(message);
    }
}
