// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.tenurelock.client.FakeService.Fault;
import org.tenurelock.client.FakeService.ManualClock;

/** Slots of a semaphore, readers and writers, against a service in memory. */
@Timeout(60)
final class SharedTest {
    private static final String ACQUIRE = "/v1/acquire";
    private static final String HEARTBEAT = "/v1/heartbeat";
    private static final String RELEASE = "/v1/release";
    private static final String DRAIN = "/v1/drain";
    private static final AcquireOptions TRY = AcquireOptions.defaults().waitAtMost(Duration.ZERO);
    private static final AcquireOptions WAIT = AcquireOptions.defaults();
    private static final Duration FULL = Duration.ofSeconds(12);

    private final FakeService service = new FakeService();
    private final ManualClock clock = new ManualClock();
    private final List<Lock> locks = new ArrayList<>();
    private final List<Session> sessions = new ArrayList<>();

    @AfterEach
    void end() {
        service.heal();
        locks.forEach(Lock::giveBack);
        for (final Session session : sessions) {
            try {
                session.close();
            } catch (final TenureException error) {
                // The test was about that.
            }
        }
    }

    private TenureClient client() {
        final TenureClient.Builder builder = TenureClient.of("http://127.0.0.1:1").token("t").transport(service);
        // The step is how soon a clock that was moved is read.
        return builder.clock(clock::read).step(Duration.ofMillis(10)).build();
    }

    private Lock kept(final Lock lock) {
        locks.add(lock);
        return lock;
    }

    private Lock read() throws InterruptedException {
        return kept(client().rwlock("catalog").read(TRY));
    }

    private Lock write(final AcquireOptions options) throws InterruptedException {
        return kept(client().rwlock("catalog").write(options));
    }

    private static void until(final BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) { // bounded by the time-out of the test
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    private static Fault says(final String kind, final int status) {
        return (s, path, body) -> FakeService.problem(kind, status, Map.of());
    }

    private List<Object> sent(final String path, final String key) {
        return service.bodies(path).stream().map(body -> body.get(key)).toList();
    }

    /** Begins to write in another thread. */
    private FutureTask<Lock> writes() {
        final FutureTask<Lock> writing = new FutureTask<>(() -> write(WAIT));
        new Thread(writing).start();
        return writing;
    }

    @Test
    void slots() throws InterruptedException {
        final Semaphore renders = client().semaphore("renders", 2);
        final Lock first = kept(renders.acquire(WAIT.history()));
        final Lock second = kept(renders.acquire(TRY));
        assertEquals(List.of("renders:slot/0", "renders:slot/1"), List.of(first.name(), second.name()));
        assertEquals("OptionalInt[1] of OptionalInt[2]", second.slot() + " of " + second.slots());
        assertEquals(second.token(), second.fenceToken());
        assertThrows(HeldException.class, () -> renders.acquire(TRY));
        clock.advance(3000);
        until(() -> second.remaining().equals(FULL));
        assertEquals(2, sent(HEARTBEAT, "name").stream().filter("renders:slot/1"::equals).count());
        first.release();
        assertEquals(List.of("renders:slot/0"), sent(RELEASE, "name"));
        assertEquals(List.of(2L, 2L, 2L), sent(ACQUIRE, "slots"));
        assertEquals(Arrays.asList(true, null, null), sent(ACQUIRE, "history"));
        assertThrows(IllegalArgumentException.class, () -> client().semaphore("renders", 0));
        assertThrows(IllegalArgumentException.class, () -> client().semaphore("renders", 1001));
        assertThrows(IllegalArgumentException.class, () -> client().semaphore("", 1));
    }

    @Test
    void aPlainLockHasNothingOfThem() throws InterruptedException {
        final Lock lock = kept(client().acquire("n"));
        assertEquals(OptionalInt.empty(), lock.slot());
        assertEquals(OptionalInt.empty(), lock.slots());
        assertEquals(Optional.empty(), lock.lastWriter());
        assertEquals(lock.token(), lock.fenceToken());
    }

    @Test
    void workInASlot() throws Exception {
        assertEquals(1L, client().semaphore("renders", 2).run(TRY, Lock::token));
        assertFalse(service.held("renders:slot/0"));
        final RwLock catalog = client().rwlock("catalog");
        assertEquals(2L, catalog.runWrite(TRY, Lock::fenceToken));
        assertEquals(3L, catalog.runRead(TRY, Lock::fenceToken));
        assertFalse(service.held("catalog:gate") || service.held("catalog:read/0"));
    }

    @Test
    void readersAndWriters() throws InterruptedException {
        final Lock first = read();
        final Lock second = read();
        assertEquals(List.of("catalog:read/0", "catalog:read/1"), List.of(first.name(), second.name()));
        assertEquals(1, first.fenceToken());
        assertEquals(Optional.empty(), first.lastWriter());
        assertThrows(HeldException.class, () -> write(TRY));
        first.release();
        second.release();
        final Lock writer = write(TRY.owner("web-7"));
        assertEquals("catalog:gate 1 2", writer.name() + " " + writer.token() + " " + writer.fenceToken());
        assertThrows(HeldException.class, this::read);
        writer.release(null, "disk full");
        final Lock after = read();
        assertEquals(3, after.fenceToken());
        assertEquals(new LastWriter("web-7", 1, "failed"), after.lastWriter().orElseThrow());
        assertEquals(List.of(), service.bodies(DRAIN)); // there was nobody to wait for
    }

    @Test
    void aWriterWaitsForTheReadersThatWereThere() throws Exception {
        final Lock reader = read();
        service.next(DRAIN, FakeService.DROPPED, says("unknown", 503), FakeService.BAD_GATEWAY);
        service.next(DRAIN, says("unauthenticated", 401), says("forbidden", 403));
        final FutureTask<Lock> writing = writes();
        until(() -> service.bodies(DRAIN).size() > 6 || writing.isDone());
        assertFalse(writing.isDone());
        for (int i = 2; i < 5; i++) { // and keeps the gate meanwhile
            clock.advance(3000);
            final int beats = i;
            until(() -> sent(HEARTBEAT, "name").stream().filter("catalog:gate"::equals).count() == beats);
        }
        assertFalse(writing.isDone());
        reader.release();
        final Lock writer = writing.get();
        writer.check();
        assertEquals(
                Map.of("name", "catalog:gate", "token", 1L, "wait_ms", 5000L), service.bodies(DRAIN).get(0));
        writer.release();
        assertEquals(Collections.singletonList(null), sent(RELEASE, "data").subList(1, 2)); // it may have written
    }

    @Test
    void aWriterThatGivesUpHasNotWritten() throws InterruptedException {
        read();
        final List<String> met = new ArrayList<>();
        final AcquireOptions soon = AcquireOptions.defaults().waitAtMost(Duration.ofSeconds(3)).owner("web-7");
        assertThrows(HeldException.class, () -> write(soon.waiting(held -> met.add(held.holder()))));
        assertEquals(1, met.size());
        assertEquals(List.of(FakeService.UNWRITTEN), sent(RELEASE, "data"));
        assertFalse(service.held("catalog:gate"));
        assertEquals(Optional.empty(), read().lastWriter());
    }

    @Test
    void aWriterThatIsInterruptedHasNotWritten() throws Exception {
        read();
        final FutureTask<Lock> writing = new FutureTask<>(() -> write(WAIT));
        final Thread thread = new Thread(writing);
        thread.start();
        until(() -> !service.bodies(DRAIN).isEmpty());
        thread.interrupt();
        assertThrows(java.util.concurrent.ExecutionException.class, writing::get);
        assertEquals(List.of(FakeService.UNWRITTEN), sent(RELEASE, "data"));
        assertFalse(service.held("catalog:gate"));
    }

    @Test
    void aGateThatIsLostMeanwhileIsNoLock() throws Exception {
        final Lock reader = read();
        service.next(DRAIN, (s, path, body) -> {
            s.free("catalog:gate");
            return s.carryOut(path, body);
        });
        final FutureTask<Lock> writing = writes();
        until(() -> service.bodies(DRAIN).size() > 1);
        reader.release();
        assertEquals(2, writing.get().token());
    }

    @Test
    void anAnswerAfterTheDeadlineOfTheGateDoesNotCount() throws Exception {
        read();
        final List<TenureException> told = Collections.synchronizedList(new ArrayList<>());
        service.next(DRAIN, (s, path, body) -> {
            s.free("catalog:read/0");
            clock.advance(12000); // the next writer has begun
            return s.carryOut(path, body);
        });
        final Lock writer = write(WAIT.onStop(told::add));
        writer.check();
        assertEquals(2, writer.token());
        assertEquals(List.of(), told); // the program never had the first one
    }

    @Test
    void aWriterThatIsAskedWhileItWaitsGivesUp() throws Exception {
        final Lock reader = read();
        final FutureTask<Lock> writing = writes();
        until(() -> !service.bodies(DRAIN).isEmpty());
        service.ask("step-down");
        clock.advance(3000);
        until(() -> service.bodies(RELEASE).size() == 1);
        assertEquals(List.of(FakeService.UNWRITTEN), sent(RELEASE, "data"));
        reader.release();
        assertTrue(writing.get().token() > 1);
    }

    @Test
    void theSameUnderASession() throws Exception {
        final Session session = client().session();
        sessions.add(session);
        final Lock slot = session.semaphore("renders", 3).acquire(TRY);
        assertEquals("renders:slot/0 OptionalInt[0]", slot.name() + " " + slot.slot());
        final Lock reader = read();
        final FutureTask<Lock> writing = new FutureTask<>(() -> session.rwlock("catalog").write());
        new Thread(writing).start();
        until(() -> !service.bodies(DRAIN).isEmpty());
        clock.advance(3000);
        until(() -> session.remaining().equals(FULL));
        assertFalse(writing.isDone());
        reader.release();
        final Lock writer = writing.get();
        writer.check();
        assertEquals(List.of(), sent(HEARTBEAT, "name").stream().filter(writer.name()::equals).toList());
        writer.release();
        assertFalse(service.held("catalog:gate"));
        session.rwlock("catalog").read(TRY).check();
        assertThrows(HeldException.class, () -> session.rwlock("catalog").write(TRY));
        final AcquireOptions soon = AcquireOptions.defaults().waitAtMost(Duration.ofSeconds(1));
        assertThrows(HeldException.class, () -> session.rwlock("catalog").write(soon));
        final Object last = ((List<?>) sent("/v1/sessions/release", "locks").get(1)).get(0);
        assertEquals(FakeService.UNWRITTEN, ((Map<?, ?>) last).get("data"));
    }

    @Test
    void dataIsForPlainLocks() throws InterruptedException {
        final RwLock catalog = client().rwlock("catalog");
        final byte[] data = {1};
        assertThrows(IllegalArgumentException.class, () -> catalog.read(TRY.data(data)));
        assertThrows(IllegalArgumentException.class, () -> catalog.write(TRY.data(data)));
        final Lock writer = kept(catalog.write());
        assertThrows(IllegalArgumentException.class, () -> writer.release(data, null));
        writer.check();
    }

    @Test
    void aGrantOfAnotherLockIsNone() throws InterruptedException {
        final String grant = "{\"name\":\"%s\",\"token\":1,\"beat\":\"t-0\",\"lease_ms\":1,"
                + "\"heartbeat_ms\":1,\"free_after_ms\":1%s}";
        final Wanted writes = new Wanted("catalog", Wanted.Kind.WRITE, 0);
        final Map<String, Boolean> grants = Map.of(
                String.format(grant, "catalog:gate", ",\"fence_token\":2"), true,
                String.format(grant, "catalog:gate", ",\"fence_token\":2,\"drain\":null"), true,
                String.format(grant, "catalog", ",\"fence_token\":2"), false, // of a server that knows no writers
                String.format(grant, "catalogue:gate", ",\"fence_token\":2"), false,
                String.format(grant, "catalog:gate", ""), false);
        grants.forEach((body, fits) -> {
            final Answer answer = Answers.acquire(new Reply(200, "application/json", body, ""), writes);
            assertEquals(fits, answer instanceof Answer.Granted, body);
            if (answer instanceof Answer.Granted granted) {
                assertEquals(body.contains("drain"), granted.grant().part().drains(), body); // whatever else it is
            }
        });
    }
}
