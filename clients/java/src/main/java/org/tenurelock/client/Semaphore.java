// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/**
 * A number of slots under a name, of which each is a lock. Made by {@link TenureClient#semaphore} and {@link
 * Session#semaphore}. All methods may be called concurrently.
 */
public final class Semaphore {
    private final Wanted wanted;
    private final Acquirer acquirer;

    Semaphore(final Wanted wanted, final Acquirer acquirer) {
        this.wanted = wanted;
        this.acquirer = acquirer;
    }

    /** Acquires a slot and waits for it without an end: see {@link #acquire(AcquireOptions)}. */
    public Lock acquire() throws InterruptedException {
        return acquire(AcquireOptions.defaults());
    }

    /**
     * Acquires a slot and returns it held. The resource compares its token with those under its name, which is
     * {@code NAME:slot/NUMBER}.
     *
     * @throws HeldException if all slots are held until the wait is over; it has one of the holders
     * @throws UnavailableException if no server answered
     * @throws ProblemException if the call was refused: a {@code bad-request} by a server that has no semaphores
     * @throws InterruptedException if the thread is interrupted; nothing is held then
     */
    public Lock acquire(final AcquireOptions options) throws InterruptedException {
        return acquirer.acquire(wanted, options);
    }

    /**
     * Acquires a slot, does the work in this thread, releases it, and returns what came of it.
     *
     * @throws Exception as {@link TenureClient#run}
     */
    public <T> T run(final AcquireOptions options, final TenureClient.Work<T> work) throws Exception {
        return Working.under(acquire(options), work);
    }
}
