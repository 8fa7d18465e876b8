# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A lock that is held, or a session: its heartbeats, its deadline, its release."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar

from .answers import Answer, Confirmed, Done, Problem, Reply, Unknown, read_heartbeat, read_release
from .clock import MILLISECOND, SECOND, Clock
from .errors import (
    AskedError,
    ExpiredError,
    LostError,
    NotConfirmedError,
    ReleasedError,
    TenureError,
    UncertainError,
)
from .lease import Grant, Heartbeat, LastWriter, Lease, Outcome, Release, State
from .process import Latch, process
from .transport import Backoff, Caller, CallError

__all__ = ["Held", "Lock", "OnStop"]

OnStop = Callable[[TenureError], None]
"""Is called with the reason when the work must stop: at an :class:`AskedError`, at a loss, or both,
one after the other. It runs in a thread of its own."""

_STEP = 1.0  # the longest sleep, in seconds: after a suspend the clock is read this soon
_LONGEST_REASON = 1024
_MOST_DATA = 256 * 1024


class Held:
    """What this process has until a deadline: a :class:`Lock` or a :class:`Session`, kept alive by
    heartbeats in the background. Each says what holds for it."""

    _END, _ENDED = "release", "released"

    def __init__(
        self,
        title: str,
        lease: Lease,
        clock: Clock,
        beats: Caller,
        releases: Caller,
        on_stop: OnStop | None = None,
    ) -> None:
        self.stopping = Latch()
        self.over = Latch()
        self._title = title
        self._process = process()
        self._clock = clock
        self._beats = beats
        self._releases = releases
        self._limit = max(lease.grant.lease // 10, 250 * MILLISECOND) / SECOND  # of a call, in seconds
        # No mutex: a signal handler would wait for what it has interrupted, and the threads for it.
        self._lease = lease
        self._last = ""  # what the last heartbeat that was not confirmed was answered
        self._on_stop = on_stop
        self._listener: OnStop | None = None
        self._reasons: list[TenureError] = []
        self._first: dict[object, list[int]] = {}  # what is done once, and the thread that does it
        self._inside: object = None  # the thread or the task that is in the block
        self._ending = Latch()  # the release has begun
        self._released = Latch()
        self._ended_with: TenureError | None = UncertainError(
            f"the {self._END} of {title} has not ended: it is {self._ENDED}, or expires by itself"
        )
        self._threads: list[threading.Thread] = []

    def check(self) -> None:
        """Raises if the holder may not act: :class:`LostError`, :class:`ExpiredError` or
        :class:`ReleasedError`. It sends nothing."""
        state = self._state()
        if state is not State.HELD:
            raise self._error(state)

    def remaining(self) -> float:
        """Returns the seconds until the right ends if no more heartbeat is confirmed."""
        left = self._lease.remaining(self._clock())
        return left / SECOND if self.elsewhere() is None else 0.0

    @property
    def reason(self) -> TenureError | None:
        """Why ``stopping`` is set; None if it is not, or if a release has set it."""
        return self.elsewhere() or (self._reasons[0] if self._reasons else None)

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
        self._inside = inside
        return self

    def finish(self, failed: str | None = None) -> None:
        """Releases a lock, or closes a session, at the end of a block."""
        raise NotImplementedError

    def forgo(self) -> None:
        """Releases what no caller waits for any more, or closes it."""
        try:
            self.finish()
        except TenureError:
            pass  # it is freed, or expires

    def hand(self, on_stop: OnStop | None) -> Self:
        """Returns this, and calls the listener with the reasons to stop, also with earlier ones."""
        self._on_stop = on_stop
        for reason in tuple(self._reasons):
            self._call(reason)
        return self

    def holds(self) -> bool:
        """Says whether :meth:`check` passes."""
        return self._state() is State.HELD

    def elsewhere(self) -> LostError | None:
        """Returns why this process holds nothing if it was forked from the holder, else None."""
        if process() == self._process:
            return None
        return LostError(
            f"{self._title}: process {self._process[0]} holds it; this process was forked from it"
        )

    def start(self, sent: int) -> bool:
        """Begins to hold what was granted to a call that was sent after that instant: at once if the grant
        counts, else when the first heartbeat is confirmed. Heartbeats go on in the background then.
        Returns False if the grant was lost before, or abandoned."""
        backoff = Backoff()
        self._lease.granted(sent, self._clock())
        while self._state() is State.UNCONFIRMED and not self._ending.is_set():
            heartbeat = self._next_heartbeat()
            if heartbeat is None or self._exchange(heartbeat):
                break
            self._ending.wait(backoff.next())
        if self._state() is not State.HELD:
            return False
        self._tell_asked()
        for work in (self._keep, self._watch):
            thread = threading.Thread(target=work, name=f"tenure {self._title}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def abandon(self) -> None:
        """Ends a start that is under way. The caller forgoes it then."""
        self._ending.set()
        self._beats.abort()

    def listen(self, listener: OnStop) -> None:
        """Has the listener called in the thread that sees the end, perhaps twice with one reason. It
        must not block."""
        self._listener = listener
        reason = self.reason
        if reason is not None:
            listener(reason)

    def _state(self) -> State:
        state = self._lease.state(self._clock())
        # Last, since a signal handler may fork in the midst of this.
        return state if process() == self._process else State.LOST

    def _next_heartbeat(self) -> Heartbeat | None:
        return self._lease.send(self._clock()) if process() == self._process else None

    def _exchange(self, heartbeat: Heartbeat) -> bool:
        """Sends a heartbeat once, and returns whether it was answered."""
        answer, now = self._renew(heartbeat), self._clock()
        if isinstance(answer, Problem) and answer.kind == "lost":
            self._lease.refuse(heartbeat, str(answer.more.get("holder") or ""), now)
        elif not isinstance(answer, Confirmed):
            self._last = describe(answer)
            return False
        else:
            self._last = ""
            self._confirm(heartbeat, answer, now)
        return True

    def _renew(self, heartbeat: Heartbeat) -> Answer:
        """Sends a heartbeat once, and returns the answer."""
        raise NotImplementedError

    def _confirm(self, heartbeat: Heartbeat, answer: Confirmed, now: int) -> None:
        self._lease.confirm(heartbeat, answer.usable, answer.period, answer.asked, now)

    def _keep(self) -> None:
        """Sends heartbeats as they are due, until the last one."""
        backoff = Backoff()
        while not self._ending.is_set():
            wait = self._lease.due(self._clock())
            if wait is None:
                break
            if wait > 0:
                self._ending.wait(min(wait / SECOND, _STEP))
                continue
            heartbeat = self._next_heartbeat()
            if heartbeat is None:
                break
            if self._exchange(heartbeat):
                backoff = Backoff()
                self._tell_asked()
                self._tell_over()
            else:
                self._ending.wait(backoff.next())

    def _watch(self) -> None:
        """Ends the work at the deadline. It needs no network."""
        while not self._tell_over():
            left = max(self._soonest(), 0.001)
            if self._ending.wait(min(left, _STEP)):
                return

    def _soonest(self) -> float:
        """Returns the seconds until something may be over."""
        return self.remaining()

    def _tell_over(self) -> bool:
        state, call = self._state(), [threading.get_ident()]
        if state is State.HELD:
            return False
        if state is State.RELEASED or self.over.is_set():
            return True
        if self._first.setdefault("over", call) is call:
            self._tell(self._error(state), self.over)
        return True

    def _tell_asked(self) -> None:
        asked = self._lease.asked
        if asked is not None and not self.stopping.is_set():
            self._tell(asked)

    def _tell(self, reason: TenureError, *ended: Latch) -> None:
        self._reasons.append(reason)  # first: who sees a latch set finds the reason
        listener = self._listener  # after that: it is called here, or sees the reason
        for latch in (*ended, self.stopping):
            latch.set()
        if listener is not None:
            listener(reason)
        self._call(reason)

    def _call(self, reason: TenureError) -> None:
        """Has the callback called, once for each reason."""
        told, call = self._on_stop, [threading.get_ident()]
        if told is not None and self._first.setdefault(id(reason), call) is call:
            # A thread: whatever it does holds up neither heartbeats nor the deadline.
            threading.Thread(target=told, args=(reason,), daemon=True).start()

    def _error(self, state: State) -> TenureError:
        """Returns why the holder may not act."""
        lost = self.elsewhere()
        if lost is not None:
            return lost
        if state is State.LOST:
            by = f": {self._lease.refused_by!r} is there now" if self._lease.refused_by else ""
            return LostError(f"{self._title} is lost{by}")
        if state is State.EXPIRED:
            why = f"; last answer: {self._last}" if self._last else ""
            return ExpiredError(f"{self._title} has expired: no heartbeat was confirmed in time{why}")
        if state is State.UNCONFIRMED:
            return NotConfirmedError(f"{self._title}: no heartbeat is confirmed yet")
        return ReleasedError(f"{self._title} is {self._ENDED}")

    def _finish(self, body: dict[str, Any]) -> None:
        """Ends it, once. A second call waits for the first, and ends as that did; in a signal handler
        that has interrupted the first it returns at once, and the first goes on when the handler has
        returned."""
        lost = self.elsewhere()
        if lost is not None:
            raise lost
        call = [threading.get_ident()]
        try:
            first = self._first.setdefault("release", call)
            if first is call:
                before = self._lease.state(self._clock())
                release = self._lease.release(self._clock())
                self._end_with(before, release, body)
        finally:
            if self._first.get("release") is call:
                self._released.set()
        if first == call and not self._released.is_set():
            return
        # The first takes little more than a lease; a handler that raises may have ended it anywhere.
        self._released.wait(2 * self._lease.grant.lease / SECOND + 4 * self._limit)
        if self._ended_with is not None:
            raise self._ended_with

    def _end_with(self, before: State, release: Release, body: dict[str, Any]) -> None:
        """Ends the heartbeats, and releases the lock or closes the session."""
        self.abandon()
        for thread in self._threads:
            # A call that cannot be ended, in a name look-up, sends nothing any more.
            thread.join(self._limit)
        if not any(thread.is_alive() for thread in self._threads):
            self._beats.close()
        had_ended = None if before in (State.HELD, State.UNCONFIRMED) else self._error(before)
        self.stopping.set()
        self.over.set()
        self._ended_with = self._carry_out(release, body)
        self._releases.close()
        if had_ended is not None:
            self._ended_with = had_ended

    def _carry_out(self, release: Release, body: dict[str, Any], until: int | None = None) -> TenureError | None:
        """Makes the calls of the release, to their end or until an instant."""
        backoff, refused = Backoff(), None
        while (beat := release.call(self._clock())) is not None and (until is None or self._clock() < until):
            lost = self.elsewhere()
            if lost is not None:
                return lost
            answer = self._part(beat, body)
            if isinstance(answer, Done):
                release.applied()
            elif isinstance(answer, Problem) and answer.kind == "lost":
                release.refused()
            else:
                release.unknown()
                refused = describe(answer)
                threading.Event().wait(backoff.next())
        if release.outcome not in (Outcome.RELEASED, Outcome.LOST):
            return UncertainError(
                f"the {self._END} of {self._title} got no answer: it is {self._ENDED}, or expires by itself; "
                f"last answer: {refused}"
            )
        if release.outcome is Outcome.LOST:
            return LostError(f"{self._title} was lost before its {self._END}")
        return None

    def _part(self, beat: str, body: dict[str, Any]) -> Answer:
        """Sends the release once, and returns the answer."""
        return exchange(self._releases, "/v1/release", {**body, "after": beat}, self._limit, read_release)


def check_data(data: bytes | None) -> None:
    """Refuses data that no store keeps: a release with them would be refused, and be repeated in vain."""
    if data is not None and len(data) > _MOST_DATA:
        raise ValueError(f"data has {len(data)} bytes: at most {_MOST_DATA} are allowed")


class Lock(Held):
    """A lock that this process holds. Made by :meth:`tenurelock.Client.acquire`.

    Call :meth:`check` before every side effect: it reads the clock itself, and is right where timers
    and threads are late. All methods may be called concurrently, and by signal handlers.

    A process that is forked from this one has no lock: there ``stopping`` and ``over`` are set,
    :meth:`check` and :meth:`release` raise :class:`LostError`, and nothing is sent.

    ``stopping`` is set when the work must stop: by a request, or the lock is over. ``over`` is set
    when the lock is not held any more. Between the two :meth:`check` passes, so that work which was
    asked can end in order. ``reason`` says why ``stopping`` is set.
    """

    def __init__(
        self,
        grant: Grant,
        stop_timeout: int,
        clock: Clock,
        beats: Caller,
        releases: Caller,
        on_stop: OnStop | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.name = grant.name
        """The name of the lock that is held: of a slot for a semaphore, of a reader's slot or the gate
        for readers and writers."""
        self.token = grant.token
        self.data = grant.data
        """What the former holder left in the record; None if there is nothing."""
        self.slot = grant.slot
        """The number of the slot, from 0; None if the lock is of no semaphore."""
        self.slots = grant.slots
        """How many slots the semaphore has; None if the lock is of none."""
        self.fence_token = grant.token if grant.fence is None else grant.fence
        """The token for the resource: for readers and writers under the name that was asked for, else
        ``token`` under ``name``."""
        self.last_writer = grant.last
        """How the last writer's term ended, for readers and writers; None if nobody has written."""
        self._keeps_data = grant.fence is not None
        self._unwritten = grant.unwritten
        title = f'"{grant.name}" (token {grant.token})'
        super().__init__(title, lease or Lease(grant, stop_timeout), clock, beats, releases, on_stop)

    @property
    def asked(self) -> AskedError | None:
        """The request to the holder, None without one."""
        return self._lease.asked

    def release(self, data: bytes | None = None, failed: str | None = None) -> None:
        """Releases the lock, so that others need not wait. Call it when the work has returned.

        ``data`` is kept in the record for the next holder. ``failed`` says that the work failed, and
        why. Raises what had ended the lock before: :class:`LostError`, :class:`ExpiredError`; or
        :class:`UncertainError` if no answer came for the time of a lease. A second call waits for
        the first, and ends as that did; in a signal handler that has interrupted the first it
        returns at once, and the first goes on when the handler has returned.

        Raises :class:`ValueError` for more than 256 KiB of data, and for any with a lock for readers and
        writers, which has its own there. Then nothing is released.
        """
        check_data(data)
        if data is not None and self._keeps_data:
            raise ValueError(f"{self._title}: a lock for readers and writers has no data: keep them with the resource")
        self._finish(self._body(data, failed))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f'the lock "{self.name}" can be neither copied nor pickled: a copy would not be a second '
            "lock. Pass the lock itself; another process acquires its own"
        )

    # What follows is for this package.

    def finish(self, failed: str | None = None) -> None:
        self._finish(self._body(None, failed))

    def forgo(self) -> None:
        try:
            self._finish(self._body(self._unwritten, None))
        except TenureError:
            pass  # it is freed, or expires

    def _renew(self, heartbeat: Heartbeat) -> Answer:
        body = {
            "name": self.name,
            "token": self.token,
            "after": heartbeat.after,
            "next": heartbeat.next,
        }
        return exchange(self._beats, "/v1/heartbeat", body, self._limit, read_heartbeat)

    def _body(self, data: bytes | None, failed: str | None) -> dict[str, Any]:
        body: dict[str, Any] = {"name": self.name, "token": self.token}
        if data is not None:
            body["data"] = base64.b64encode(data).decode()
        if failed is not None:
            body["failed"] = failed[:_LONGEST_REASON]
        return body


class Ends(Protocol):
    """What ends with a block."""

    def finish(self, failed: str | None = None) -> None:
        """Ends it, and raises what had ended it before. ``failed`` says that the work failed, and why."""


def leave(held: Ends, error: BaseException | None) -> None:
    """Ends what was held in a block that ends with the error, or in order."""
    try:
        held.finish(failure(error))
    except (LostError, ReleasedError):
        if error is None:  # else what ended the work says more
            raise
    except UncertainError:
        pass  # the work is done, and only the answer is missing


Got = TypeVar("Got", covariant=True)


class Asks(Protocol[Got]):
    """Calls under way by which this process gets something. ``abort`` may be called from another thread;
    what is granted later is given back."""

    def run(self) -> Got:
        """Returns what it gets."""

    def abort(self) -> None:
        """Ends the calls."""


def perform(asks: Asks[Got]) -> Got:
    """Returns what the calls get. An exception in their midst ends them."""
    try:
        return asks.run()
    except BaseException:
        asks.abort()
        raise


def exchange(
    caller: Caller,
    path: str,
    body: dict[str, Any],
    limit: float,
    read: Callable[[Reply], Answer],
) -> Answer:
    """Sends a call once and reads its answer; without one the next call goes to the next server."""
    try:
        answer = read(caller.call(path, body, limit))
    except OSError as error:
        answer = no_answer(error)
    return settle(caller, answer)


def no_answer(error: OSError) -> Unknown:
    """Returns the answer that a failed call stands for."""
    return Unknown(str(error) or type(error).__name__, isinstance(error, CallError) and error.permanent)


def settle(caller: Caller, answer: Answer) -> Answer:
    """Returns the answer; without one the next call goes to the next server."""
    if isinstance(answer, Unknown) or isinstance(answer, Problem) and answer.status >= 500:
        caller.move()
    return answer


def describe(answer: Answer) -> str:
    """Returns an answer for people."""
    if isinstance(answer, Problem):
        return f"{answer.kind} ({answer.status}): {answer.detail}"
    return answer.why if isinstance(answer, Unknown) else str(answer)


def failure(error: BaseException | None) -> str | None:
    """Returns what the record says of work that ended in an error; None if it did not fail."""
    if not isinstance(error, Exception) or isinstance(error, (AskedError, LostError)):
        return None
    text = f"{type(error).__name__}: {error}"
    return "".join(c if c.isprintable() else " " for c in text)
