# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# mypy: ignore-errors
# Functions are replaced by others here, which is what types are there to prevent.

"""Rules of a client, broken on purpose: what is thrown at the clients must show it. The client
itself has no such switch: it is changed here, in the process of a peer."""

from __future__ import annotations

import time

from tenurelock import client


def make(mistake: str) -> None:
    """Makes a mistake from now on."""
    MISTAKES[mistake]()


def mono_clock() -> None:
    """The lease is counted by a clock that stands still in a suspend."""
    client.system_clock = lambda: time.monotonic_ns


MISTAKES = {"mono-clock": mono_clock}
