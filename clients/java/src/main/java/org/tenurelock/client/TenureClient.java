// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.function.LongSupplier;
import javax.net.ssl.SSLContext;

/**
 * Acquires locks through the servers of a lock service.
 *
 * <p>Any server serves; a call that has no answer goes to the next one. The client keeps no connection
 * that must be closed. All methods may be called concurrently.
 */
public final class TenureClient {
    private final List<String> servers;
    private final Credentials credentials;
    private final Transport transport;
    private final Env env;

    private TenureClient(final Builder builder) {
        servers = Caller.addresses(builder.servers);
        credentials = new Credentials(builder.token, builder.tokenFile);
        transport = builder.transport == null ? new HttpTransport(Optional.ofNullable(builder.tls)) : builder.transport;
        env = new Env(this::caller, builder.clock == null ? new GreaterClock() : builder.clock, builder.step);
    }

    /**
     * Begins a client of the servers.
     *
     * @param servers their addresses, as {@code http://HOST:PORT} or {@code https://HOST:PORT}
     */
    public static Builder of(final String... servers) {
        return new Builder(List.of(servers));
    }

    /** Makes a client. */
    public static final class Builder {
        private final List<String> servers;
        private String token;
        private Path tokenFile;
        private SSLContext tls;
        private Transport transport;
        private LongSupplier clock;
        private Duration step = Duration.ofSeconds(1);

        private Builder(final List<String> servers) {
            this.servers = servers;
        }

        /** Sets the bearer token. */
        public Builder token(final String given) {
            token = given;
            return this;
        }

        /** Sets a file that has the bearer token. It is read again for each call. */
        public Builder tokenFile(final Path given) {
            tokenFile = given;
            return this;
        }

        /** Sets the certificates for https, those of the client included. */
        public Builder tls(final SSLContext given) {
            tls = given;
            return this;
        }

        /** Sets what sends the calls, in place of the HTTP client of the JDK. */
        public Builder transport(final Transport given) {
            transport = given;
            return this;
        }

        /** Sets the clock: it tells elapsed time, suspends included, in nanoseconds. */
        public Builder clock(final LongSupplier given) {
            clock = given;
            return this;
        }

        /** Sets the longest sleep between two readings of the clock, for tests. */
        Builder step(final Duration given) {
            step = given;
            return this;
        }

        /**
         * Returns the client.
         *
         * @throws IllegalArgumentException if an address or the token is not as it must be
         */
        public TenureClient build() {
            return new TenureClient(this);
        }
    }

    /** Acquires the lock and waits for it without an end: see {@link #acquire(String, AcquireOptions)}. */
    public Lock acquire(final String name) throws InterruptedException {
        return acquire(name, AcquireOptions.defaults());
    }

    /**
     * Acquires the lock and returns it held: its first heartbeat is confirmed.
     *
     * @throws HeldException if another holder has it until the wait is over
     * @throws UnavailableException if no server answered
     * @throws ProblemException if the call was refused, for example for lack of rights
     * @throws InterruptedException if the thread is interrupted; nothing is held then
     */
    public Lock acquire(final String name, final AcquireOptions options) throws InterruptedException {
        return acquire(Wanted.lock(name), options);
    }

    private Lock acquire(final Wanted wanted, final AcquireOptions options) throws InterruptedException {
        return new Acquiring<Lock>(wanted, options, env) {
            @Override
            Lock take(final Grant grant, final long sent) throws InterruptedException {
                final Lock lock = new Lock(grant, options, env, null);
                boolean held = false;
                try {
                    lock.granted(sent);
                    held = lock.start() && ready(lock);
                } finally {
                    if (!held) {
                        lock.giveBack();
                    }
                }
                return held ? lock : null;
            }
        }.run();
    }

    /**
     * Returns a semaphore: a name under which so many may hold a slot each.
     *
     * @param name the name
     * @param slots how many slots it has, 1 to 1000. It counts only the first time that the name is used; after that
     *     the number in the store does
     */
    public Semaphore semaphore(final String name, final int slots) {
        return new Semaphore(new Wanted(name, Wanted.Kind.SLOT, slots), this::acquire);
    }

    /** Returns a lock for readers and writers: under its name any number may read, or one may write. */
    public RwLock rwlock(final String name) {
        return new RwLock(name, this::acquire);
    }

    /** Opens a session under an owner made of host and process id: see {@link #session(AcquireOptions)}. */
    public Session session() throws InterruptedException {
        return session(AcquireOptions.defaults());
    }

    /**
     * Opens a session: one heartbeat that keeps many locks alive. Its first heartbeat is confirmed.
     *
     * @param options of them it uses owner, label and data, for its own record; waitAtMost, for how long to try;
     *     onStop, at its end; and stopTimeout, for how long its closing waits for work of {@link Session#run}
     * @throws NoSessionsException if the store of the server keeps no sessions: acquire each lock by itself
     * @throws UnavailableException if no server answered
     * @throws ProblemException if the call was refused
     * @throws InterruptedException if the thread is interrupted; the session expires by itself then
     */
    public Session session(final AcquireOptions options) throws InterruptedException {
        final AcquireOptions given = options.owner().isEmpty() ? options.owner(Acquiring.madeOwner()) : options;
        return new Acquiring<Session>(null, given, env) {
            @Override
            Session take(final Grant grant, final long sent) throws InterruptedException {
                final Session session = new Session(grant, given, env);
                return session.start(sent) ? session : null;
            }
        }.run();
    }

    /**
     * What is done under a lock.
     *
     * @param <T> what comes of it
     */
    @FunctionalInterface
    public interface Work<T> {
        /** Works. It must end when the thread is interrupted. */
        T under(Lock lock) throws Exception;
    }

    /**
     * Acquires the lock, does the work in this thread, releases the lock, and returns what came of it.
     *
     * <p>The thread is interrupted when the work must stop. If the work ends by an {@link
     * InterruptedException} then, the reason is thrown in its place: an {@link AskedException} or a
     * {@link LostException}.
     *
     * @throws LostException if the lock was lost before the work was done
     * @throws Exception what the work throws; otherwise as {@link #acquire(String, AcquireOptions)}
     */
    public <T> T run(final String name, final AcquireOptions options, final Work<T> work) throws Exception {
        return Working.under(acquire(name, options), work);
    }

    private Caller caller() {
        return new Caller(servers, credentials, transport);
    }
}
