// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What may be held under a session, and what is asked of its holders: a state machine without I/O. A request is
 * answered when its lock is released, or if the client does not hold it.
 *
 * <p>The methods must not be called concurrently.
 *
 * @param <T> who holds a lock
 */
final class Members<T> {
    private static final int MOST_ANSWERED = 64; // in one heartbeat: the limit of the server

    private record Term(String name, long token) {}

    private final Map<Term, T> held = new HashMap<>();
    private List<Answer.Request> requests = List.of(); // of the last confirmed heartbeat
    private Heartbeat sent; // the last one; null before
    private List<String> answered = List.of(); // what it names

    /** Adds the holder of a granted lock, before that is attached. */
    void add(final Grant grant, final T holder) {
        held.put(new Term(grant.name(), grant.token()), holder);
    }

    /** Removes it, once nothing can be in the name of the session any more. */
    void remove(final Grant grant, final T holder) {
        held.remove(new Term(grant.name(), grant.token()), holder);
    }

    List<T> all() {
        return List.copyOf(held.values());
    }

    /** Returns the ids of the requests that a heartbeat names as answered: the same each time that it is sent. */
    List<String> answered(final Heartbeat heartbeat) {
        if (!heartbeat.equals(sent)) {
            sent = heartbeat;
            answered = requests.stream()
                    .filter(request -> !held.containsKey(new Term(request.name(), request.token())))
                    .map(Answer.Request::id)
                    .limit(MOST_ANSWERED)
                    .toList();
        }
        return answered;
    }

    /** Records the requests of a confirmed heartbeat, and returns what is asked of whom. */
    Map<T, AskedException> hear(final List<Answer.Request> given) {
        requests = given;
        final Map<T, AskedException> asked = new HashMap<>();
        for (final Answer.Request request : given) {
            final T holder = held.get(new Term(request.name(), request.token()));
            if (holder != null) {
                asked.putIfAbsent(holder, request.asked());
            }
        }
        return asked;
    }
}
