// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ConnectException;
import java.nio.channels.UnresolvedAddressException;
import java.security.InvalidAlgorithmParameterException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.tenurelock.client.FakeService.Fault;
import org.tenurelock.client.FakeService.ManualClock;

/** A lock against a service in memory: answers lost, late and doubled, suspends, releases. */
@Timeout(60)
final class LockTest {
    private static final String ACQUIRE = "/v1/acquire";
    private static final String HEARTBEAT = "/v1/heartbeat";
    private static final String RELEASE = "/v1/release";
    private static final long HOUR = 3600 * 1000;

    private final FakeService service = new FakeService();
    private final ManualClock clock = new ManualClock();
    private final List<Lock> locks = new ArrayList<>();

    @AfterEach
    void end() {
        service.heal();
        for (final Lock lock : locks) {
            try {
                lock.release();
            } catch (final TenureException error) {
                // The test was about that.
            }
        }
    }

    private TenureClient client(final String... servers) {
        final String[] all = servers.length > 0 ? servers : new String[] {"http://127.0.0.1:1"};
        final TenureClient.Builder builder = TenureClient.of(all).token("t").transport(service);
        // The step is how soon a clock that was moved is read.
        return builder.clock(clock::read).step(Duration.ofMillis(10)).build();
    }

    private Lock acquire(final AcquireOptions options) throws InterruptedException {
        final Lock lock = client().acquire("n", options);
        locks.add(lock);
        return lock;
    }

    private Lock acquire() throws InterruptedException {
        return acquire(AcquireOptions.defaults());
    }

    private static void until(final BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) { // bounded by the time-out of the test
            TimeUnit.MILLISECONDS.sleep(5);
        }
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

    @Test
    void heldFromTheFirstConfirmedHeartbeat() throws InterruptedException {
        service.next(ACQUIRE, slow(4000));
        service.next(HEARTBEAT, slow(1000));
        final Lock lock = acquire();
        // Not from the grant, which is 5 s old, and not from the answer: from before the heartbeat.
        assertEquals(Duration.ofSeconds(11), lock.remaining());
        lock.check();
    }

    @Test
    void aPairIsTwoCalls() throws InterruptedException {
        service.counts = true;
        service.next(ACQUIRE, slow(1499));
        final Lock lock = acquire();
        lock.check();
        assertEquals(Duration.ofMillis(10501), lock.remaining());
        lock.release();
        assertEquals(
                List.of(ACQUIRE, RELEASE),
                service.calls().stream().map(FakeService.Call::path).toList());
    }

    @Test
    void aCountedGrantIsHeldOn() throws InterruptedException {
        service.counts = true;
        final Lock lock = acquire();
        clock.advance(3000);
        until(() -> lock.remaining().equals(Duration.ofSeconds(12)));
        assertEquals(List.of("t000000000001-0000000000000"), sent(HEARTBEAT, "after"));
        service.always(HEARTBEAT, FakeService.DROPPED);
        clock.advance(12000);
        assertThrows(ExpiredException.class, lock::check);
    }

    @Test
    void aGrantThatComesLateNeedsAHeartbeat() throws InterruptedException {
        service.counts = true;
        service.next(ACQUIRE, slow(1500));
        final Lock lock = acquire();
        assertEquals(Duration.ofSeconds(12), lock.remaining());
        assertEquals(1, service.bodies(HEARTBEAT).size());
    }

    @Test
    void anAcquireThatIsSentAgainCountsFromItsOwnSending() throws InterruptedException {
        service.counts = true;
        // The first had no effect, and the answer to the second comes long after that was sent.
        service.next(ACQUIRE, slow(9000, FakeService.DROPPED), slow(1000));
        final Lock lock = acquire();
        assertEquals(Duration.ofSeconds(11), lock.remaining());
        assertEquals(List.of(), service.bodies(HEARTBEAT));
    }

    @Test
    void repeatedHeartbeatsCountFromTheFirstSending() throws InterruptedException {
        service.next(HEARTBEAT, slow(2000, FakeService.LOST), FakeService.DROPPED, FakeService.BAD_GATEWAY);
        final Lock lock = acquire();
        assertEquals(Duration.ofSeconds(10), lock.remaining());
        final var sent = service.bodies(HEARTBEAT);
        assertEquals(Collections.nCopies(4, sent.get(0)), sent);
    }

    @Test
    void aDoubledHeartbeatIsConfirmed() throws InterruptedException {
        service.next(HEARTBEAT, FakeService.DOUBLED);
        acquire().check();
    }

    @Test
    void heartbeatsGoOn() throws InterruptedException {
        service.heartbeatMs = 10;
        final TenureClient client = TenureClient.of("http://h").transport(service).build();
        final Lock lock = client.acquire("n");
        until(() -> service.bodies(HEARTBEAT).size() > 5);
        lock.release();
        final var sent = service.bodies(HEARTBEAT);
        IntStream.range(1, sent.size()).forEach(i -> assertEquals(sent.get(i - 1).get("next"), sent.get(i).get("after")));
    }

    @Test
    void lost() throws Exception {
        final var told = Collections.synchronizedList(new ArrayList<TenureException>());
        final Lock lock = acquire(AcquireOptions.defaults().onStop(told::add));
        service.takeAway();
        clock.advance(3000);
        assertInstanceOf(LostException.class, lock.over().get());
        assertTrue(assertThrows(LostException.class, lock::check).getMessage().contains("another"));
        assertInstanceOf(LostException.class, lock.stopping().get());
        until(() -> told.size() == 1 && told.get(0) instanceof LostException);
    }

    @Test
    void theDeadlineNeedsNoNetwork() throws Exception {
        final Lock lock = acquire();
        service.always(HEARTBEAT, FakeService.HANG);
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() > 1);
        clock.advance(8999);
        lock.check();
        assertFalse(lock.stopping().isDone());
        clock.advance(1);
        assertThrows(ExpiredException.class, lock::check);
        assertInstanceOf(ExpiredException.class, lock.over().get());
    }

    @Test
    void aSuspendIsSeen() throws Exception {
        final Lock lock = acquire();
        clock.advance(HOUR);
        assertThrows(ExpiredException.class, lock::check);
        assertEquals(Duration.ZERO, lock.remaining());
        lock.over().get();
    }

    @Test
    void expiredIsFinal() throws Exception {
        final Lock lock = acquire();
        service.next(HEARTBEAT, slow(9000));
        clock.advance(3000);
        lock.over().get();
        assertThrows(ExpiredException.class, lock::check);
    }

    @Test
    void refusalsThatAreNot410AreAskedAgain() throws InterruptedException {
        final Lock lock = acquire();
        service.next(
                HEARTBEAT, says("unauthenticated", 401), says("forbidden", 403), says("limited", 429), says("unknown", 503));
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 6);
        lock.check();
        final var sent = service.bodies(HEARTBEAT).subList(1, 6);
        assertEquals(Collections.nCopies(5, sent.get(0)), sent);
    }

    @Test
    void asked() throws Exception {
        final var told = Collections.synchronizedList(new ArrayList<Class<?>>());
        final Lock lock = acquire(AcquireOptions.defaults()
                .stopTimeout(Duration.ofSeconds(6))
                .onStop(reason -> told.add(reason.getClass())));
        service.ask("step-down");
        clock.advance(3000);
        assertInstanceOf(AskedException.class, lock.stopping().get());
        assertFalse(lock.over().isDone());
        lock.check();
        clock.advance(3000); // it is held on while the work stops
        until(() -> lock.remaining().equals(Duration.ofSeconds(12))); // that heartbeat is confirmed
        clock.advance(3000); // and no longer
        clock.advance(8999);
        lock.check();
        clock.advance(1);
        lock.over().get();
        assertThrows(ExpiredException.class, lock::check);
        assertEquals(3, service.bodies(HEARTBEAT).size());
        until(() -> told.equals(List.of(AskedException.class, ExpiredException.class)));
    }

    @Test
    void aSlowCallbackHoldsUpNothing() throws Exception {
        final CountDownLatch stuck = new CountDownLatch(1);
        final Lock lock = acquire(AcquireOptions.defaults().onStop(reason -> Patience.uninterrupted(stuck::await)));
        service.ask("step-down");
        clock.advance(3000);
        lock.stopping().get();
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 3);
        stuck.countDown();
    }

    @Test
    void release() throws InterruptedException {
        final Lock lock = acquire();
        assertThrows(IllegalArgumentException.class, () -> lock.release(new byte[256 * 1024 + 1], null));
        lock.check();
        lock.release("next: 17".getBytes(UTF_8), null);
        assertFalse(service.held());
        assertThrows(ReleasedException.class, lock::check);
        assertEquals("next: 17", new String(acquire().data().orElseThrow(), UTF_8));
    }

    @Test
    void a5xxIsPerhapsReleased() throws InterruptedException {
        final Lock lock = acquire();
        final List<Class<?>> checked = new ArrayList<>();
        final Fault watched = (s, path, body) -> {
            checked.add(assertThrows(TenureException.class, lock::check).getClass());
            return FakeService.BAD_GATEWAY.answer(s, path, body);
        };
        service.next(RELEASE, watched, watched);
        lock.release();
        // Between the answers nobody may act, although the service's answer was an error.
        assertEquals(Collections.nCopies(2, ReleasedException.class), checked);
        final var sent = service.bodies(RELEASE);
        assertEquals(Collections.nCopies(3, sent.get(0)), sent);
    }

    @Test
    void noAnswerForALease() throws InterruptedException {
        final Lock lock = acquire();
        service.always(RELEASE, slow(8000, FakeService.DROPPED));
        assertThrows(UncertainException.class, lock::release);
        assertEquals(2, service.bodies(RELEASE).size());
        assertThrows(UncertainException.class, lock::release); // as the first one
        assertDoesNotThrow(() -> lock.close());
    }

    @Test
    void anInterruptDoesNotEndARelease() throws InterruptedException {
        final Lock lock = acquire();
        Thread.currentThread().interrupt();
        lock.release();
        assertTrue(Thread.interrupted());
        assertFalse(service.held());
    }

    @Test
    void releaseWithAHeartbeatUnderWay() throws InterruptedException {
        final Lock lock = acquire();
        service.next(HEARTBEAT, FakeService.LOST);
        service.always(HEARTBEAT, FakeService.HANG);
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 3);
        lock.release();
        assertEquals(List.of(sent(HEARTBEAT, "next").get(2)), sent(RELEASE, "after"));
        assertFalse(service.held());
    }

    @Test
    void releaseWithAHeartbeatThatNeverCame() throws InterruptedException {
        final Lock lock = acquire();
        service.always(HEARTBEAT, FakeService.HANG);
        clock.advance(3000);
        until(() -> service.bodies(HEARTBEAT).size() == 2);
        lock.release();
        assertEquals(List.of(sent(HEARTBEAT, "next").get(1), sent(HEARTBEAT, "after").get(1)), sent(RELEASE, "after"));
        assertFalse(service.held());
    }

    @Test
    void theBlockThrowsThatTheLockWasLost() {
        assertThrows(LostException.class, () -> {
            try (Lock lock = acquire()) {
                service.takeAway();
                lock.check(); // it is not known yet
            }
        });
    }

    @Test
    void runInterruptsTheWork() {
        service.ask("step-down");
        final AskedException asked = assertThrows(AskedException.class, () -> client().run(
                "n", AcquireOptions.defaults(), lock -> {
                    new CountDownLatch(1).await();
                    return null;
                }));
        assertEquals("deploy", asked.reason());
        assertFalse(Thread.interrupted());
        assertFalse(service.held());
        assertNull(service.failed());
    }

    @Test
    void runInterruptsTheWorkAtTheDeadlineOnceMore() {
        service.ask("step-down");
        assertThrows(ExpiredException.class, () -> client().run(
                "n", AcquireOptions.defaults().stopTimeout(Duration.ofNanos(1)), lock -> {
                    try {
                        new CountDownLatch(1).await();
                    } finally {
                        clock.advance(12000);
                        new CountDownLatch(1).await(); // an end that takes too long is interrupted too
                    }
                    return null;
                }));
        assertFalse(Thread.interrupted());
    }

    @Test
    void runLeavesNoInterruptBehind() throws Exception {
        assertEquals("done", client().run("n", AcquireOptions.defaults(), lock -> {
            service.ask("step-down");
            clock.advance(3000);
            while (!Thread.currentThread().isInterrupted()) {
                Thread.onSpinWait();
            }
            return "done";
        }));
        assertFalse(Thread.interrupted());
    }

    @Test
    void runTellsThatTheWorkFailed() {
        assertThrows(IOException.class, () -> client().run("n", AcquireOptions.defaults(), lock -> {
            throw new IOException("disk\nfull");
        }));
        assertEquals("java.io.IOException: disk full", service.failed());
    }

    @Test
    void tryOnly() throws InterruptedException {
        service.takeAway();
        final HeldException held = assertThrows(
                HeldException.class, () -> acquire(AcquireOptions.defaults().waitAtMost(Duration.ZERO)));
        assertEquals("another 1 PT0.5S", held.holder() + " " + held.token() + " " + held.freeIn());
        assertEquals(List.of(0L), sent(ACQUIRE, "wait_ms"));
    }

    @Test
    void waits() throws InterruptedException {
        service.takeAway();
        final List<String> holders = new ArrayList<>();
        acquire(AcquireOptions.defaults().owner("me").waiting(held -> {
            holders.add(held.holder());
            service.free();
        }));
        assertEquals(List.of("another"), holders);
        assertEquals(List.of(0L, 20000L), sent(ACQUIRE, "wait_ms"));
        assertEquals(List.of("me", "me"), sent(ACQUIRE, "owner"));
    }

    @Test
    void aStreamTellsOfEachHolder() throws InterruptedException {
        service.takeAway();
        final List<String> told = new ArrayList<>();
        final Map<String, Object> first = Map.of("holder", "another", "token", 1);
        final Map<String, Object> second = Map.of("holder", "a", "token", 2);
        service.stream(List.of(first, first, second, Map.of("holder", "b", "token", 1, "reserved", true)));
        acquire(AcquireOptions.defaults().waiting(held -> {
            told.add(held.holder() + " " + held.token() + " " + held.reserved());
            if (held.reserved()) {
                service.free();
            }
        }));
        assertEquals(List.of("another 1 false", "a 2 false", "b 1 true"), told);
        assertEquals(List.of(20000L), service.streamed());
    }

    @Test
    void aGrantInAStreamIsNoLease() throws InterruptedException {
        service.takeAway();
        service.next(HEARTBEAT, slow(1000, FakeService.LOST), slow(1000));
        final Lock lock = acquire(AcquireOptions.defaults().waiting(held -> {
            // The grant is on its way for a while.
            service.free();
            clock.advance(2000);
        }));
        // Not from when the grant came: from before the first sending of the heartbeat.
        assertEquals(Duration.ofSeconds(10), lock.remaining());
        lock.check();
    }

    @Test
    void aStreamThatFailsIsFollowedByALongPoll() throws InterruptedException {
        service.takeAway();
        final IOException cut = new IOException("cut");
        service.stream(cut, List.of(Map.of("holder", "a", "token", 2)), cut, cut);
        final List<String> calls = new ArrayList<>();
        final Transport noting = new Transport() {
            private void note(final String url, final String call) {
                if (url.endsWith(ACQUIRE)) {
                    calls.add(call);
                    if (calls.size() > 8) {
                        service.free();
                    }
                }
            }

            @Override
            public Reply post(
                    final String url, final Map<String, String> headers, final String body, final Duration limit)
                    throws IOException, InterruptedException {
                note(url, "poll");
                return service.post(url, headers, body, limit);
            }

            @Override
            public Reply post(
                    final String url,
                    final Map<String, String> headers,
                    final String body,
                    final Duration limit,
                    final Predicate<byte[]> events)
                    throws IOException, InterruptedException {
                note(url, "stream");
                return service.post(url, headers, body, limit, events);
            }
        };
        final TenureClient client =
                TenureClient.of("http://127.0.0.1:1").token("t").transport(noting).build();
        locks.add(client.acquire("n", AcquireOptions.defaults().waiting(held -> {})));
        // The first only tries. One stream is good, and after two that are not there are no more.
        assertEquals(
                List.of("poll", "stream", "poll", "stream", "stream", "poll", "stream", "poll", "poll"),
                calls.subList(0, 9));
    }

    @Test
    void whatTheCallbackThrowsEndsTheAcquire() {
        service.takeAway();
        service.stream(List.of(Map.of("holder", "a", "token", 2)));
        final AcquireOptions options = AcquireOptions.defaults().waiting(held -> {
            if (held.holder().equals("a")) {
                throw new IllegalStateException("of the program");
            }
        });
        assertThrows(IllegalStateException.class, () -> acquire(options));
        assertEquals(1, service.streamed().size());
    }

    @Test
    void aTransportThatDoesNotStreamHasTheEventsAtTheEnd() throws InterruptedException {
        service.takeAway();
        final List<String> told = new ArrayList<>();
        final Transport whole = (url, headers, body, limit) -> {
            final Reply reply = service.post(url, headers, body, limit);
            if (!headers.get("Accept").startsWith("text/event-stream")) {
                return reply;
            }
            service.free();
            final Reply granted = service.post(url, headers, body, limit);
            final String events = "event: waiting\ndata: {\"holder\":\"a\"}\n\nevent: granted\ndata: " + granted.body() + "\n\n";
            return new Reply(200, "text/event-stream", events, "");
        };
        final TenureClient client =
                TenureClient.of("http://127.0.0.1:1").token("t").transport(whole).build();
        final Lock lock = client.acquire("n", AcquireOptions.defaults().waiting(held -> told.add(held.holder())));
        locks.add(lock);
        lock.check();
        assertEquals(List.of("another", "a"), told);
    }

    @Test
    void theWaitEnds() {
        service.takeAway();
        assertThrows(
                HeldException.class, () -> acquire(AcquireOptions.defaults().waitAtMost(Duration.ofMillis(200))));
        assertTrue(service.bodies(ACQUIRE).size() >= 2);
    }

    @Test
    void aLostGrantIsNoLock() throws InterruptedException {
        service.next(ACQUIRE, (s, path, body) -> {
            s.carryOut(path, body);
            s.free(); // nobody's heartbeat came
            throw new IOException("lost");
        });
        assertEquals(2, acquire().token());
    }

    @Test
    void aGrantThatIsFreedBeforeItsHeartbeat() throws InterruptedException {
        service.next(HEARTBEAT, (s, path, body) -> {
            s.free();
            return s.carryOut(path, body);
        });
        assertEquals(2, acquire().token());
    }

    @Test
    void anAcquireThatIsInterruptedHoldsNothing() throws InterruptedException {
        service.always(HEARTBEAT, FakeService.HANG);
        final Thread self = Thread.currentThread();
        final Thread interrupts = new Thread(() -> {
            while (service.bodies(HEARTBEAT).isEmpty()) {
                Thread.onSpinWait();
            }
            self.interrupt();
        });
        interrupts.start();
        assertThrows(InterruptedException.class, this::acquire);
        assertFalse(service.held());
        interrupts.join();
    }

    @Test
    void refused() {
        service.next(ACQUIRE, says("forbidden", 403));
        assertEquals("forbidden", assertThrows(ProblemException.class, this::acquire).kind());
    }

    @Test
    void noServer() {
        service.always(ACQUIRE, FakeService.DROPPED);
        final TenureClient client = client("http://a", "http://b", "http://c");
        final AcquireOptions once = AcquireOptions.defaults().waitAtMost(Duration.ZERO);
        assertThrows(UnavailableException.class, () -> client.acquire("n", once));
        assertEquals(3, service.calls().stream().map(FakeService.Call::url).distinct().count()); // each was asked
    }

    /** Who held the lock when a server last answered is not who holds it. */
    @Test
    void noServerAnyMore() {
        service.takeAway();
        service.next(ACQUIRE, (service, path, body) -> service.carryOut(path, body));
        service.always(ACQUIRE, FakeService.DROPPED);
        final TenureClient client = client("http://a", "http://b", "http://c");
        final AcquireOptions second = AcquireOptions.defaults().waitAtMost(Duration.ofSeconds(1));
        assertThrows(UnavailableException.class, () -> client.acquire("n", second));
    }

    @Test
    void aMistakeThatStaysIsToldAtOnce() {
        final FakeService.Fault wrong = (service, path, body) -> {
            throw new IOException("handshake", new java.security.cert.CertificateException("nobody knows it"));
        };
        service.next(ACQUIRE, wrong);
        service.next(ACQUIRE, FakeService.DROPPED);
        service.next(ACQUIRE, wrong);
        service.next(ACQUIRE, wrong);
        final TenureClient client = client("http://a", "http://b");
        final UnavailableException error =
                assertThrows(UnavailableException.class, () -> client.acquire("n", AcquireOptions.defaults()));
        assertTrue(error.getMessage().contains("http://"), error.getMessage());
        assertEquals(4, service.calls().size());
    }

    /** As the HTTP client of the JDK throws them: it often says least where it knows most. */
    @Test
    void errorsOfTheNetworkSayWhatIsWrong() {
        final IOException noTrust = new SSLHandshakeException("Remote host terminated the handshake");
        noTrust.initCause(new RuntimeException(
                "Unexpected error", new InvalidAlgorithmParameterException("the trustAnchors parameter must be non-empty")));
        final IOException noAddress = new ConnectException();
        noAddress.initCause(new UnresolvedAddressException());
        final Map<IOException, String> texts = Map.of(
                noTrust, "the trust store is empty, or has a password: the trustAnchors parameter must be non-empty",
                new SSLException("Unrecognized SSL message, plaintext connection?"),
                "use http; the server does not speak TLS",
                new Caller.WrongProtocolException("said"), "use https; the server says: said",
                new ConnectException(), "no server listens there, or it cannot be reached",
                noAddress, "the host name has no address",
                new IOException("reset"), "java.io.IOException: reset");
        texts.forEach((error, text) -> {
            service.always(ACQUIRE, (service, path, body) -> {
                throw error;
            });
            final AcquireOptions once = AcquireOptions.defaults().waitAtMost(Duration.ZERO);
            final UnavailableException told =
                    assertThrows(UnavailableException.class, () -> client("http://a").acquire("n", once));
            assertEquals("no answer: http://a: " + text, told.getMessage());
        });
        service.always(ACQUIRE, (service, path, body) -> {
            throw noTrust; // which is not fixed while it waits
        });
        assertThrows(UnavailableException.class, () -> client("http://a").acquire("n", AcquireOptions.defaults()));
    }

    @Test
    void serversThatEndTellToAskElsewhere() throws InterruptedException {
        service.next(ACQUIRE, says("unavailable", 503));
        locks.add(client("http://a", "http://b").acquire("n", AcquireOptions.defaults().waitAtMost(Duration.ZERO)));
        assertNotEquals(service.calls().get(0).url(), service.calls().get(1).url());
    }

    @Test
    void arguments() {
        final AcquireOptions options = AcquireOptions.defaults();
        assertThrows(IllegalArgumentException.class, () -> client().acquire(""));
        assertThrows(IllegalArgumentException.class, () -> options.waitAtMost(Duration.ofMillis(-1)));
        assertThrows(IllegalArgumentException.class, () -> options.stopTimeout(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> TenureClient.of().build());
        for (final String server : List.of("127.0.0.1:1", "ftp://x", "http://", "http://h/?q", "unix:/s", "")) {
            assertThrows(IllegalArgumentException.class, () -> TenureClient.of(server).build(), server);
        }
        for (final String token : List.of("", "two words", "ümlaut", "line\n")) {
            assertThrows(IllegalArgumentException.class, () -> TenureClient.of("http://h").token(token).build(), token);
        }
    }
}
