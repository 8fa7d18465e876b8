// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

/** Does what an interrupt must not leave half done. */
final class Patience {
    private Patience() {}

    /** What can be interrupted. */
    @FunctionalInterface
    interface Task {
        void run() throws InterruptedException;
    }

    /**
     * Runs the task, and again if it is interrupted: everything in it may happen twice. The thread is
     * interrupted afterwards, if it was before or meanwhile.
     */
    static void uninterrupted(final Task task) {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                try {
                    task.run();
                    return;
                } catch (final InterruptedException error) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
