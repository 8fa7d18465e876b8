// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Against a real service: clients/test starts it, and says in the environment where it is. */
@Timeout(120)
@EnabledIfEnvironmentVariable(named = "TENURE_TEST_SERVERS", matches = ".+")
final class ServiceTest {
    private static final AcquireOptions SOON = AcquireOptions.defaults().waitAtMost(Duration.ofMinutes(1));
    private static final AcquireOptions TRY = AcquireOptions.defaults().waitAtMost(Duration.ZERO);

    // Not unix sockets: this client has none.
    private final String[] servers = Stream.of(
                    Optional.ofNullable(System.getenv("TENURE_TEST_SERVERS")).orElse("").split(","))
            .filter(server -> server.startsWith("http"))
            .toArray(String[]::new);
    private final Path tokenFile = Path.of(Optional.ofNullable(System.getenv("TENURE_TEST_TOKEN_FILE")).orElse(""));
    private final String name = "test/java/" + Beats.randomPart();
    private final List<Lock> locks = new ArrayList<>();

    @AfterEach
    void end() {
        for (final Lock lock : locks) {
            try {
                lock.release();
            } catch (final TenureException error) {
                // The test was about that.
            }
        }
    }

    private TenureClient client() {
        return TenureClient.of(servers).tokenFile(tokenFile).build();
    }

    private Lock acquire(final AcquireOptions options) throws InterruptedException {
        final Lock lock = client().acquire(name, options);
        locks.add(lock);
        return lock;
    }

    /** Makes a request as an operator, and does not wait for its end. */
    private void ask(final String kind) throws IOException, InterruptedException {
        ask(kind, Map.of());
    }

    private void ask(final String kind, final Map<String, Object> more) throws IOException, InterruptedException {
        final Map<String, Object> body = new HashMap<>(Map.of("name", name, "kind", kind, "reason", "a test", "wait_ms", 0));
        body.putAll(more);
        final HttpRequest call = HttpRequest.newBuilder(URI.create(servers[0] + "/v1/requests"))
                .header("Content-Type", "application/json")
                .header("Authorization", "Bearer " + Files.readString(tokenFile).strip())
                .POST(HttpRequest.BodyPublishers.ofString(Json.write(body)))
                .build();
        final var answer = HttpClient.newHttpClient().send(call, HttpResponse.BodyHandlers.ofString());
        // 504: it is written, and not answered yet.
        assertTrue(List.of(200, 504).contains(answer.statusCode()), answer.body());
    }

    @Test
    void oneAtATime() throws InterruptedException {
        final Lock lock = acquire(SOON.owner("first"));
        final HeldException held = assertThrows(HeldException.class, () -> acquire(TRY));
        assertEquals("first " + lock.token(), held.holder() + " " + held.token());
        final byte[] data = {-1, 17};
        lock.release(data, null);
        final Lock after = acquire(SOON);
        assertEquals(lock.token() + 1, after.token());
        assertArrayEquals(data, after.data().orElseThrow());
    }

    @Test
    void heartbeatsAreConfirmed() throws InterruptedException {
        final Lock lock = acquire(SOON);
        Duration last = Duration.ZERO;
        for (int rises = 0; rises <= 3; TimeUnit.MILLISECONDS.sleep(10)) {
            lock.check();
            final Duration left = lock.remaining();
            rises += left.compareTo(last) > 0 ? 1 : 0;
            last = left;
        }
    }

    @Test
    void waitsForTheHolder() throws InterruptedException {
        final Lock lock = acquire(SOON);
        final Thread releases = new Thread(() -> {
            try {
                TimeUnit.MILLISECONDS.sleep(300);
            } catch (final InterruptedException error) {
                return;
            }
            lock.release();
        });
        releases.start();
        assertEquals(lock.token() + 1, acquire(SOON).token());
    }

    @Test
    void tellsWhomItWaitsFor() throws Exception {
        final Lock first = acquire(SOON.owner("first"));
        final List<String> told = Collections.synchronizedList(new ArrayList<>());
        final StringBuffer text = new StringBuffer();
        final HttpTransport http = new HttpTransport(Optional.empty());
        final Transport noting = new Transport() {
            @Override
            public Reply post(
                    final String url, final Map<String, String> headers, final String body, final Duration limit)
                    throws IOException, InterruptedException {
                return http.post(url, headers, body, limit);
            }

            @Override
            public Reply post(
                    final String url,
                    final Map<String, String> headers,
                    final String body,
                    final Duration limit,
                    final Predicate<byte[]> events)
                    throws IOException, InterruptedException {
                return http.post(url, headers, body, limit, part -> {
                    text.append(new String(part, UTF_8));
                    return events.test(part);
                });
            }
        };
        final TenureClient client =
                TenureClient.of(servers).tokenFile(tokenFile).transport(noting).build();
        final AcquireOptions waits = SOON.waiting(held -> told.add(held.holder() + " " + held.token()));
        final FutureTask<Lock> waiting = new FutureTask<>(() -> client.acquire(name, waits));
        new Thread(waiting).start();
        until(() -> told.size() == 1);
        ask("hand-over", Map.of("to", "second"));
        first.stopping().get();
        first.release();
        final Lock second = acquire(SOON.owner("second"));
        until(() -> told.size() == 2);
        second.release();
        final Lock lock = waiting.get();
        locks.add(lock);
        assertEquals(second.token() + 1, lock.token());
        assertEquals(List.of("first " + first.token(), "second " + second.token()), told);
        // It was the stream that said so.
        assertTrue(Pattern.compile("^event: waiting\n.*\"second\".*^event: granted\n", Pattern.MULTILINE | Pattern.DOTALL)
                .matcher(text)
                .find(), text.toString());
    }

    private static void until(final BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) { // bounded by the time-out of the test
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    @Test
    void asked() {
        final AskedException asked = assertThrows(AskedException.class, () -> client().run(name, SOON, lock -> {
            ask("step-down");
            try {
                new CountDownLatch(1).await();
            } finally {
                lock.check();
            }
            return null;
        }));
        assertEquals("step-down", asked.kind());
        assertEquals("local: a test", asked.by() + ": " + asked.reason());
    }

    @Test
    void revoked() throws Exception {
        final Lock lock = acquire(SOON);
        ask("revoke");
        assertInstanceOf(LostException.class, lock.over().get());
        assertThrows(LostException.class, lock::check);
    }

    /** Waits until heartbeats have moved the deadline so often. */
    private static void kept(final Session session, final int times) throws InterruptedException {
        Duration last = Duration.ZERO;
        for (int rises = 0; rises <= times; TimeUnit.MILLISECONDS.sleep(10)) {
            session.check();
            final Duration left = session.remaining();
            rises += left.compareTo(last) > 0 ? 1 : 0;
            last = left;
        }
    }

    @Test
    void manyUnderOneSession() throws Exception {
        final List<String> names = List.of(name + "/c", name + "/a", name + "/b");
        final List<Lock> all;
        try (Session session = client().session(SOON.owner("first"))) {
            final Lock one = session.acquire(name, SOON);
            all = session.acquireAll(names, SOON);
            kept(session, 8); // longer than a lease
            for (final Lock lock : all) {
                lock.check();
                final HeldException held = assertThrows(HeldException.class, () -> client().acquire(lock.name(), TRY));
                assertEquals("first " + lock.token(), held.holder() + " " + held.token());
            }
            ask("step-down");
            assertEquals("a test", assertInstanceOf(AskedException.class, one.stopping().get()).reason());
            one.release(new byte[] {7}, null);
            final Lock after = acquire(SOON);
            assertEquals(one.token() + 1, after.token());
            assertArrayEquals(new byte[] {7}, after.data().orElseThrow());
            assertThrows(HeldException.class, () -> session.acquireAll(List.of(name, name + "/d"), TRY));
            client().acquire(name + "/d", TRY).release();
            all.get(0).check();
        }
        for (final Lock lock : all) {
            try (Lock after = client().acquire(lock.name(), SOON)) {
                assertEquals(lock.token() + 1, after.token());
            }
        }
    }

    @Test
    void slots() throws Exception {
        final Semaphore semaphore = client().semaphore(name, 2);
        final Lock first = semaphore.acquire(SOON.owner("first"));
        try (Session session = client().session(SOON);
                Lock second = session.semaphore(name, 2).acquire(SOON)) {
            assertEquals(1, first.slot().getAsInt() + second.slot().getAsInt());
            assertEquals(name + ":slot/" + first.slot().getAsInt(), first.name());
            assertEquals(2, second.slots().getAsInt());
            assertThrows(HeldException.class, () -> semaphore.acquire(TRY));
            kept(session, 8); // longer than a lease
            first.check();
            second.check();
        }
        first.release();
        try (Lock after = semaphore.acquire(SOON)) {
            after.check();
        }
    }

    @Test
    void readersAndWriters() throws Exception {
        final RwLock catalog = client().rwlock(name);
        final Lock reader = catalog.read(SOON);
        final Lock other = catalog.read(SOON);
        assertEquals(Optional.empty(), reader.lastWriter());
        assertThrows(HeldException.class, () -> catalog.write(TRY));
        final FutureTask<Lock> writing = new FutureTask<>(() -> catalog.write(SOON.owner("writer")));
        new Thread(writing).start();
        TimeUnit.SECONDS.sleep(6); // longer than a lease
        reader.check();
        assertFalse(writing.isDone());
        reader.release();
        other.release();
        final Lock writer = writing.get();
        locks.add(writer);
        writer.check();
        assertTrue(writer.fenceToken() > reader.fenceToken());
        assertThrows(HeldException.class, () -> catalog.read(TRY));
        writer.release(null, "disk full");
        try (Lock after = catalog.read(SOON)) {
            assertTrue(after.fenceToken() > writer.fenceToken());
            final LastWriter last = after.lastWriter().orElseThrow();
            assertEquals(new LastWriter("writer", writer.token(), "failed"), last);
            // One that gives up leaves no trace.
            final AcquireOptions soon = AcquireOptions.defaults().waitAtMost(Duration.ofSeconds(2));
            assertThrows(HeldException.class, () -> catalog.write(soon));
        }
        try (Session session = client().session(SOON);
                Lock after = session.rwlock(name).write(SOON)) {
            assertEquals(writer.token(), after.lastWriter().orElseThrow().token());
            kept(session, 8);
            after.check();
        }
    }

    @Test
    void aSessionOutlivesAReplica() throws Exception {
        final int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        final Path folder = tokenFile.toAbsolutePath().getParent(); // where the store of the servers is
        final String replica = "127.0.0.1:" + port;
        final Process process = new ProcessBuilder(
                        Path.of("..", "..", ".bin", "clients-tenured").toString(),
                        "--store",
                        "sqlite:" + folder.resolve("locks.db"),
                        "--lease",
                        "5s",
                        "--quiet",
                        "--listen",
                        replica)
                .inheritIO()
                .start();
        try {
            final TenureClient apart =
                    TenureClient.of("http://" + replica).tokenFile(tokenFile).build();
            apart.acquire(name + "/up", SOON).release();
            final TenureClient both = TenureClient.of("http://" + replica, servers[0]).tokenFile(tokenFile).build();
            try (Session session = both.session(SOON)) {
                final List<Lock> locks = session.acquireAll(List.of(name, name + "/b"), SOON);
                kept(session, 2);
                process.destroyForcibly().waitFor();
                kept(session, 8);
                session.acquire(name + "/c", SOON).check();
                locks.get(0).release();
                locks.get(1).check();
            }
        } finally {
            process.destroyForcibly();
        }
        assertFalse(process.isAlive());
        acquire(TRY).release();
        client().acquire(name + "/b", TRY).release();
    }

    @Test
    void refused() {
        final TenureClient stranger = TenureClient.of(servers).token("nobody").build();
        final ProblemException refused = assertThrows(ProblemException.class, () -> stranger.acquire(name, TRY));
        assertEquals("unauthenticated", refused.kind());
        final ProblemException reserved =
                assertThrows(ProblemException.class, () -> client().acquire("tenure/reserved", TRY));
        assertTrue(List.of("bad-request", "forbidden").contains(reserved.kind()), reserved.kind());
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "TENURE_TEST_TLS", matches = ".+")
    void tls() throws Exception {
        final KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (InputStream in = Files.newInputStream(Path.of(System.getenv("TENURE_TEST_CA")))) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        final TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(trusted);
        final SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        final TenureClient.Builder builder =
                TenureClient.of(System.getenv("TENURE_TEST_TLS")).tokenFile(tokenFile);
        // A mistake that stays is told at once, however long the wait may be.
        final String server = System.getenv("TENURE_TEST_TLS");
        final UnavailableException strange =
                assertThrows(UnavailableException.class, () -> builder.build().acquire(name, AcquireOptions.defaults()));
        assertTrue(strange.getMessage().matches("(?s).*" + server + ": .*cert.*"), strange.getMessage());
        final String plain = server.replace("https:", "http:");
        final UnavailableException unencrypted = assertThrows(
                UnavailableException.class,
                () -> TenureClient.of(plain).tokenFile(tokenFile).build().acquire(name, AcquireOptions.defaults()));
        assertTrue(unencrypted.getMessage().contains("use https"), unencrypted.getMessage());
        try (Lock lock = builder.tls(context).build().acquire(name, SOON)) {
            lock.check();
        }
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "TENURE_TEST_README", matches = ".+")
    void readme() throws Exception {
        final Matcher program = Pattern.compile(
                        "^```java\\n(.*?public class (\\w+).*?)^```", Pattern.MULTILINE | Pattern.DOTALL)
                .matcher(Files.readString(Path.of("README.md")));
        final Map<String, String> says = Map.of(
                "Catalog",
                "three processes at a time are here, this one in slot [0-2]\\n"
                        + "nobody else reads or writes, under token \\d+\\nthe last writer has released\\n",
                "Reports", "one process at a time is here, under token \\d+\\n",
                "Shards", "writing to 3 shards\\n");
        for (int i = 0; i < says.size(); i++) {
            assertTrue(program.find());
            final String name = program.group(2);
            final String said = run(name + ".java", program.group(1));
            assertTrue(said.matches(says.get(name)), said);
        }
    }

    /** Runs a program in the folder where the file "token" is, and returns what it prints. */
    private String run(final String file, final String text) throws Exception {
        final Path folder = tokenFile.getParent();
        Files.writeString(folder.resolve(file), text);
        final String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        final String classes = new File("target/classes").getAbsolutePath();
        final Process process = new ProcessBuilder(java, "-cp", classes, file)
                .directory(folder.toFile())
                .redirectErrorStream(true)
                .start();
        final String said = new String(process.getInputStream().readAllBytes(), UTF_8);
        assertEquals(0, process.waitFor(), said);
        return said;
    }
}
