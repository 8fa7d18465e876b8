// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The tables of testdata, which all clients share: what may be believed, and when. */
final class RulesTest {
    private static final long MS = 1_000_000;

    @SuppressWarnings("unchecked") // a table that is not as it should be fails the test
    private static Map<String, Object> table(final String name) throws IOException {
        return (Map<String, Object>) Json.read(Files.readString(Path.of("..", "testdata", name)));
    }

    @SuppressWarnings("unchecked") // the same
    private static List<Map<String, Object>> list(final Map<String, Object> of, final String key) {
        return (List<Map<String, Object>>) of.get(key);
    }

    /** Returns the beat that the tables call B0, B1, and so on. */
    private static String beat(final Object name) {
        return String.format("aaaaaaaaaaaaa-%013d", Integer.parseInt(((String) name).substring(1)));
    }

    private static long ms(final Map<?, ?> of, final String key) {
        return (Long) of.get(key) * MS;
    }

    /** Plays one scenario. */
    private static final class Player {
        private final Lease lease;
        private final Map<String, Heartbeat> sent = new HashMap<>();
        private Release release;
        private int made;

        Player(final Map<String, Object> rules, final Map<String, Object> scenario) {
            final Map<?, ?> grant = (Map<?, ?>) rules.get("grant");
            final long token = (Long) grant.get("token");
            final Object more = scenario.get("grant");
            final long usable = more == null ? 0 : ms((Map<?, ?>) more, "usable_ms");
            final long period = ms(grant, "heartbeat_ms");
            lease = new Lease(
                    new Grant(
                            "n", token, beat(grant.get("beat")), ms(grant, "lease_ms"), Optional.empty(), usable, period),
                    ms(rules, "stop_timeout_ms"),
                    () -> String.format("%013d", ++made));
        }

        void play(final Map<String, Object> step) {
            final long now = ms(step, "at");
            final Object what = step.get("do");
            if (what.equals("granted")) {
                lease.granted(ms(step, "sent"), now);
            } else if (what.equals("send")) {
                final Optional<Heartbeat> got = lease.send(now);
                final Optional<Heartbeat> want = step.containsKey("none")
                        ? Optional.empty()
                        : Optional.of(
                                new Heartbeat(beat(step.get("after")), beat(step.get("next")), ms(step, "first_sent")));
                assertEquals(want, got, step.toString());
                got.ifPresent(heartbeat -> sent.put(heartbeat.next(), heartbeat));
            } else if (what.equals("confirm")) {
                final Optional<AskedException> asked = Optional.ofNullable((Map<?, ?>) step.get("asked"))
                        .map(r -> new AskedException(
                                Answers.text(r, "kind"), Answers.text(r, "by"), Answers.text(r, "reason"), "", ""));
                final var answer = new Answer.Confirmed(ms(step, "usable_ms"), ms(step, "heartbeat_ms"), asked);
                lease.confirm(sent.get(beat(step.get("next"))), answer, now);
            } else if (what.equals("refuse")) {
                lease.refuse(sent.get(beat(step.get("next"))), "b", now);
            } else if (what.equals("check")) {
                assertEquals(step.get("is"), lease.state(now).name().toLowerCase(Locale.ROOT), step.toString());
            } else if (what.equals("remaining")) {
                assertEquals(ms(step, "ms"), lease.remaining(now), step.toString());
            } else if (what.equals("due")) {
                final OptionalLong want = step.get("ms") == null ? OptionalLong.empty() : OptionalLong.of(ms(step, "ms"));
                assertEquals(want, lease.due(now), step.toString());
            } else if (what.equals("asked")) {
                assertEquals(step.get("kind"), lease.asked().map(AskedException::kind).orElse(null), step.toString());
            } else {
                playRelease(what.toString(), step, now);
            }
        }

        private void playRelease(final String what, final Map<String, Object> step, final long now) {
            switch (what) {
                case "release" -> release = lease.release(now);
                case "call" -> assertEquals(
                        Optional.ofNullable(step.get("after")).map(RulesTest::beat), release.call(now), step.toString());
                case "answered" -> {
                    switch ((String) step.get("with")) {
                        case "ok" -> release.applied();
                        case "lost" -> release.refused();
                        case "unknown" -> release.unknown();
                        default -> throw new AssertionError(step);
                    }
                }
                case "outcome" -> assertEquals(
                        step.get("is"),
                        release.outcome().map(o -> o.name().toLowerCase(Locale.ROOT)).orElse(null),
                        step.toString());
                default -> throw new AssertionError(step);
            }
        }
    }

    @TestFactory
    Stream<DynamicTest> rules() throws IOException {
        final Map<String, Object> rules = table("rules.json");
        assertTrue(list(rules, "scenarios").size() > 20);
        return list(rules, "scenarios").stream()
                .map(scenario -> DynamicTest.dynamicTest((String) scenario.get("rule"), () -> {
                    final Player player = new Player(rules, scenario);
                    list(scenario, "steps").forEach(player::play);
                }));
    }

    /** Plays one scenario of a session, and of the locks under it. */
    private static final class SessionPlayer {
        private final Map<String, Object> rules;
        private final Lease session;
        private final Members<Lease> members = new Members<>();
        private final Map<String, Heartbeat> sent = new HashMap<>();
        private final Map<Object, Grant> grants = new HashMap<>();
        private final Map<Object, Lease> leases = new HashMap<>(); // of the session under null
        private final Map<Object, Release> releases = new HashMap<>();

        SessionPlayer(final Map<String, Object> rules) {
            this.rules = rules;
            session = new Lease(grant("session", (Map<?, ?>) rules.get("opening"), Map.of()), 0, numbers());
            session.opened(0);
            leases.put(null, session);
        }

        private static Supplier<String> numbers() {
            final AtomicInteger made = new AtomicInteger();
            return () -> String.format("%013d", made.incrementAndGet());
        }

        private static Grant grant(final String name, final Map<?, ?> of, final Map<?, ?> more) {
            final long token = more.get("token") instanceof Long given ? given : 0;
            final long usable = more.containsKey("usable_ms") ? ms(more, "usable_ms") : 0;
            final long lease = ms(of, "lease_ms");
            return new Grant(name, token, beat("B0"), lease, Optional.empty(), usable, ms(of, "heartbeat_ms"));
        }

        private static AskedException asked(final Map<?, ?> r) {
            final String kind = Answers.text(r, "kind");
            return new AskedException(
                    kind, Answers.text(r, "by"), Answers.text(r, "reason"), Answers.text(r, "to"), "");
        }

        private static Optional<Heartbeat> heartbeat(final Map<String, Object> step) {
            return step.containsKey("none")
                    ? Optional.empty()
                    : Optional.of(
                            new Heartbeat(beat(step.get("after")), beat(step.get("next")), ms(step, "first_sent")));
        }

        void play(final Map<String, Object> step) {
            final long now = ms(step, "at");
            final Object name = step.get("lock");
            final Lease lease = leases.get(name);
            switch ((String) step.get("do")) {
                case "check" -> assertEquals(
                        step.get("is"), lease.state(now).name().toLowerCase(Locale.ROOT), step.toString());
                case "remaining" -> assertEquals(ms(step, "ms"), lease.remaining(now), step.toString());
                case "due" -> assertEquals(
                        step.get("ms") == null ? OptionalLong.empty() : OptionalLong.of(ms(step, "ms")),
                        lease.due(now),
                        step.toString());
                case "asked" -> assertEquals(
                        step.get("kind"), lease.asked().map(AskedException::kind).orElse(null), step.toString());
                case "overdue" -> assertEquals(step.get("is"), lease.overdue(now), step.toString());
                case "release", "close" -> releases.put(name, lease.release(now));
                case "call" -> {
                    final Optional<String> call = releases.get(name).call(now);
                    final Object wanted = step.get(name == null ? "after" : "next");
                    assertEquals(Optional.ofNullable(wanted).map(RulesTest::beat), call, step.toString());
                    if (name != null && call.isPresent()) {
                        assertEquals(beat(step.get("after")), lease.attachment().after(), step.toString());
                    }
                }
                case "outcome" -> assertEquals(
                        step.get("is"),
                        releases.get(name).outcome().map(o -> o.name().toLowerCase(Locale.ROOT)).orElse(null),
                        step.toString());
                case "answered" -> {
                    switch ((String) step.get("with")) {
                        case "ok" -> releases.get(name).applied();
                        case "lost" -> releases.get(name).refused();
                        default -> releases.get(name).unknown();
                    }
                    if (name != null && releases.get(name).outcome().isPresent()) {
                        members.remove(grants.get(name), lease);
                    }
                }
                default -> playOther(step, now, lease);
            }
        }

        private void playOther(final Map<String, Object> step, final long now, final Lease lease) {
            switch ((String) step.get("do")) {
                case "send" -> {
                    final Optional<Heartbeat> got = session.send(now);
                    assertEquals(heartbeat(step), got, step.toString());
                    got.ifPresent(heartbeat -> {
                        assertEquals(step.get("answered"), members.answered(heartbeat), step.toString());
                        sent.put(heartbeat.next(), heartbeat);
                    });
                }
                case "confirm" -> {
                    final var answer =
                            new Answer.Confirmed(ms(step, "usable_ms"), ms(step, "heartbeat_ms"), Optional.empty());
                    session.confirm(sent.get(beat(step.get("next"))), answer, now);
                    final List<Answer.Request> requests = new ArrayList<>();
                    for (final Object one : (List<?>) step.getOrDefault("requests", List.of())) {
                        final Map<?, ?> r = (Map<?, ?>) one;
                        requests.add(new Answer.Request(
                                Answers.text(r, "id"), Answers.text(r, "name"), (Long) r.get("token"), asked(r)));
                    }
                    members.hear(requests).forEach((holder, request) -> holder.ask(request, now));
                }
                case "refuse" -> session.refuse(sent.get(beat(step.get("next"))), "b", now);
                case "grant" -> {
                    final String name = (String) step.get("lock");
                    final Grant grant = grant(name, (Map<?, ?>) rules.get("grant"), step);
                    final Lease granted = new Lease(grant, ms(rules, "stop_timeout_ms"), numbers(), session);
                    granted.granted(ms(step, "sent"), now);
                    grants.put(name, grant);
                    leases.put(name, granted);
                    members.add(grant, granted);
                }
                case "attach" -> assertEquals(heartbeat(step), lease.send(now), step.toString());
                case "attached" -> {
                    lease.attached(lease.attachment(), now);
                    Optional.ofNullable((Map<?, ?>) step.get("asked")).ifPresent(r -> lease.ask(asked(r), now));
                }
                case "lost" -> lease.refuse(lease.attachment(), "b", now);
                default -> throw new AssertionError(step);
            }
        }
    }

    @TestFactory
    Stream<DynamicTest> sessionRules() throws IOException {
        final Map<String, Object> rules = table("session_rules.json");
        assertTrue(list(rules, "scenarios").size() > 30);
        return list(rules, "scenarios").stream()
                .map(scenario -> DynamicTest.dynamicTest((String) scenario.get("rule"), () -> {
                    final SessionPlayer player = new SessionPlayer(rules);
                    list(scenario, "steps").forEach(player::play);
                }));
    }

    @TestFactory
    Stream<DynamicTest> clock() throws IOException {
        return list(table("clock.json"), "scenarios").stream()
                .map(scenario -> DynamicTest.dynamicTest((String) scenario.get("about"), () -> {
                    final Iterator<?> readings = ((List<?>) scenario.get("readings")).iterator();
                    final AtomicReference<List<?>> at = new AtomicReference<>((List<?>) readings.next());
                    final GreaterClock clock = new GreaterClock(() ->
                            new GreaterClock.Reading((Long) at.get().get(0) * MS, (Long) at.get().get(1) * MS));
                    while (readings.hasNext()) {
                        at.set((List<?>) readings.next());
                        assertEquals((Long) at.get().get(2) * MS, clock.getAsLong(), at.toString());
                    }
                }));
    }

    @TestFactory
    Stream<DynamicTest> answers() throws IOException {
        return list(table("answers.json"), "answers").stream()
                .map(given -> DynamicTest.dynamicTest(given.toString(), () -> {
                    final int status = ((Long) given.get("status")).intValue();
                    final Reply reply = new Reply(status, (String) given.get("type"), (String) given.get("body"), "");
                    final Answer got = switch ((String) given.get("call")) {
                        case "acquire" -> Answers.acquire(reply, Wanted.lock("n"));
                        case "heartbeat" -> Answers.heartbeat(reply);
                        default -> Answers.done(reply);
                    };
                    if (got instanceof Answer.Problem problem) {
                        assertEquals("problem", given.get("is"));
                        assertEquals(given.get("kind"), problem.kind());
                    } else {
                        assertEquals(given.get("is"), got instanceof Answer.Unknown ? "unknown" : "ok");
                    }
                }));
    }

    /** Returns what a stream says that comes in parts of that size. */
    private static List<String> said(final byte[] stream, final int size) {
        final List<String> says = new ArrayList<>();
        final Events events = new Events(body -> {
            final HeldException held = Answers.heldBy("n", body);
            says.add("waiting " + held.holder() + " " + held.token());
        });
        try {
            for (int at = 0; at < stream.length; at += size) {
                if (events.test(Arrays.copyOfRange(stream, at, Math.min(at + size, stream.length)))) {
                    break;
                }
            }
        } catch (final Answers.NotOurs error) {
            says.add("unknown");
            return says;
        }
        events.answer().map(reply -> Answers.acquire(reply, Wanted.lock("n"))).ifPresent(got -> {
            if (got instanceof Answer.Granted granted) {
                says.add("granted " + granted.grant().token());
            } else if (got instanceof Answer.Problem problem) {
                says.add("problem " + problem.kind() + " " + problem.retryAfter().toSeconds());
            } else {
                says.add("unknown");
            }
        });
        return says;
    }

    @TestFactory
    Stream<DynamicTest> events() throws IOException {
        final List<Map<String, Object>> streams = list(table("events.json"), "streams");
        assertTrue(streams.size() > 15);
        return streams.stream().map(given -> DynamicTest.dynamicTest((String) given.get("about"), () -> {
            final byte[] stream = ((String) given.get("stream")).getBytes(StandardCharsets.UTF_8);
            for (final int size : new int[] {1, 7, stream.length + 1}) {
                assertEquals(given.get("said"), said(stream, size), "in parts of " + size);
            }
        }));
    }

    @Test
    void names() throws IOException {
        final Map<String, Object> names = table("names.json");
        ((List<?>) names.get("whole")).forEach(text -> AcquireOptions.checkText("name", (String) text));
        final TenureClient client = TenureClient.of("http://127.0.0.1:1").build();
        for (final Object half : (List<?>) names.get("halves")) {
            final String text = (String) half;
            final AcquireOptions trying = AcquireOptions.defaults().waitAtMost(Duration.ZERO);
            assertThrows(IllegalArgumentException.class, () -> client.acquire(text, trying), text);
            assertThrows(IllegalArgumentException.class, () -> trying.owner(text), text);
            assertThrows(IllegalArgumentException.class, () -> trying.label(text), text);
        }
    }

    @Test
    void randomPart() {
        final Set<String> parts = new HashSet<>();
        IntStream.range(0, 100).forEach(i -> parts.add(Beats.randomPart()));
        assertEquals(100, parts.size());
        parts.forEach(part -> assertTrue(part.matches("[0-9A-Za-z]{13}"), part));
    }

    @Test
    void json() {
        final String text = "{\"a\":[1,-2,1.5,1e300,true,null,{}],\"\\u00fc\\n\\\"\":\"\\ud83d\\ude00\"}";
        final Map<?, ?> map = (Map<?, ?>) Json.read(" " + text + "\n");
        assertEquals(List.of(1L, -2L, 1.5, 1e300), ((List<?>) map.get("a")).subList(0, 4));
        assertEquals("\ud83d\ude00", map.get("ü\n\""));
        assertEquals("{\"k\\\"\":\"\\u0001\\\\ü\",\"n\":7}", Json.write(new java.util.TreeMap<>(Map.of("k\"", "\u0001\\ü", "n", 7L))));
        for (final String bad : List.of("", "{", "[1,]", "{\"a\"}", "01", "1 2", "nul", "\"\\x\"", "\"\n\"", "'a'", "[".repeat(100))) {
            assertThrows(IllegalArgumentException.class, () -> Json.read(bad), bad);
        }
    }
}
