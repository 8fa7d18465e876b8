// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Calls over real sockets, to servers that behave well and badly. */
@Timeout(60)
final class HttpTransportTest {
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final String OK =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

    private final List<AutoCloseable> open = Collections.synchronizedList(new ArrayList<>());
    private final List<String> asked = Collections.synchronizedList(new ArrayList<>());
    private final HttpTransport transport = new HttpTransport(Optional.empty());

    private interface Answering {
        void answer(OutputStream out) throws IOException, InterruptedException;
    }

    @AfterEach
    void end() throws Exception {
        for (final AutoCloseable each : List.copyOf(open)) {
            each.close();
        }
    }

    /** Serves one answer for each connection, and returns the address. */
    private String serve(final Answering answering) throws IOException {
        final ServerSocket listening = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        open.add(listening);
        final Thread thread = new Thread(() -> {
            while (!listening.isClosed()) {
                try (Socket socket = listening.accept()) {
                    open.add(socket);
                    asked.add(request(socket));
                    answering.answer(socket.getOutputStream());
                } catch (final IOException | InterruptedException error) {
                    // The client or the test is over.
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
        return "http://127.0.0.1:" + listening.getLocalPort();
    }

    private static String request(final Socket socket) throws IOException {
        final StringBuilder got = new StringBuilder();
        final Pattern length = Pattern.compile("(?i)content-length: (\\d+)");
        while (true) {
            final int end = got.indexOf("\r\n\r\n");
            final Matcher matcher = length.matcher(got);
            if (end >= 0 && matcher.find() && got.length() - end - 4 >= Integer.parseInt(matcher.group(1))) {
                return got.toString();
            }
            got.append((char) socket.getInputStream().read());
        }
    }

    private static Answering sends(final String text) {
        return out -> out.write(text.getBytes(UTF_8));
    }

    private Reply post(final String url, final Duration limit) throws IOException, InterruptedException {
        return transport.post(url + "/v1/release", Map.of("Authorization", "Bearer s"), "{\"name\":\"ü\"}", limit);
    }

    @Test
    void aCall() throws Exception {
        final Reply reply = post(serve(sends(OK)), SOON);
        assertEquals(new Reply(200, "application/json", "{}", ""), reply);
        assertTrue(asked.get(0).startsWith("POST /v1/release HTTP/1.1\r\n"), asked.get(0));
        assertTrue(asked.get(0).contains("Authorization: Bearer s\r\n"), asked.get(0));
        assertFalse(asked.get(0).contains("Upgrade"), asked.get(0));
        assertTrue(new String(asked.get(0).getBytes(ISO_8859_1), UTF_8).endsWith("{\"name\":\"ü\"}"), asked.get(0));
    }

    @Test
    void theLimitHoldsForTheWholeAnswer() throws Exception {
        final String url = serve(out -> {
            out.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".getBytes(UTF_8));
            for (int i = 0; i < 1000; i++) {
                out.write('x');
                TimeUnit.MILLISECONDS.sleep(50);
            }
        });
        assertThrows(IOException.class, () -> post(url, Duration.ofMillis(300)));
    }

    @Test
    void cutAnswersAreNoAnswers() throws Exception {
        for (final String cut : List.of("", "HTTP/1.1 200 OK\r\n", "nonsense\r\n\r\n", OK.substring(0, OK.length() - 1))) {
            final String url = serve(sends(cut));
            assertThrows(IOException.class, () -> post(url, SOON), cut);
        }
    }

    private static final String STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    private static final String GRANT = "event: granted\ndata: {\"token\": 8}\n\n";

    private Reply stream(final String url, final Events events) throws IOException, InterruptedException {
        final Reply reply = transport.post(url + "/v1/acquire", Map.of(), "{}", SOON, events);
        return events.answer().orElse(reply);
    }

    @Test
    void aStreamIsToldAsItComes() throws Exception {
        final CountDownLatch told = new CountDownLatch(1);
        final CountDownLatch over = new CountDownLatch(1);
        open.add(over::countDown);
        final String url = serve(out -> {
            out.write((STREAM + "event: waiting\ndata: {\"holder\": \"a\"}\n\n").getBytes(UTF_8));
            told.await();
            out.write(GRANT.getBytes(UTF_8));
            over.await(); // it does not end the stream, as a proxy may do
        });
        final List<Object> holders = new ArrayList<>();
        final Reply reply = stream(url, new Events(said -> {
            holders.add(said.get("holder"));
            told.countDown();
        }));
        assertEquals(List.of("a"), holders);
        assertEquals(new Reply(200, "application/json", "{\"token\": 8}", ""), reply);
    }

    @Test
    void aServerThatDoesNotStream() throws Exception {
        assertEquals("{}", stream(serve(sends(OK)), new Events(said -> {})).body());
    }

    @Test
    void cutStreamsAreNoAnswers() throws Exception {
        for (final String cut : List.of(STREAM, STREAM + GRANT.substring(0, GRANT.length() - 1))) {
            final Reply reply = stream(serve(sends(cut)), new Events(said -> {}));
            assertInstanceOf(Answer.Unknown.class, Answers.acquire(reply, Wanted.lock("n")));
        }
        final String wrong = serve(sends(STREAM + "event: waiting\ndata: {\n\n" + GRANT));
        assertThrows(Answers.NotOurs.class, () -> stream(wrong, new Events(said -> {})));
    }

    @Test
    void aStreamHasALimitAndAnInterruptEndsIt() throws Exception {
        final CountDownLatch over = new CountDownLatch(1);
        open.add(over::countDown);
        final String url = serve(out -> {
            out.write((STREAM + "event: waiting\ndata: {}\n\n").getBytes(UTF_8));
            over.await();
        });
        final Events events = new Events(said -> {});
        assertThrows(
                IOException.class, () -> transport.post(url + "/v1/acquire", Map.of(), "{}", Duration.ofMillis(300), events));
        over.countDown();
        final Thread self = Thread.currentThread();
        final String interrupts = serve(out -> {
            out.write((STREAM + "event: waiting\ndata: {}\n\n").getBytes(UTF_8));
            TimeUnit.SECONDS.sleep(60);
        });
        assertThrows(InterruptedException.class, () -> stream(interrupts, new Events(said -> self.interrupt())));
    }

    @Test
    void redirectsAreNotFollowed() throws Exception {
        final String url = serve(sends("HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"));
        assertEquals(307, post(url, SOON).status());
        assertEquals(1, asked.size());
    }

    @Test
    void tooLongAnswersAreNoAnswers() throws Exception {
        final int length = 5 << 20;
        final String url = serve(sends("HTTP/1.1 200 OK\r\nContent-Length: " + length + "\r\n\r\n" + "x".repeat(length)));
        assertThrows(IOException.class, () -> post(url, SOON));
    }

    @Test
    void anInterruptEndsTheCall() throws Exception {
        final Thread self = Thread.currentThread();
        final String url = serve(out -> {
            self.interrupt();
            TimeUnit.SECONDS.sleep(60);
        });
        assertThrows(InterruptedException.class, () -> post(url, SOON));
    }

    @Test
    void tokenFile(@TempDir final Path folder) throws IOException {
        final Path file = folder.resolve("token");
        Files.writeString(file, "first\n");
        final Credentials credentials = new Credentials(null, file);
        assertEquals(Optional.of("Bearer first"), credentials.header());
        Files.writeString(file, "second\n");
        assertEquals(Optional.of("Bearer second"), credentials.header());
        Files.delete(file);
        assertEquals(Optional.of("Bearer second"), credentials.header());
    }

    /** Serves a service in memory over HTTP. */
    private String serve(final FakeService service) throws IOException {
        final HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            try (exchange) {
                final String body = new String(exchange.getRequestBody().readAllBytes(), UTF_8);
                final Reply reply = service.post(exchange.getRequestURI().toString(), Map.of(), body, SOON);
                exchange.getResponseHeaders().add("Content-Type", reply.contentType());
                exchange.sendResponseHeaders(reply.status(), reply.body().length());
                exchange.getResponseBody().write(reply.body().getBytes(UTF_8));
            } catch (final InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        });
        server.start();
        open.add(() -> server.stop(0));
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    @Test
    void oneOfTwoServersIsDown() throws Exception {
        final FakeService service = new FakeService();
        service.heartbeatMs = 10;
        final TenureClient client = TenureClient.of("http://127.0.0.1:9", serve(service)).token("t").build();
        try (Lock lock = client.acquire("n")) {
            while (service.bodies("/v1/heartbeat").size() < 5) {
                lock.check();
                TimeUnit.MILLISECONDS.sleep(10);
            }
        }
        assertFalse(service.held());
    }

    @Test
    void allServersGo() throws Exception {
        final FakeService service = new FakeService();
        service.heartbeatMs = 10;
        service.usableMs = 300;
        final Lock lock = TenureClient.of(serve(service)).token("t").build().acquire("n");
        service.always("/v1/heartbeat", FakeService.DROPPED);
        assertInstanceOf(ExpiredException.class, lock.over().get());
        assertThrows(ExpiredException.class, lock::check);
        assertThrows(ExpiredException.class, lock::release);
    }
}
