// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.function.Predicate;

/** Sends calls. May be used concurrently. */
@FunctionalInterface
public interface Transport {
    /**
     * Posts the body once, and returns the whole answer within the limit. It follows no redirect and
     * repeats nothing.
     *
     * @param url where to
     * @param headers the headers to send
     * @param body the body to send
     * @param limit for how long to wait, at most
     * @throws IOException if there is no answer within the limit
     * @throws InterruptedException if the thread is interrupted; the call is ended then
     */
    Reply post(String url, Map<String, String> headers, String body, Duration limit)
            throws IOException, InterruptedException;

    /**
     * Posts the body once, as the other method does, and hands an answer of the type text/event-stream on
     * as it comes; the reply has no body then. By default it is handed on at its end.
     *
     * @param url where to
     * @param headers the headers to send
     * @param body the body to send
     * @param limit for how long to wait, at most
     * @param events takes each part of such an answer in this thread, and returns true once it needs no more;
     *     what it throws ends the call
     * @throws IOException if the answer has no end within the limit
     * @throws InterruptedException if the thread is interrupted; the call is ended then
     */
    default Reply post(
            final String url,
            final Map<String, String> headers,
            final String body,
            final Duration limit,
            final Predicate<byte[]> events)
            throws IOException, InterruptedException {
        final Reply reply = post(url, headers, body, limit);
        if (!Events.isStream(reply.contentType())) {
            return reply;
        }
        events.test(reply.body().getBytes(StandardCharsets.UTF_8));
        return new Reply(reply.status(), reply.contentType(), "", reply.retryAfter());
    }
}
