# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""An answer that comes as a stream of events: the holders that are waited for, and at last the
result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .answers import NotOurs, Reply, json_object, media_type

__all__ = ["EVENT_STREAM", "Events", "Waited"]

EVENT_STREAM = "text/event-stream"

Waited = dict[str, Any]
"""What the service says of a holder that is waited for."""

_LONGEST_EVENT = 4 << 20


class Events:
    """Reads a stream piece by piece. What is cut off before the end of its event does not count."""

    def __init__(self) -> None:
        self._rest = b""  # of a line
        self._fields: dict[bytes, list[bytes]] = {}

    def feed(self, piece: bytes) -> Iterator[Waited | Reply]:
        """Yields what the events that end in this piece say: each holder that is waited for, and at
        last the answer. Raises OSError if they are not the service's."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST_EVENT:
            raise OSError(f"a line of more than {_LONGEST_EVENT} bytes")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                name, _, value = line.partition(b":")
                self._fields.setdefault(name, []).append(value.removeprefix(b" "))
                continue
            fields, self._fields = self._fields, {}
            said = _said(fields)
            if said is not None:
                yield said


def _said(fields: dict[bytes, list[bytes]]) -> Waited | Reply | None:
    """Returns what an event says; None if it says nothing, such as that the server is alive."""
    kind, data = fields.get(b"event", [b""])[-1], b"\n".join(fields.get(b"data", []))
    if kind == b"granted":
        return Reply(200, "application/json", data)
    if kind not in (b"waiting", b"problem"):
        return None
    try:
        body = json_object(data)
    except NotOurs as error:
        raise OSError(f"event {kind.decode()}: {error}") from error
    if kind == b"waiting":
        return body
    status, retry = body.get("status"), fields.get(b"retry", [b""])[-1]
    after = str(-(-int(retry) // 1000)) if retry.isdigit() else ""  # in whole seconds, as the header
    return Reply(status if type(status) is int else 0, "application/problem+json", data, after)


def is_stream(content_type: str) -> bool:
    """Says whether an answer of the type is a stream of events."""
    return media_type(content_type) == EVENT_STREAM
