// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/**
 * Locks that one process at a time holds, through Tenure's lock service.
 *
 * <p>A lock is held from its first confirmed heartbeat until its deadline, by a clock that counts
 * suspends. {@link org.tenurelock.client.Lock#check} is exact; {@link
 * org.tenurelock.client.TenureClient#run} interrupts the work when it must stop.
 *
 * <p>{@link org.tenurelock.client.TenureClient#session} keeps many locks alive by one heartbeat. {@link
 * org.tenurelock.client.TenureClient#semaphore} lets several hold a slot each, and {@link
 * org.tenurelock.client.TenureClient#rwlock} many read or one write.
 *
 * <p>A process can be paused between its check and its effect. What must never be overwritten
 * compares {@link org.tenurelock.client.Lock#token}, which only rises, with the highest that it has
 * seen.
 */
package org.tenurelock.client;
