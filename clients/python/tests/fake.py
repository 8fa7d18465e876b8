# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A small lock service in memory, with faults, and a clock that tests move."""

from __future__ import annotations

import http.server
import json
import os
import select
import signal
import socketserver
import threading
import time
import traceback
import unittest
import warnings
from collections.abc import Callable, Generator
from typing import Any

from tenurelock.answers import Reply
from tenurelock.client import Client
from tenurelock.clock import MILLISECOND
from tenurelock.events import Waited
from tenurelock.transport import Caller

SOON = 30.0
"""How long a test waits for what comes within a second or two."""


def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds."""
    limit = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError("it never came")
        time.sleep(0.005)


class ManualClock:
    """A clock that tests move, in milliseconds."""

    def __init__(self) -> None:
        self._now = 0

    def __call__(self) -> int:
        return self._now

    def advance(self, ms: int) -> None:
        self._now += ms * MILLISECOND


Fault = Callable[["Service", str, dict[str, Any]], Reply]
"""Answers one call in place of the service, or raises OSError."""


def lost(service: Service, path: str, body: dict[str, Any]) -> Reply:
    """Carries the call out, and loses the answer."""
    service.carry_out(path, body)
    raise ConnectionResetError("the answer was lost")


def dropped(service: Service, path: str, body: dict[str, Any]) -> Reply:
    """Loses the call."""
    raise ConnectionRefusedError("the call was lost")


def bad_gateway(service: Service, path: str, body: dict[str, Any]) -> Reply:
    """Carries the call out; a proxy answers 502 in HTML."""
    service.carry_out(path, body)
    return Reply(502, "text/html", b"<h1>502 Bad Gateway</h1>")


def doubled(service: Service, path: str, body: dict[str, Any]) -> Reply:
    """Carries the call out twice, and gives the second answer."""
    service.carry_out(path, body)
    return service.carry_out(path, body)


def problem(kind: str, status: int, **more: Any) -> Reply:
    body = {"type": f"urn:tenure:problem:{kind}", "title": kind, "status": status, "detail": kind}
    return Reply(status, "application/problem+json", json.dumps({**body, **more}).encode())


def answer(body: dict[str, Any]) -> Reply:
    return Reply(200, "application/json", json.dumps(body).encode())


class Service:
    """One lock, as tenured has it. Its leases end only when a test says so."""

    def __init__(self, *, lease_ms: int = 15000, heartbeat_ms: int = 3000, usable_ms: int = 12000) -> None:
        self.lease_ms, self.heartbeat_ms, self.usable_ms = lease_ms, heartbeat_ms, usable_ms
        self.counts = False  # its grants may be counted
        self.mutex = threading.RLock()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.faults: dict[str, list[Fault]] = {}  # by path, for the next calls of it
        self.always: dict[str, Fault] = {}  # by path
        self.streams: list[list[Waited | OSError]] = []  # what the next ones say before their answer
        self.streamed: list[dict[str, Any]] = []  # the bodies of calls for a stream
        self.token = 0
        self.holder: str | None = None
        self.beat = ""
        self.data: str | None = None
        self.failed: str | None = None
        self.asked: dict[str, str] | None = None
        self.released_with = ""

    def client(self, clock: ManualClock | None = None, servers: int = 1) -> FakeClient:
        return FakeClient(self, clock, servers)

    def handle(self, path: str, body: dict[str, Any]) -> Reply:
        with self.mutex:
            self.calls.append((path, body))
            faults = self.faults.get(path)
            fault = faults.pop(0) if faults else self.always.get(path)
        return fault(self, path, body) if fault is not None else self.carry_out(path, body)

    def carry_out(self, path: str, body: dict[str, Any]) -> Reply:
        with self.mutex:
            return {"/v1/acquire": self._acquire, "/v1/heartbeat": self._heartbeat, "/v1/release": self._release}[path](body)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        with self.mutex:
            return [body for called, body in self.calls if called == path]

    def take_away(self) -> None:
        """Gives the lock to another holder."""
        with self.mutex:
            self.token += 1
            self.holder, self.beat = "another", "ooooooooooooo-0000000000000"

    def free(self) -> None:
        with self.mutex:
            self.holder = None

    def _acquire(self, body: dict[str, Any]) -> Reply:
        if self.holder is not None:
            return problem("held", 409, holder=self.holder, token=self.token, free_in_ms=500, reserved=False)
        self.token += 1
        self.holder, self.beat = body["owner"], f"t{self.token:012}-0000000000000"
        grant = {
            "name": body["name"],
            "token": self.token,
            "beat": self.beat,
            "lease_ms": self.lease_ms,
            "heartbeat_ms": self.heartbeat_ms,
            "free_after_ms": self.lease_ms // 3,
        }
        if self.counts:
            grant["usable_ms"] = self.usable_ms
        self.data = body.get("data", self.data)
        return answer({**grant, "data": self.data} if self.data is not None else grant)

    def _heartbeat(self, body: dict[str, Any]) -> Reply:
        if self.holder is None or body["token"] != self.token or self.beat not in (body["after"], body["next"]):
            return problem("lost", 410, holder=self.holder or "", token=self.token)
        self.beat = body["next"]
        return answer({"usable_ms": self.usable_ms, "heartbeat_ms": self.heartbeat_ms, "asked": self.asked})

    def _release(self, body: dict[str, Any]) -> Reply:
        again = self.holder is None and body["after"] == self.released_with
        if not again and (self.holder is None or body["token"] != self.token or self.beat != body["after"]):
            return problem("lost", 410)
        self.holder, self.released_with = None, body["after"]
        self.data, self.failed = body.get("data", self.data), body.get("failed")
        return answer({})


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serves a service over HTTP until the test ends."""

    daemon_threads = True

    def __init__(self, service: Service, test: unittest.TestCase) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    reply = service.handle(self.path, body)
                except OSError:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.connections = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()
        test.addCleanup(self.server_close)
        test.addCleanup(self.shutdown)

    def process_request(self, *request: Any) -> None:
        self.connections += 1
        super().process_request(*request)


def fork() -> int:
    """Forks although there are threads: that is what a test is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], object], forks: Callable[[], int] = fork) -> str:
    """Runs the work in a process that is forked from this one, and returns what came of it: the
    text of what it returned, or the type and the text of what it raised."""
    reads, writes = os.pipe()
    child = forks()
    if child == 0:
        says(writes, work)
    os.close(writes)
    return heard(reads, child)


def says(writes: int, work: Callable[[], object]) -> None:
    """Ends this process with the work, and says what came of it."""
    try:
        try:
            text = str(work())
        except BaseException as error:
            text = "".join(traceback.format_exception_only(error)).strip()
        os.write(writes, text.encode())
    finally:
        os._exit(0)


def heard(reads: int, child: int) -> str:
    """Returns what a child says, which must come soon."""
    try:
        if not select.select([reads], [], [], SOON)[0]:
            os.kill(child, signal.SIGKILL)
            raise AssertionError("the child hangs")
        return os.read(reads, 65536).decode()
    finally:
        os.close(reads)
        os.waitpid(child, 0)


class FakeClient(Client):
    """A client whose calls go to a service in memory."""

    def __init__(self, service: Service, clock: ManualClock | None, servers: int) -> None:
        super().__init__(["http://127.0.0.1:1"] * servers, token="t", clock=clock)
        self._service = service
        self.callers: list[FakeCaller] = []

    def caller(self) -> Caller:
        self.callers.append(FakeCaller(self._service))
        return self.callers[-1]


class FakeCaller:
    """Calls a service in memory. A fault may wait until ``aborted`` is set."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.aborted = threading.Event()
        self.moves = 0

    def call(self, path: str, body: dict[str, Any], limit: float) -> Reply:
        if self.aborted.is_set():
            raise ConnectionAbortedError("aborted")
        body = json.loads(json.dumps(body))
        if self._service.always.get(path) is hang:
            self._service.handle(path, body)
            self.aborted.wait(min(limit, SOON))
            raise TimeoutError("timed out")
        return self._service.handle(path, body)

    def stream(
        self, path: str, body: dict[str, Any], limit: float
    ) -> Generator[Waited | Reply, None, None]:
        self._service.streamed.append(body)
        for event in self._service.streams.pop(0) if self._service.streams else []:
            if isinstance(event, OSError):
                raise event
            yield event
        yield self.call(path, body, limit)

    def move(self) -> None:
        self.moves += 1

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        pass


def hang(service: Service, path: str, body: dict[str, Any]) -> Reply:
    """No answer, as long as the caller waits."""
    return Reply(0, "", b"")
