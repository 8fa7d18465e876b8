// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.Optional;

/** The answer to an acquire. The lease is in nanoseconds. */
record Grant(String name, long token, String beat, long lease, Optional<byte[]> data) {}
