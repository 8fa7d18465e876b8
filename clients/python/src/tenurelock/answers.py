# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""What an answer means. An answer that is not certainly the service's own is unknown."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .clock import MILLISECOND
from .errors import AskedError, HeldError
from .lease import Grant

__all__ = [
    "Answer",
    "Confirmed",
    "Done",
    "NotOurs",
    "Problem",
    "Reply",
    "Unknown",
    "held_by",
    "json_object",
    "media_type",
    "read_acquire",
    "read_heartbeat",
    "read_release",
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
    """A heartbeat was confirmed. Lengths are in nanoseconds."""

    usable: int
    period: int
    asked: AskedError | None


@dataclass(frozen=True)
class Done:
    """A release was applied."""


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


Answer = Grant | Confirmed | Done | Problem | Unknown


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


def read_acquire(reply: Reply, name: str) -> Answer:
    """Reads the answer to an acquire of the lock."""

    def grant(body: dict[str, Any]) -> Answer:
        beat = body.get("beat")
        if body.get("name") != name or not isinstance(beat, str) or beat.count("-") != 1:
            raise NotOurs("not a grant of this lock")
        _number(body, "free_after_ms", 0)
        return Grant(
            name,
            _number(body, "token", 1, 2**64 - 1),
            beat,
            _number(body, "lease_ms", 1) * MILLISECOND,
            _data(body),
            _number(body, "usable_ms", 0) * MILLISECOND if "usable_ms" in body else 0,
            _number(body, "heartbeat_ms", 1) * MILLISECOND,
        )

    return _read(reply, grant)


def read_heartbeat(reply: Reply) -> Answer:
    """Reads the answer to a heartbeat."""

    def confirmed(body: dict[str, Any]) -> Answer:
        return Confirmed(
            _number(body, "usable_ms", 0) * MILLISECOND,
            _number(body, "heartbeat_ms", 1) * MILLISECOND,
            _request(body.get("asked")),
        )

    return _read(reply, confirmed)


def read_release(reply: Reply) -> Answer:
    """Reads the answer to a release."""
    return _read(reply, lambda _: Done())


def _read(reply: Reply, ok: Callable[[dict[str, Any]], Answer]) -> Answer:
    media = media_type(reply.content_type)
    try:
        if reply.status == 200 and media == "application/json":
            return ok(json_object(reply.body))
        if media == "application/problem+json":
            return _problem(reply)
    except NotOurs as error:
        return Unknown(f"status {reply.status}: {error}")
    return Unknown(f"status {reply.status} of type {media!r}, which is not an answer of the service")


def _problem(reply: Reply) -> Problem:
    body = json_object(reply.body)
    kind = body.get("type")
    if not isinstance(kind, str) or not kind.startswith(_PREFIX) or body.get("status") != reply.status:
        raise NotOurs("a problem of a type that the service does not have")
    wait = float(reply.retry_after) if reply.retry_after.isascii() and reply.retry_after.isdigit() else 0.0
    return Problem(kind[len(_PREFIX) :], reply.status, str(body.get("detail") or ""), body, wait)


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


def _data(body: dict[str, Any]) -> bytes | None:
    """Returns the data of a grant."""
    value = body.get("data")
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise NotOurs("data is not base64") from error


def _request(asked: Any) -> AskedError | None:
    """Returns the request to the holder."""
    if asked is None:
        return None
    if not isinstance(asked, dict) or not isinstance(asked.get("kind"), str):
        raise NotOurs("asked is not a request")
    words = [str(asked.get(key) or "") for key in ("kind", "by", "reason", "to", "to_label")]
    return AskedError(*words)
