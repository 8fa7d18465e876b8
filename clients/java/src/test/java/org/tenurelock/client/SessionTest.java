// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.tenurelock.client.FakeService.Fault;
import org.tenurelock.client.FakeService.ManualClock;

/** A session against a service in memory: what its locks may count, and until when. */
@Timeout(60)
final class SessionTest {
    private static final String ACQUIRE = "/v1/acquire";
    private static final String OPEN = "/v1/sessions/open";
    private static final String HEARTBEAT = "/v1/sessions/heartbeat";
    private static final String ATTACH = "/v1/sessions/attach";
    private static final String RELEASE = "/v1/sessions/release";
    private static final String CLOSE = "/v1/sessions/close";
    private static final long MS = 1_000_000;
    private static final AcquireOptions TRY = AcquireOptions.defaults().waitAtMost(Duration.ZERO);
    private static final Duration PERIOD = Duration.ofSeconds(3);
    private static final Duration FULL = Duration.ofSeconds(12);

    private final FakeService service = new FakeService();
    private final ManualClock clock = new ManualClock();
    private final List<Session> sessions = new ArrayList<>();

    @AfterEach
    void end() {
        service.heal();
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

    private Session open(final AcquireOptions options) throws InterruptedException {
        final Session session = client().session(options);
        sessions.add(session);
        return session;
    }

    private Session open() throws InterruptedException {
        return open(AcquireOptions.defaults());
    }

    private static void until(final BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) { // bounded by the time-out of the test
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    /** Lets a period pass, with a confirmed heartbeat. */
    private void keep(final Session session) throws InterruptedException {
        clock.advance(PERIOD.toMillis());
        until(() -> session.remaining().equals(FULL));
    }

    private Fault slow(final long ms, final Fault then) {
        return (s, path, body) -> {
            clock.advance(ms);
            return then.answer(s, path, body);
        };
    }

    private Fault slow(final long ms) {
        return slow(ms, FakeService::carryOut);
    }

    private static Fault says(final String kind, final int status) {
        return (s, path, body) -> FakeService.problem(kind, status, Map.of());
    }

    private List<Object> sent(final String path, final String key) {
        return service.bodies(path).stream().map(body -> body.get(key)).toList();
    }

    /** Returns the names of the locks in each call of the path. */
    private List<List<Object>> named(final String path) {
        return sent(path, "locks").stream()
                .<List<Object>>map(locks ->
                        ((List<?>) locks).stream().<Object>map(lock -> ((Map<?, ?>) lock).get("name")).toList())
                .toList();
    }

    @Test
    void oneHeartbeatKeepsManyLocks() throws Exception {
        final Session session = open(AcquireOptions.defaults().owner("web-7"));
        final Lock a = session.acquire("a");
        final Lock b = session.acquire("b", TRY);
        for (int i = 0; i < 6; i++) {
            keep(session);
            a.check();
            b.check();
        }
        assertEquals(FULL, a.remaining());
        assertEquals(7, service.bodies(HEARTBEAT).size());
        assertEquals(List.of(), service.bodies("/v1/heartbeat")); // never of the locks
        assertEquals(List.of("web-7", "web-7"), sent(ACQUIRE, "owner"));
        a.release();
        assertThrows(ReleasedException.class, a::check);
        assertInstanceOf(ReleasedException.class, a.over().get());
        assertEquals(List.of(false, true), List.of(service.held("a"), service.held("b")));
        b.check();
        session.close();
        assertFalse(service.held("b"));
        assertInstanceOf(ReleasedException.class, b.stopping().get());
        assertInstanceOf(ReleasedException.class, session.over().get());
        b.close(); // its session has released it
        assertEquals(List.of(List.of("a")), named(RELEASE));
        assertThrows(ReleasedException.class, () -> session.acquire("c"));
        session.close();
        assertEquals(1, service.bodies(CLOSE).size());
    }

    @Test
    void theFirstHeartbeatCountsOnlySoonAfterTheOpening() throws InterruptedException {
        service.next(OPEN, slow(8000));
        service.next(HEARTBEAT, slow(4000));
        final Session session = open();
        assertEquals(List.of("S1", "S2"), sent(HEARTBEAT, "session"));
        assertEquals("S2 PT12S", session.id() + " " + session.remaining());
    }

    @Test
    void theFirstHeartbeatCountsFromItsOwnSending() throws InterruptedException {
        service.next(OPEN, slow(8000));
        service.next(HEARTBEAT, slow(1000, FakeService.LOST), slow(2999));
        service.always(HEARTBEAT, FakeService.DROPPED);
        final Session session = open();
        assertEquals("S1 PT8.001S", session.id() + " " + session.remaining());
        final var sent = service.bodies(HEARTBEAT).subList(0, 2);
        assertEquals(Collections.nCopies(2, sent.get(0)), sent);
    }

    @Test
    void anOpeningWithoutAnAnswerIsFollowedByAnother() throws InterruptedException {
        service.next(OPEN, slow(20000, FakeService.LOST), says("unknown", 503));
        assertEquals("S2", open().id());
    }

    @Test
    void storesWithoutSessions() {
        service.always(OPEN, says("no-sessions", 409));
        final NoSessionsException error = assertThrows(NoSessionsException.class, this::open);
        assertTrue(error.getMessage().contains("acquire() of TenureClient"), error.getMessage());
        assertEquals("no-sessions 409", error.kind() + " " + error.status());
    }

    @Test
    void repeatedHeartbeatsCountFromTheFirstSending() throws InterruptedException {
        final Session session = open();
        final Lock lock = session.acquire("a");
        service.next(
                HEARTBEAT,
                slow(2000, FakeService.LOST),
                FakeService.DROPPED,
                FakeService.BAD_GATEWAY,
                says("limited", 429));
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 6 && session.remaining().toMillis() == 10000);
        assertEquals(Duration.ofSeconds(10), lock.remaining());
        final var sent = service.bodies(HEARTBEAT).subList(1, 6);
        assertEquals(Collections.nCopies(5, sent.get(0)), sent);
    }

    @Test
    void anAttachmentWithoutAnAnswerIsSentAgainAsItWas() throws InterruptedException {
        final Session session = open();
        service.next(
                ATTACH, FakeService.LOST, FakeService.DROPPED, FakeService.BAD_GATEWAY, says("unknown", 503),
                says("forbidden", 403), FakeService.DOUBLED);
        session.acquire("a").check();
        final var sent = service.bodies(ATTACH);
        assertEquals(6, sent.size());
        assertEquals(Collections.nCopies(6, sent.get(0)), sent);
    }

    @Test
    void aProblemOfOneLockThatMayPassIsAskedAgain() throws InterruptedException {
        final Session session = open();
        service.next(ATTACH, (s, path, body) -> {
            final Object problem = Json.read(FakeService.problem("unknown", 503, Map.of()).body());
            return new Reply(
                    200,
                    "application/json",
                    Json.write(Map.of("results", List.of(Map.of("name", "a", "problem", problem)))),
                    "");
        });
        session.acquire("a").check();
        final var sent = service.bodies(ATTACH);
        assertEquals(Collections.nCopies(2, sent.get(0)), sent);
    }

    @Test
    void aResultForAnotherLockIsNone() throws InterruptedException {
        final Session session = open();
        for (final String name : List.of("b", "")) {
            service.next(ATTACH, (s, path, body) -> new Reply(
                    200, "application/json", "{\"results\":[{\"name\":\"" + name + "\",\"asked\":null}]}", ""));
        }
        service.next(ATTACH, (s, path, body) -> new Reply(200, "application/json", "{\"results\":[]}", ""));
        session.acquire("a").check();
        assertEquals(4, service.bodies(ATTACH).size());
    }

    @Test
    void aLostAttachmentIsNoLock() throws InterruptedException {
        final Session session = open();
        service.next(ATTACH, (s, path, body) -> {
            s.free("a"); // the grant came too late
            return s.carryOut(path, body);
        });
        final Lock lock = session.acquire("a");
        lock.check();
        assertEquals(2, lock.token());
    }

    @Test
    void anAttachmentThatIsRefusedEndsTheAcquire() throws InterruptedException {
        final Session session = open();
        service.next(ATTACH, says("bad-request", 400));
        assertThrows(ProblemException.class, () -> session.acquire("a"));
        assertFalse(service.held("a"));
        session.check();
    }

    @Test
    void aSessionThatTheServerDoesNotKnowIsLost() throws Exception {
        final Session session = open();
        final Lock lock = session.acquire("a");
        service.next(ATTACH, says("lost", 410));
        assertThrows(LostException.class, () -> session.acquire("b"));
        assertThrows(LostException.class, lock::check);
        assertInstanceOf(LostException.class, session.over().get());
    }

    @Test
    void aSessionThatEndsBeforeTheAnswerHoldsNothing() throws InterruptedException {
        final Session session = open();
        final List<TenureException> told = Collections.synchronizedList(new ArrayList<>());
        service.next(ATTACH, slow(12000));
        service.always(HEARTBEAT, FakeService.DROPPED);
        assertThrows(ExpiredException.class, () -> session.acquire("a", AcquireOptions.defaults().onStop(told::add)));
        assertThrows(ExpiredException.class, session::check);
        assertThrows(ExpiredException.class, () -> session.acquire("b"));
        assertEquals(List.of(), told); // the program never had it
    }

    /** Without threads: before its attachment a lock has no more than its own lease, and than that of the session. */
    @Test
    void theEarlierOfBothDeadlines() {
        final Grant opening = new Grant("S", 0, "s-0000000000000", 15000 * MS, Optional.empty(), 0, 3000 * MS);
        final var renewed = new Answer.Confirmed(12000 * MS, 3000 * MS, Optional.empty());
        for (final long granted : new long[] {1000, 9000}) {
            final Lease session = new Lease(opening, 15000 * MS, Beats::randomPart);
            session.opened(0);
            session.confirm(session.send(0).orElseThrow(), renewed, 0);
            if (granted == 1000) { // a heartbeat later the lock's own deadline is the earlier one
                session.confirm(session.send(3000 * MS).orElseThrow(), renewed, 3000 * MS);
            }
            final Grant grant =
                    new Grant("a", 1, "t-0000000000000", 15000 * MS, Optional.empty(), 12000 * MS, 3000 * MS);
            final Lease lock = new Lease(grant, 15000 * MS, Beats::randomPart, session);
            lock.granted(granted * MS, (granted + 1) * MS);
            final long deadline = granted == 1000 ? 13000 : 12000;
            assertEquals((deadline - 9001) * MS, lock.remaining(9001 * MS));
            assertEquals(Lease.State.HELD, lock.state((deadline - 1) * MS));
            final Heartbeat attachment = lock.send(9001 * MS).orElseThrow();
            assertSame(attachment, lock.send(9002 * MS).orElseThrow());
            assertEquals(Lease.State.EXPIRED, lock.state(deadline * MS));
            lock.attached(attachment, deadline * MS);
            assertEquals(Lease.State.EXPIRED, lock.state(deadline * MS));
        }
    }

    /** The same: once it is attached its own deadline counts no more. */
    @Test
    void theDeadlineOfTheSession() {
        final Grant opening = new Grant("S", 0, "s-0000000000000", 15000 * MS, Optional.empty(), 0, 3000 * MS);
        final var renewed = new Answer.Confirmed(12000 * MS, 3000 * MS, Optional.empty());
        final Lease session = new Lease(opening, 15000 * MS, Beats::randomPart);
        session.confirm(session.send(3000 * MS).orElseThrow(), renewed, 3000 * MS);
        final Grant grant = new Grant("a", 1, "t-0000000000000", 15000 * MS, Optional.empty(), 1000 * MS, 3000 * MS);
        final Lease lock = new Lease(grant, 15000 * MS, Beats::randomPart, session);
        lock.granted(3000 * MS, 3001 * MS);
        lock.attached(lock.send(3002 * MS).orElseThrow(), 3003 * MS);
        assertTrue(lock.due(9000 * MS).isEmpty());
        assertTrue(lock.send(9000 * MS).isEmpty());
        assertEquals(6000 * MS, lock.remaining(9000 * MS));
        assertEquals(Lease.State.HELD, lock.state(14999 * MS));
        assertEquals(Lease.State.EXPIRED, lock.state(15000 * MS));
        assertEquals(Lease.State.EXPIRED, lock.state(14999 * MS)); // for ever
    }

    @Test
    void aLostSessionEndsAllItsLocks() throws Exception {
        final var told = Collections.synchronizedList(new ArrayList<Class<?>>());
        final AcquireOptions tells = AcquireOptions.defaults().onStop(reason -> told.add(reason.getClass()));
        final Session session = open(tells);
        final List<Lock> locks = session.acquireAll(List.of("a", "b"), tells);
        service.endSessions();
        clock.advance(3000);
        for (final Lock lock : locks) {
            assertInstanceOf(LostException.class, lock.over().get());
            assertThrows(LostException.class, lock::check);
            assertThrows(LostException.class, lock::release);
        }
        assertInstanceOf(LostException.class, session.over().get());
        assertThrows(LostException.class, session::check);
        assertThrows(LostException.class, session::close);
        until(() -> told.equals(Collections.nCopies(3, LostException.class)));
        assertEquals(List.of(), service.bodies(RELEASE));
    }

    @Test
    void theDeadlineNeedsNoNetwork() throws Exception {
        final Session session = open();
        final Lock lock = session.acquire("a");
        service.always(HEARTBEAT, FakeService.HANG);
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() > 1);
        clock.advance(8999);
        lock.check();
        assertFalse(lock.stopping().isDone());
        clock.advance(1);
        assertThrows(ExpiredException.class, lock::check);
        assertInstanceOf(ExpiredException.class, lock.over().get());
        assertInstanceOf(ExpiredException.class, session.over().get());
    }

    @Test
    void expiredIsFinal() throws Exception {
        final Session session = open();
        final Lock lock = session.acquire("a");
        service.next(HEARTBEAT, slow(9000)); // which is confirmed
        clock.advance(3000);
        session.over().get();
        assertThrows(ExpiredException.class, lock::check);
        assertEquals(Duration.ZERO, lock.remaining());
    }

    @Test
    void aRequestIsForOneLock() throws Exception {
        final Session session = open();
        final Lock a = session.acquire("a");
        final Lock b = session.acquire("b");
        final Lock c = session.acquire("c");
        service.ask("qa", "a", a.token());
        service.ask("qc", "c", c.token());
        service.ask("qx", "x", 7); // nobody here holds it
        service.ask("qb", "b", b.token() + 1); // an earlier or later term
        keep(session);
        assertEquals("deploy", assertInstanceOf(AskedException.class, a.stopping().get()).reason());
        assertFalse(b.stopping().isDone());
        a.check(); // until its work has ended
        final Fault releases = (s, path, body) -> {
            c.release(); // so that the request for it is answered, but not in this heartbeat
            return FakeService.DROPPED.answer(s, path, body);
        };
        service.next(HEARTBEAT, releases, FakeService.LOST);
        keep(session);
        final var sent = service.bodies(HEARTBEAT).subList(2, 5);
        assertEquals(List.of("qx", "qb"), sent.get(0).get("answered"));
        assertEquals(Collections.nCopies(3, sent.get(0)), sent);
        assertEquals(List.of("qa", "qc"), service.requests());
        service.next(RELEASE, (s, path, body) -> {
            Patience.uninterrupted(() -> keep(session)); // it is not answered yet
            return FakeService.LOST.answer(s, path, body);
        });
        a.release();
        assertEquals(List.of("qa"), service.requests());
        keep(session);
        assertEquals(List.of(), service.requests());
        keep(session);
        final var all = sent(HEARTBEAT, "answered");
        assertEquals(Collections.singletonList(null), all.subList(all.size() - 1, all.size()));
        b.check();
    }

    @Test
    void whatWasAskedBeforeTheAttachment() throws Exception {
        final Session session = open();
        service.next(ATTACH, (s, path, body) -> {
            s.carryOut(path, body);
            return new Reply(
                    200,
                    "application/json",
                    "{\"results\":[{\"name\":\"a\",\"asked\":{\"kind\":\"hand-over\",\"by\":\"ops\",\"to\":\"x\"}}]}",
                    "");
        });
        final Lock lock = session.acquire("a");
        assertEquals("x", assertInstanceOf(AskedException.class, lock.stopping().get()).to());
        lock.check();
    }

    @Test
    void workThatDoesNotStopEndsOneLock() throws Exception {
        final Session session = open();
        final Lock a = session.acquire("a", AcquireOptions.defaults().stopTimeout(Duration.ofSeconds(6)));
        final Lock b = session.acquire("b");
        service.ask("q", "a", a.token());
        keep(session);
        a.stopping().get();
        keep(session);
        assertEquals(PERIOD, a.remaining());
        a.check();
        keep(session);
        final ExpiredException late = assertThrows(ExpiredException.class, a::check);
        assertTrue(late.getMessage().contains("stop timeout"), late.getMessage());
        assertInstanceOf(ExpiredException.class, a.over().get());
        for (int i = 0; i < 4; i++) {
            keep(session);
            assertTrue(service.held("a")); // its work may go on
        }
        keep(session);
        until(() -> !service.held("a")); // with heartbeats of its own others could have it
        assertThrows(ExpiredException.class, a::release);
        keep(session);
        assertEquals(List.of(), service.requests());
        b.check();
    }

    @Test
    void aReleaseIsRepeatedUntilItIsAnswered() throws InterruptedException {
        final Session session = open();
        final Lock lock = session.acquire("a");
        final Fault later = (s, path, body) -> {
            Patience.uninterrupted(() -> keep(session));
            assertThrows(ReleasedException.class, lock::check);
            return FakeService.BAD_GATEWAY.answer(s, path, body);
        };
        service.next(RELEASE, FakeService.DROPPED, later, later, later, later, later, later);
        lock.release(null, "disk full"); // longer than a lease
        final var sent = service.bodies(RELEASE);
        assertEquals(Collections.nCopies(8, sent.get(0)), sent);
        assertFalse(service.held("a"));
        assertEquals("disk full", service.failed());
        final Object attached = ((List<?>) service.bodies(ATTACH).get(0).get("locks")).get(0);
        final Object released = ((List<?>) sent.get(0).get("locks")).get(0);
        for (final String key : List.of("name", "token", "after", "next")) {
            assertEquals(((Map<?, ?>) attached).get(key), ((Map<?, ?>) released).get(key));
        }
    }

    @Test
    void aReleaseEndsWithTheSession() throws InterruptedException {
        final Session session = open();
        final Lock lock = session.acquire("a");
        service.always(HEARTBEAT, FakeService.DROPPED);
        service.always(RELEASE, slow(6000, FakeService.DROPPED));
        assertThrows(UncertainException.class, lock::release);
        assertEquals(2, service.bodies(RELEASE).size());
    }

    @Test
    void anAcquireThatIsInterruptedHoldsNothing() throws InterruptedException {
        final Session session = open();
        service.next(ATTACH, FakeService.LOST, FakeService.HANG);
        final Thread self = Thread.currentThread();
        final Thread interrupts = new Thread(() -> {
            while (service.bodies(ATTACH).size() < 2) {
                Thread.onSpinWait();
            }
            self.interrupt();
        });
        interrupts.start();
        assertThrows(InterruptedException.class, () -> session.acquire("a"));
        assertFalse(service.held("a"));
        session.check();
        interrupts.join();
    }

    @Test
    void allOrNone() throws InterruptedException {
        final Session session = open();
        final List<String> names = List.of("\ud83d\ude00", "b", "\uff5e", "a"); // UTF-16 has another order
        final List<Lock> locks = session.acquireAll(names, TRY);
        assertEquals(names, locks.stream().map(Lock::name).toList());
        locks.forEach(Lock::check);
        assertEquals(List.of("a", "b", "\uff5e", "\ud83d\ude00"), sent(ACQUIRE, "name"));
        assertEquals(1, service.bodies(ATTACH).size());
        locks.forEach(Lock::release);

        service.takeAway("c");
        assertThrows(HeldException.class, () -> session.acquireAll(List.of("d", "c", "b"), TRY));
        assertEquals(List.of(false, false), List.of(service.held("b"), service.held("d")));
        assertThrows(IllegalArgumentException.class, () -> session.acquireAll(List.of("a", "a"), TRY));
        assertThrows(IllegalArgumentException.class, () -> session.acquireAll(List.of(), TRY));
    }

    @Test
    void manyAreAttachedAHundredAtOnce() throws InterruptedException {
        final Session session = open();
        session.acquireAll(IntStream.range(0, 150).mapToObj(i -> "jobs/" + i).toList(), TRY).forEach(Lock::check);
        assertEquals(List.of(100, 50), named(ATTACH).stream().map(List::size).toList());
    }

    @Test
    void theFirstOnesAreAttachedBeforeTheWaitForAnother() throws InterruptedException {
        final Session session = open();
        service.takeAway("b");
        final List<Lock> locks = session.acquireAll(List.of("a", "b", "c"), AcquireOptions.defaults().waiting(held -> {
            assertEquals(List.of(List.of("a")), named(ATTACH));
            service.free("b");
        }));
        locks.forEach(Lock::check);
        assertEquals(List.of(List.of("a"), List.of("b", "c")), named(ATTACH));
    }

    @Test
    void grantsDoNotWaitForLong() throws InterruptedException {
        final Session session = open();
        service.next(ACQUIRE, FakeService::carryOut, slow(1600));
        session.acquireAll(List.of("a", "b", "c"), TRY).forEach(Lock::check);
        assertEquals(List.of(List.of("a", "b"), List.of("c")), named(ATTACH));
    }

    @Test
    void aGrantThatIsLostAmongOthers() throws InterruptedException {
        final Session session = open();
        service.next(ATTACH, (s, path, body) -> {
            s.free("b");
            return s.carryOut(path, body);
        });
        final List<Lock> locks = session.acquireAll(List.of("a", "b"), TRY);
        locks.forEach(Lock::check);
        assertEquals(List.of(2L, 2L), locks.stream().map(Lock::token).toList());
    }

    @Test
    void nothingIsHeldOnceTheClosingBegins() throws InterruptedException {
        final Session session = open();
        final Lock lock = session.acquire("a");
        final List<Class<?>> checked = new ArrayList<>();
        final Fault watched = (s, path, body) -> {
            checked.add(assertThrows(TenureException.class, lock::check).getClass());
            assertThrows(ReleasedException.class, session::check);
            assertEquals(Duration.ZERO, lock.remaining());
            return FakeService.BAD_GATEWAY.answer(s, path, body);
        };
        service.next(CLOSE, watched, watched);
        session.close();
        assertEquals(Collections.nCopies(2, ReleasedException.class), checked);
        final var sent = service.bodies(CLOSE);
        assertEquals(Collections.nCopies(3, sent.get(0)), sent);
        assertFalse(service.held("a"));
    }

    @Test
    void closingWithAHeartbeatUnderWay() throws InterruptedException {
        final Session session = open();
        session.acquire("a");
        service.next(HEARTBEAT, FakeService.LOST);
        service.always(HEARTBEAT, FakeService.HANG);
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 3);
        session.close();
        assertEquals(List.of(sent(HEARTBEAT, "next").get(2)), sent(CLOSE, "after"));
        assertFalse(service.held("a"));
    }

    @Test
    void closingWithAHeartbeatThatNeverCame() throws InterruptedException {
        final Session session = open();
        session.acquire("a");
        service.always(HEARTBEAT, FakeService.HANG);
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 2);
        session.close();
        assertEquals(List.of(sent(HEARTBEAT, "next").get(1), sent(HEARTBEAT, "after").get(1)), sent(CLOSE, "after"));
        assertFalse(service.held("a"));
    }

    @Test
    void aClosingWithoutAnAnswer() throws InterruptedException {
        final Session session = open();
        service.always(CLOSE, slow(8000, FakeService.DROPPED));
        session.close();
        assertEquals(2, service.bodies(CLOSE).size());
    }

    /** Starts work that does not end by itself, and returns once it runs. */
    private FutureTask<Object> works(final Session session, final CountDownLatch ends) throws InterruptedException {
        final CountDownLatch began = new CountDownLatch(1);
        final FutureTask<Object> work = new FutureTask<>(() -> session.run("a", AcquireOptions.defaults(), lock -> {
            began.countDown();
            try {
                new CountDownLatch(1).await();
            } finally {
                assertThrows(ReleasedException.class, lock::check);
                Patience.uninterrupted(ends::await);
            }
            return null;
        }));
        new Thread(work).start();
        began.await();
        return work;
    }

    @Test
    void closingEndsTheWorkBeforeTheHeartbeats() throws Exception {
        final Session session = open();
        final CountDownLatch ends = new CountDownLatch(1);
        final FutureTask<Object> work = works(session, ends);
        final Thread closes = new Thread(session::close);
        closes.start();
        for (int beats = 2; beats < 5; beats++) {
            clock.advance(3000);
            final int want = beats;
            until(() -> service.bodies(HEARTBEAT).size() == want);
        }
        assertEquals(List.of(), service.bodies(CLOSE));
        ends.countDown();
        closes.join();
        assertEquals(List.of(sent(HEARTBEAT, "next").get(3)), sent(CLOSE, "after"));
        assertInstanceOf(
                ReleasedException.class,
                assertThrows(java.util.concurrent.ExecutionException.class, work::get).getCause());
        assertFalse(service.held("a"));
    }

    @Test
    void workThatDoesNotEndKeepsTheSessionFromBeingClosed() throws Exception {
        final Session session = open(AcquireOptions.defaults().stopTimeout(Duration.ofMillis(50)));
        final CountDownLatch ends = new CountDownLatch(1);
        final FutureTask<Object> work = works(session, ends);
        session.close();
        assertEquals(List.of(), service.bodies(CLOSE)); // it expires
        assertTrue(service.held("a"));
        clock.advance(3000);
        ends.countDown();
        assertThrows(java.util.concurrent.ExecutionException.class, work::get);
        assertEquals(1, service.bodies(HEARTBEAT).size());
    }

    @Test
    void whatExpiresWhileItsWorkEndsIsNotClosed() throws Exception {
        final Session session = open();
        final CountDownLatch ends = new CountDownLatch(1);
        final FutureTask<Object> work = works(session, ends);
        service.always(HEARTBEAT, FakeService.DROPPED);
        final Thread closes = new Thread(session::close);
        closes.start();
        session.over().get(); // it closes
        clock.advance(12000);
        closes.join();
        assertEquals(List.of(), service.bodies(CLOSE)); // the work may still write
        ends.countDown();
        assertThrows(java.util.concurrent.ExecutionException.class, work::get);
    }

    @Test
    void runReleases() throws Exception {
        final Session session = open();
        assertEquals("done", session.run("a", TRY, lock -> "done"));
        assertFalse(service.held("a"));
        assertEquals("x", session.run("a", TRY, lock -> {
            session.close(); // its own work is no work of others
            assertThrows(ReleasedException.class, lock::check);
            return "x";
        }));
        assertFalse(Thread.interrupted());
    }

    @Test
    void theOwnerIsTheSessions() throws InterruptedException {
        final Session session = open(AcquireOptions.defaults().owner("web-7"));
        session.acquire("a", TRY.owner("web-7")).release();
        assertThrows(IllegalArgumentException.class, () -> session.acquire("a", TRY.owner("web-8")));
        assertThrows(IllegalArgumentException.class, () -> session.acquireAll(List.of("a"), TRY.owner("web-8")));
        assertFalse(open().owner().isEmpty());
    }
}
