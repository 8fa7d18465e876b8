// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;

/**
 * What the holder of a lock writes to. It notes each effect with the instant before the check that
 * allowed it.
 */
record Resource(String url, String owner) {
    private static final int BOUND_MS = 2000;

    void effect(final String lock, final String token, final long checked) {
        try {
            final var call = (HttpURLConnection) URI.create(url + "/effect").toURL().openConnection();
            call.setConnectTimeout(BOUND_MS);
            call.setReadTimeout(BOUND_MS);
            call.setRequestMethod("POST");
            call.setRequestProperty("Tenure-Lock", lock);
            call.setRequestProperty("Tenure-Token", token);
            call.setRequestProperty("Effect-Owner", owner);
            call.setRequestProperty("Effect-Checked", Long.toString(checked));
            // A stream of a known length is not sent again by the virtual machine.
            call.setDoOutput(true);
            call.setFixedLengthStreamingMode(0);
            call.getOutputStream().close();
            final boolean refused = call.getResponseCode() >= 400;
            try (InputStream body = refused ? call.getErrorStream() : call.getInputStream()) {
                if (body != null) {
                    body.readAllBytes();
                }
            }
        } catch (final IOException e) {
            // It was noted, or it was not: the resource's log says so.
        }
    }
}
