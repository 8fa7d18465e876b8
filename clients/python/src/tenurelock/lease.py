# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The rules by which a client may believe that it holds a lock: a state machine without I/O.

Instants and lengths are in nanoseconds of one clock that counts suspends.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .errors import AskedError

__all__ = [
    "Grant",
    "Heartbeat",
    "LastWriter",
    "Lease",
    "Outcome",
    "Release",
    "State",
    "counts",
    "following",
    "random_part",
]

_LETTERS = string.digits + string.ascii_letters
_LENGTH = 13

_COUNTED_PART = 10
"""The part of a lease in which a grant must come to be counted."""

_IDLE_PART = 5
"""The part of a lease for which the release of a lock that is not held is tried."""


def random_part() -> str:
    """Returns what is new in each beat."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def following(after: str, random: Callable[[], str] = random_part) -> str:
    """Returns a beat that may follow another one of the same term."""
    term = after[: after.index("-") + 1]
    fresh = term + random()
    while fresh == after:
        fresh = term + random()
    return fresh


class State(Enum):
    """What a lease is at an instant."""

    UNCONFIRMED = "unconfirmed"  # granted; nothing counts yet, so the holder must not act
    HELD = "held"
    EXPIRED = "expired"
    LOST = "lost"
    RELEASED = "released"  # or its release has begun


class Outcome(Enum):
    """What came of a release."""

    RELEASED = "released"
    LOST = "lost"  # the lock was free, or another holder's, before
    UNKNOWN = "unknown"  # released, or it expires by itself


@dataclass(frozen=True)
class LastWriter:
    """How the last writer's term under a lock for readers and writers ended. ``token`` is that of its
    gate. ``end`` is ``released``, or it may have left half of what it wrote."""

    owner: str
    token: int
    end: str


@dataclass(frozen=True)
class Grant:
    """The answer to an acquire. ``usable`` is for how long the holder may act after it sent that; 0 if
    the grant must not be counted. ``period`` is in which to send heartbeats.

    A slot of a semaphore has its number in ``slot``, of so many ``slots``. A lock for readers and writers
    has the token for the resource in ``fence``, and ``last``. ``drains``: readers are to leave before the
    writer may act. ``unwritten`` is the data to release the lock with if its holder has not acted.
    """

    name: str
    token: int
    beat: str
    lease: int
    data: bytes | None = None
    usable: int = 0
    period: int = 0
    slot: int | None = None
    slots: int | None = None
    fence: int | None = None
    last: LastWriter | None = None
    drains: bool = False
    unwritten: bytes | None = None


def counts(grant: Grant, sent: int, now: int) -> bool:
    """Says whether the holder may count from a grant, which has answered the acquire that was sent after
    the instant ``sent``; now is an instant after that answer."""
    soon = 0 <= now - sent < grant.lease // _COUNTED_PART
    return grant.usable > 0 and soon


@dataclass(frozen=True)
class Heartbeat:
    """One heartbeat. It is the same in each sending; ``first_sent`` is the instant before the first.
    ``answered`` are the ids of a session's requests that need no answer any more."""

    after: str
    next: str
    first_sent: int
    answered: tuple[str, ...] = ()


class Lease:
    """A lock from its grant to its end, by these rules:

    - A grant is no lease. The lock is held from the first confirmed heartbeat on; or at once if the
      grant may be counted and came in less than a tenth of the lease. It counts from the instant
      before its acquire was sent.
    - A confirmed heartbeat counts from the instant before its first sending.
    - An unanswered heartbeat is sent again as it was.
    - The deadline never moves back. Expired, lost and released are final.

    One thread sends, confirms and refuses. All else may be called by other threads at any time, and
    by a signal handler in the midst of a call: nothing here waits. ``HELD`` is written once, before
    others have the lease, so that any thread that sees an end writes it, for good.
    """

    def __init__(
        self, grant: Grant, stop_timeout: int, random: Callable[[], str] = random_part
    ) -> None:
        self.grant = grant
        self.asked: AskedError | None = None
        self.refused_by = ""  # the holder that a refusal named
        self._stop_timeout = stop_timeout
        self._random = random
        self._state = State.UNCONFIRMED
        self._confirmed = grant.beat
        self._open: Heartbeat | None = None  # sent, not answered
        self._deadline = 0  # counts in HELD
        self._next_at: int | None = None  # when the next heartbeat is due; None: at once
        self._stop_by: int | None = None  # no heartbeats from then on

    def granted(self, sent: int, now: int) -> None:
        """Records that the grant has answered the acquire that was sent after the instant ``sent``, and
        no other one; now is an instant after that answer."""
        if self._state is State.UNCONFIRMED and counts(self.grant, sent, now):
            self._deadline = sent + self.grant.usable
            self._next_at = sent + self.grant.period
            self._state = State.HELD
            self.state(now)

    def state(self, now: int) -> State:
        """Returns what the lease is. Once it has said that it has ended it says so for ever."""
        if self._state is State.HELD and now >= self._deadline:
            self._state = State.EXPIRED
        # A confirmation now would be past its deadline.
        elif (
            self._state is State.UNCONFIRMED
            and (sent := self._open) is not None
            and now >= sent.first_sent + self.grant.lease
        ):
            self._state = State.EXPIRED
        return self._state

    def remaining(self, now: int) -> int:
        """Returns how long the holder may still act if no more heartbeat is confirmed."""
        return self._deadline - now if self.state(now) is State.HELD else 0

    def due(self, now: int) -> int | None:
        """Returns the time until the next heartbeat is due; None after the last one."""
        if self.state(now) not in (State.UNCONFIRMED, State.HELD):
            return None
        if self._stop_by is not None and now >= self._stop_by:
            return None  # the work did not stop in time: the lock expires
        if self._open is not None or self._next_at is None:
            return 0
        return max(0, self._next_at - now)

    def send(self, now: int) -> Heartbeat | None:
        """Returns the heartbeat to send now: an unanswered one as it was, else a new one."""
        if self.due(now) is None:
            return None
        if self._open is None:
            fresh = following(self._confirmed, self._random)
            self._open = Heartbeat(self._confirmed, fresh, now, self._answered())
            if self._state not in (State.UNCONFIRMED, State.HELD):
                return None  # a release that began meanwhile may not have seen it
        return self._open

    def _answered(self) -> tuple[str, ...]:
        """Returns what the next heartbeat names as answered."""
        return ()

    def confirm(
        self, heartbeat: Heartbeat, usable: int, period: int, asked: AskedError | None, now: int
    ) -> None:
        """Records that the server has confirmed the heartbeat; now is an instant after that
        answer."""
        if heartbeat != self._open or self.state(now) not in (State.UNCONFIRMED, State.HELD):
            return
        self._confirmed = heartbeat.next  # first: a release that finds none open names this one
        self._open = None
        self._next_at = heartbeat.first_sent + period
        self._deadline = max(self._deadline, heartbeat.first_sent + usable)
        if self._state is State.UNCONFIRMED:
            self._deadline = heartbeat.first_sent + usable
            self._state = State.HELD
        if asked is not None and self.asked is None:
            self.asked = asked
            self._stop_by = now + self._stop_timeout
        self.state(now)

    def refuse(self, heartbeat: Heartbeat, holder: str, now: int) -> None:
        """Records that the server has answered 410 to the heartbeat: the lock is lost."""
        if heartbeat == self._open and self.state(now) in (State.UNCONFIRMED, State.HELD):
            self._state = State.LOST
            self.refused_by = holder

    def release(self, now: int) -> Release:
        """Begins the release: from now on the holder must not act, whatever the answer."""
        before = self.state(now)
        if before is State.LOST:
            return Release([], now)
        if before is not State.EXPIRED:
            self._state = State.RELEASED
        # After that: a heartbeat that is made now is either seen here, or not sent.
        sent = self._open
        beats = [self._confirmed]
        if sent is not None:
            # It may be applied already, or between two calls.
            beats = [sent.next, self._confirmed, sent.next]
        # A lock that is not held yet is freed anyway: its user must not wait for that.
        lease = self.grant.lease
        return Release(beats, now + (lease if before is State.HELD else lease // _IDLE_PART))


class Release:
    """The calls of a release: the newest beat sent, then the confirmed one. Without an answer the
    same call is made again, for a lease at most; then the record expires by itself."""

    def __init__(self, beats: list[str], until: int) -> None:
        self._beats = beats
        self._until = until
        self._doubt = False  # a call may have been applied
        self.outcome: Outcome | None = None if beats else Outcome.LOST

    def call(self, now: int) -> str | None:
        """Returns the beat that the next call names, None after the last call."""
        if self.outcome is None and now >= self._until:
            self.outcome = Outcome.UNKNOWN
        return None if self.outcome is not None else self._beats[0]

    def applied(self) -> None:
        """Records that the server has answered 200."""
        self.outcome = Outcome.RELEASED

    def refused(self) -> None:
        """Records that the server has answered 410."""
        del self._beats[0]
        if not self._beats:
            # After an unknown answer it is our own release, or a later write.
            self.outcome = Outcome.RELEASED if self._doubt else Outcome.LOST

    def unknown(self) -> None:
        """Records that no answer came, or not the service's."""
        self._doubt = True
