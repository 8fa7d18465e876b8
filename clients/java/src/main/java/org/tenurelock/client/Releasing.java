// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;

/** Makes the calls of a release, of a lock or of a session. An interrupt does not end it. For one use. */
final class Releasing {
    private final String what;
    private final String path;
    private final Function<String, Map<String, Object>> body;
    private final Function<Reply, Answer> read;
    private final Object mutex; // guards the lease, which the release may read
    private final Env env;
    private final Duration limit;
    private final Caller caller;

    /** The function body makes the body of the call that names a beat. */
    Releasing(
            final String what,
            final String path,
            final Function<String, Map<String, Object>> body,
            final Function<Reply, Answer> read,
            final Object mutex,
            final Env env,
            final Duration limit) {
        this.what = what;
        this.path = path;
        this.body = body;
        this.read = read;
        this.mutex = mutex;
        this.env = env;
        this.limit = limit;
        caller = env.callers().get();
    }

    /** Makes the calls, and returns what is wrong; null if it is released. */
    TenureException run(final Release release) {
        String unknown = "none";
        for (Optional<String> beat = next(release); beat.isPresent(); beat = next(release)) {
            final Answer answer = call(body.apply(beat.get()));
            if (answer instanceof Answer.Done) {
                release.applied();
            } else if (answer.is("lost")) {
                release.refused();
            } else {
                release.unknown();
                unknown = answer.describe();
                Patience.uninterrupted(() -> TimeUnit.NANOSECONDS.sleep(caller.backoff().toNanos()));
            }
        }
        switch (release.outcome().orElseThrow()) {
            case UNKNOWN:
                return new UncertainException("the release of "
                        + what
                        + " got no answer: it is released, or expires by itself; last answer: "
                        + unknown);
            case LOST:
                return new LostException(what + " was lost before it was released");
            default:
                return null;
        }
    }

    private Optional<String> next(final Release release) {
        synchronized (mutex) {
            return release.call(env.now());
        }
    }

    /** Sends a call once. */
    private Answer call(final Map<String, Object> fields) {
        final AtomicReference<Answer> answer = new AtomicReference<>();
        Patience.uninterrupted(() -> {
            // Of the second try of a call that was interrupted nothing is known but that it was none.
            final boolean again = answer.getAndSet(new Answer.Unknown("interrupted")) != null;
            if (!again) {
                answer.set(caller.exchange(path, fields, limit, read));
            }
        });
        return answer.get();
    }
}
