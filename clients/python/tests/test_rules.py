# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The tables of testdata, which all clients share: what may be believed, and when."""

from __future__ import annotations

import json
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from tenurelock.answers import (
    Problem,
    Reply,
    Unknown,
    held_by,
    read_acquire,
    read_heartbeat,
    read_release,
)
from tenurelock.client import Client
from tenurelock.clock import MILLISECOND, SECOND, Greater, Raw, system_clock
from tenurelock.errors import AskedError
from tenurelock.events import Events
from tenurelock.lease import Grant, Heartbeat, Lease, Release, random_part
from tenurelock.terms import check_text

TABLES = Path(__file__).parents[2] / "testdata"
STABLE = "aaaaaaaaaaaaa-"


def table(name: str) -> Any:
    return json.loads((TABLES / name).read_text(encoding="utf-8"))


def beat(name: str) -> str:
    """Returns the beat that the tables call B0, B1, and so on."""
    return f"{STABLE}{int(name[1:]):013}"


class Player:
    """Plays one scenario."""

    def __init__(self, rules: Any, scenario: Any) -> None:
        self.made = 0
        grant = rules["grant"] | scenario.get("grant", {})
        lease, usable, period = (grant.get(key, 0) * MILLISECOND for key in ("lease_ms", "usable_ms", "heartbeat_ms"))
        self.lease = Lease(
            Grant("n", grant["token"], beat(grant["beat"]), lease, None, usable, period),
            rules["stop_timeout_ms"] * MILLISECOND,
            self.random,
        )
        self.sent: dict[str, Heartbeat] = {}
        self.release: Release | None = None

    def random(self) -> str:
        self.made += 1
        return f"{self.made:013}"

    def play(self, step: dict[str, Any]) -> tuple[object, object]:
        """Plays a step, and returns what came of it and what should."""
        now = step["at"] * MILLISECOND
        match step["do"]:
            case "granted":
                self.lease.granted(step["sent"] * MILLISECOND, now)
            case "send":
                sent = self.lease.send(now)
                if sent is None or step.get("none"):
                    return sent, None
                self.sent[sent.next] = sent
                want = Heartbeat(beat(step["after"]), beat(step["next"]), step["first_sent"] * MILLISECOND)
                return sent, want
            case "confirm":
                asked = AskedError(**step["asked"]) if step.get("asked") else None
                usable, period = step["usable_ms"] * MILLISECOND, step["heartbeat_ms"] * MILLISECOND
                self.lease.confirm(self.sent[beat(step["next"])], usable, period, asked, now)
            case "refuse":
                self.lease.refuse(self.sent[beat(step["next"])], "b", now)
            case "check":
                return self.lease.state(now).value, step["is"]
            case "remaining":
                return self.lease.remaining(now), step["ms"] * MILLISECOND
            case "due":
                return self.lease.due(now), None if step["ms"] is None else step["ms"] * MILLISECOND
            case "asked":
                return self.lease.asked and self.lease.asked.kind, step["kind"]
            case _:
                return self.play_release(step, now)
        return None, None

    def play_release(self, step: dict[str, Any], now: int) -> tuple[object, object]:
        if step["do"] == "release":
            self.release = self.lease.release(now)
            return None, None
        assert self.release is not None
        match step["do"], step.get("with"):
            case "call", _:
                return self.release.call(now), step["after"] and beat(step["after"])
            case "answered", "ok":
                self.release.applied()
            case "answered", "lost":
                self.release.refused()
            case "answered", "unknown":
                self.release.unknown()
            case "outcome", _:
                return self.release.outcome and self.release.outcome.value, step["is"]
            case _:
                raise AssertionError(f"no step {step}")
        return None, None


def said(pieces: list[bytes]) -> list[str]:
    """Returns what a stream says that comes in such pieces."""
    says, events = [], Events()
    try:
        for piece in pieces:
            for event in events.feed(piece):
                if not isinstance(event, Reply):
                    held = held_by("n", event)
                    says.append(f"waiting {held.holder} {held.token}")
                    continue
                match read_acquire(event, "n"):
                    case Grant() as grant:
                        return [*says, f"granted {grant.token}"]
                    case Problem() as problem:
                        return [*says, f"problem {problem.kind} {problem.retry_after:g}"]
                    case _:
                        return [*says, "unknown"]
    except OSError:
        says.append("unknown")
    return says


class Names(unittest.TestCase):
    """The table of text: names.json."""

    def test_whole(self) -> None:
        for text in table("names.json")["whole"]:
            check_text("name", text)

    def test_halves(self) -> None:
        client = Client("http://127.0.0.1:1")
        for text in table("names.json")["halves"]:
            for name, owner, label in ((text, None, ""), ("n", text, ""), ("n", None, text)):
                with self.assertRaisesRegex(ValueError, "half of a character"):
                    client.acquire(name, owner=owner, label=label, wait=0)


class Rules(unittest.TestCase):
    def test_rules(self) -> None:
        rules = table("rules.json")
        self.assertGreater(len(rules["scenarios"]), 20)
        for scenario in rules["scenarios"]:
            player = Player(rules, scenario)
            for number, step in enumerate(scenario["steps"], 1):
                with self.subTest(scenario["rule"], step=number):
                    got, want = player.play(step)
                    self.assertEqual(got, want, step)

    def test_clock(self) -> None:
        for scenario in table("clock.json")["scenarios"]:
            readings = iter(scenario["readings"])
            at = next(readings)
            clock = Greater(lambda: (at[0] * MILLISECOND, at[1] * MILLISECOND))
            for at in readings:
                with self.subTest(scenario["about"], at=at):
                    self.assertEqual(clock() / MILLISECOND, at[2])

    def test_raw_clock(self) -> None:
        for scenario in table("clock.json")["raw"]:
            readings = iter(scenario["readings"])
            at = next(readings)
            clock = Raw(lambda: (at[0] * MILLISECOND, at[1] * MILLISECOND, at[2] * MILLISECOND))
            begun = clock()
            for at in readings:
                with self.subTest(scenario["about"], at=at):
                    self.assertEqual((clock() - begun) / MILLISECOND, at[3])

    def read(self, clocks: dict[int, int | list[int]]) -> Any:
        """Returns a stand-in for the clocks of the machine. A list has one reading after the other."""

        def read(clock: int) -> int:
            at = clocks.get(clock)
            if at is None:
                raise OSError(22, "Invalid argument")
            return at.pop(0) if isinstance(at, list) else at

        return mock.patch("time.clock_gettime_ns", read)

    @unittest.skipUnless(hasattr(time, "CLOCK_BOOTTIME"), "not Linux")
    def test_system_clock_of_linux(self) -> None:
        mono, raw, boot = time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME
        for about, clocks, want in (
            ("raw", {mono: 5 * SECOND, raw: 7 * SECOND, boot: 11 * SECOND}, 13 * SECOND),
            ("raw is behind", {mono: 5 * SECOND, raw: 4 * SECOND, boot: 11 * SECOND}, 10 * SECOND),
            ("a sandbox that has one clock for both", {mono: 5 * SECOND, raw: 5 * SECOND, boot: 11 * SECOND}, 11 * SECOND),
            ("no raw clock", {mono: 5 * SECOND, boot: 11 * SECOND}, 11 * SECOND),
        ):
            with self.subTest(about), mock.patch("sys.platform", "linux"), self.read(dict(clocks)):
                clock = system_clock()
                self.assertEqual(clock(), want)
                self.assertEqual(isinstance(clock, Raw), about.startswith("raw"))

    @unittest.skipUnless(hasattr(time, "CLOCK_BOOTTIME"), "not Linux")
    def test_a_pause_while_the_clocks_are_read(self) -> None:
        # 10 s of real time, of which the monotonic clock counts 9: they are not to count as 9.
        mono, raw, boot = time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME
        readings: dict[int, int | list[int]] = {
            raw: [SECOND, 11 * SECOND],
            mono: [0, 9 * SECOND, 9 * SECOND, 9 * SECOND],
            boot: [9 * SECOND, 9 * SECOND],
        }
        with self.read(readings):
            self.assertEqual(Raw()(), 11 * SECOND)

    def test_system_clock(self) -> None:
        with mock.patch("sys.platform", "darwin"), self.read({time.CLOCK_MONOTONIC: 5}):
            self.assertEqual(system_clock()(), 5)
        with mock.patch("sys.platform", "win32"):
            self.assertIsInstance(system_clock(), Greater)

    def test_the_clocks_of_this_machine(self) -> None:
        clock = system_clock()
        monotonic, begun = time.monotonic_ns(), clock()
        time.sleep(0.05)
        passed = clock() - begun
        self.assertGreater(passed, 40 * MILLISECOND)
        self.assertLess(passed, (time.monotonic_ns() - monotonic) * 1.2)

    def test_answers(self) -> None:
        read = {
            "acquire": lambda reply: read_acquire(reply, "n"),
            "heartbeat": read_heartbeat,
            "release": read_release,
        }
        for case in table("answers.json")["answers"]:
            with self.subTest(case):
                got = read[case["call"]](Reply(case["status"], case["type"], case["body"].encode()))
                kind = got.kind if isinstance(got, Problem) else None
                is_ = {Problem: "problem", Unknown: "unknown"}.get(type(got), "ok")
                self.assertEqual((is_, kind), (case["is"], case.get("kind")))

    def test_events(self) -> None:
        streams = table("events.json")["streams"]
        self.assertGreater(len(streams), 15)
        for case in streams:
            stream = case["stream"].encode()
            for size in (1, 7, len(stream) + 1):
                with self.subTest(case["about"], size=size):
                    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
                    self.assertEqual(said(pieces), case["said"])

    def test_random_part(self) -> None:
        parts = {random_part() for _ in range(100)}
        self.assertEqual(len(parts), 100)
        for part in parts:
            self.assertRegex(part, r"^[0-9A-Za-z]{13}$")


if __name__ == "__main__":
    unittest.main()
