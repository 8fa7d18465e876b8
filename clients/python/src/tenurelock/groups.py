# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Semaphores, and locks for readers and writers. What is held of either is a plain lock with a name of
its own, so that everything holds for it that does for a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from .lock import Lock
from .terms import Options, Terms

__all__ = ["RWLock", "Semaphore"]

Acquire = Callable[[Terms], Lock]


class Semaphore:
    """At most so many holders at a time: each holds a slot. Made by :meth:`tenurelock.Client.semaphore`,
    and by :meth:`Session.semaphore` for slots under the session.

    ``slots`` counts only for the first use of the name; after that the number in the store does. It
    keeps nothing, and may be used concurrently.
    """

    def __init__(self, acquire: Acquire, name: str, slots: int) -> None:
        self._acquire = acquire
        self._name, self._asks = name, {"slots": slots}
        Terms(name, asks=self._asks)  # which refuses what is no semaphore

    def acquire(self, **options: Unpack[Options]) -> Lock:
        """Acquires a slot and returns it held: ``lock.slot`` of ``lock.slots``. Options and errors are
        those of :meth:`Client.acquire`; the holder that :class:`HeldError` names is one of several.

        Tokens of two slots cannot be compared: a resource for each slot is fenced by ``lock.token`` under
        ``lock.name``. ``lock.data`` stays with the slot.
        """
        return self._acquire(Terms(self._name, asks=self._asks, **options))


class RWLock:
    """Any number of readers at a time, or one writer. Made by :meth:`tenurelock.Client.rwlock`, and by
    :meth:`Session.rwlock` for a lock under the session.

    A plain lock of the same name is another lock. It keeps nothing, and may be used concurrently.
    """

    def __init__(self, acquire: Acquire, name: str) -> None:
        self._acquire, self._name = acquire, name
        Terms(name)  # which refuses what is no name

    def read(self, **options: Unpack[Options]) -> Lock:
        """Acquires the right to read. No process writes as long as the lock is held.

        Fence the resource with ``lock.fence_token`` under the name of the lock: it is equal for all who
        read after the same writer. ``lock.last_writer`` says how that one's term ended. Options and
        errors are those of :meth:`Client.acquire`, without ``data``. A reader cannot become a writer: it
        would wait for itself.
        """
        return self._acquire(Terms(self._name, asks={"shared": True}, **options))

    def write(self, **options: Unpack[Options]) -> Lock:
        """Acquires the right to write, and returns when all readers have left. No other process reads or
        writes as long as the lock is held.

        If ``lock.last_writer.end`` is not ``released``, that writer may have left half of what it wrote.
        Options, errors and the token are as for :meth:`read`.
        """
        return self._acquire(Terms(self._name, asks={"exclusive": True}, **options))
