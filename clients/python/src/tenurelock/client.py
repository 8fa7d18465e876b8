# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The client for threads."""

from __future__ import annotations

import logging
import os
import random
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Generic, NoReturn, Self, TypeVar

from .answers import Answer, Done, Problem, Reply, Unknown, held_by, read_acquire, read_opening, read_release
from .clock import SECOND, Clock, Raw, system_clock
from .errors import HeldError, NoSessionsError, ProblemError, TenureError, UnavailableError
from .groups import RWLock, Semaphore
from .lease import Grant
from .lock import Held, Lock, OnStop, describe, exchange, no_answer, perform, settle
from .process import Latch, process
from .session import Session
from .terms import Terms, Waiting
from .transport import Backoff, Caller, Credentials, HTTPCaller, addresses

__all__ = ["Client"]

Result = TypeVar("Result")

_LONGEST_WAIT = 20.0  # of one call, in seconds: the server's limit
_MARGIN = 10.0  # how long an answer may take beyond the wait, in seconds
_STREAMS = 2  # that may fail in a row, before the acquire asks for none any more

_SILENCE = 15.0  # without an answer, in seconds, before the log says so

_log = logging.getLogger("tenurelock")

# The service has not done what was asked, but a retry may succeed.
_AGAIN = {"unknown", "unavailable", "limited", "unanswered", "lost"}

_HOLDS_ON = {401, 403}  # who holds the gate sends the same call again: the token may be renewed just now


class Client:
    """Acquires locks through the servers of a lock service.

    ``servers`` is an address or a list of them: ``http://HOST:PORT``, ``https://HOST:PORT`` or
    ``unix:/PATH``. Any of them serves; a call that has no answer goes to the next one. ``token`` is
    the bearer token, ``token_file`` a file that has it and is read again for each call. ``tls`` is
    the context for https; by default that of the system. ``clock`` counts suspends, in nanoseconds;
    its rate may be wrong by 9 %.

    It keeps no connection and no thread of its own. May be used concurrently, and in processes that
    are forked. A copy is the client itself.
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
        self._servers = addresses(servers)
        if tls is not None and not isinstance(tls, ssl.SSLContext):
            raise TypeError(
                f"tls: want an ssl.SSLContext, not {type(tls).__name__}:"
                ' ssl.create_default_context(cafile="ca.pem")'
            )
        file = os.fspath(token_file) if token_file is not None else None
        self._credentials = Credentials(token, file)
        self._tls = tls
        self.clock = clock or system_clock()

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
        waiting: Waiting | None = None,
        history: bool = False,
    ) -> Lock:
        """Acquires the lock and returns it held.

        ``wait`` is for how many seconds to wait for it: None without an end, 0 only tries.
        ``owner`` is the name that people see; by default host, process id and a random part.
        ``label`` is shown beside it. ``data`` is put into the record: 256 KiB at most. ``stop_timeout`` is
        for how many seconds the work may go on after a request to stop; by default the lease duration.
        ``on_stop`` is called when the work must stop; ``waiting`` with each holder waited for, as
        soon as the service sees it: see :data:`Waiting`. ``history`` keeps the former holder's
        term, for ``tenure history`` and the dashboard; each term costs the service one more write.

        Raises :class:`HeldError` if another holder has it until the wait is over,
        :class:`UnavailableError` if no server answered, :class:`ProblemError` if the call was
        refused, for example for lack of rights. A server whose certificate is refused, or that speaks
        another protocol, answers no later call either: if all are such, :class:`UnavailableError` is
        raised at once. After 15 s without an answer the logger ``tenurelock`` warns, once.
        """
        return self._acquire(Terms(name, owner, wait, label, data, stop_timeout, on_stop, waiting, history))

    def _acquire(self, terms: Terms) -> Lock:
        return perform(self.acquiring(terms))

    def run(self, name: str, work: Callable[[Lock], Result], **options: Any) -> Result:
        """Acquires the lock, calls ``work(lock)``, releases the lock, and returns what work did.

        ``options`` are those of :meth:`acquire`. Raises :class:`LostError` if the lock was lost
        before the work was done.
        """
        with self.acquire(name, **options) as lock:
            return work(lock)

    def session(
        self,
        *,
        owner: str | None = None,
        wait: float | None = None,
        label: str = "",
        stop_timeout: float | None = None,
        on_stop: OnStop | None = None,
    ) -> Session:
        """Opens a session, by whose one heartbeat many locks are kept alive, and returns it confirmed.

        ``wait`` is for how many seconds to try if no server answers: None without an end, 0 asks each
        once. ``owner`` and ``label`` are as for :meth:`acquire`; all its locks have that owner. ``on_stop``
        is called when all work must stop. ``stop_timeout`` is for how many seconds the closing waits for
        the blocks of locks in other threads; by default the lease duration.

        Raises :class:`NoSessionsError` if the store of the server keeps no sessions,
        :class:`UnavailableError` and :class:`ProblemError` as :meth:`acquire` does.
        """
        return perform(self.opening(Terms("session", owner, wait, label, None, stop_timeout, on_stop)))

    def semaphore(self, name: str, slots: int) -> Semaphore:
        """Returns the semaphore of that name, which has from 1 to 1000 slots if it has not been used
        before: ``with client.semaphore("renders", 3).acquire() as lock``. It sends nothing."""
        return Semaphore(self._acquire, name, slots)

    def rwlock(self, name: str) -> RWLock:
        """Returns the lock for readers and writers of that name: ``with
        client.rwlock("catalog").read() as lock``, or ``.write()``. It sends nothing."""
        return RWLock(self._acquire, name)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Client cannot be pickled: it has a token. Make one in the other process")

    def caller(self) -> Caller:
        """Returns a caller with a connection of its own. For this package and its tests."""
        return HTTPCaller(self._servers, self._credentials, self._tls)

    def acquiring(self, terms: Terms, session: Session | None = None, attach: bool = True) -> Acquiring:
        """Returns an acquire that is to be run, of a lock or of one under a session. For this package."""
        return Acquiring(self, terms, session, attach)

    def opening(self, terms: Terms) -> Opening:
        """Returns the opening of a session that is to be run. For this package."""
        return Opening(self, terms)

    def tries(self) -> int:
        """Returns how many calls ask each server once."""
        return len(self._servers)


Got = TypeVar("Got", bound=Held)


class Asking(Generic[Got]):
    """Calls under way until one is granted. ``abort`` may be called from another thread; a grant that
    comes later is given back."""

    _path = "/v1/acquire"

    def __init__(self, client: Client, terms: Terms, title: str) -> None:
        self._title = title
        self._client = client
        self._clock = client.clock
        self._terms = terms
        self._caller = client.caller()
        self._process = process()
        self._aborted = Latch()
        self._until = None if terms.wait is None else time.monotonic() + terms.wait
        self._tries = client.tries()  # calls that may fail before a try without a wait gives up
        self._backoff = Backoff()
        self._held: HeldError | None = None
        self._failures = 0  # in a row: calls without an answer, or without the store's
        self._wrong = 0  # of them at last, by a fault that stays
        self._silent: float | None = None  # since when, of time.monotonic
        self._warned = False
        self._failed_streams = 0  # in a row
        self._answered = True  # the last call
        self._starting: Got | None = None  # its first heartbeat is under way

    def abort(self) -> None:
        """Ends the calls. In the process that this one was forked from they go on."""
        if process() != self._process:
            return
        self._aborted.set()
        self._caller.abort()
        starting = self._starting
        if starting is not None:
            starting.abandon()

    def run(self) -> Got:
        """Returns what is granted, or raises what :meth:`Client.acquire` does."""
        body = self._body()
        if isinstance(self._clock, Raw):
            body["clock"] = "raw"  # the lock counts by it, and by no other
        # Without a first try the waiting call would report only the next holder.
        wait = 0.0 if self._terms.waiting is not None else self._left()
        try:
            while True:
                if process() != self._process:
                    raise UnavailableError(
                        f"process {self._process[0]} makes the {self._what}; this process was forked from it"
                    )
                began = time.monotonic()
                wait = min(wait, _LONGEST_WAIT, self._left())
                sent = self._clock()
                answer = self._ask(body, wait)
                if process() != self._process:
                    continue
                if self._aborted.is_set():
                    if isinstance(answer, Grant):
                        self._made(answer, sent).forgo()
                    raise UnavailableError(f"the {self._what} was given up")
                if isinstance(answer, Grant):
                    got = self._hold(answer, sent)
                    if got is not None:
                        return got.hand(self._terms.on_stop)
                    self._pause(0.0, UnavailableError("the grant was lost before a heartbeat"))
                elif isinstance(answer, Problem) and answer.kind == "held":
                    self._failures = self._wrong = 0
                    self._wait_for(answer.held(self._terms.name))
                    if time.monotonic() - began < wait / 2:
                        self._pause(0.0, None)  # it had no patience; we have not to hurry
                    else:
                        self._backoff = Backoff()
                elif isinstance(answer, Problem) and answer.kind == "bad-request" and body.pop("clock", None):
                    pass  # a server that is older grants nothing, and without it for any clock
                elif isinstance(answer, Problem) and answer.kind not in _AGAIN:
                    kind = NoSessionsError if answer.kind == "no-sessions" else ProblemError
                    raise kind(answer.kind, answer.status, answer.detail)
                else:
                    least = answer.retry_after if isinstance(answer, Problem) else 0.0
                    error = UnavailableError(f"no answer: {describe(answer)}")
                    self._fails(answer, error)
                    self._pause(least, error)
                wait = self._left()
        finally:
            self._caller.close()

    def _ask(self, body: dict[str, Any], wait: float) -> Answer:
        """Makes one call. It is a stream if the caller wants to know the holders; the call after an
        unanswered one is not, and after several failed streams no call is."""
        began = time.monotonic()
        wants = self._terms.waiting is not None and wait > 0
        streams = wants and self._answered and self._failed_streams < _STREAMS
        limit = wait + _MARGIN
        if streams:
            answer = settle(self._caller, self._follow(self._path, body, limit))
        else:
            answer = exchange(self._caller, self._path, body, limit, self._read)
        self._answered = not isinstance(answer, Unknown)
        self._hear(answer, began)
        if streams:
            self._failed_streams = 0 if self._answered else self._failed_streams + 1
        return answer

    def _fails(self, answer: Answer, error: UnavailableError) -> None:
        """Counts an unanswered call; raises the error if no call will be answered."""
        self._failures += 1
        lasts = isinstance(answer, Unknown) and answer.permanent
        self._wrong = self._wrong + 1 if lasts else 0
        if self._wrong >= self._client.tries():
            raise error

    def _hear(self, answer: Answer, began: float) -> None:
        """Warns once if no server answers for some time."""
        if not isinstance(answer, Unknown):
            if self._warned:
                _log.warning("%s: the service answers again", self._title)
            self._silent, self._warned = None, False
            return
        self._silent = began if self._silent is None else self._silent
        silence = time.monotonic() - self._silent
        if silence >= _SILENCE and not self._warned:
            self._warned = True
            _log.warning(
                "%s: no answer for %.0f s: %s; trying again", self._title, silence, answer.why
            )

    def _follow(self, path: str, body: dict[str, Any], limit: float) -> Answer:
        """Makes one call, and tells who is waited for as the server says it."""
        with closing(self._caller.stream(path, body, limit)) as events:
            while True:
                try:
                    said = next(events)
                except OSError as error:
                    return no_answer(error)
                if isinstance(said, Reply):
                    return self._read(said)
                self._met(held_by(self._terms.name, said))

    def _left(self) -> float:
        """Returns how long the acquire may still wait, in seconds."""
        return _LONGEST_WAIT if self._until is None else max(0.0, self._until - time.monotonic())

    def _wait_for(self, held: HeldError) -> None:
        if self._left() == 0:
            raise held
        self._met(held)

    def _met(self, held: HeldError) -> None:
        """Reports a holder, once."""
        new = self._held is None or (self._held.holder, self._held.token) != (held.holder, held.token)
        self._held = held
        if new and self._terms.waiting is not None:
            self._terms.waiting(held)

    def _pause(self, least: float, error: TenureError | None) -> None:
        """Waits before the next call; raises the error if there is no time for one."""
        self._tries -= 1
        if self._left() == 0:
            if self._tries > 0 and error is not None:
                return  # another server may know better
            if error is not None and self._failures >= self._client.tries():
                raise error  # the present holder is not known
            raise self._held or error or UnavailableError("no answer")
        pause = max(self._backoff.next(), min(least, _LONGEST_WAIT) * random.uniform(1.0, 1.2))
        self._aborted.wait(min(pause, self._left()))

    def _hold(self, grant: Grant, sent: int) -> Got | None:
        """Returns what was granted once it is held; None if it was lost before."""
        got = self._starting = self._made(grant, sent)
        try:
            held = not self._aborted.is_set() and got.start(sent) and self._ready(grant, got)
        except BaseException:
            got.forgo()
            raise
        self._starting = None
        if held and not self._aborted.is_set():
            return got
        got.forgo()
        return None

    # What differs between a lock and a session:

    _what = "acquire"

    def _body(self) -> dict[str, Any]:
        """Returns what each call says."""
        raise NotImplementedError

    def _read(self, reply: Reply) -> Answer:
        raise NotImplementedError

    def _made(self, grant: Grant, sent: int) -> Got:
        """Returns what was granted to a call that was sent after that instant."""
        raise NotImplementedError

    def _ready(self, grant: Grant, got: Got) -> bool:
        """Says whether the caller may have what is held, perhaps after more calls."""
        return True


class Acquiring(Asking[Lock]):
    """An acquire under way, of a lock or of one under a session."""

    def __init__(self, client: Client, terms: Terms, session: Session | None = None, attach: bool = True) -> None:
        super().__init__(client, terms, f'acquire "{terms.name}"')
        self._session = session
        self._attach = attach

    def run(self) -> Lock:
        if self._session is None:
            return super().run()
        try:
            self._session.begins(self)
            return super().run()
        except UnavailableError:
            self._session.check()  # that it is over says more
            raise
        finally:
            self._session.ends(self)

    def _body(self) -> dict[str, Any]:
        return self._terms.body()

    def _ask(self, body: dict[str, Any], wait: float) -> Answer:
        return super()._ask({**body, "wait_ms": int(wait * 1000)}, wait)

    def _read(self, reply: Reply) -> Answer:
        return read_acquire(reply, self._terms.name, self._terms.asks)

    def _made(self, grant: Grant, sent: int) -> Lock:
        stop = self._terms.stop_timeout
        timeout = grant.lease if stop is None else int(stop * SECOND)
        if self._session is not None:
            return self._session.lock(grant, timeout, self._attach)
        return Lock(grant, timeout, self._clock, self._client.caller(), self._client.caller())

    def _ready(self, grant: Grant, got: Lock) -> bool:
        """Waits, with the gate held, until the readers have left that were there."""
        if not grant.drains:
            return True
        while not got.stopping.is_set() and not self._aborted.is_set():
            wait = min(_LONGEST_WAIT, self._left(), grant.lease / 3 / SECOND)  # so that a request is seen soon
            body = {"name": got.name, "token": got.token, "wait_ms": int(wait * 1000)}
            began = time.monotonic()
            answer = exchange(self._caller, "/v1/drain", body, wait + _MARGIN, read_release)
            self._hear(answer, began)
            if isinstance(answer, Done):
                break
            if isinstance(answer, Problem) and answer.kind == "lost":
                return False
            if isinstance(answer, Problem) and answer.kind == "held":
                self._failures = self._wrong = 0
                self._wait_for(answer.held(self._terms.name))
                if time.monotonic() - began < wait / 2:
                    self._pause(0.0, None)
            elif isinstance(answer, Problem) and answer.kind not in _AGAIN and answer.status not in _HOLDS_ON:
                raise ProblemError(answer.kind, answer.status, answer.detail)
            else:
                error = UnavailableError(f"no answer: {describe(answer)}")
                self._fails(answer, error)
                self._pause(answer.retry_after if isinstance(answer, Problem) else 0.0, error)
        return got.holds() and not got.stopping.is_set()


class Opening(Asking[Session]):
    """The opening of a session under way."""

    _path, _what = "/v1/sessions/open", "opening"

    def __init__(self, client: Client, terms: Terms) -> None:
        super().__init__(client, terms, "open a session")
        self._owner = ""

    def _body(self) -> dict[str, Any]:
        body = self._terms.holder()
        self._owner = body["owner"]
        return body

    def _read(self, reply: Reply) -> Answer:
        return read_opening(reply)

    def _made(self, grant: Grant, sent: int) -> Session:
        return Session(self._client, grant, sent, self._owner, self._terms.stop_timeout)
