# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The client for threads."""

from __future__ import annotations

import base64
import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar

from .answers import Answer, Problem, Reply, Unknown, held_by, read_acquire
from .clock import SECOND, Clock, Raw, system_clock
from .errors import HeldError, ProblemError, TenureError, UnavailableError
from .lease import Grant, random_part
from .lock import Lock, OnStop, describe, exchange, no_answer, settle
from .process import Latch, process
from .transport import Backoff, Caller, Credentials, HTTPCaller, addresses

__all__ = ["Client", "Waiting"]

Result = TypeVar("Result")

Waiting = Callable[[HeldError], None]
"""Is called with each new holder that an acquire waits for, as soon as the service sees it.

While it runs nothing of the acquire goes on: a grant that comes meanwhile is freed after a third of
a lease, and the acquire waits again. What it raises ends the acquire."""

_LONGEST_WAIT = 20.0  # of one call, in seconds: the server's limit
_MARGIN = 10.0  # how long an answer may take beyond the wait, in seconds
_STREAMS = 2  # that may fail in a row, before the acquire asks for none any more

_SILENCE = 15.0  # without an answer, in seconds, before the log says so

_log = logging.getLogger("tenurelock")

# The service has not done what was asked, but a retry may succeed.
_AGAIN = {"unknown", "unavailable", "limited", "unanswered", "lost"}


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
    ) -> Lock:
        """Acquires the lock and returns it held.

        ``wait`` is for how many seconds to wait for it: None without an end, 0 only tries.
        ``owner`` is the name that people see; by default host, process id and a random part.
        ``label`` is shown beside it. ``data`` is put into the record. ``stop_timeout`` is for how
        many seconds the work may go on after a request to stop; by default the lease duration.
        ``on_stop`` is called when the work must stop; ``waiting`` with each holder waited for, as
        soon as the service sees it: see :data:`Waiting`.

        Raises :class:`HeldError` if another holder has it until the wait is over,
        :class:`UnavailableError` if no server answered, :class:`ProblemError` if the call was
        refused, for example for lack of rights. A server whose certificate is refused, or that speaks
        another protocol, answers no later call either: if all are such, :class:`UnavailableError` is
        raised at once. After 15 s without an answer the logger ``tenurelock`` warns, once.
        """
        acquiring = Acquiring(
            self, Terms(name, owner, wait, label, data, stop_timeout, on_stop, waiting)
        )
        try:
            return acquiring.run()
        except BaseException:
            acquiring.abort()
            raise

    def run(self, name: str, work: Callable[[Lock], Result], **options: Any) -> Result:
        """Acquires the lock, calls ``work(lock)``, releases the lock, and returns what work did.

        ``options`` are those of :meth:`acquire`. Raises :class:`LostError` if the lock was lost
        before the work was done.
        """
        with self.acquire(name, **options) as lock:
            return work(lock)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Client cannot be pickled: it has a token. Make one in the other process")

    def caller(self) -> Caller:
        """Returns a caller with a connection of its own. For this package and its tests."""
        return HTTPCaller(self._servers, self._credentials, self._tls)

    def tries(self) -> int:
        """Returns how many calls ask each server once."""
        return len(self._servers)


def check_text(what: str, text: str) -> None:
    """Refuses half of a surrogate pair, as JSON and os.fsdecode can make it: it is no character."""
    for at, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise ValueError(f"{what} has U+{ord(character):04X} at {at}, half of a character: want Unicode text")


@dataclass(frozen=True)
class Terms:
    """What an acquire was asked for."""

    name: str
    owner: str | None
    wait: float | None
    label: str
    data: bytes | None
    stop_timeout: float | None
    on_stop: OnStop | None
    waiting: Waiting | None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("the lock's name is empty")
        check_text("the lock's name", self.name)
        check_text("owner", self.owner or "")
        check_text("label", self.label)
        if self.wait is not None and not self.wait >= 0:
            raise ValueError(f"wait is {self.wait}: want seconds, 0 to try, or None for no end")
        if self.stop_timeout is not None and not self.stop_timeout > 0:
            raise ValueError(f"stop_timeout is {self.stop_timeout}: want more than 0 seconds")

    def body(self) -> dict[str, Any]:
        """Returns what each call of the acquire says."""
        host = socket.gethostname()
        owner = self.owner or f"{host}-{os.getpid()}-{random_part()[:6].lower()}"
        body: dict[str, Any] = {"name": self.name, "owner": owner, "host": host}
        if self.label:
            body["label"] = self.label
        if self.data is not None:
            body["data"] = base64.b64encode(self.data).decode()
        return body


class Acquiring:
    """An acquire under way. ``abort`` may be called from another thread; a grant that comes later
    is given back."""

    def __init__(self, client: Client, terms: Terms) -> None:
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
        self._starting: Lock | None = None  # its first heartbeat is under way

    def abort(self) -> None:
        """Ends the acquire. In the process that this one was forked from it goes on."""
        if process() != self._process:
            return
        self._aborted.set()
        self._caller.abort()
        starting = self._starting
        if starting is not None:
            starting.abandon()

    def run(self) -> Lock:
        """Returns the lock, or raises what :meth:`Client.acquire` does."""
        body = self._terms.body()
        if isinstance(self._clock, Raw):
            body["clock"] = "raw"  # the lock counts by it, and by no other
        # Without a first try the waiting call would report only the next holder.
        wait = 0.0 if self._terms.waiting is not None else self._left()
        try:
            while True:
                if process() != self._process:
                    raise UnavailableError(
                        f"process {self._process[0]} makes the acquire; this process was forked from it"
                    )
                began = time.monotonic()
                wait = min(wait, _LONGEST_WAIT, self._left())
                sent = self._clock()
                answer = self._ask({**body, "wait_ms": int(wait * 1000)}, wait)
                if process() != self._process:
                    continue
                if self._aborted.is_set():
                    self._discard(answer)
                    raise UnavailableError("the acquire was given up")
                if isinstance(answer, Grant):
                    lock = self._hold(answer, sent)
                    if lock is not None:
                        return lock
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
                    raise ProblemError(answer.kind, answer.status, answer.detail)
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
        path, limit = "/v1/acquire", wait + _MARGIN
        if streams:
            answer = settle(self._caller, self._follow(path, body, limit))
        else:
            answer = exchange(self._caller, path, body, limit, self._read)
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
                _log.warning('acquire "%s": the service answers again', self._terms.name)
            self._silent, self._warned = None, False
            return
        self._silent = began if self._silent is None else self._silent
        silence = time.monotonic() - self._silent
        if silence >= _SILENCE and not self._warned:
            self._warned = True
            _log.warning(
                'acquire "%s": no answer for %.0f s: %s; trying again', self._terms.name, silence, answer.why
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

    def _read(self, reply: Reply) -> Answer:
        return read_acquire(reply, self._terms.name)

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

    def _hold(self, grant: Grant, sent: int) -> Lock | None:
        """Returns the lock of a grant once it is held; None if it was lost before."""
        lock = self._starting = self._lock(grant)
        try:
            held = not self._aborted.is_set() and lock.start(sent)
        except BaseException:
            give_back(lock)
            raise
        self._starting = None
        if held and not self._aborted.is_set():
            return lock
        give_back(lock)
        return None

    def _lock(self, grant: Grant) -> Lock:
        stop = self._terms.stop_timeout
        return Lock(
            grant,
            grant.lease if stop is None else int(stop * SECOND),
            self._clock,
            self._client.caller(),
            self._client.caller(),
            self._terms.on_stop,
        )

    def _discard(self, answer: object) -> None:
        if isinstance(answer, Grant):
            give_back(self._lock(answer))


def give_back(lock: Lock) -> None:
    """Releases a lock that no caller waits for any more."""
    try:
        lock.release()
    except TenureError:
        pass  # it is freed, or expires
