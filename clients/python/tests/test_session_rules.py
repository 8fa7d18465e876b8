# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The table of sessions, which all clients share: session_rules.json."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Callable
from typing import Any

from tenurelock.clock import MILLISECOND
from tenurelock.errors import AskedError
from tenurelock.lease import Grant, Heartbeat, Release
from tenurelock.session_lease import Attachment, Request, SessionLease

from .test_rules import table


def beat(name: str) -> str:
    """Returns the beat that the table calls S0, A1, and so on."""
    return f"{name[0] * 13}-{int(name[1:]):013}"


def parts() -> Callable[[], str]:
    made = itertools.count(1)
    return lambda: f"{next(made):013}"


def asked(step: dict[str, Any]) -> AskedError | None:
    return AskedError(**step["asked"]) if step.get("asked") else None


class Player:
    """Plays one scenario."""

    def __init__(self, rules: Any) -> None:
        self.rules = rules
        opening = rules["opening"]
        self.session = SessionLease(self.grant("session", opening["beat"], opening), 0, parts())
        self.sent: dict[str, Heartbeat] = {}
        self.locks: dict[str, Attachment] = {}
        self.releases: dict[str | None, Release] = {}

    def grant(self, name: str, first: str, more: dict[str, Any]) -> Grant:
        lease, usable, period = (more.get(key, 0) * MILLISECOND for key in ("lease_ms", "usable_ms", "heartbeat_ms"))
        return Grant(name, more.get("token", 1), beat(first), lease, None, usable, period)

    def play(self, step: dict[str, Any]) -> tuple[object, object]:
        """Plays a step, and returns what came of it and what should."""
        now, lock = step["at"] * MILLISECOND, step.get("lock")
        right = self.session if lock is None or lock not in self.locks else self.locks[lock]
        match step["do"]:
            case "check":
                return right.state(now).value, step["is"]
            case "remaining":
                return right.remaining(now), step["ms"] * MILLISECOND
            case "release" | "close":
                self.releases[lock] = right.release(now)
            case "call":
                got = self.releases[lock].call(now)
                if lock is not None and got is not None:
                    return (right.grant.beat, got), (beat(step["after"]), beat(step["next"]))
                return got, step["after"] and beat(step["after"])
            case "answered":
                release = self.releases[lock]
                {"ok": release.applied, "lost": release.refused, "unknown": release.unknown}[step["with"]]()
            case "outcome":
                outcome = self.releases[lock].outcome
                return outcome and outcome.value, step["is"]
            case _:
                return self.play_session(step, now) if lock is None else self.play_lock(step, lock, now)
        return None, None

    def play_session(self, step: dict[str, Any], now: int) -> tuple[object, object]:
        session = self.session
        match step["do"]:
            case "send":
                sent = session.send(now)
                if sent is None or step.get("none"):
                    return sent, None
                self.sent[sent.next] = sent
                first, answered = step["first_sent"] * MILLISECOND, tuple(step["answered"])
                return sent, Heartbeat(beat(step["after"]), beat(step["next"]), first, answered)
            case "confirm":
                usable, period = step["usable_ms"] * MILLISECOND, step["heartbeat_ms"] * MILLISECOND
                session.confirm(self.sent[beat(step["next"])], usable, period, None, now)
                told = [dict(request) for request in step.get("requests", [])]
                heard = [Request(r.pop("id"), r.pop("name"), r.pop("token"), AskedError(**r)) for r in told]
                session.hear(tuple(heard), now)
            case "refuse":
                session.refuse(self.sent[beat(step["next"])], "b", now)
            case "due":
                return session.due(now), None if step["ms"] is None else step["ms"] * MILLISECOND
            case _:
                raise AssertionError(f"no step {step}")
        return None, None

    def play_lock(self, step: dict[str, Any], name: str, now: int) -> tuple[object, object]:
        if step["do"] == "grant":
            grant = self.grant(name, f"{name.upper()}0", self.rules["grant"] | step)
            self.locks[name] = Attachment(
                self.session, grant, self.rules["stop_timeout_ms"] * MILLISECOND, parts()
            )
            self.locks[name].granted(step["sent"] * MILLISECOND, now)
            return None, None
        lock = self.locks[name]
        match step["do"]:
            case "attach":
                sent = lock.attach(now)
                if sent is None or step.get("none"):
                    return sent, None
                return sent, Heartbeat(beat(step["after"]), beat(step["next"]), step["first_sent"] * MILLISECOND)
            case "attached":
                lock.attached(asked(step), now)
            case "lost":
                lock.not_attached("b", now)
            case "asked":
                return lock.asked and lock.asked.kind, step["kind"]
            case "overdue":
                return lock.overdue(now), step["is"]
            case _:
                raise AssertionError(f"no step {step}")
        return None, None


class SessionRules(unittest.TestCase):
    def test_rules(self) -> None:
        rules = table("session_rules.json")
        self.assertGreater(len(rules["scenarios"]), 30)
        for scenario in rules["scenarios"]:
            player = Player(rules)
            for number, step in enumerate(scenario["steps"], 1):
                with self.subTest(scenario["rule"], step=number):
                    got, want = player.play(step)
                    self.assertEqual(got, want, step)


if __name__ == "__main__":
    unittest.main()
