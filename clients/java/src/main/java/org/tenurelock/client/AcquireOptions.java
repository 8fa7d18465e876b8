// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.Optional;
import java.util.function.Consumer;

/** How a lock is acquired. Immutable: each method returns another one. */
public final class AcquireOptions {
    private static final AcquireOptions DEFAULTS = new AcquireOptions(new Values());

    /** The values; copied before one is set. */
    private static final class Values implements Cloneable {
        private String owner = "";
        private Duration wait; // null: without an end
        private String label = "";
        private byte[] data; // null: none
        private Duration stopTimeout; // null: the lease duration
        private Consumer<TenureException> onStop = reason -> {};
        private Consumer<HeldException> waiting; // null: none
        private boolean history;

        Values copy() {
            try {
                return (Values) clone();
            } catch (final CloneNotSupportedException error) {
                throw new AssertionError(error);
            }
        }
    }

    private static final int MOST_DATA = 256 * 1024;

    private final Values values;

    private AcquireOptions(final Values values) {
        this.values = values;
    }

    /** Returns the defaults: wait without an end, under an owner made of host and process id. */
    public static AcquireOptions defaults() {
        return DEFAULTS;
    }

    /** Refuses half of a surrogate pair, as JSON and substrings can make it: it is no character. */
    static void checkText(final String what, final String text) {
        text.codePoints().filter(c -> Character.MIN_SURROGATE <= c && c <= Character.MAX_SURROGATE).findFirst().ifPresent(c -> {
            throw new IllegalArgumentException(
                    String.format("%s has U+%04X, half of a character: want Unicode text", what, c));
        });
    }

    /** Refuses data that no store keeps: a release with them would be repeated in vain. */
    static void checkData(final byte[] data) {
        if (data.length > MOST_DATA) {
            throw new IllegalArgumentException(
                    "data has " + data.length + " bytes: at most " + MOST_DATA + " are allowed");
        }
    }

    private AcquireOptions with(final Consumer<Values> set) {
        final Values copy = values.copy();
        set.accept(copy);
        return new AcquireOptions(copy);
    }

    /** Sets the name that people see. By default it is host, process id and a random part. */
    public AcquireOptions owner(final String owner) {
        checkText("owner", owner);
        return with(v -> v.owner = owner);
    }

    /** Sets how long to wait for the lock. Zero only tries. By default the wait has no end. */
    public AcquireOptions waitAtMost(final Duration wait) {
        if (wait.isNegative()) {
            throw new IllegalArgumentException("wait is " + wait + ": want zero to try, or more");
        }
        return with(v -> v.wait = wait);
    }

    /** Sets what is shown beside the owner. */
    public AcquireOptions label(final String label) {
        checkText("label", label);
        return with(v -> v.label = label);
    }

    /** Sets the data to put into the record: 256 KiB at most. */
    public AcquireOptions data(final byte[] data) {
        checkData(data);
        final byte[] kept = data.clone();
        return with(v -> v.data = kept);
    }

    /**
     * Sets how long the work may go on after the holder was asked to stop. By default the lease duration.
     */
    public AcquireOptions stopTimeout(final Duration stopTimeout) {
        if (stopTimeout.isNegative() || stopTimeout.isZero()) {
            throw new IllegalArgumentException("stop timeout is " + stopTimeout + ": want more than zero");
        }
        return with(v -> v.stopTimeout = stopTimeout);
    }

    /**
     * Sets a function that is called with the reason when the work must stop: at an {@link AskedException},
     * at a {@link LostException}, or both, one after the other. It runs in a thread of its own.
     */
    public AcquireOptions onStop(final Consumer<TenureException> onStop) {
        return with(v -> v.onStop = onStop);
    }

    /**
     * Sets a function that is called with each new holder that the acquire waits for, as soon as the service
     * sees it. It is called in the thread that acquires: while it runs nothing of the acquire goes on, and
     * what it throws ends the acquire.
     */
    public AcquireOptions waiting(final Consumer<HeldException> waiting) {
        return with(v -> v.waiting = waiting);
    }

    /**
     * Keeps the former holder's term, for {@code tenure history} and the dashboard. Each term costs the service
     * one more write.
     */
    public AcquireOptions history() {
        return with(v -> v.history = true);
    }

    String owner() {
        return values.owner;
    }

    Optional<Duration> waitAtMost() {
        return Optional.ofNullable(values.wait);
    }

    String label() {
        return values.label;
    }

    Optional<byte[]> data() {
        return Optional.ofNullable(values.data);
    }

    Optional<Duration> stopTimeout() {
        return Optional.ofNullable(values.stopTimeout);
    }

    Consumer<TenureException> onStop() {
        return values.onStop;
    }

    Optional<Consumer<HeldException>> waiting() {
        return Optional.ofNullable(values.waiting);
    }

    boolean keepsHistory() {
        return values.history;
    }
}
