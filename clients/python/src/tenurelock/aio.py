# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The client for asyncio.

Heartbeats and the deadline run in threads, so that work which blocks the event loop does not cost
the lock; and calls wait in threads, because the standard library has HTTP for threads alone.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from .client import Acquiring, Client, Terms, give_back
from .clock import Clock
from .errors import AskedError, HeldError, LostError, TenureError, UncertainError
from .lock import Lock, OnStop, failure

__all__ = ["AsyncClient", "AsyncLock", "AsyncWaiting"]

Result = TypeVar("Result")

AsyncWaiting = Callable[[HeldError], Awaitable[None] | None]
"""Is called in the event loop with each new holder that an acquire waits for, as soon as the service
sees it; what it returns is awaited. See :data:`Waiting` for what holds while it runs."""


class AsyncClient:
    """:class:`Client` for asyncio: ``async with client.acquire(NAME) as lock``.

    The task that entered the block is cancelled when its work must stop: because of a request
    (then :class:`AskedError` comes out of the block), and when the lock is lost or expired
    (:class:`LostError`). The arguments are those of :class:`Client`.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = Client(servers, token=token, token_file=token_file, tls=tls, clock=clock)

    def acquire(
        self,
        name: str,
        *,
        owner: str | None = None,
        wait: float | None = None,
        label: str = "",
        data: bytes | None = None,
        stop_timeout: float | None = None,
        on_stop: OnStop | None = None,
        waiting: AsyncWaiting | None = None,
    ) -> AsyncAcquire:
        """Acquires the lock, as :meth:`Client.acquire` does. To be awaited, or for ``async with``.

        If it is awaited alone no task is cancelled: ``lock.wait_stopping()`` tells then. ``on_stop``
        is called in another thread, ``waiting`` in the event loop.
        """
        terms = Terms(name, owner, wait, label, data, stop_timeout, on_stop, None)
        return AsyncAcquire(self._client, terms, waiting)

    async def run(
        self, name: str, work: Callable[[AsyncLock], Awaitable[Result]], **options: Any
    ) -> Result:
        """Acquires the lock, awaits ``work(lock)``, releases the lock, and returns what work did."""
        async with self.acquire(name, **options) as lock:
            return await work(lock)


class AsyncLock:
    """A :class:`Lock` for asyncio, with the same attributes."""

    def __init__(self, lock: Lock) -> None:
        self.name = lock.name
        self.token = lock.token
        self.data = lock.data
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._scope: _Scope | None = None
        lock.listen(self._heard)

    def check(self) -> None:
        """Raises if the holder may not act: see :meth:`Lock.check`. It does not wait."""
        self._lock.check()

    def remaining(self) -> float:
        """Returns the seconds until the right ends if no more heartbeat is confirmed."""
        return self._lock.remaining()

    @property
    def asked(self) -> AskedError | None:
        """The request to the holder, None without one."""
        return self._lock.asked

    @property
    def reason(self) -> TenureError | None:
        """Why the work must stop, None if it need not."""
        return self._lock.reason

    async def wait_stopping(self) -> TenureError:
        """Waits until the work must stop, and returns why."""
        if self._lock.elsewhere() is None:
            await self._stopping.wait()
        assert self._lock.reason is not None
        return self._lock.reason

    async def release(self, data: bytes | None = None, failed: str | None = None) -> None:
        """Releases the lock: see :meth:`Lock.release`. If the task is cancelled meanwhile the
        release goes on."""
        lost = self._lock.elsewhere()
        if lost is not None:
            raise lost  # there is no loop to wait in
        await asyncio.shield(_in_thread(lambda: self._lock.release(data, failed)))

    def __reduce__(self) -> NoReturn:
        self._lock.__reduce__()

    def _heard(self, reason: TenureError) -> None:
        try:
            self._loop.call_soon_threadsafe(self._stop, reason)
        except RuntimeError:
            pass  # the loop is closed: nothing is left to stop

    def _stop(self, reason: TenureError) -> None:
        self._stopping.set()
        if self._scope is not None:
            self._scope.stop(reason)

    def _enter(self) -> _Scope:
        self._scope = _Scope(self._lock)
        if self.reason is not None and self._stopping.is_set():
            self._scope.stop(self.reason)
        return self._scope


class AsyncAcquire:
    """An acquire to be awaited, or for ``async with``. For one use."""

    def __init__(self, client: Client, terms: Terms, waiting: AsyncWaiting | None = None) -> None:
        self._client = client
        self._terms = terms
        self._waiting = waiting
        self._scope: _Scope | None = None

    def __await__(self) -> Generator[Any, None, AsyncLock]:
        return self._acquire().__await__()

    async def _acquire(self) -> AsyncLock:
        terms = self._terms
        if self._waiting is not None:
            terms = replace(terms, waiting=_in_loop(self._waiting))
        acquiring = Acquiring(self._client, terms)
        got = _in_thread(acquiring.run, give_back)
        try:
            return AsyncLock(await asyncio.shield(got))
        except asyncio.CancelledError:
            acquiring.abort()
            got.add_done_callback(_drop)
            raise

    async def __aenter__(self) -> AsyncLock:
        lock = await self._acquire()
        self._scope = lock._enter()
        return lock

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._scope is not None
        await self._scope.leave(error)


class _Scope:
    """The block of an ``async with``: its task is cancelled when the lock says so."""

    def __init__(self, lock: Lock) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lock = lock
        self._task = task
        self._foreign = task.cancelling()  # cancellations that are not ours
        self._ours = 0
        self._left = False
        self._reason: TenureError | None = None

    def stop(self, reason: TenureError) -> None:
        """Cancels the task: when it is asked, and at the deadline once more, since work that was
        asked may be in the middle of its end."""
        if self._left or isinstance(self._reason, LostError) or reason is self._reason:
            return
        self._reason = reason
        self._ours += 1
        self._task.cancel()

    async def leave(self, error: BaseException | None) -> None:
        """Releases the lock, and raises why the task was cancelled."""
        self._left = True
        lost = self._lock.elsewhere()
        if lost is not None:
            if error is None:
                raise lost  # there is no loop to wait in
            return
        for _ in range(self._ours):
            self._task.uncancel()
        stopped = self._reason if isinstance(error, asyncio.CancelledError) else None
        failed = failure(error)
        result = await self._released(_in_thread(lambda: self._lock.release(failed=failed)))
        if stopped is not None and self._task.cancelling() <= self._foreign:
            raise stopped from error
        if error is None and result is not None and not isinstance(result, UncertainError):
            raise result

    async def _released(self, releasing: asyncio.Future[None]) -> TenureError | None:
        while True:
            try:
                await asyncio.shield(releasing)
                return None
            except TenureError as error:
                return error
            except asyncio.CancelledError:
                # One of ours may come only now; any other is to end the task.
                if self._task.cancelling() > self._foreign:
                    raise


def _in_thread(
    work: Callable[[], Result], drop: Callable[[Result], None] | None = None
) -> asyncio.Future[Result]:
    """Runs the work in a thread that an exit of the process does not wait for. If the loop is
    closed before the end, drop gets the result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            tell(future.set_exception, error)
            return
        if not tell(future.set_result, result) and drop is not None:
            drop(result)

    def tell(how: Callable[[Any], None], what: object) -> bool:
        try:
            loop.call_soon_threadsafe(how, what)
        except RuntimeError:
            return False  # the loop is closed
        return True

    threading.Thread(target=run, name="tenure call", daemon=True).start()
    return future


def _in_loop(waiting: AsyncWaiting) -> Callable[[HeldError], None]:
    """Returns what another thread calls to have the event loop called, and waits for that."""
    loop = asyncio.get_running_loop()

    async def tell(held: HeldError) -> None:
        returned = waiting(held)
        if returned is not None:
            await returned

    def call(held: HeldError) -> None:
        telling = tell(held)
        try:
            told = asyncio.run_coroutine_threadsafe(telling, loop)
        except RuntimeError:
            telling.close()
            raise  # the loop is closed, so no caller waits for the lock
        told.result()

    return call


def _drop(got: asyncio.Future[Lock]) -> None:
    """Gives back what an acquire got after it was cancelled."""
    if not got.cancelled() and got.exception() is None:
        threading.Thread(target=give_back, args=(got.result(),), daemon=True).start()
