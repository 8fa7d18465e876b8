# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""What an answer means. An answer that is not certainly the service's own is unknown."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .clock import MILLISECOND
from .errors import AskedError, HeldError
from .lease import Grant, LastWriter
from .session_lease import Request

__all__ = [
    "Answer",
    "Confirmed",
    "Done",
    "NotOurs",
    "Problem",
    "Reply",
    "Results",
    "Unknown",
    "held_by",
    "json_object",
    "media_type",
    "read_acquire",
    "read_heartbeat",
    "read_opening",
    "read_release",
    "read_results",
    "read_session_heartbeat",
]

_PREFIX = "urn:tenure:problem:"
_LONGEST = 365 * 24 * 3600 * 1000  # in milliseconds; more is no answer of ours


@dataclass(frozen=True)
class Reply:
    """An HTTP answer, whole."""

    status: int
    content_type: str
    body: bytes
    retry_after: str = ""


@dataclass(frozen=True)
class Confirmed:
    """A heartbeat was confirmed. Lengths are in nanoseconds. ``requests`` are those of a session."""

    usable: int
    period: int
    asked: AskedError | None
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Done:
    """A call was carried out whose answer says no more: a release, a closing, a drain."""


@dataclass(frozen=True)
class Results:
    """What became of each lock of a call about several: the request to its holder, or a problem."""

    each: tuple[AskedError | Problem | None, ...]


@dataclass(frozen=True)
class Problem:
    """The service refused the call, or could not carry it out."""

    kind: str
    status: int
    detail: str
    more: dict[str, Any] = field(default_factory=dict)
    retry_after: float = 0.0  # in seconds

    def held(self, name: str) -> HeldError:
        """Returns the error of a problem of the kind held."""
        return held_by(name, self.more)


@dataclass(frozen=True)
class Unknown:
    """The outcome of the call is not known. ``why`` is for people. ``permanent``: this server
    answers no call until its address or a certificate is fixed."""

    why: str
    permanent: bool = False


Answer = Grant | Confirmed | Done | Results | Problem | Unknown


class NotOurs(Exception):
    """An answer that the service does not give."""


def held_by(name: str, body: dict[str, Any]) -> HeldError:
    """Returns the error that says what the body does of the holder of the lock."""
    token, free_in = body.get("token"), body.get("free_in_ms")
    return HeldError(
        name,
        str(body.get("holder") or ""),
        token if type(token) is int else 0,
        free_in / 1000 if type(free_in) is int else 0.0,
        body.get("reserved") is True,
        str(body.get("label") or ""),
    )


def media_type(content_type: str) -> str:
    """Returns the media type of a header Content-Type, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def read_acquire(reply: Reply, name: str, asks: Mapping[str, Any] | None = None) -> Answer:
    """Reads the answer to an acquire of the lock. ``asks`` is what the call says besides, if the name
    is one of a semaphore, or of a lock for readers and writers: the lock that is granted has another."""

    def grant(body: dict[str, Any]) -> Answer:
        _number(body, "free_after_ms", 0)
        granted = Grant(
            name,
            _number(body, "token", 1, 2**64 - 1),
            _beat(body),
            _number(body, "lease_ms", 1) * MILLISECOND,
            _data(body, "data"),
            _number(body, "usable_ms", 0) * MILLISECOND if "usable_ms" in body else 0,
            _number(body, "heartbeat_ms", 1) * MILLISECOND,
        )
        granted = _derived(granted, body, asks or {})
        if body.get("name") != granted.name:
            raise NotOurs("not a grant of this lock")
        return granted

    return _read(reply, grant)


def _derived(grant: Grant, body: dict[str, Any], asks: Mapping[str, Any]) -> Grant:
    """Returns the grant under the name that a lock has which was asked for so."""
    if "slots" in asks:
        slots = _number(body, "slots", 1)
        slot = _number(body, "slot", 0, slots - 1)
        return replace(grant, name=f"{grant.name}:slot/{slot}", slot=slot, slots=slots)
    if not asks:
        return grant
    fence, last = _number(body, "fence_token", 0, 2**64 - 1), body.get("last_writer")
    if last is not None:
        if not isinstance(last, dict) or not isinstance(last.get("end"), str):
            raise NotOurs("last_writer is no writer")
        last = LastWriter(str(last.get("owner") or ""), _number(last, "token", 0, 2**64 - 1), last["end"])
    if "exclusive" in asks:
        drains = body.get("drain", False)
        if type(drains) is not bool:
            raise NotOurs(f"drain is {drains!r}")
        name = f"{grant.name}:gate"
        return replace(grant, name=name, fence=fence, last=last, drains=drains, unwritten=_data(body, "unwritten"))
    name = str(body.get("name"))
    if not re.fullmatch(re.escape(grant.name) + r":read/[0-9]+", name):
        raise NotOurs("not a reader's slot of this lock")
    return replace(grant, name=name, fence=fence, last=last)


def read_opening(reply: Reply) -> Answer:
    """Reads the answer to the opening of a session, as the grant of a lock of that name."""

    def opening(body: dict[str, Any]) -> Answer:
        session = body.get("session")
        if not isinstance(session, str) or not session:
            raise NotOurs(f"session is {session!r}")
        lease = _number(body, "lease_ms", 1) * MILLISECOND
        return Grant(session, 1, _beat(body), lease, period=_number(body, "heartbeat_ms", 1) * MILLISECOND)

    return _read(reply, opening)


def read_heartbeat(reply: Reply) -> Answer:
    """Reads the answer to a heartbeat."""

    def confirmed(body: dict[str, Any]) -> Answer:
        return Confirmed(
            _number(body, "usable_ms", 0) * MILLISECOND,
            _number(body, "heartbeat_ms", 1) * MILLISECOND,
            _request(body.get("asked")),
        )

    return _read(reply, confirmed)


def read_session_heartbeat(reply: Reply) -> Answer:
    """Reads the answer to a heartbeat of a session."""

    def confirmed(body: dict[str, Any]) -> Answer:
        asked = body.get("requests")
        if not isinstance(asked, list):
            raise NotOurs("requests is no list")
        return Confirmed(
            _number(body, "usable_ms", 0) * MILLISECOND,
            _number(body, "heartbeat_ms", 1) * MILLISECOND,
            None,
            tuple(_session_request(one) for one in asked),
        )

    return _read(reply, confirmed)


def _session_request(body: Any) -> Request:
    asked = _request(body)
    if asked is None or not all(isinstance(body.get(key), str) for key in ("id", "name")):
        raise NotOurs("a request has no lock")
    return Request(body["id"], body["name"], _number(body, "token", 1, 2**64 - 1), asked)


def read_results(reply: Reply, names: Sequence[str]) -> Answer:
    """Reads the answer to a call about the locks of a session."""

    def results(body: dict[str, Any]) -> Answer:
        each = body.get("results")
        if not isinstance(each, list) or [isinstance(one, dict) and one.get("name") for one in each] != list(names):
            raise NotOurs("not the results for these locks")
        return Results(
            tuple(_problem(one["problem"]) if "problem" in one else _request(one.get("asked")) for one in each)
        )

    return _read(reply, results)


def read_release(reply: Reply) -> Answer:
    """Reads the answer to a release, a closing or a drain."""
    return _read(reply, lambda _: Done())


def _read(reply: Reply, ok: Callable[[dict[str, Any]], Answer]) -> Answer:
    media = media_type(reply.content_type)
    try:
        if reply.status == 200 and media == "application/json":
            return ok(json_object(reply.body))
        if media == "application/problem+json":
            problem = _problem(json_object(reply.body), reply.retry_after)
            if problem.status != reply.status:
                raise NotOurs("a problem of another status")
            return problem
    except NotOurs as error:
        return Unknown(f"status {reply.status}: {error}")
    return Unknown(f"status {reply.status} of type {media!r}, which is not an answer of the service")


def _problem(body: Any, retry_after: str = "") -> Problem:
    kind, status = (body.get("type"), body.get("status")) if isinstance(body, dict) else (None, None)
    if not isinstance(kind, str) or not kind.startswith(_PREFIX) or type(status) is not int:
        raise NotOurs("a problem of a type that the service does not have")
    wait = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    return Problem(kind[len(_PREFIX) :], status, str(body.get("detail") or ""), body, wait)


def json_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object that a body is."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotOurs("not JSON") from error
    if not isinstance(value, dict):
        raise NotOurs("not a JSON object")
    return value


def _number(body: dict[str, Any], key: str, least: int, most: int = _LONGEST) -> int:
    """Returns a whole number of the body."""
    value = body.get(key)
    if type(value) is not int or not least <= value <= most:
        raise NotOurs(f"{key} is {value!r}")
    return value


def _beat(body: dict[str, Any]) -> str:
    """Returns the beat of a grant."""
    beat = body.get("beat")
    if not isinstance(beat, str) or beat.count("-") != 1:
        raise NotOurs(f"beat is {beat!r}")
    return beat


def _data(body: dict[str, Any], key: str) -> bytes | None:
    """Returns data of a grant."""
    value = body.get(key)
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise NotOurs(f"{key} is not base64") from error


def _request(asked: Any) -> AskedError | None:
    """Returns the request to the holder."""
    if asked is None:
        return None
    if not isinstance(asked, dict) or not isinstance(asked.get("kind"), str):
        raise NotOurs("asked is not a request")
    words = [str(asked.get(key) or "") for key in ("kind", "by", "reason", "to", "to_label")]
    return AskedError(*words)
