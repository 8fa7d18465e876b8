# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Clocks that count the time in which the machine was suspended.

``time.monotonic`` stands still in a suspend on Linux and on macOS: a holder would wake up and find
most of its lease left, long after another one took the lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from .process import process

__all__ = ["MILLISECOND", "SECOND", "Clock", "Greater", "Raw", "system_clock"]

Clock = Callable[[], int]
"""Tells elapsed time, suspends included, in nanoseconds since an instant of its own."""

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


class Greater:
    """The greater of what a monotonic clock and the wall clock say has passed.

    For systems that have no monotonic clock that counts suspends. The wall clock's lead over the
    monotonic clock is compared with the smallest lead seen since the last step: what it grew by
    counts, so a suspend after a step back counts in full. A wall clock that is set forward counts
    too, and ends a lease early: it looks like a suspend.

    ``read`` returns both clocks, in nanoseconds. May be called concurrently, by signal handlers, and
    in a process that was forked.
    """

    TOLERANCE = 2 * MILLISECOND
    """By how much two readings may differ without a cause; it adds up to no more than itself."""

    def __init__(self, read: Callable[[], tuple[int, int]] | None = None) -> None:
        self._read = read or _read_both
        self._mutexes: dict[tuple[int, int], threading.Lock] = {}  # by process
        self._origin, wall = self._read()
        self._seen = wall - self._origin, 0  # the smallest lead, and what was added to the time

    def __call__(self) -> int:
        mutex = self._mutexes.setdefault(process(), threading.Lock())
        if not mutex.acquire(blocking=False):
            # Another thread notes what it sees, or what a signal handler has interrupted does. To
            # note nothing is as not to have looked.
            return self._look()[0]
        try:
            now, self._seen = self._look()
            return now
        finally:
            mutex.release()

    def _look(self) -> tuple[int, tuple[int, int]]:
        """Returns the time, and what is to be noted."""
        least, more = self._seen
        mono, wall = self._read()
        lead = wall - mono
        if lead - least > self.TOLERANCE:
            more += lead - least
            least = lead
        least = min(least, lead)
        return mono - self._origin + more, (least, more)


def _read_both() -> tuple[int, int]:
    """Reads both clocks as nearly at once as can be: a pause between the two would count."""
    before = time.monotonic_ns()
    for _ in range(3):
        wall, after = time.time_ns(), time.monotonic_ns()
        if after - before < MILLISECOND:
            break
        before = after
    return after, wall


class Raw:
    """CLOCK_MONOTONIC_RAW of Linux, and what CLOCK_BOOTTIME has counted beyond CLOCK_MONOTONIC: the
    time in which the machine was suspended.

    No time service slews it, so its rate is wrong by 1 % at most: a client that counts by it tells
    the service so, and may use more of each lease.

    ``read`` returns the three clocks, in nanoseconds. It keeps nothing, and may be called anywhere.
    """

    def __init__(self, read: Callable[[], tuple[int, int, int]] | None = None) -> None:
        self._read = read or _read_raw

    def __call__(self) -> int:
        raw, mono, boot = self._read()
        return raw + boot - mono


def _read_raw() -> tuple[int, int, int]:
    """Reads the three clocks in this order, so that their time is one between the first reading and
    the last. The time between the second and the third is slewed, so no pause may be there."""
    for _ in range(3):
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        mono = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if time.clock_gettime_ns(time.CLOCK_MONOTONIC) - mono < MILLISECOND:
            break
    return raw, mono, boot


def _has_raw() -> bool:
    """Says whether the raw clock is seen to be another one than CLOCK_MONOTONIC. In some sandboxes it
    is the same, and slewed."""
    try:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    except OSError:
        return False
    return not before - MILLISECOND <= raw <= after + MILLISECOND


def system_clock() -> Clock:
    """Returns this machine's clock: on Linux :class:`Raw`, or CLOCK_BOOTTIME where there is no raw
    clock; on macOS CLOCK_MONOTONIC, which counts suspends there (``time.monotonic`` is another
    clock); elsewhere :class:`Greater`."""
    if sys.platform.startswith("linux"):
        return Raw() if _has_raw() else lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return Greater()
