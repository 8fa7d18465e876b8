// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/**
 * The last term in which somebody wrote under a lock for readers and writers.
 *
 * @param owner who wrote
 * @param token the {@link Lock#token} of its term; its {@link Lock#fenceToken} is twice as high
 * @param end how the term ended: unless it is {@code released}, the data may be half written
 */
public record LastWriter(String owner, long token, String end) {}
