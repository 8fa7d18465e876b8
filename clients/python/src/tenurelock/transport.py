# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""HTTP calls to one server of a list, each with a limit for the whole of it."""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from .answers import Reply
from .events import EVENT_STREAM, Events, Waited, is_stream

__all__ = ["Address", "Backoff", "CallError", "Caller", "Credentials", "HTTPCaller", "addresses"]

Result = TypeVar("Result")

_LONGEST_ANSWER = 4 << 20
_PIECE = 64 << 10
_OURS = "application/json, application/problem+json"


class CallError(OSError):
    """A call that a server did not answer. ``permanent``: it answers no call until its address or a
    certificate is fixed."""

    def __init__(self, text: str, permanent: bool) -> None:
        super().__init__(text)
        self.permanent = permanent


class Caller(Protocol):
    """Sends calls, one at a time. A failed call moves to the next server."""

    def call(self, path: str, body: dict[str, Any], limit: float) -> Reply:
        """Sends the call and returns its answer within limit seconds, else raises OSError."""

    def stream(
        self, path: str, body: dict[str, Any], limit: float
    ) -> Generator[Waited | Reply, None, None]:
        """Sends the call, and yields who is waited for as the server says it, and at last the
        answer. Raises OSError if that does not come within limit seconds. A server that does not
        stream has only the answer."""

    def move(self) -> None:
        """Has the next call go to another server."""

    def abort(self) -> None:
        """Ends the call that is under way, and every later one. May be called concurrently."""

    def close(self) -> None:
        """Ends the connection. A later call opens another one."""


@dataclass(frozen=True)
class Address:
    """A server: a URL, or a unix socket."""

    scheme: str
    host: str
    port: int | None
    path: str  # before /v1, or of the socket

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.scheme == "unix" else f"{self.scheme}://{_host(self)}{self.path}"


def addresses(servers: str | Sequence[str]) -> list[Address]:
    """Reads the addresses: ``http://HOST:PORT``, ``https://HOST`` or ``unix:/PATH``."""
    listed = [servers] if isinstance(servers, str) else list(servers)
    if not listed:
        raise ValueError("no server: give at least one address, such as http://127.0.0.1:8368")
    return [_address(text) for text in listed]


def _address(text: str) -> Address:
    url = urlsplit(text)
    if url.scheme == "unix" and url.path.startswith("/") and not url.netloc:
        return Address("unix", "localhost", None, url.path)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
        raise ValueError(
            f"server {text!r}: want http://HOST:PORT, https://HOST:PORT or unix:/PATH"
        )
    return Address(url.scheme, url.hostname, url.port, url.path.rstrip("/"))


class Credentials:
    """The bearer token: a text, or a file that is read again for each call.

    A file that cannot be read leaves the token as it was. May be called concurrently.
    """

    def __init__(self, token: str | None, file: str | None) -> None:
        if token is not None and file is not None:
            raise ValueError("token and token_file: give one of them")
        self._token = self._fit(token, "token") if token is not None else ""
        self._file = file
        if file is not None:
            self._token = self._read(file)

    def header(self) -> dict[str, str]:
        """Returns what a call shows; nothing without a token, as with a client certificate."""
        if self._file is not None:
            try:
                self._token = self._read(self._file)
            except (OSError, ValueError):
                pass  # it may be written just now
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _read(self, file: str) -> str:
        with open(file, encoding="utf-8") as opened:
            return self._fit(opened.read().strip(), file)

    @staticmethod
    def _fit(token: str, where: str) -> str:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(f"{where}: a token is one word of printable ASCII")
        return token


class Backoff:
    """Growing pauses with jitter, from 50 ms to a second."""

    def __init__(self) -> None:
        self._pause = 0.05

    def next(self) -> float:
        """Returns the next pause, in seconds."""
        pause, self._pause = self._pause, min(1.0, self._pause * 2)
        return pause * random.uniform(0.5, 1.0)


class HTTPCaller:
    """A :class:`Caller` over ``http.client``, with one connection that is kept.

    In a process that was forked it is aborted: the connection is the parent's, who would miss an
    answer that is read there.
    """

    def __init__(
        self, servers: list[Address], credentials: Credentials, tls: ssl.SSLContext | None
    ) -> None:
        self._servers = servers
        self._credentials = credentials
        self._tls = tls
        self._at = random.randrange(len(servers))
        self._wire: _Wire | None = None
        self._mutex = threading.Lock()  # guards what follows
        self._aborted = False
        self._socket: socket.socket | None = None
        _callers.add(self)

    def call(self, path: str, body: dict[str, Any], limit: float) -> Reply:
        return self._send(path, body, limit, _OURS, self._whole)

    def stream(
        self, path: str, body: dict[str, Any], limit: float
    ) -> Generator[Waited | Reply, None, None]:
        accept = f"{EVENT_STREAM}, {_OURS}"
        response = self._send(path, body, limit, accept, lambda response: response)
        try:
            if response.status != 200 or not is_stream(response.getheader("Content-Type", "")):
                yield self._whole(response)
                return
            events = Events()
            while piece := response.read1(_PIECE):
                for said in events.feed(piece):
                    yield said
                    if isinstance(said, Reply):
                        return
            raise OSError("the stream ended before an answer")
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(error) from error
        finally:
            if not response.isclosed():
                self.close()

    def _send(
        self,
        path: str,
        body: dict[str, Any],
        limit: float,
        accept: str,
        read: Callable[[http.client.HTTPResponse], Result],
    ) -> Result:
        """Sends the call and reads its answer, on the connection that is kept or on a new one."""
        until = time.monotonic() + limit
        kept = self._wire is not None
        try:
            return read(self._respond(path, body, until, accept))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept or isinstance(error, TimeoutError) or self._aborted:
                raise self._failed(error) from error
        # A server closes connections that were idle: the same call on a new one.
        try:
            return read(self._respond(path, body, until, accept))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CallError:
        if isinstance(error, CallError):
            return error
        text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        return CallError(
            f"{self._servers[self._at]}: {text or type(error).__name__}", _permanent(error)
        )

    def move(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._servers)

    def abort(self) -> None:
        with self._mutex:
            self._aborted = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is closed already

    def forked(self) -> None:
        """Aborts the copy that a fork has made."""
        self._mutex = threading.Lock()  # a thread that is not here may have had the other
        self._aborted = True
        copied, self._socket, self._wire = self._socket, None, None
        if copied is not None:
            try:
                os.close(copied.detach())  # shut down it would end in the parent, too
            except OSError:
                pass  # it was closed already

    def close(self) -> None:
        with self._mutex:
            self._socket = None
        if self._wire is not None:
            self._wire.end()
            self._wire = None

    def _respond(
        self, path: str, body: dict[str, Any], until: float, accept: str
    ) -> http.client.HTTPResponse:
        """Sends the call once, and returns when its answer begins."""
        server = self._servers[self._at]
        wire = self._wire or self._connect(server, until)
        wire.until = until
        connection = http.client.HTTPConnection(server.host, server.port)
        # http.client wants no more of it than sendall, makefile and close.
        connection.sock = wire
        if server.scheme != "unix":
            path = server.path + path
        headers = {
            "Host": _host(server),
            "Content-Type": "application/json",
            "Accept": accept,
            **self._credentials.header(),
        }
        connection.request("POST", path, json.dumps(body).encode(), headers)
        return connection.getresponse()

    def _whole(self, response: http.client.HTTPResponse) -> Reply:
        cut = response.length is None and not response.chunked
        if cut and response.status != 400:
            raise OSError("the answer has no length, so it may be cut off")
        content = response.read(_LONGEST_ANSWER)
        if response.status == 400 and b"HTTPS" in content[:1000]:
            said = content[:100].decode(errors="replace").strip()
            raise CallError(f"{self._servers[self._at]}: use https; the server says: {said}", True)
        if cut:
            raise OSError(f"status 400 in plain text: {content[:100].decode(errors='replace').strip()}")
        if not response.isclosed() or response.will_close:
            self.close()
        return Reply(
            response.status,
            response.getheader("Content-Type", ""),
            content,
            response.getheader("Retry-After", ""),
        )

    def _connect(self, server: Address, until: float) -> _Wire:
        limit = max(until - time.monotonic(), 0.001)
        if server.scheme == "unix":
            connected = socket.socket(socket.AF_UNIX)
            connected.settimeout(limit)
            connected.connect(server.path)
        else:
            port = server.port or (443 if server.scheme == "https" else 80)
            connected = socket.create_connection((server.host, port), limit)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._mutex:
            if self._aborted:
                connected.close()
                raise ConnectionAbortedError("aborted")
            self._socket = connected
        if server.scheme == "https":
            context = self._tls or ssl.create_default_context()
            connected.settimeout(max(until - time.monotonic(), 0.001))
            connected = context.wrap_socket(connected, server_hostname=server.host)
            with self._mutex:
                self._socket = connected
        self._wire = _Wire(connected)
        return self._wire


_callers: weakref.WeakSet[HTTPCaller] = weakref.WeakSet()


def _forked() -> None:
    for caller in tuple(_callers):
        caller.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _host(server: Address) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}" if server.port else host


# How OpenSSL calls an answer without TLS.
_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}


def _permanent(error: Exception) -> bool:
    """Says whether a certificate is refused, here or there, or the port speaks no TLS."""
    if not isinstance(error, ssl.SSLError):
        return False
    reason = error.reason or ""
    return "CERTIFICATE" in reason or "UNKNOWN_CA" in reason or reason in _NO_TLS


class _Wire:
    """A socket whose every step ends at one instant, however slowly bytes come."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.until = 0.0  # of time.monotonic

    def _limit(self) -> None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)

    def sendall(self, content: bytes) -> None:
        self._limit()
        self._socket.sendall(content)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._socket, self._limit))

    def close(self) -> None:
        """Does nothing: http.client closes a connection that is not kept before its answer is read."""

    def end(self) -> None:
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, connected: socket.socket, limit: Any) -> None:
        self._socket = connected
        self._limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._limit()
        return self._socket.recv_into(into)
