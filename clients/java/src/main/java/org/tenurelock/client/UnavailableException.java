// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** No server gave an answer to an acquire before the wait was over. Nothing is held. */
public final class UnavailableException extends TenureException {
    private static final long serialVersionUID = 1L;

    UnavailableException(final String message) {
        super(message);
    }
}
