// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.Optional;

/** Does work under a lock, and interrupts it when it must stop. */
final class Working {
    private Working() {}

    /** Does the work in this thread, releases the lock, and returns what came of it. */
    static <T> T under(final Lock lock, final TenureClient.Work<T> work) throws Exception {
        final Interrupts interrupts = new Interrupts(Thread.currentThread());
        Throwable failed = null;
        try {
            lock.works(Thread.currentThread(), true);
            lock.listen(interrupts::stop);
            return work.under(lock);
        } catch (final InterruptedException error) {
            failed = interrupts.reason().map(Throwable.class::cast).orElse(error);
            if (failed instanceof TenureException reason) {
                reason.addSuppressed(error);
                throw reason;
            }
            throw error;
        } catch (final Throwable error) {
            failed = error;
            throw error;
        } finally {
            interrupts.end();
            lock.works(Thread.currentThread(), false);
            lock.close(failed);
        }
    }

    /** Interrupts the thread of a work, and never after it. */
    private static final class Interrupts {
        private final Thread worker;
        private TenureException reason;
        private boolean over;
        private boolean sent;

        Interrupts(final Thread worker) {
            this.worker = worker;
        }

        synchronized void stop(final TenureException given) {
            if (over) {
                return;
            }
            reason = given;
            sent = true;
            worker.interrupt();
        }

        synchronized Optional<TenureException> reason() {
            return Optional.ofNullable(reason);
        }

        /** Ends it. An interrupt of ours that the work did not take is taken back. */
        synchronized void end() {
            over = true;
            if (sent) {
                Thread.interrupted();
            }
        }
    }
}
