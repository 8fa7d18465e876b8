# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""What holds in one process alone, and where a signal handler may call anything.

A fork copies the memory of a process, and none of its threads but one: a mutex that another thread
had stays locked in the child. A signal handler runs between any two instructions of the main thread,
so also while that has a mutex.
"""

from __future__ import annotations

import os
import threading
import time

__all__ = ["Latch", "process"]

_LOOK = 1.0  # in seconds: how soon a wait sees that a signal handler forked in the midst of it

_forks = 0  # between the process that has loaded this module and this one


def process() -> tuple[int, int]:
    """Returns what tells this process from those that it was forked from: its id and a number.

    Ids come round, and are 1 in each container. Forks that Python does not see are not counted.
    """
    return os.getpid(), _forks


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Latch(threading.Event):
    """An event that stays set. In a process that was forked it is set.

    All methods may be called concurrently and by signal handlers. Nothing here has a mutex, so that
    a handler does not wait for what it has interrupted, nor another thread for a handler.
    """

    def __init__(self) -> None:
        super().__init__()
        self._process = process()
        self._flag = False  # as threading calls it, whose repr shows it
        self._waiters: list[threading.Lock] = []  # taken until they are woken

    def is_set(self) -> bool:
        return self._flag or process() != self._process

    def set(self) -> None:
        self._flag = True
        for waiter in tuple(self._waiters):
            try:
                waiter.release()
            except RuntimeError:
                pass  # another call has woken it

    def clear(self) -> None:
        """Raises: what must stop never need not stop again."""
        raise RuntimeError("a lock cannot take back that its holder must stop")

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            # It is set before, or set() finds the waiter.
            while not self.is_set():
                left = _LOOK if until is None else min(until - time.monotonic(), _LOOK)
                if left <= 0:
                    return False
                waiter.acquire(timeout=left)
            return True
        finally:
            self._waiters.remove(waiter)
