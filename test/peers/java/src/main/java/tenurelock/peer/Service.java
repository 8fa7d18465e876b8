// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import org.tenurelock.client.AcquireOptions;
import org.tenurelock.client.HeldException;
import org.tenurelock.client.Lines;
import org.tenurelock.client.Lock;
import org.tenurelock.client.LostException;
import org.tenurelock.client.Session;
import org.tenurelock.client.TenureClient;
import org.tenurelock.client.TenureException;

/** The client of the lock service. */
final class Service implements Library {
    private final Set<Thread> waiting = ConcurrentHashMap.newKeySet();
    private TenureClient client;
    private String owner;
    private boolean under; // a session
    private Session session;

    public static void main(final String[] args) throws IOException {
        new Peer(new Service()).serve();
    }

    @Override
    public Map<String, Object> about() {
        return Map.of("version", "this checkout", "runtime", "Java " + System.getProperty("java.version"));
    }

    @Override
    public Map<String, Object> read(final String line) {
        return Lines.read(line);
    }

    @Override
    public String write(final Map<String, Object> line) {
        return Lines.write(line);
    }

    @Override
    public void open(final Request request) {
        final String given = request.text("owner");
        under = request.flag("session");
        owner = given.isEmpty() ? Long.toString(ProcessHandle.current().pid()) : given;
        client = TenureClient.of(request.text("endpoint").split(",")).token(request.text("secret")).build();
    }

    /** Ends the acquires that wait. There is nothing else to close: a lock is its own. */
    @Override
    public void close() {
        waiting.forEach(Thread::interrupt);
    }

    @Override
    public Held acquire(final Request request) throws Exception {
        AcquireOptions options = AcquireOptions.defaults().owner(owner).history();
        if (request.flag("tryOnly")) {
            options = options.waitAtMost(Duration.ZERO);
        } else if (request.has("waitMs")) {
            options = options.waitAtMost(Duration.ofNanos(request.nanos("waitMs")));
        }
        waiting.add(Thread.currentThread());
        try {
            if (under && (session == null || session.over().isDone())) {
                session = client.session(options);
            }
            final Lock lock = lock(request, options);
            return new Leased(lock, owner, lock.stopping()); // each call of stopping makes another one
        } finally {
            waiting.remove(Thread.currentThread());
        }
    }

    private Lock lock(final Request request, final AcquireOptions options) throws InterruptedException {
        final String name = request.text("name");
        switch (request.text("mode")) {
            case "read":
                return (under ? session.rwlock(name) : client.rwlock(name)).read(options);
            case "write":
                return (under ? session.rwlock(name) : client.rwlock(name)).write(options);
            case "slot":
                final int slots = request.number("slots").orElseThrow().intValue();
                return (under ? session.semaphore(name, slots) : client.semaphore(name, slots)).acquire(options);
            default:
                return under ? session.acquire(name, options) : client.acquire(name, options);
        }
    }

    @Override
    public String kind(final Throwable thrown, final Request request) {
        if (thrown instanceof HeldException) {
            return request.flag("tryOnly") ? "held" : "timeout";
        }
        return thrown instanceof LostException ? "lost" : "other";
    }

    private record Leased(Lock lock, String owner, Future<?> stop) implements Held {
        @Override
        public boolean check() {
            try {
                lock.check();
                return true;
            } catch (final TenureException e) {
                return false;
            }
        }

        @Override
        public Map<String, Object> describe() {
            return Map.of("name", lock.name(), "owner", owner, "token", lock.token());
        }

        @Override
        public void release(final Request request) throws TenureException {
            lock.release();
        }

        @Override
        public String token() {
            return Long.toString(lock.fenceToken());
        }

        @Override
        public String name(final Request request) {
            return lock.slot().isPresent() ? lock.name() : Held.super.name(request);
        }

        @Override
        public void whenLost(final Runnable told) {
            lock.over().thenAccept(reason -> {
                if (reason instanceof LostException) {
                    told.run();
                }
            });
        }

        @Override
        public boolean stopping() {
            return stop.isDone();
        }
    }
}
