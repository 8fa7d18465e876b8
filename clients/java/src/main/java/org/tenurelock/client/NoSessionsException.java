// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/**
 * The store of the server keeps no sessions. Acquire each lock by {@link TenureClient#acquire}: it has heartbeats of
 * its own then.
 */
public final class NoSessionsException extends ProblemException {
    private static final long serialVersionUID = 1L;

    NoSessionsException(final String kind, final int status, final String detail) {
        super(kind, status, detail + "; in this client acquire() of TenureClient does that for each lock");
    }
}
