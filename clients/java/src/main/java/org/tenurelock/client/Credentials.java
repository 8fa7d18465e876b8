// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/** The bearer token: a text, or a file that is read again for each call. May be used concurrently. */
final class Credentials {
    private final Path file; // may be null
    private volatile String token; // may be empty

    Credentials(final String token, final Path file) {
        if (token != null && file != null) {
            throw new IllegalArgumentException("token and token file: give one of them");
        }
        this.file = file;
        this.token = token == null ? "" : fit(token, "token");
        if (file != null) {
            try {
                this.token = read(file);
            } catch (final IOException error) {
                throw new IllegalArgumentException("token file: " + error, error);
            }
        }
    }

    /** Returns what a call shows; nothing without a token, as with a client certificate. */
    Optional<String> header() {
        if (file != null) {
            try {
                token = read(file);
            } catch (final IOException | IllegalArgumentException error) {
                // It may be written just now: the token stays as it was.
            }
        }
        return token.isEmpty() ? Optional.empty() : Optional.of("Bearer " + token);
    }

    private static String read(final Path file) throws IOException {
        return fit(Files.readString(file).strip(), file.toString());
    }

    private static String fit(final String token, final String where) {
        if (!token.matches("[!-~]+")) {
            throw new IllegalArgumentException(where + ": a token is one word of printable ASCII");
        }
        return token;
    }
}
