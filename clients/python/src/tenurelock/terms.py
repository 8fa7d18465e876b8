# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""What an acquire is asked for."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from .errors import HeldError
from .lease import random_part
from .lock import OnStop, check_data

__all__ = ["Options", "Terms", "Waiting", "check_text"]

Waiting = Callable[[HeldError], None]
"""Is called with each new holder that an acquire waits for, as soon as the service sees it.

While it runs nothing of the acquire goes on: a grant that comes meanwhile is freed after a third of
a lease, and the acquire waits again. What it raises ends the acquire."""

_MOST_SLOTS = 1000


class Options(TypedDict, total=False):
    """The options of :meth:`Client.acquire`, which explains them. Under a session ``owner`` is that of
    the session. A lock for readers and writers has no ``data``."""

    owner: str | None
    wait: float | None
    label: str
    data: bytes | None
    stop_timeout: float | None
    on_stop: OnStop | None
    waiting: Waiting | None
    history: bool


def check_text(what: str, text: str) -> None:
    """Refuses half of a surrogate pair, as JSON and os.fsdecode can make it: it is no character."""
    for at, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise ValueError(f"{what} has U+{ord(character):04X} at {at}, half of a character: want Unicode text")


@dataclass(frozen=True)
class Terms:
    """What an acquire was asked for. ``asks`` is what its call says if it is for no plain lock."""

    name: str
    owner: str | None = None
    wait: float | None = None
    label: str = ""
    data: bytes | None = None
    stop_timeout: float | None = None
    on_stop: OnStop | None = None
    waiting: Waiting | None = None
    history: bool = False
    asks: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("the lock's name is empty")
        check_text("the lock's name", self.name)
        check_text("owner", self.owner or "")
        check_text("label", self.label)
        check_data(self.data)
        if self.wait is not None and not self.wait >= 0:
            raise ValueError(f"wait is {self.wait}: want seconds, 0 to try, or None for no end")
        if self.stop_timeout is not None and not self.stop_timeout > 0:
            raise ValueError(f"stop_timeout is {self.stop_timeout}: want more than 0 seconds")
        slots = self.asks.get("slots", 1)
        if type(slots) is not int or not 1 <= slots <= _MOST_SLOTS:
            raise ValueError(f"a semaphore of {slots!r} slots: want a whole number from 1 to {_MOST_SLOTS}")
        if self.data is not None and self.asks.keys() & {"shared", "exclusive"}:
            raise ValueError("a lock for readers and writers has no data: keep them with the resource")

    def holder(self) -> dict[str, Any]:
        """Returns what each call says of who is to hold the lock."""
        host = socket.gethostname()
        owner = self.owner or f"{host}-{os.getpid()}-{random_part()[:6].lower()}"
        body: dict[str, Any] = {"owner": owner, "host": host}
        if self.label:
            body["label"] = self.label
        return body

    def body(self) -> dict[str, Any]:
        """Returns what each call of the acquire says."""
        body = {"name": self.name, **self.holder(), **self.asks}
        if self.history:
            body["history"] = True
        if self.data is not None:
            body["data"] = base64.b64encode(self.data).decode()
        return body
