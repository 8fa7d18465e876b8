// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.Optional;

/**
 * The answer to an acquire, or to the opening of a session, whose name is its id. Lengths are in nanoseconds. The
 * holder may act for usable after it sent that; if 0, the grant must not be counted. A heartbeat is due each period.
 */
record Grant(String name, long token, String beat, long lease, Optional<byte[]> data, long usable, long period) {}
