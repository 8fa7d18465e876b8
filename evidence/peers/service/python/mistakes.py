# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# mypy: ignore-errors
# Methods are replaced by others here, which is what types are there to prevent.

"""Rules of a client, broken on purpose, one at a time: what is thrown at the clients must show it.
The client itself has no such switch. Its methods are replaced here, in the process of a peer."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from tenurelock import client, lease, lock
from tenurelock.clock import system_clock
from tenurelock.lease import Heartbeat, Lease, State

import __main__ as peer


def make(mistake: str) -> None:
    """Makes a mistake from now on."""
    MISTAKES[mistake]()


def from_grant() -> None:
    """A grant is taken for a lease, counted from when it came."""
    first = Lease.__init__

    def init(self: Lease, grant: lease.Grant, *args: Any, **options: Any) -> None:
        first(self, grant, *args, **options)
        self._state = State.HELD
        self._deadline = system_clock()() + grant.lease * 7 // 10

    def start(self: lock.Lock, listener: Any = None) -> bool:
        for work in (self._keep, self._watch):
            threading.Thread(target=work, daemon=True).start()
        return True

    Lease.__init__ = init
    lock.Lock.start = start


def _count_from(instant: Callable[[Heartbeat, int], int]) -> None:
    """Has a confirmed heartbeat counted from another instant than its first sending."""
    right = Lease.confirm

    def confirm(self: Lease, beat: Heartbeat, usable: int, period: int, asked: Any, now: int) -> None:
        counted = beat == self._open
        right(self, beat, usable, period, asked, now)
        if counted:
            self._deadline = max(self._deadline, instant(beat, now) + usable)

    Lease.confirm = confirm


def from_answer() -> None:
    """A heartbeat is counted from when its answer came."""
    _count_from(lambda beat, now: now)


def from_repeat() -> None:
    """A heartbeat is counted from its last sending."""
    sent: dict[str, int] = {}
    right = Lease.send

    def send(self: Lease, now: int) -> Heartbeat | None:
        beat = right(self, now)
        if beat is not None:
            sent[beat.next] = now
        return beat

    Lease.send = send
    _count_from(lambda beat, now: sent[beat.next])


def revive() -> None:
    """A lease that has expired lives again when a heartbeat is confirmed, and its work goes on."""

    def state(self: Lease, now: int) -> State:
        late = self._state is State.HELD and now >= self._deadline
        return State.EXPIRED if late else self._state

    def living(self: Lease) -> bool:
        return self._state in (State.UNCONFIRMED, State.HELD)

    def due(self: Lease, now: int) -> int | None:
        if not living(self):
            return None
        if self._open is not None or self._next_at is None:
            return 0
        return max(0, self._next_at - now)

    def confirm(self: Lease, beat: Heartbeat, usable: int, period: int, asked: Any, now: int) -> None:
        if beat == self._open and living(self):
            self._open, self._confirmed, self._state = None, beat.next, State.HELD
            self._next_at, self._deadline = beat.first_sent + period, beat.first_sent + usable

    right = peer.Work.hold

    def hold(self: Any, held: lock.Lock, begin: int) -> tuple[bool, float | None]:
        kept, drain = right(self, held, begin)
        if kept:
            return kept, drain
        again = time.monotonic_ns() + 2 * held._lease.grant.lease
        while time.monotonic_ns() < again:
            if peer.holds(held):
                held.stopping = threading.Event()
                self.write("begin", time.monotonic_ns(), held.token)
                return right(self, held, time.monotonic_ns())
            time.sleep(peer.CHECK_PERIOD)
        return False, None

    Lease.state, Lease.due, Lease.confirm = state, due, confirm
    peer.Work.hold = hold


def not_applied() -> None:
    """A release that was answered with a 5xx is taken for one that was not made: the work goes on,
    and releases later."""
    right = lock.Lock.release

    def release(self: lock.Lock, data: bytes | None = None, failed: str | None = None) -> None:
        beat = self._lease._confirmed
        body = {"name": self.name, "token": self.token, "after": beat}
        answer = lock.exchange(self._releases, "/v1/release", body, self._limit, lock.read_release)
        if isinstance(answer, lock.Done):
            self._ending.set()
            return
        work, goes_on = _WORKING[0], time.monotonic_ns()
        work.write("begin", goes_on, self.token)
        work.hold(self, goes_on)
        right(self, data, failed)

    hold = peer.Work.hold

    def noted(self: Any, held: lock.Lock, begin: int) -> tuple[bool, float | None]:
        _WORKING[:] = [self]
        return hold(self, held, begin)

    lock.Lock.release = release
    peer.Work.hold = noted


_WORKING: list[Any] = []


def get() -> None:
    """Whether the lock is held is asked by GET /v1/leader, and not counted."""

    def holds(held: lock.Lock) -> bool:
        opened = peer.Work.opened
        server = urlsplit(opened["servers"][0])
        assert server.hostname is not None
        connection = http.client.HTTPConnection(server.hostname, server.port, timeout=2)
        path = f"/v1/leader?name={quote(held.name, safe='')}&me={quote(peer.Work.holder, safe='')}"
        try:
            connection.request("GET", path, headers={"Authorization": "Bearer " + opened["token"]})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    first = peer.Work.__init__

    def init(self: Any, of: Any, by: Any, owner: str, request: Any, notice: bool) -> None:
        first(self, of, by, owner, request, notice)
        peer.Work.opened, peer.Work.holder = of._open, owner

    def tell_over(self: lock.Lock) -> bool:
        return self._ending.is_set()

    peer.Work.__init__ = init
    peer.holds = holds
    lock.Lock._tell_over = tell_over


def mono_clock() -> None:
    """The lease is counted by a clock that stands still in a suspend."""
    client.system_clock = lambda: time.monotonic_ns


MISTAKES = {
    "from-grant": from_grant,
    "from-answer": from_answer,
    "from-repeat": from_repeat,
    "revive": revive,
    "not-applied": not_applied,
    "get": get,
    "mono-clock": mono_clock,
}
