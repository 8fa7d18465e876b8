// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;

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
}
