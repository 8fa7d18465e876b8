# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Locks that one process at a time holds, through Tenure's lock service.

    client = tenurelock.Client("http://127.0.0.1:8368", token_file="token")
    with client.acquire("reports", wait=60) as lock:
        lock.check()  # before every side effect
        write_report(lock.token)

A lock is held from its grant, or from its first confirmed heartbeat, until its deadline, by a clock
that counts suspends. :meth:`Lock.check` is exact; ``lock.stopping`` (an event of ``threading``) says
when the work must stop. :class:`AsyncClient` cancels the task instead.

A process can be paused between its check and its effect. What must never be overwritten compares
``lock.token``, which only rises, with the highest that it has seen.
"""

from .aio import (
    AsyncClient,
    AsyncLock,
    AsyncLocks,
    AsyncOptions,
    AsyncRWLock,
    AsyncSemaphore,
    AsyncSession,
    AsyncWaiting,
)
from .client import Client
from .clock import Clock, Greater, system_clock
from .errors import (
    AskedError,
    ExpiredError,
    HeldError,
    LostError,
    NoSessionsError,
    NotConfirmedError,
    ProblemError,
    ReleasedError,
    TenureError,
    UnavailableError,
    UncertainError,
)
from .groups import RWLock, Semaphore
from .lease import LastWriter
from .lock import Lock, OnStop
from .session import Locks, Session
from .terms import Options, Waiting

__version__ = "0.1.0"

__all__ = [
    "AskedError",
    "AsyncClient",
    "AsyncLock",
    "AsyncLocks",
    "AsyncOptions",
    "AsyncRWLock",
    "AsyncSemaphore",
    "AsyncSession",
    "AsyncWaiting",
    "Client",
    "Clock",
    "ExpiredError",
    "Greater",
    "HeldError",
    "LastWriter",
    "Lock",
    "Locks",
    "LostError",
    "NoSessionsError",
    "NotConfirmedError",
    "OnStop",
    "Options",
    "ProblemError",
    "RWLock",
    "ReleasedError",
    "Semaphore",
    "Session",
    "TenureError",
    "UnavailableError",
    "UncertainError",
    "Waiting",
    "system_clock",
]
