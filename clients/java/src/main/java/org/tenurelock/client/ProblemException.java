// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The server refused the call. */
public final class ProblemException extends TenureException {
    private static final long serialVersionUID = 1L;

    private final String kind;
    private final int status;

    ProblemException(final String kind, final int status, final String detail) {
        super(kind + " (" + status + "): " + detail);
        this.kind = kind;
        this.status = status;
    }

    /** The last part of the problem's type, for example {@code forbidden}. */
    public String kind() {
        return kind;
    }

    /** The HTTP status. */
    public int status() {
        return status;
    }
}
