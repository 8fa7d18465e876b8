// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;

/** One command, as the Go package peers/wire has it. */
record Request(Map<String, Object> fields) {
    boolean has(final String name) {
        return fields.containsKey(name);
    }

    String text(final String name) {
        return fields.getOrDefault(name, "").toString();
    }

    Optional<Long> number(final String name) {
        return Optional.ofNullable((Long) fields.get(name));
    }

    /** The nanoseconds of a field in milliseconds. */
    long nanos(final String name) {
        return number(name).orElse(0L) * 1_000_000;
    }

    boolean flag(final String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    ByteBuffer data() {
        return ByteBuffer.wrap(Base64.getDecoder().decode(text("dataBase64")));
    }
}
