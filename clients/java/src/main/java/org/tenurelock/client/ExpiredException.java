// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** The deadline passed before a heartbeat was confirmed. */
public final class ExpiredException extends LostException {
    private static final long serialVersionUID = 1L;

    ExpiredException(final String message) {
        super(message);
    }
}
