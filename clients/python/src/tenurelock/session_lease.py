# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The rules by which a client may believe that it holds many locks under one session: state machines
without I/O, as those of :mod:`tenurelock.lease`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .errors import AskedError
from .lease import Grant, Heartbeat, Lease, Outcome, Release, State, counts, following, random_part

__all__ = ["Attachment", "Detachment", "Request", "SessionLease"]


@dataclass(frozen=True)
class Request:
    """A request to the holder of one lock under a session."""

    id: str
    name: str
    token: int
    asked: AskedError


class SessionLease(Lease):
    """A session from its opening to its end. What holds for a lease holds for it, and besides:

    - The opening is no lease: a session counts from its first confirmed heartbeat on, which counts only
      if its answer comes within its usable time of the instant before the opening was sent. Later, it
      may be of a record that a late duplicate of the opening has made.
    - Its deadline counts for all locks under it. While it is closing its heartbeats may go on, for work
      that stops, and no lock is held.
    - A request is answered when its lock is released, or if the client does not hold it.
    """

    def __init__(self, opening: Grant, sent: int, random: Callable[[], str] = random_part) -> None:
        super().__init__(opening, 0, random)
        self.closing = False
        self._opened = sent
        self._requests: tuple[Request, ...] = ()  # of the last confirmed heartbeat
        self._under: dict[tuple[str, int], Attachment] = {}  # what may be in its name, by lock and token

    def granted(self, sent: int, now: int) -> None:
        """Records nothing: an opening is no lease."""

    def state(self, now: int) -> State:
        # Whatever its first heartbeat says is usable is less than a lease.
        if self._state is State.UNCONFIRMED and now >= self._opened + self.grant.lease:
            self._state = State.EXPIRED
        return super().state(now)

    def confirm(
        self, heartbeat: Heartbeat, usable: int, period: int, asked: AskedError | None, now: int
    ) -> None:
        if self._state is State.UNCONFIRMED and heartbeat == self._open and now >= self._opened + usable:
            self._state = State.LOST
        super().confirm(heartbeat, usable, period, asked, now)

    def remaining(self, now: int) -> int:
        return 0 if self.closing else super().remaining(now)

    def hear(self, requests: tuple[Request, ...], now: int) -> None:
        """Records the requests of a heartbeat that was just confirmed."""
        self._requests = requests
        for request in requests:
            attachment = self._under.get((request.name, request.token))
            if attachment is not None:
                attachment.ask(request.asked, now)

    def _answered(self) -> tuple[str, ...]:
        return tuple(r.id for r in self._requests if (r.name, r.token) not in self._under)

    def lose(self, now: int) -> None:
        """Records that the service has answered 410 to another call about the session."""
        if self.state(now) in (State.UNCONFIRMED, State.HELD):
            self._state = State.LOST


class Attachment(Lease):
    """A lock under a session, from its grant to its end, by these rules:

    - The lock has no heartbeats of its own. Its attachment is the same in each sending.
    - Attached, it is held as long as the session.
    - Before that it is held only if its grant counts, until the earlier of both deadlines.
    - With the session it ends at once, and when the time to stop is over that a request leaves it.
      Expired, lost and released are final.

    Concurrency is as for :class:`Lease`; one thread attaches.
    """

    def __init__(
        self, session: SessionLease, grant: Grant, stop_timeout: int, random: Callable[[], str] = random_part
    ) -> None:
        super().__init__(grant, stop_timeout, random)
        self.session = session
        self.given_up = False  # its own release has ended it
        self.next = following(grant.beat, random)
        self._attached = False
        self._granted_until: int | None = None  # the deadline of a grant that counts
        self._sent: int | None = None  # before the attachment was first sent
        session._under[grant.name, grant.token] = self

    def granted(self, sent: int, now: int) -> None:
        if counts(self.grant, sent, now):
            self._granted_until = sent + self.grant.usable

    def attach(self, now: int) -> Heartbeat | None:
        """Returns the attachment to send now, as if it were a heartbeat; None if it is answered, or the
        lock has ended."""
        if self._attached or self.state(now) not in (State.UNCONFIRMED, State.HELD):
            return None
        if self._sent is None:
            self._sent = now
        return Heartbeat(self.grant.beat, self.next, self._sent)

    def attached(self, asked: AskedError | None, now: int) -> None:
        """Records that the service has confirmed the attachment; now is an instant after that
        answer."""
        if self.state(now) in (State.UNCONFIRMED, State.HELD):
            self._attached = True
            if asked is not None:
                self.ask(asked, now)

    def not_attached(self, holder: str, now: int) -> None:
        """Records that the service has answered ``lost`` to the attachment: nothing is in the name of
        the session."""
        if self._attached:
            return
        if self.state(now) in (State.UNCONFIRMED, State.HELD):
            self._state, self.refused_by = State.LOST, holder
        self.gone()

    def ask(self, asked: AskedError, now: int) -> None:
        """Records a request to the holder: its work is to stop."""
        if self.asked is None:
            self._stop_by = now + self._stop_timeout  # first: who sees a request finds it
            self.asked = asked

    def state(self, now: int) -> State:
        if self._state is not State.UNCONFIRMED:
            return self._state  # only an end is written
        session = self.session.state(now)
        if session is State.HELD and self.session.closing:
            session = State.RELEASED
        limits = [self._stop_by]
        if not self._attached:
            limits += [self._granted_until, None if self._sent is None else self._sent + self.grant.lease]
        if session not in (State.UNCONFIRMED, State.HELD):
            self._state = session
        elif any(limit is not None and now >= limit for limit in limits):
            self._state = State.EXPIRED
        elif self._attached or self._granted_until is not None:
            return State.HELD
        return self._state

    def remaining(self, now: int) -> int:
        if self.state(now) is not State.HELD:
            return 0
        limits = [self._stop_by, None if self._attached else self._granted_until]
        return min([self.session.remaining(now), *(limit - now for limit in limits if limit is not None)])

    def due(self, now: int) -> int | None:
        """Returns None: the session has the heartbeats."""
        return None

    def overdue(self, now: int) -> bool:
        """Says whether the lock is to be released although work that was asked to stop has not returned:
        not before others could have it if the heartbeats had ended when the time to stop had."""
        return self._stop_by is not None and now >= self._stop_by + self.grant.lease

    def release(self, now: int) -> Release:
        if self.state(now) in (State.UNCONFIRMED, State.HELD):
            self.given_up, self._state = True, State.RELEASED
        return Detachment(self)

    def gone(self) -> None:
        """Records that nothing is in the name of the session any more."""
        if self.is_under():
            self.session._under.pop((self.grant.name, self.grant.token), None)

    def is_under(self) -> bool:
        """Says whether the lock may be in the name of the session."""
        return self.session._under.get((self.grant.name, self.grant.token)) is self


class Detachment(Release):
    """The calls of a release under a session. Without an answer the same call is made again, as long as
    the session lasts, which would keep the lock alive."""

    def __init__(self, attachment: Attachment) -> None:
        super().__init__([attachment.next] if attachment.is_under() else [], until=0)
        self._attachment = attachment

    def call(self, now: int) -> str | None:
        if self.outcome is None and self._attachment.session.state(now) not in (State.UNCONFIRMED, State.HELD):
            self.outcome = Outcome.UNKNOWN
        return None if self.outcome is not None else self._beats[0]

    def applied(self) -> None:
        super().applied()
        self._attachment.gone()

    def refused(self) -> None:
        super().refused()
        self._attachment.gone()
