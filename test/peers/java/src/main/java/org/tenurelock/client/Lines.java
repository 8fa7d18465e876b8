// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.Map;

/** Lines of JSON, by the client's own reader and writer: it is in the client's package for them. */
public final class Lines {
    private Lines() {}

    /** Reads an object. */
    @SuppressWarnings("unchecked")
    public static Map<String, Object> read(final String line) {
        return (Map<String, Object>) Json.read(line);
    }

    /** Writes one. */
    public static String write(final Map<String, Object> object) {
        return Json.write(object);
    }
}
