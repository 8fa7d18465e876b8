// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The server refused the call. */
public class ProblemException extends TenureException {
    private static final long serialVersionUID = 1L;

    private final String kind;
    private final int status;

    ProblemException(final String kind, final int status, final String detail) {
        super(kind + " (" + status + "): " + detail);
        this.kind = kind;
        this.status = status;
    }

    static ProblemException of(final Answer.Problem problem) {
        return problem.kind().equals("no-sessions")
                ? new NoSessionsException(problem.kind(), problem.status(), problem.detail())
                : new ProblemException(problem.kind(), problem.status(), problem.detail());
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
