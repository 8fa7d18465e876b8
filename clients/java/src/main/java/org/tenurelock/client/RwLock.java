// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/**
 * A name under which any number may read, or one may write. Made by {@link TenureClient#rwlock} and {@link
 * Session#rwlock}. All methods may be called concurrently.
 *
 * <p>The resource compares {@link Lock#fenceToken}. {@link Lock#lastWriter} says how the last writer ended: after one
 * that crashed the data may be half written.
 */
public final class RwLock {
    private final Wanted reads;
    private final Wanted writes;
    private final Acquirer acquirer;

    RwLock(final String name, final Acquirer acquirer) {
        reads = new Wanted(name, Wanted.Kind.READ, 0);
        writes = new Wanted(name, Wanted.Kind.WRITE, 0);
        this.acquirer = acquirer;
    }

    /** Acquires the right to read and waits for it without an end: see {@link #read(AcquireOptions)}. */
    public Lock read() throws InterruptedException {
        return read(AcquireOptions.defaults());
    }

    /**
     * Acquires the right to read, beside others who read. The options must have no data.
     *
     * @throws HeldException if somebody writes until the wait is over
     * @throws UnavailableException if no server answered
     * @throws ProblemException if the call was refused: a {@code bad-request} by a server that has no such locks
     * @throws InterruptedException if the thread is interrupted; nothing is held then
     */
    public Lock read(final AcquireOptions options) throws InterruptedException {
        return acquire(reads, options);
    }

    /** Acquires the right to write and waits for it without an end: see {@link #write(AcquireOptions)}. */
    public Lock write() throws InterruptedException {
        return write(AcquireOptions.defaults());
    }

    /**
     * Acquires the right to write, alone: returns it once all who read before are gone. A process that reads must end
     * that before, since it would wait for itself. The options must have no data.
     *
     * @throws HeldException if others read or write until the wait is over; it has one of them
     * @throws UnavailableException if no server answered
     * @throws ProblemException if the call was refused: a {@code bad-request} by a server that has no such locks
     * @throws InterruptedException if the thread is interrupted; nothing is held then
     */
    public Lock write(final AcquireOptions options) throws InterruptedException {
        return acquire(writes, options);
    }

    /**
     * Reads in this thread, then releases the right, and returns what came of it.
     *
     * @throws Exception as {@link TenureClient#run}
     */
    public <T> T runRead(final AcquireOptions options, final TenureClient.Work<T> work) throws Exception {
        return Working.under(read(options), work);
    }

    /**
     * Writes in this thread, then releases the right, and returns what came of it.
     *
     * @throws Exception as {@link TenureClient#run}
     */
    public <T> T runWrite(final AcquireOptions options, final TenureClient.Work<T> work) throws Exception {
        return Working.under(write(options), work);
    }

    private Lock acquire(final Wanted wanted, final AcquireOptions options) throws InterruptedException {
        if (options.data().isPresent()) {
            throw new IllegalArgumentException("data: a lock for readers and writers stores its own in its records; "
                    + "keep yours with the resource");
        }
        return acquirer.acquire(wanted, options);
    }
}
