// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The base of all errors of this package. */
public class TenureException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    TenureException(final String message) {
        super(message);
    }
}
