// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** One heartbeat. It is the same in each sending; firstSent is the instant before the first. */
record Heartbeat(String after, String next, long firstSent) {}
