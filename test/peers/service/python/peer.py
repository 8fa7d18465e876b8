# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The Python client of the lock service as a peer: one JSON request a line on standard input,
answers on standard output. The language is that of the Go package peers/wire.

Acquires are made with the client for asyncio, work with the plain one."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Coroutine
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

from tenurelock import AsyncClient, AsyncLock, Client, HeldError, Lock, LostError, Session, TenureError

CHECK_PERIOD = 0.001
ERROR_PAUSE = 0.05
# Work that is to be stopped by a signal asks without a pause, for so long at most, and for so long
# when it goes on: a check is the first thing that it does then.
HURRY_BOUND = 500_000_000
HURRY_AFTER = 20_000_000


class Peer:
    """One client, and the locks that it has."""

    client: AsyncClient
    owner: str
    notice: bool
    servers: dict[str, Any]  # what a client is made with
    session: bool  # work holds locks under one

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._out = threading.Lock()
        self._locks: dict[str, AsyncLock] = {}
        self._waiting: set[Any] = set()
        self._hurry = 0
        # For how long work goes on after it was told to end; None: it was not.
        self.ending: float | None = None

    def say(self, line: dict[str, Any]) -> None:
        """Writes a line. No buffer is between."""
        text = (json.dumps(line) + "\n").encode()
        with self._out:
            os.write(1, text)

    def serve(self) -> None:
        """Answers until the input ends, and leaves as in a crash then."""
        now = time.monotonic_ns()
        ready = {"ok": True, "version": "this checkout", "sentNs": now, "gotNs": now}
        self.say({**ready, "runtime": "Python " + platform.python_version()})
        for line in sys.stdin:
            threading.Thread(target=self._answer, args=(json.loads(line),), daemon=True).start()
        os._exit(0)

    def _answer(self, request: dict[str, Any]) -> None:
        sent = time.monotonic_ns()
        try:
            answer = {"ok": True, **self._run(request)}
        except Exception as error:
            kind = "other"
            if isinstance(error, HeldError):
                kind = "held" if request.get("tryOnly") else "timeout"
            elif isinstance(error, LostError):
                kind = "lost"
            elif isinstance(error, NotImplementedError):
                kind = "unsupported"
            answer = {"ok": False, "kind": kind, "class": type(error).__name__, "message": str(error)}
        answer.update(id=request["id"], sentNs=sent, gotNs=time.monotonic_ns())
        self.say(answer)

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["cmd"]:
            case "ping":
                pass
            case "hurry":
                self._hurry = time.monotonic_ns() + HURRY_BOUND
            case "end":
                self.ending = request.get("drainMs", 0) / 1000
            case "open":
                self.servers = {"servers": request["endpoint"].split(","), "token": request["secret"]}
                self.owner = request.get("owner") or str(os.getpid())
                self.notice = bool(request.get("notice"))
                self.session = bool(request.get("session"))
                self.client = AsyncClient(**self.servers)
            case "close":  # the acquires that wait end; there is nothing else to close: a lock is its own
                for acquiring in list(self._waiting):
                    acquiring.cancel()
            case "acquire":
                return self._acquire(request)
            case "release":
                self._begin(self._locks[request["name"]].release()).result()
            case "holds":
                return {"holds": holds(self._locks[request["name"]])}
            case "work":
                return {"counts": Work(self, request).run()}
            case command:
                raise NotImplementedError(command)
        return {}

    def _begin(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _acquire(self, request: dict[str, Any]) -> dict[str, Any]:
        async def acquired() -> AsyncLock:
            return await self.client.acquire(request["name"], owner=self.owner, wait=patience(request), history=True)

        acquiring = self._begin(acquired())
        self._waiting.add(acquiring)
        try:
            lock = self._locks[request["name"]] = acquiring.result()
        finally:
            self._waiting.discard(acquiring)
        return {"name": lock.name, "owner": self.owner, "token": lock.token}

    def hurries(self, last: int, now: int) -> bool:
        """Says whether work that asked at two instants, one after the other, goes on without a pause."""
        if self._hurry and now - last > HURRY_BOUND:
            self._hurry = now + HURRY_AFTER  # it was stopped meanwhile
        return now < self._hurry


class Work:
    """The work command: acquire, hold and release until the time is up, with a log of the holds."""

    def __init__(self, peer: Peer, request: dict[str, Any]) -> None:
        self._peer = peer
        self._client = Client(**peer.servers)
        self._session: Session | None = None
        self._request = request
        self._log = os.open(request["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._counts: dict[str, Any] = {"released": 0, "errors": 0, "lastError": ""}
        self._resource = request.get("resource")
        self._every = request.get("effectMs", 0) * 1_000_000
        self._hesitate = request.get("hesitateMs", 0) / 1000

    def run(self) -> dict[str, Any]:
        deadline = time.monotonic_ns() + self._request["durationMs"] * 1_000_000
        while time.monotonic_ns() < deadline and self._peer.ending is None:
            try:
                self._round()
            except (HeldError, LostError):
                pass  # somebody else has it still, or the session has ended
            except TenureError as error:
                self._counts["errors"] += 1
                self._counts["lastError"] = f"{type(error).__name__}: {error}"
                time.sleep(ERROR_PAUSE)
            time.sleep(self._request.get("pauseMs", 0) / 1000)
        os.close(self._log)
        return self._counts

    def _round(self) -> None:
        lock = self._acquire()
        begin = time.monotonic_ns()
        if not holds(lock):
            return  # it came too late to be claimed for a single instant
        self.write("begin", begin, f" {lock.fence_token} {self._fenced(lock)}")
        drain = self.hold(lock, begin)
        if drain is not None:
            time.sleep(drain)
            self.write("end", time.monotonic_ns())
        try:
            lock.release()
            self._counts["released"] += 1
        except LostError:
            pass  # it is over, as the log says

    def _acquire(self) -> Lock:
        options: dict[str, Any] = {"wait": patience(self._request), "history": True}
        if self._peer.notice:
            options["on_stop"] = self._told
        if self._peer.session:
            if self._session is None or self._session.over.is_set():
                self._session = self._client.session(owner=self._peer.owner, wait=options["wait"])
        else:
            options["owner"] = self._peer.owner
        by, name = self._session or self._client, self._request["name"]
        match self._request.get("mode"):
            case "read":
                return by.rwlock(name).read(**options)
            case "write":
                return by.rwlock(name).write(**options)
            case "slot":
                return by.semaphore(name, self._request["slots"]).acquire(**options)
        return by.acquire(name, **options)

    def _fenced(self, lock: Lock) -> str:
        """Returns the name under which the resource compares the token."""
        return lock.name if lock.slot is not None else self._request["name"]

    def hold(self, lock: Lock, begin: int) -> float | None:
        """Works under the lock. Returns how long the work goes on if it was told to end."""
        last, effect, no = begin, begin, 0
        drain = None
        until = begin + self._request["holdMs"] * 1_000_000
        while last < until and not lock.stopping.is_set() and drain is None:
            # The instant first, then the check: what is logged was not expired.
            now = time.monotonic_ns()
            if not holds(lock):
                no = time.monotonic_ns()
                break
            before, last = last, now
            if self._resource is not None and now >= effect:
                time.sleep(self._hesitate)
                self.effect(lock, now)
                effect = now + self._every
            if self._peer.hurries(before, now):
                continue
            drain = self._peer.ending
            time.sleep(CHECK_PERIOD)
        if no == 0 and not holds(lock):
            no = time.monotonic_ns()
        if self._peer.notice and no > 0:
            self.write("no", no)
        if drain is None:
            self.write("end", last)
        return drain

    def effect(self, lock: Lock, checked: int) -> None:
        """Writes to the resource, which notes it with the instant before the check that allowed it."""
        headers = {
            "Tenure-Lock": self._fenced(lock),
            "Tenure-Token": str(lock.fence_token),
            "Effect": json.dumps({"owner": self._peer.owner, "checked": checked}),
        }
        try:
            with urlopen(Request(f"{self._resource}/effect", b"", headers), timeout=2) as answer:
                answer.read()
        except (OSError, HTTPException):
            pass  # it was noted, or it was not: the resource's log says so

    def _told(self, reason: TenureError) -> None:
        if isinstance(reason, LostError):
            self.write("notice", time.monotonic_ns())

    def write(self, what: str, ns: int, more: str = "") -> None:
        os.write(self._log, f"{what} {self._peer.owner} {ns}{more}\n".encode())


def holds(lock: Lock | AsyncLock) -> bool:
    try:
        lock.check()
    except TenureError:
        return False
    return True


def patience(request: dict[str, Any]) -> float | None:
    """Returns for how long an acquire waits."""
    if request.get("tryOnly"):
        return 0.0
    return request["waitMs"] / 1000 if "waitMs" in request else None


if __name__ == "__main__":
    Peer().serve()
