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
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypedDict, TypeVar, Unpack

from .client import Acquiring, Client
from .clock import Clock
from .errors import AskedError, HeldError, LostError, ReleasedError, TenureError, UncertainError
from .lock import Asks, Held, Lock, OnStop, failure
from .session import Gathering, Locks, Session
from .terms import Options, Terms, Waiting

__all__ = [
    "AsyncClient",
    "AsyncLock",
    "AsyncLocks",
    "AsyncOptions",
    "AsyncRWLock",
    "AsyncSemaphore",
    "AsyncSession",
    "AsyncWaiting",
]

Result = TypeVar("Result")

AsyncWaiting = Callable[[HeldError], Awaitable[None] | None]
"""Is called in the event loop with each new holder that an acquire waits for, as soon as the service
sees it; what it returns is awaited. See :data:`Waiting` for what holds while it runs."""


class AsyncOptions(TypedDict, total=False):
    """The options of :meth:`AsyncClient.acquire`: see :class:`Options`."""

    owner: str | None
    wait: float | None
    label: str
    data: bytes | None
    stop_timeout: float | None
    on_stop: OnStop | None
    waiting: AsyncWaiting | None
    history: bool


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
        history: bool = False,
    ) -> AsyncAcquire[AsyncLock]:
        """Acquires the lock, as :meth:`Client.acquire` does. To be awaited, or for ``async with``.

        If it is awaited alone no task is cancelled: ``lock.wait_stopping()`` tells then. ``on_stop``
        is called in another thread, ``waiting`` in the event loop.
        """
        terms = Terms(name, owner, wait, label, data, stop_timeout, on_stop, None, history)
        return _acquire(self._client.acquiring, terms, waiting)

    async def run(
        self, name: str, work: Callable[[AsyncLock], Awaitable[Result]], **options: Any
    ) -> Result:
        """Acquires the lock, awaits ``work(lock)``, releases the lock, and returns what work did."""
        async with self.acquire(name, **options) as lock:
            return await work(lock)

    def session(
        self,
        *,
        owner: str | None = None,
        wait: float | None = None,
        label: str = "",
        stop_timeout: float | None = None,
        on_stop: OnStop | None = None,
    ) -> AsyncAcquire[AsyncSession]:
        """Opens a session, as :meth:`Client.session` does. To be awaited, or for ``async with``: then the
        task in the block is cancelled if the session is lost."""
        terms = Terms("session", owner, wait, label, None, stop_timeout, on_stop)
        return AsyncAcquire(lambda _: self._client.opening(terms), AsyncSession)

    def semaphore(self, name: str, slots: int) -> AsyncSemaphore:
        """Returns the semaphore of that name: see :meth:`Client.semaphore`."""
        return AsyncSemaphore(self._client.acquiring, name, slots)

    def rwlock(self, name: str) -> AsyncRWLock:
        """Returns the lock for readers and writers of that name: see :meth:`Client.rwlock`."""
        return AsyncRWLock(self._client.acquiring, name)


class _AsyncHeld:
    """What asyncio holds: the same as threads do."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._scope: _Scope | None = None
        held.listen(self._heard)

    def check(self) -> None:
        """Raises if the holder may not act: see :meth:`Lock.check`. It does not wait."""
        self._held.check()

    def remaining(self) -> float:
        """Returns the seconds until the right ends if no more heartbeat is confirmed."""
        return self._held.remaining()

    @property
    def reason(self) -> TenureError | None:
        """Why the work must stop, None if it need not."""
        return self._held.reason

    async def wait_stopping(self) -> TenureError:
        """Waits until the work must stop, and returns why."""
        if self._held.elsewhere() is None:
            await self._stopping.wait()
        assert self._held.reason is not None
        return self._held.reason

    async def _end(self, end: Callable[[], None]) -> None:
        lost = self._held.elsewhere()
        if lost is not None:
            raise lost  # there is no loop to wait in
        await asyncio.shield(_in_thread(end))

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
        self._scope = _Scope(self._held)
        if self.reason is not None and self._stopping.is_set():
            self._scope.stop(self.reason)
        return self._scope


class AsyncLock(_AsyncHeld):
    """A :class:`Lock` for asyncio, with the same attributes."""

    def __init__(self, lock: Lock) -> None:
        self.name = lock.name
        self.token = lock.token
        self.data = lock.data
        self.slot = lock.slot
        self.slots = lock.slots
        self.fence_token = lock.fence_token
        self.last_writer = lock.last_writer
        self._lock = lock
        super().__init__(lock)

    @property
    def asked(self) -> AskedError | None:
        """The request to the holder, None without one."""
        return self._lock.asked

    async def release(self, data: bytes | None = None, failed: str | None = None) -> None:
        """Releases the lock: see :meth:`Lock.release`. If the task is cancelled meanwhile the
        release goes on."""
        await self._end(lambda: self._lock.release(data, failed))

    def __reduce__(self) -> NoReturn:
        self._lock.__reduce__()


class AsyncLocks(tuple[AsyncLock, ...]):
    """Several locks, as :meth:`AsyncSession.acquire_all` has acquired them: see :class:`Locks`."""

    _locks: Locks

    @classmethod
    def _of(cls, locks: Locks) -> AsyncLocks:
        all_ = cls(AsyncLock(lock) for lock in locks)
        all_._locks = locks
        return all_

    def check(self) -> None:
        """Raises what :meth:`AsyncLock.check` does for the first lock that is not held."""
        self._locks.check()

    async def release(self, failed: str | None = None) -> None:
        """Releases all: see :meth:`Locks.release`."""
        lost = self._locks.elsewhere()
        if lost is not None:
            raise lost  # there is no loop to wait in
        await asyncio.shield(_in_thread(lambda: self._locks.release(failed)))

    def _enter(self) -> _Scope:
        scope = _Scope(self._locks)
        for lock in self:
            lock._scope = scope
            if lock.reason is not None and lock._stopping.is_set():
                scope.stop(lock.reason)
        return scope


class AsyncSession(_AsyncHeld):
    """A :class:`Session` for asyncio. In the block of a lock under it the task is cancelled as in that
    of any lock."""

    def __init__(self, session: Session) -> None:
        self.id = session.id
        self.owner = session.owner
        self._session = session
        super().__init__(session)

    def acquire(self, name: str, **options: Unpack[AsyncOptions]) -> AsyncAcquire[AsyncLock]:
        """Acquires the lock under the session, as :meth:`Session.acquire` does. To be awaited, or for
        ``async with``."""
        terms, waiting = _terms(name, options)
        return _acquire(self._session.acquiring, terms, waiting)

    def acquire_all(self, names: Iterable[str], **options: Unpack[AsyncOptions]) -> AsyncAcquire[AsyncLocks]:
        """Acquires several locks, all or none, as :meth:`Session.acquire_all` does. To be awaited, or for
        ``async with``, whose task is cancelled when the work of one of them must stop."""
        return AsyncAcquire(
            lambda waiting: Gathering(self._session, names, _with(options, waiting)),
            AsyncLocks._of,
            options.get("waiting"),
        )

    def semaphore(self, name: str, slots: int) -> AsyncSemaphore:
        """Returns the semaphore, whose slots are taken under the session."""
        return AsyncSemaphore(self._session.acquiring, name, slots)

    def rwlock(self, name: str) -> AsyncRWLock:
        """Returns the lock for readers and writers, which is taken under the session."""
        return AsyncRWLock(self._session.acquiring, name)

    async def close(self) -> None:
        """Closes the session: see :meth:`Session.close`. It waits for the blocks of locks in other tasks,
        which it cancels. If the task is cancelled meanwhile the closing goes on."""
        task = asyncio.current_task()
        await self._end(lambda: self._session.end(task))

    def __reduce__(self) -> NoReturn:
        self._session.__reduce__()


class AsyncSemaphore:
    """A :class:`Semaphore` for asyncio."""

    def __init__(self, acquiring: Callable[[Terms], Acquiring], name: str, slots: int) -> None:
        self._acquiring, self._name, self._asks = acquiring, name, {"slots": slots}
        Terms(name, asks=self._asks)  # which refuses what is no semaphore

    def acquire(self, **options: Unpack[AsyncOptions]) -> AsyncAcquire[AsyncLock]:
        """Acquires a slot, as :meth:`Semaphore.acquire` does. To be awaited, or for ``async with``."""
        terms, waiting = _terms(self._name, options, self._asks)
        return _acquire(self._acquiring, terms, waiting)


class AsyncRWLock:
    """A :class:`RWLock` for asyncio."""

    def __init__(self, acquiring: Callable[[Terms], Acquiring], name: str) -> None:
        self._acquiring, self._name = acquiring, name
        Terms(name)  # which refuses what is no name

    def read(self, **options: Unpack[AsyncOptions]) -> AsyncAcquire[AsyncLock]:
        """Acquires the right to read, as :meth:`RWLock.read` does. To be awaited, or for ``async
        with``."""
        terms, waiting = _terms(self._name, options, {"shared": True})
        return _acquire(self._acquiring, terms, waiting)

    def write(self, **options: Unpack[AsyncOptions]) -> AsyncAcquire[AsyncLock]:
        """Acquires the right to write, as :meth:`RWLock.write` does. To be awaited, or for ``async
        with``."""
        terms, waiting = _terms(self._name, options, {"exclusive": True})
        return _acquire(self._acquiring, terms, waiting)


def _terms(
    name: str, options: AsyncOptions, asks: dict[str, Any] | None = None
) -> tuple[Terms, AsyncWaiting | None]:
    return Terms(name, asks=asks or {}, **_with(options, None)), options.get("waiting")


def _with(options: AsyncOptions, waiting: Waiting | None) -> Options:
    """Returns the options of a thread that waits."""
    known: Any = {**options, "waiting": waiting}
    of_threads: Options = known
    return of_threads


def _acquire(
    acquiring: Callable[[Terms], Acquiring], terms: Terms, waiting: AsyncWaiting | None
) -> AsyncAcquire[AsyncLock]:
    return AsyncAcquire(lambda told: acquiring(replace(terms, waiting=told)), AsyncLock, waiting)


class _Forgone(Protocol):
    def forgo(self) -> None: ...


class _Entered(Protocol):
    def _enter(self) -> _Scope: ...


Got = TypeVar("Got", bound=_Forgone)
Given = TypeVar("Given", bound=_Entered)


class AsyncAcquire(Generic[Given]):
    """An acquire or an opening to be awaited, or for ``async with``. For one use."""

    def __init__(
        self,
        asks: Callable[[Waiting | None], Asks[Got]],
        gives: Callable[[Got], Given],
        waiting: AsyncWaiting | None = None,
    ) -> None:
        async def acquire() -> Given:
            asked = asks(_in_loop(waiting) if waiting is not None else None)
            got = _in_thread(asked.run, _forgo)
            try:
                return gives(await asyncio.shield(got))
            except asyncio.CancelledError:
                asked.abort()
                got.add_done_callback(_drop)
                raise

        self._acquire = acquire
        self._scope: _Scope | None = None

    def __await__(self) -> Generator[Any, None, Given]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Given:
        given = await self._acquire()
        self._scope = given._enter()
        return given

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._scope is not None
        await self._scope.leave(error)


_OVER = LostError, ReleasedError  # after these nothing is held


class _Scope:
    """The block of an ``async with``: its task is cancelled when what it holds says so."""

    def __init__(self, held: Held | Locks) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._held = held
        self._task = task
        held.enter(task)
        self._foreign = task.cancelling()  # cancellations that are not ours
        self._ours = 0
        self._left = False
        self._reason: TenureError | None = None

    def stop(self, reason: TenureError) -> None:
        """Cancels the task: when it is asked, and at the deadline once more, since work that was
        asked may be in the middle of its end. Several locks have reasons of their own."""
        again = isinstance(self._reason, _OVER) or self._reason is not None and not isinstance(reason, _OVER)
        if self._left or again:
            return
        self._reason = reason
        self._ours += 1
        self._task.cancel()

    async def leave(self, error: BaseException | None) -> None:
        """Releases it, and raises why the task was cancelled."""
        self._left = True
        lost = self._held.elsewhere()
        if lost is not None:
            if error is None:
                raise lost  # there is no loop to wait in
            return
        for _ in range(self._ours):
            self._task.uncancel()
        stopped = self._reason if isinstance(error, asyncio.CancelledError) else None
        failed = failure(error)
        result = await self._released(_in_thread(lambda: self._held.finish(failed)))
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


def _forgo(got: _Forgone) -> None:
    got.forgo()


def _drop(got: asyncio.Future[Any]) -> None:
    """Gives back what an acquire got after it was cancelled."""
    if not got.cancelled() and got.exception() is None:
        threading.Thread(target=_forgo, args=(got.result(),), daemon=True).start()
