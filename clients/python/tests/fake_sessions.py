# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A lock service in memory with sessions, semaphores, and locks for readers and writers."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from tenurelock.answers import Reply

from .fake import Service, answer, problem


@dataclass
class Record:
    """A lock."""

    token: int = 0
    holder: str | None = None
    beat: str = ""
    session: str | None = None
    attached: tuple[str, str] | None = None  # after and next
    data: str | None = None
    failed: str | None = None
    released_with: tuple[str, ...] = ()


@dataclass
class Open:
    """A session."""

    owner: str
    first: str
    beat: str
    open: bool = True
    requests: list[dict[str, Any]] = field(default_factory=list)


class Sessions(Service):
    """Any number of locks, as tenured has them. Leases end only when a test says so."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)
        self.records: dict[str, Record] = {}
        self.sessions: dict[str, Open] = {}
        self.readers = 8  # slots of readers

    def carry_out(self, path: str, body: dict[str, Any]) -> Reply:
        calls = {
            "/v1/acquire": self._acquire,
            "/v1/heartbeat": self._heartbeat,
            "/v1/release": self._release,
            "/v1/drain": self._drain,
            "/v1/sessions/open": self._open,
            "/v1/sessions/heartbeat": self._session_heartbeat,
            "/v1/sessions/close": self._close,
            "/v1/sessions/attach": self._attach,
            "/v1/sessions/release": self._session_release,
        }
        with self.mutex:
            return calls[path](body)

    def holder_of(self, name: str) -> str | None:
        """Returns who has the lock."""
        with self.mutex:
            record = self.records.get(name)
            if record is None or record.session is not None and not self.sessions[record.session].open:
                return None
            return record.holder

    def hold(self, name: str, owner: str = "another") -> None:
        """Gives the lock to another holder."""
        with self.mutex:
            record = self.records.setdefault(name, Record())
            record.token += 1
            record.holder, record.beat, record.session = owner, "o-0", None

    def let_go(self, name: str) -> None:
        with self.mutex:
            self.records[name].holder = None

    def end(self, session: str) -> None:
        """Has another process close the session."""
        with self.mutex:
            self.sessions[session].open = False

    def ask(self, session: str, name: str, token: int, kind: str = "step-down", id: str = "Q1") -> None:
        with self.mutex:
            self.sessions[session].requests.append(
                {"id": id, "name": name, "token": token, "kind": kind, "by": "ops", "reason": "deploy"}
            )

    def _held(self, name: str) -> Reply:
        record = self.records[name]
        return problem("held", 409, holder=record.holder, token=record.token, free_in_ms=500, reserved=False)

    def _acquire(self, body: dict[str, Any]) -> Reply:
        name = body["name"]
        if "slots" in body:
            names = [f"{name}:slot/{i}" for i in range(body["slots"])]
            free = [one for one in names if self.holder_of(one) is None]
            if not free:
                return self._held(names[0])
            return self._grant(free[0], body, slot=names.index(free[0]), slots=len(names))
        if "shared" not in body and "exclusive" not in body:
            return self._held(name) if self.holder_of(name) is not None else self._grant(name, body)
        gate, slots = f"{name}:gate", [f"{name}:read/{i}" for i in range(self.readers)]
        reading = [one for one in slots if self.holder_of(one) is not None]
        if self.holder_of(gate) is not None:
            return self._held(gate)
        record = self.records.setdefault(gate, Record())
        more: dict[str, Any] = {}
        if record.data:
            more["last_writer"] = json.loads(base64.b64decode(record.data))
        if "shared" in body:
            free = [one for one in slots if one not in reading]
            return self._grant(free[0], body, fence_token=2 * record.token + 1, **more)
        if reading and body["wait_ms"] == 0:
            return self._held(reading[0])
        unwritten = record.data or ""
        record.data = base64.b64encode(
            json.dumps({"owner": body["owner"], "token": record.token + 1, "end": "crashed"}).encode()
        ).decode()
        if reading:
            more["drain"] = True
        return self._grant(gate, body, fence_token=2 * (record.token + 1), unwritten=unwritten, **more)

    def _grant(self, name: str, body: dict[str, Any], **more: Any) -> Reply:
        record = self.records.setdefault(name, Record())
        record.token += 1
        record.holder, record.session, record.attached = body["owner"], None, None
        record.beat = f"t{sum(name.encode()):06}{record.token:06}-0000000000000"
        grant = {
            "name": name,
            "token": record.token,
            "beat": record.beat,
            "lease_ms": self.lease_ms,
            "heartbeat_ms": self.heartbeat_ms,
            "free_after_ms": self.lease_ms // 3,
            **more,
        }
        if self.counts:
            grant["usable_ms"] = self.usable_ms
        record.data = body.get("data", record.data)
        if record.data is not None and not more:
            grant["data"] = record.data
        return answer(grant)

    def _lost(self, record: Record | None) -> Reply:
        return problem("lost", 410, holder=(record and record.holder) or "", token=record.token if record else 0)

    def _heartbeat(self, body: dict[str, Any]) -> Reply:
        record = self.records.get(body["name"])
        if record is None or record.holder is None or record.session is not None or record.token != body["token"]:
            return self._lost(record)
        if record.beat not in (body["after"], body["next"]):
            return self._lost(record)
        record.beat = body["next"]
        return answer({"usable_ms": self.usable_ms, "heartbeat_ms": self.heartbeat_ms, "asked": self.asked})

    def _release(self, body: dict[str, Any]) -> Reply:
        record = self.records.get(body["name"])
        if record is None or record.token != body["token"] or record.session is not None:
            return self._lost(record)
        if record.holder is None or record.beat != body["after"]:
            return answer({}) if record.released_with == (body["after"],) else self._lost(record)
        self._freed(record, body, (body["after"],))
        return answer({})

    def _freed(self, record: Record, body: dict[str, Any], released_with: tuple[str, ...]) -> None:
        record.holder, record.session, record.released_with = None, None, released_with
        record.data, record.failed = body.get("data", record.data), body.get("failed")

    def _drain(self, body: dict[str, Any]) -> Reply:
        gate = self.records.get(body["name"])
        if gate is None or gate.holder is None or gate.token != body["token"]:
            return self._lost(gate)
        name = body["name"].removesuffix(":gate")
        for one in sorted(self.records):
            if one.startswith(f"{name}:read/") and self.holder_of(one) is not None:
                return self._held(one)
        return answer({})

    def _open(self, body: dict[str, Any]) -> Reply:
        number = len(self.sessions) + 1
        beat = f"s{number:012}-0000000000000"
        self.sessions[f"S{number}"] = Open(body["owner"], beat, beat)
        return answer(
            {"session": f"S{number}", "beat": beat, "lease_ms": self.lease_ms, "heartbeat_ms": self.heartbeat_ms}
        )

    def _session_heartbeat(self, body: dict[str, Any]) -> Reply:
        session = self.sessions.get(body["session"])
        if session is None or not session.open or session.beat not in (body["after"], body["next"]):
            return problem("lost", 410)
        session.beat = body["next"]
        answered = body.get("answered", [])
        session.requests = [request for request in session.requests if request["id"] not in answered]
        return answer(
            {"usable_ms": self.usable_ms, "heartbeat_ms": self.heartbeat_ms, "requests": session.requests}
        )

    def _close(self, body: dict[str, Any]) -> Reply:
        session = self.sessions.get(body["session"])
        if session is None or session.beat != body["after"]:
            return problem("lost", 410)
        session.open = False
        return answer({})

    def _attach(self, body: dict[str, Any]) -> Reply:
        session = self.sessions.get(body["session"])
        if session is None or not session.open or session.beat[:14] != body["beat"][:14]:
            return problem("lost", 410)
        return answer({"results": [self._attach_one(body["session"], session, one) for one in body["locks"]]})

    def _attach_one(self, id: str, session: Open, lock: dict[str, Any]) -> dict[str, Any]:
        record, as_ = self.records.get(lock["name"]), (lock["after"], lock["next"])
        same = record is not None and record.holder == session.owner and record.token == lock["token"]
        if record is not None and same and record.session is None and record.beat == lock["after"]:
            record.session, record.attached, record.beat = id, as_, lock["next"]
        elif record is None or not same or (record.session, record.attached) != (id, as_):
            return self._result(lock["name"], "lost", 410)
        return {"name": lock["name"], "asked": self.asked}

    def _result(self, name: str, kind: str, status: int) -> dict[str, Any]:
        return {"name": name, "asked": None, "problem": json.loads(problem(kind, status).body)}

    def _session_release(self, body: dict[str, Any]) -> Reply:
        return answer({"results": [self._release_one(body["session"], one) for one in body["locks"]]})

    def _release_one(self, id: str, lock: dict[str, Any]) -> dict[str, Any]:
        record, as_ = self.records.get(lock["name"]), (lock["after"], lock["next"])
        if record is None or record.token != lock["token"] or (record.holder is None and record.released_with != as_):
            return self._result(lock["name"], "lost", 410)
        unattached = record.session is None and record.beat == lock["after"]
        if record.holder is not None and not unattached and (record.session, record.attached) != (id, as_):
            return self._result(lock["name"], "lost", 410)
        if record.holder is not None:
            self._freed(record, lock, as_)
        return {"name": lock["name"]}
