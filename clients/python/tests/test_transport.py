# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Calls over real sockets, to servers that behave well and badly."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
import time
import unittest
from collections.abc import Callable

from tenurelock import Client, ExpiredError, UnavailableError
from tenurelock.answers import Reply
from tenurelock.events import Waited
from tenurelock.transport import Caller, Credentials, HTTPCaller, addresses

from .fake import SOON, Server, Service, dropped

GRANT = b'event: granted\ndata: {"token": 8}\n\n'
OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Script:
    """A server that answers each connection by a function of its own."""

    def __init__(self, *answers: Callable[[socket.socket], None], unix: str = "") -> None:
        self.requests: list[bytes] = []
        self._answers = list(answers)
        if unix:
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(unix)
            self._listening.listen()
            self.url = f"unix:{unix}"
        else:
            self._listening = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        for answer in self._answers:
            connected, _ = self._listening.accept()
            with connected:
                self.requests.append(request(connected))
                answer(connected)
        self._listening.close()


def request(connected: socket.socket) -> bytes:
    """Reads a whole request."""
    got = b""
    while True:
        head, end, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        if end and length is not None and len(body) >= int(length[1]):
            return got
        got += connected.recv(65536)


def sends(content: bytes) -> Callable[[socket.socket], None]:
    return lambda connected: connected.sendall(content)


def dribbles(connected: socket.socket) -> None:
    try:
        for byte in OK * 1000:
            connected.sendall(bytes([byte]))
            time.sleep(0.05)
    except OSError:
        pass


class Transport(unittest.TestCase):
    def caller(self, server: Script) -> HTTPCaller:
        made = HTTPCaller(addresses(server.url), Credentials("secret", None), None)
        self.addCleanup(made.close)
        return made

    def test_a_call(self) -> None:
        server = Script(sends(OK))
        reply = self.caller(server).call("/v1/release", {"name": "ü"}, SOON)
        self.assertEqual((reply.status, reply.content_type, reply.body), (200, "application/json", b"{}"))
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"POST /v1/release HTTP/1.1\r\n"))
        for line in (b"Authorization: Bearer secret", b"Content-Type: application/json", b"Host: 127.0.0.1:"):
            self.assertIn(line, head)
        self.assertEqual(json.loads(body), {"name": "ü"})

    def test_unix(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            server = Script(sends(OK), unix=os.path.join(folder, "s"))
            self.assertEqual(self.caller(server).call("/v1/release", {}, SOON).status, 200)
            self.assertIn(b"Host: localhost\r\n", server.requests[0])

    def test_the_limit_holds_for_the_whole_answer(self) -> None:
        server = Script(dribbles)
        began = time.monotonic()
        with self.assertRaisesRegex(OSError, f"^{server.url}: timed out$"):
            self.caller(server).call("/v1/release", {}, 0.3)
        self.assertLess(time.monotonic() - began, SOON)

    def test_a_port_that_wants_tls(self) -> None:
        says = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
        server = Script(sends(says), sends(says))
        with self.assertRaisesRegex(UnavailableError, f"{server.url}: use https; .*HTTPS server"):
            Client(server.url).acquire("x")

    def test_a_port_without_tls(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"

        def refuse() -> None:
            connected, _ = listening.accept()
            with connected:
                connected.recv(65536)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        with self.assertRaisesRegex(UnavailableError, f"{url}: .*SSL"):
            Client(url).acquire("x", wait=SOON)

    def test_cut_answers_are_no_answers(self) -> None:
        for content in (b"", b"HTTP/1.1 200 OK\r\n", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"):
            with self.subTest(content), self.assertRaises(OSError):
                self.caller(Script(sends(content))).call("/v1/release", {}, SOON)

    def test_a_connection_that_is_not_kept_is_read_to_its_end(self) -> None:
        def slowly(connected: socket.socket) -> None:
            connected.sendall(OK[:-2].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            time.sleep(0.1)
            connected.sendall(OK[-2:])

        calls = self.caller(Script(slowly, sends(OK)))
        for _ in range(2):
            self.assertEqual(calls.call("/v1/release", {}, SOON).body, b"{}")

    def test_a_kept_connection_that_was_closed_is_opened_again(self) -> None:
        server = Script(sends(OK), sends(OK))
        calls = self.caller(server)
        for _ in range(2):
            self.assertEqual(calls.call("/v1/release", {}, SOON).status, 200)
        self.assertEqual(len(server.requests), 2)

    def stream(self, server: Script, calls: HTTPCaller | None = None) -> list[Waited | Reply]:
        return list((calls or self.caller(server)).stream("/v1/acquire", {}, SOON))

    def test_a_stream_is_told_as_it_comes(self) -> None:
        told = threading.Event()

        def waits(connected: socket.socket) -> None:
            connected.sendall(STREAM + b'event: waiting\ndata: {"holder": "a"}\n\n')
            if told.wait(SOON):
                connected.sendall(GRANT)
            connected.recv(1)  # it does not end the stream, as a proxy may do

        server = Script(waits)
        events = self.caller(server).stream("/v1/acquire", {}, SOON)
        self.assertEqual(next(events), {"holder": "a"})
        told.set()
        self.assertEqual(list(events), [Reply(200, "application/json", b'{"token": 8}')])
        self.assertIn(b"\r\nAccept: text/event-stream, application/json,", server.requests[0])

    def test_a_stream_in_chunks_on_a_connection_that_is_kept(self) -> None:
        chunks = STREAM.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunks += b"%x\r\n%s\r\n0\r\n\r\n" % (len(GRANT), GRANT)
        server = Script(sends(chunks), sends(OK))
        calls = self.caller(server)
        self.assertEqual(self.stream(server, calls), [Reply(200, "application/json", b'{"token": 8}')])
        self.assertEqual(calls.call("/v1/release", {}, SOON).body, b"{}")

    def test_a_server_that_does_not_stream(self) -> None:
        self.assertEqual(self.stream(Script(sends(OK))), [Reply(200, "application/json", b"{}")])

    def test_cut_streams_are_no_answers(self) -> None:
        for content in (STREAM, STREAM + GRANT[:-1], STREAM + b"event: waiting\ndata: {\n\n" + GRANT):
            with self.subTest(content), self.assertRaises(OSError):
                self.stream(Script(sends(content)))

    def test_abort(self) -> None:
        came = threading.Event()

        def silent(connected: socket.socket) -> None:
            came.set()
            connected.recv(1)

        calls = self.caller(Script(silent))

        def abort() -> None:
            came.wait(SOON)
            calls.abort()

        threading.Thread(target=abort, daemon=True).start()
        began = time.monotonic()
        with self.assertRaises(OSError):
            calls.call("/v1/acquire", {}, 4 * SOON)
        self.assertLess(time.monotonic() - began, 2 * SOON)
        with self.assertRaises(OSError):
            calls.call("/v1/acquire", {}, SOON)

    def test_token_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "token")
            with open(file, "w") as opened:
                opened.write("first\n")
            credentials = Credentials(None, file)
            self.assertEqual(credentials.header(), {"Authorization": "Bearer first"})
            with open(file, "w") as opened:
                opened.write("second\n")
            self.assertEqual(credentials.header(), {"Authorization": "Bearer second"})
            os.remove(file)
            self.assertEqual(credentials.header(), {"Authorization": "Bearer second"})


class Servers(unittest.TestCase):
    """Whole locks over HTTP."""

    def test_one_of_two_servers_is_down(self) -> None:
        service = Service(heartbeat_ms=10)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            down = f"http://127.0.0.1:{closed.getsockname()[1]}"
        client = Client([down, Server(service, self).url], token="t")
        with client.acquire("n", wait=SOON) as lock:
            while len(service.bodies("/v1/heartbeat")) < 5:
                lock.check()
                time.sleep(0.01)
        self.assertIsNone(service.holder)

    def test_all_servers_go(self) -> None:
        service = Service(heartbeat_ms=10, usable_ms=300)
        client = Client(Server(service, self).url, token="t")
        lock = client.acquire("n", wait=SOON)
        service.always["/v1/heartbeat"] = dropped
        self.assertTrue(lock.over.wait(SOON))
        with self.assertRaises(ExpiredError):
            lock.check()
        with self.assertRaises(ExpiredError):
            lock.release()


_: type[Caller] = HTTPCaller

if __name__ == "__main__":
    unittest.main()
