# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A session: one heartbeat that keeps many locks alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from .answers import Answer, Confirmed, Done, Problem, Results, read_release, read_results, read_session_heartbeat
from .clock import SECOND
from .errors import (
    AskedError,
    ExpiredError,
    HeldError,
    LostError,
    ProblemError,
    TenureError,
    UnavailableError,
    UncertainError,
)
from .groups import RWLock, Semaphore
from .lease import Grant, Heartbeat, Release, State
from .lock import Held, Lock, OnStop, describe, exchange, leave, perform
from .process import Latch
from .session_lease import Attachment, SessionLease
from .terms import Options, Terms
from .transport import Backoff, Caller

if TYPE_CHECKING:
    from .client import Acquiring, Client

__all__ = ["Gathering", "Locks", "Session", "SessionLock"]

_BATCH = 100  # locks in one call: the server's limit
_FRESH_PART = 10  # the part of a lease for which a grant waits for its attachment

# The service has not attached a lock, and no repetition will.
_REFUSED = {400, 404, 405, 409, 413, 415, 421}


class Session(Held):
    """One heartbeat that keeps many locks of this process alive. Made by
    :meth:`tenurelock.Client.session`.

    All locks under it have one deadline: if the session is lost or expires, all end at once. It does not
    come back; open another one. ``stopping`` and ``over`` are set then, here and in each lock, and
    ``reason`` says why. A request is for one lock: it sets ``stopping`` of that alone.

    All methods may be called concurrently; :meth:`check`, :meth:`remaining` and those of the locks by
    signal handlers as well. A process that is forked from this one has no session: see :class:`Lock`.
    """

    _END, _ENDED = "closing", "closed"

    def __init__(
        self, client: Client, grant: Grant, sent: int, owner: str, stop_timeout: float | None
    ) -> None:
        self.id = grant.name
        """The id of the session, which the status of its locks shows."""
        self.owner = owner
        self._client = client
        self._session = SessionLease(grant, sent)
        self._locks: dict[tuple[str, int], SessionLock] = {}
        self._acquiring: dict[int, Acquiring] = {}
        self._stop_timeout = grant.lease / SECOND if stop_timeout is None else stop_timeout
        self._outlasted = False  # by the block of a lock, which may still act
        super().__init__(f"session {grant.name}", self._session, client.clock, client.caller(), client.caller())

    def acquire(self, name: str, **options: Unpack[Options]) -> Lock:
        """Acquires the lock under the session and returns it held, as :meth:`Client.acquire` does, with
        its options and errors. The lock has no thread and no heartbeats of its own.

        Work that was asked to stop has ``stop_timeout`` seconds; then the lock is over. If it is not
        released a lease later, the session releases it. Raises what :meth:`check` does if the session is
        over.
        """
        return self._acquire(Terms(name, **options))

    def acquire_all(self, names: Iterable[str], **options: Unpack[Options]) -> Locks:
        """Acquires several locks, all or none, and returns them in the order of the names.

        They are taken in the order of the alphabet, so that two that want the same locks do not wait for
        each other, and attached up to 100 in a call. ``wait`` counts for all together. Options and
        errors are those of :meth:`acquire`.
        """
        return perform(Gathering(self, names, options))

    def semaphore(self, name: str, slots: int) -> Semaphore:
        """Returns the semaphore, whose slots are taken under the session: see
        :meth:`Client.semaphore`."""
        return Semaphore(self._acquire, name, slots)

    def rwlock(self, name: str) -> RWLock:
        """Returns the lock for readers and writers, which is taken under the session: see
        :meth:`Client.rwlock`."""
        return RWLock(self._acquire, name)

    def close(self) -> None:
        """Closes the session: all locks under it are free by one call. Call it when their work has
        returned: from now on no lock is held, and ``stopping`` and ``over`` of each are set. It waits for
        the blocks of locks in other threads, with heartbeats, for ``stop_timeout`` at most. If one of them
        goes on the session is not closed, and expires.

        Raises what had ended the session before: :class:`LostError`, :class:`ExpiredError`; or
        :class:`UncertainError` if the session expires, or no answer came for the time of a lease.
        """
        self.end(threading.get_ident())

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self._title} can be neither copied nor pickled: another process opens its own")

    # What follows is for this package.

    def finish(self, failed: str | None = None) -> None:
        self.close()

    def end(self, inside: object) -> None:
        """Closes the session for a thread or a task, which is not waited for."""
        lost = self.elsewhere()
        if lost is not None:
            raise lost
        until = time.monotonic() + self._stop_timeout
        self._session.closing = True
        self._tell_over()
        for lock in self._locks.copy().values():
            if lock._inside not in (None, inside):
                lock._released.wait(max(0.0, until - time.monotonic()))
                self._outlasted |= not lock._ending.is_set()
        self._finish({"session": self.id})

    def _acquire(self, terms: Terms) -> Lock:
        return perform(self.acquiring(terms))

    def acquiring(self, terms: Terms, attach: bool = True) -> Acquiring:
        """Returns an acquire under the session. With attach false its lock is only granted."""
        if terms.owner is not None:
            raise ValueError(f"owner is {terms.owner!r}: the locks under a session have its owner; leave it out")
        return self._client.acquiring(replace(terms, owner=self.owner), self, attach)

    def lock(self, grant: Grant, stop_timeout: int, attach: bool) -> SessionLock:
        """Returns the lock of a grant, which is to be attached."""
        lock = SessionLock(self, grant, stop_timeout, self._client.caller(), self._client.caller(), attach)
        self._locks[lock.name, lock.token] = lock
        return lock

    def begins(self, acquiring: Acquiring) -> None:
        """Notes an acquire, which ends with the session."""
        self._acquiring[id(acquiring)] = acquiring
        self.check()

    def ends(self, acquiring: Acquiring) -> None:
        """Records that an acquire has ended."""
        self._acquiring.pop(id(acquiring), None)

    def gone(self, lock: SessionLock) -> None:
        """Records that a lock is released."""
        if self._locks.get((lock.name, lock.token)) is lock:
            del self._locks[lock.name, lock.token]

    def attach(self, locks: Sequence[SessionLock], caller: Caller, ending: Latch) -> None:
        """Attaches locks that are granted, until each has an answer or has ended. The same call is made
        again; it has only those that have no answer yet."""
        backoff = Backoff()
        while not ending.is_set() and self.elsewhere() is None:
            now = self._clock()
            calls = [(lock, sent) for lock in locks if (sent := lock.attachment.attach(now)) is not None]
            if not calls:
                return
            body = {
                "session": self.id,
                "beat": self._session.grant.beat,  # any beat of the session
                "locks": [
                    {"name": lock.name, "token": lock.token, "after": sent.after, "next": sent.next}
                    for lock, sent in calls
                ],
            }
            names = [lock.name for lock, _ in calls]
            answer = exchange(
                caller, "/v1/sessions/attach", body, self._limit, lambda reply: read_results(reply, names)
            )
            now = self._clock()
            results = answer.each if isinstance(answer, Results) else (answer,)
            if isinstance(answer, Problem) and answer.kind == "lost":
                self._session.lose(now)
                self._tell_over()
                return
            if isinstance(answer, Results):
                for (lock, _), result in zip(calls, answer.each):
                    lock.answered(result, now)
            for problem in results:
                if isinstance(problem, Problem) and problem.status in _REFUSED:
                    raise ProblemError(problem.kind, problem.status, problem.detail)
            if any(lock.attachment.attach(now) for lock in locks):
                ending.wait(backoff.next())

    def caller(self) -> Caller:
        """Returns a caller with a connection of its own."""
        return self._client.caller()

    def now(self) -> int:
        """Returns the time by the clock of the session."""
        return self._clock()

    def aged(self, since: int) -> bool:
        """Says whether a grant of that time is to be attached now."""
        return self._clock() - since >= self._session.grant.lease // _FRESH_PART

    def _renew(self, heartbeat: Heartbeat) -> Answer:
        body: dict[str, Any] = {"session": self.id, "after": heartbeat.after, "next": heartbeat.next}
        if heartbeat.answered:
            body["answered"] = heartbeat.answered
        return exchange(self._beats, "/v1/sessions/heartbeat", body, self._limit, read_session_heartbeat)

    def _confirm(self, heartbeat: Heartbeat, answer: Confirmed, now: int) -> None:
        super()._confirm(heartbeat, answer, now)
        self._session.hear(answer.requests, now)

    def _carry_out(self, release: Release, body: dict[str, Any], until: int | None = None) -> TenureError | None:
        if self._outlasted:
            return UncertainError(f"{self._title} expires: work under its locks did not end in time")
        return super()._carry_out(release, body, until)

    def _part(self, beat: str, body: dict[str, Any]) -> Answer:
        return exchange(self._releases, "/v1/sessions/close", {**body, "after": beat}, self._limit, read_release)

    def _tell_asked(self) -> None:
        for lock in self._locks.copy().values():
            lock._tell_asked()

    def _tell_over(self) -> bool:
        """Tells the locks as well: all at the end of the session, else those that were asked."""
        over = super()._tell_over()
        for lock in self._locks.copy().values():
            if over or lock.asked is not None or lock.unreleased is not None:
                lock._tell_over()
                lock.tend()
        if over:
            for acquiring in self._acquiring.copy().values():
                acquiring.abort()
        return over

    def _soonest(self) -> float:
        asked = (lock.remaining() for lock in self._locks.copy().values() if lock.asked is not None)
        return min([super()._soonest(), *(left for left in asked if left > 0)])

    def _state(self) -> State:
        state = super()._state()
        return State.RELEASED if state is State.HELD and self._session.closing else state


class SessionLock(Lock):
    """A lock under a session, which keeps it alive."""

    def __init__(
        self, session: Session, grant: Grant, stop_timeout: int, beats: Caller, releases: Caller, attach: bool
    ) -> None:
        self.attachment = Attachment(session._session, grant, stop_timeout)
        self.unreleased: tuple[Release, dict[str, Any]] | None = None  # what no answer has come to for a lease
        self._session = session
        self._attaches = attach
        super().__init__(grant, stop_timeout, session._clock, beats, releases, lease=self.attachment)

    # What follows is for this package.

    def start(self, sent: int) -> bool:
        """Attaches the lock to the session, unless others are to be attached in the same call."""
        self._lease.granted(sent, self._clock())
        if not self._attaches:
            return not self._ending.is_set()
        try:
            self._session.attach([self], self._beats, self._ending)
        finally:
            self._beats.close()
        return self.taken()

    def taken(self) -> bool:
        """Says whether the lock is held under the session, after its attachment."""
        self._tell_asked()
        return self.holds()

    def answered(self, result: AskedError | Problem | None, now: int) -> None:
        """Takes the result of the attachment."""
        if not isinstance(result, Problem):
            self.attachment.attached(result, now)
        elif result.kind == "lost":
            self.attachment.not_attached(str(result.more.get("holder") or ""), now)
        else:
            self._last = describe(result)

    def tend(self) -> None:
        """Has the lock released whose work has not returned, or whose release has got no answer."""
        call = [threading.get_ident()]
        if self.unreleased is not None:
            if self._first.setdefault("tend", call) is call:
                threading.Thread(target=self._release_on, args=self.unreleased, daemon=True).start()
        elif self.attachment.overdue(self._clock()) and self._first.setdefault("overdue", call) is call:
            # Not forgo of a lock, which says that its holder has not acted.
            threading.Thread(target=Held.forgo, args=(self,), daemon=True).start()

    def _release_on(self, release: Release, body: dict[str, Any]) -> None:
        self._releases = self._session.caller()
        super()._carry_out(release, body)
        self._releases.close()
        self._session.gone(self)

    def _part(self, beat: str, body: dict[str, Any]) -> Answer:
        lock = {**body, "after": self.attachment.grant.beat, "next": beat}
        call = {"session": self._session.id, "locks": [lock]}
        answer = exchange(
            self._releases, "/v1/sessions/release", call, self._limit, lambda reply: read_results(reply, [self.name])
        )
        if not isinstance(answer, Results):
            return answer
        (result,) = answer.each
        return result if isinstance(result, Problem) else Done()

    def _carry_out(self, release: Release, body: dict[str, Any], until: int | None = None) -> TenureError | None:
        error = super()._carry_out(release, body, until or self._clock() + self._lease.grant.lease)
        if release.outcome is None:
            self.unreleased = release, body  # the session keeps the lock alive until it is released
        else:
            self._session.gone(self)
        return error

    def _tell_over(self) -> bool:
        if self._state() is not State.RELEASED or self.attachment.given_up:
            return super()._tell_over()
        call = [threading.get_ident()]  # the session is closed
        if self._first.setdefault("over", call) is call:
            self._tell(self._error(State.RELEASED), self.over)
        return True

    def _error(self, state: State) -> TenureError:
        if self.elsewhere() is None and not self.attachment.given_up:
            if state is not State.UNCONFIRMED and state is self._session._state():
                ended = self._session._error(state)
                return type(ended)(f"{self._title}: {ended}")
            if state is State.EXPIRED and self.asked is not None:
                return ExpiredError(f"{self._title} has expired: its work was asked to stop, and did not in time")
        return super()._error(state)


class Locks(tuple[Lock, ...]):
    """Several locks, as :meth:`Session.acquire_all` has acquired them. At the end of its block all are
    released."""

    def check(self) -> None:
        """Raises what :meth:`Lock.check` does for the first lock that is not held."""
        for lock in self:
            lock.check()

    def release(self, failed: str | None = None) -> None:
        """Releases all, as :meth:`Lock.release` does; raises the first error after the last release."""
        errors: list[TenureError] = []
        for lock in self:
            try:
                lock.release(failed=failed)
            except TenureError as error:
                errors.append(error)
        if errors:
            raise min(errors, key=lambda error: isinstance(error, UncertainError))

    def __enter__(self) -> Self:
        return self.enter(threading.get_ident())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self, error)

    # What follows is for this package.

    def enter(self, inside: object) -> Self:
        """Records the thread or the task that is in the block."""
        for lock in self:
            lock.enter(inside)
        return self

    def finish(self, failed: str | None = None) -> None:
        """Releases all at the end of a block."""
        self.release(failed)

    def forgo(self) -> None:
        """Releases all that no caller waits for any more."""
        for lock in self:
            lock.forgo()

    def elsewhere(self) -> LostError | None:
        """Returns why this process has no lock if it was forked from the holder."""
        return self[0].elsewhere()

    def listen(self, listener: OnStop) -> None:
        """Has the listener called as that of each lock."""
        for lock in self:
            lock.listen(listener)


class Gathering:
    """An acquire of several locks under way. A lock that is only granted has no heartbeats, so that each
    is attached before the acquire waits for another one."""

    def __init__(self, session: Session, names: Iterable[str], options: Options) -> None:
        self._session = session
        if isinstance(names, str):
            raise TypeError(f"names is {names!r}: want several names, such as [{names!r}]")
        self._names = list(names)
        if not self._names or len(set(self._names)) < len(self._names):
            raise ValueError(f"names are {self._names}: want one or more, each once")
        terms = Terms(self._names[0], **options)
        self._terms = [replace(terms, name=name) for name in sorted(self._names)]
        self._until = None if terms.wait is None else time.monotonic() + terms.wait
        self._caller = session.caller()
        self._aborted = Latch()
        self._acquiring: Acquiring | None = None

    def run(self) -> Locks:
        """Returns the locks, or raises what :meth:`Session.acquire_all` does."""
        backoff = Backoff()
        try:
            while True:
                locks = self._take()
                if locks is not None:
                    return Locks(locks[name] for name in self._names)
                self._session.check()
                if self._left() == 0 or self._aborted.is_set():
                    raise UnavailableError("a grant was lost before its attachment")
                self._aborted.wait(backoff.next())
        finally:
            self._caller.close()

    def abort(self) -> None:
        """Ends the acquire."""
        self._aborted.set()
        self._caller.abort()
        acquiring = self._acquiring
        if acquiring is not None:
            acquiring.abort()

    def _left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def _take(self) -> dict[str, Lock] | None:
        """Takes each lock, and returns all; None, and no lock, if one was lost."""
        got: list[SessionLock] = []
        granted: list[SessionLock] = []  # and not attached
        since, done = 0, False
        try:
            for terms in self._terms:
                if granted and (len(granted) == _BATCH or self._session.aged(since)):
                    self._attach(granted)
                try:
                    lock = self._acquire(replace(terms, wait=0.0, waiting=None), attach=False)
                    since = since if granted else self._session.now()
                    granted.append(lock)
                except (HeldError, UnavailableError):
                    if self._left() == 0 or self._aborted.is_set():
                        raise
                    self._attach(granted)
                    if not all(lock.holds() for lock in got):
                        return None
                    lock = self._acquire(replace(terms, wait=self._left()), attach=True)
                got.append(lock)
            self._attach(granted)
            done = all([lock.taken() for lock in got])
            return {lock.name: lock for lock in got} if done else None
        finally:
            if not done:
                Locks(got).forgo()

    def _acquire(self, terms: Terms, attach: bool) -> SessionLock:
        self._acquiring = self._session.acquiring(terms, attach)
        if self._aborted.is_set():
            self._acquiring.abort()
        lock = perform(self._acquiring)
        assert isinstance(lock, SessionLock)
        return lock

    def _attach(self, locks: list[SessionLock]) -> None:
        self._session.attach(locks, self._caller, self._aborted)
        locks.clear()
