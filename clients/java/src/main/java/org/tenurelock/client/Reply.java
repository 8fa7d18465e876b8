// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/**
 * An HTTP answer, whole.
 *
 * @param status the status
 * @param contentType the header Content-Type, may be empty
 * @param body the body
 * @param retryAfter the header Retry-After, may be empty
 */
public record Reply(int status, String contentType, String body, String retryAfter) {}
