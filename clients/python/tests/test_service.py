# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Against a real service: clients/test starts it, and says in the environment where it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

from tenurelock import (
    AskedError,
    AsyncClient,
    AsyncLock,
    Client,
    HeldError,
    LastWriter,
    Lock,
    LostError,
    ProblemError,
    ReleasedError,
    TenureError,
    UnavailableError,
)
from tenurelock.answers import Reply
from tenurelock.events import Waited
from tenurelock.transport import HTTPCaller

from .fake import in_child

SOON = 60.0
SERVERS = os.environ.get("TENURE_TEST_SERVERS", "")
TOKEN_FILE = os.environ.get("TENURE_TEST_TOKEN_FILE", "")
TENURED = os.environ.get("TENURE_TEST_TENURED", "")
README = Path(__file__).parents[1] / "README.md"


def ask(name: str, kind: str, **more: str) -> None:
    """Makes a request as an operator, and does not wait for its end."""
    server = next(server for server in SERVERS.split(",") if server.startswith("http"))
    body = {"name": name, "kind": kind, "reason": "a test", "wait_ms": 0, **more}
    token = Path(TOKEN_FILE).read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    call = urllib.request.Request(f"{server}/v1/requests", json.dumps(body).encode(), headers)
    try:
        urllib.request.urlopen(call, timeout=SOON).close()
    except urllib.error.HTTPError as error:
        if error.code != 504:  # written, and not answered yet
            raise AssertionError(error.read().decode()) from error


@unittest.skipUnless(SERVERS, "no service: see clients/test")
class RealService(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(SERVERS.split(","), token_file=TOKEN_FILE)
        self.name = f"test/python/{secrets.token_hex(4)}"

    def acquire(self, **options: Any) -> Lock:
        lock = self.client.acquire(self.name, **{"wait": SOON, **options})
        self.addCleanup(self.end, lock)
        return lock

    @staticmethod
    def end(lock: Lock) -> None:
        try:
            lock.release()
        except TenureError:
            pass  # the test was about that

    def until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + SOON
        while not condition():
            self.assertLess(time.monotonic(), limit, "it never came")
            time.sleep(0.01)

    def test_one_at_a_time(self) -> None:
        lock = self.acquire(owner="first")
        with self.assertRaises(HeldError) as raised:
            self.client.acquire(self.name, wait=0)
        self.assertEqual((raised.exception.holder, raised.exception.token), ("first", lock.token))
        lock.release(data=b"next: \xff17")
        after = self.acquire()
        self.assertEqual((after.token, after.data), (lock.token + 1, b"next: \xff17"))

    def test_heartbeats_are_confirmed(self) -> None:
        lock, rises, last = self.acquire(), 0, 0.0

        def risen() -> bool:
            nonlocal rises, last
            lock.check()
            left = lock.remaining()
            rises, last = rises + (left > last), left
            return rises > 3

        self.until(risen)

    def test_waits_for_the_holder(self) -> None:
        lock = self.acquire()
        threading.Timer(0.3, lock.release).start()
        self.assertEqual(self.acquire().token, lock.token + 1)

    def test_tells_whom_it_waits_for(self) -> None:
        first, told = self.acquire(owner="first"), list[tuple[str, int, bool]]()

        def waiting(held: HeldError) -> None:
            told.append((held.holder, held.token, held.reserved))

        got: list[Lock] = []
        says: list[object] = []

        def stream(caller: HTTPCaller, *call: Any) -> Generator[Waited | Reply, None, None]:
            for said in streams(caller, *call):
                says.append(said["holder"] if isinstance(said, dict) else said.status)
                yield said

        streams = HTTPCaller.stream
        with mock.patch.object(HTTPCaller, "stream", stream):
            waiter = threading.Thread(target=lambda: got.append(self.acquire(waiting=waiting)), daemon=True)
            waiter.start()
            self.until(lambda: len(told) == 1)
            ask(self.name, "hand-over", to="second")
            self.assertTrue(first.stopping.wait(SOON))
            first.release()
            second = self.acquire(owner="second")
            self.until(lambda: len(told) == 2)
            second.release()
            waiter.join(SOON)
        self.assertEqual(told, [("first", first.token, False), ("second", second.token, False)])
        self.assertEqual([lock.token for lock in got], [second.token + 1])
        # It was the stream that said so.
        self.assertIn("second", says)
        self.assertEqual(says[-1], 200)

    def test_asked(self) -> None:
        lock = self.acquire()
        ask(self.name, "step-down")
        self.assertTrue(lock.stopping.wait(SOON))
        assert isinstance(lock.reason, AskedError)
        self.assertEqual(lock.reason.kind, "step-down")
        self.assertEqual((lock.reason.by, lock.reason.reason), ("local", "a test"))
        lock.check()
        lock.release()

    def test_revoked(self) -> None:
        lock = self.acquire()
        ask(self.name, "revoke")
        self.assertTrue(lock.over.wait(SOON))
        with self.assertRaises(LostError):
            lock.check()

    @unittest.skipUnless(hasattr(os, "fork"), "nothing forks here")
    def test_a_child_leaves_the_lock_to_its_parent(self) -> None:
        lock, rises, last = self.acquire(), 0, 0.0

        def leaves() -> None:
            with lock:
                pass

        def risen() -> bool:
            nonlocal rises, last
            lock.check()
            left = lock.remaining()
            rises, last = rises + (left > last), left
            return rises > 3

        self.assertRegex(in_child(leaves), rf"LostError: .*: process {os.getpid()} holds it")
        with self.assertRaises(HeldError):
            self.client.acquire(self.name, wait=0)
        self.until(risen)
        lock.release()
        again = in_child(lambda: self.client.run(self.name, lambda lock: lock.token, wait=SOON))
        self.assertEqual(again, str(lock.token + 1))

    def test_a_session(self) -> None:
        names = [f"{self.name}/{part}" for part in "abc"]
        with self.client.session(owner="me") as session:
            lock = session.acquire(names[0], wait=SOON)
            rest = session.acquire_all(names[1:], wait=SOON)
            rises, last = 0, 0.0

            def risen() -> bool:
                nonlocal rises, last
                lock.check()
                rest.check()
                left = lock.remaining()
                rises, last = rises + (left > last), left
                return rises > 3

            self.until(risen)
            for name in names:
                with self.assertRaises(HeldError) as raised:
                    self.client.acquire(name, wait=0)
                self.assertEqual(raised.exception.holder, "me")
            lock.release(data=b"next: 17")
            after = self.client.acquire(names[0], wait=SOON)
            self.assertEqual((after.token, after.data), (lock.token + 1, b"next: 17"))
            after.release()
            session.check()
            rest.check()
        for name, lock in zip(names[1:], rest):
            self.assertRaises(ReleasedError, lock.check)
            with self.client.acquire(name, wait=SOON) as after:
                self.assertEqual(after.token, lock.token + 1)

    def test_all_or_none(self) -> None:
        names = [f"{self.name}/{part}" for part in "abc"]
        with self.client.acquire(names[1], wait=SOON), self.client.session() as session:
            with self.assertRaises(HeldError):
                session.acquire_all(names, wait=0)
            with self.assertRaises(HeldError):
                session.acquire_all(names, wait=0.5)
            self.client.acquire(names[0], wait=SOON).release()

    def test_asked_under_a_session(self) -> None:
        with self.client.session() as session:
            lock, other = (session.acquire(f"{self.name}/{part}", wait=SOON) for part in "ab")
            ask(lock.name, "step-down")
            self.assertTrue(lock.stopping.wait(SOON))
            assert isinstance(lock.reason, AskedError)
            self.assertEqual((lock.reason.kind, lock.reason.reason), ("step-down", "a test"))
            lock.check()
            lock.release()
            self.until(lambda: not session._session._requests)  # it was answered
            other.check()
            self.assertFalse(other.stopping.is_set())

    def test_a_killed_server_costs_no_session(self) -> None:
        """Of two servers one is killed: heartbeats, attachments and the closing go on with the other."""
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            servers = [f"unix:{folder}/{part}" for part in "ab"]
            started = [
                subprocess.Popen(
                    [TENURED, "--store", f"sqlite:{folder}/locks.db", "--lease", "5s", "--quiet", "--listen", server]
                )
                for server in servers
            ]
            for process in started:
                stack.callback(process.wait)
                stack.callback(process.kill)
            self.until(lambda: all(os.path.exists(f"{folder}/{part}") for part in "ab"))
            client = Client(servers, token_file=TOKEN_FILE)
            with client.session(wait=SOON) as session:
                locks = session.acquire_all(["a", "b"], wait=SOON)
                confirmed, at = [0], session.remaining()
                started[0].kill()

                def risen() -> bool:
                    nonlocal at
                    locks.check()
                    left = session.remaining()
                    confirmed[0], at = confirmed[0] + (left > at), left
                    return confirmed[0] > 6

                self.until(risen)
                session.acquire("c", wait=SOON).check()
                locks[0].release()
            client.acquire("b", wait=SOON).release()

    def need(self, acquire: Callable[[], Lock]) -> Lock:
        """Returns the lock, which ends with the test."""
        lock = acquire()
        self.addCleanup(self.end, lock)
        return lock

    def test_a_semaphore(self) -> None:
        with self.client.session() as session:
            plain, under = self.client.semaphore(self.name, 2), session.semaphore(self.name, 2)
            slots = [self.need(lambda: plain.acquire(wait=SOON)), self.need(lambda: under.acquire(wait=SOON))]
            self.assertEqual(sorted((lock.slot, lock.slots) for lock in slots), [(0, 2), (1, 2)])
            for lock in slots:
                self.assertEqual(lock.name, f"{self.name}:slot/{lock.slot}")
                lock.check()
            with self.assertRaises(HeldError):
                plain.acquire(wait=0)
            told: list[HeldError] = []
            threading.Timer(0.5, slots[0].release).start()
            with plain.acquire(wait=SOON, waiting=told.append) as after:
                self.assertEqual((after.slot, after.token), (slots[0].slot, slots[0].token + 1))
            self.assertGreater(len(told), 0)

    def test_readers_and_writers(self) -> None:
        catalog = self.client.rwlock(self.name)
        reader = self.need(lambda: catalog.read(wait=SOON))
        other = self.need(lambda: catalog.read(wait=SOON))
        self.assertEqual((reader.fence_token, other.fence_token, reader.last_writer), (1, 1, None))
        with self.assertRaises(HeldError):
            catalog.write(wait=0)
        with self.assertRaises(HeldError):
            catalog.write(wait=1)  # the gate is given up
        for lock in (reader, other):
            threading.Timer(0.5, lock.release).start()
        with catalog.write(owner="w", wait=SOON) as writer:
            writer.check()
            with self.assertRaises(HeldError):
                catalog.read(wait=0)
        with catalog.read(wait=SOON) as after:
            self.assertEqual(after.fence_token, writer.fence_token + 1)
            self.assertEqual(after.last_writer, LastWriter("w", writer.token, "released"))

    def test_a_writer_under_a_session(self) -> None:
        with self.client.session() as session:
            reader = self.need(lambda: self.client.rwlock(self.name).read(wait=SOON))
            threading.Timer(6, reader.release).start()  # longer than a lease
            writer = session.rwlock(self.name).write(wait=SOON)
            self.assertTrue(reader.over.is_set())
            writer.check()

    def test_refused(self) -> None:
        with self.assertRaises(ProblemError) as raised:
            Client(SERVERS.split(","), token="nobody").acquire(self.name, wait=0)
        self.assertEqual(raised.exception.kind, "unauthenticated")
        with self.assertRaises(ProblemError) as raised:
            self.client.acquire("tenure/reserved", wait=0)
        self.assertIn(raised.exception.kind, ("bad-request", "forbidden"))

    @unittest.skipUnless(os.environ.get("TENURE_TEST_TLS"), "no service with TLS")
    def test_tls(self) -> None:
        tls = ssl.create_default_context(cafile=os.environ["TENURE_TEST_CA"])
        server = os.environ["TENURE_TEST_TLS"]
        with Client(server, token_file=TOKEN_FILE, tls=tls).acquire(self.name, wait=SOON) as lock:
            lock.check()
        # A mistake that stays is raised at once, however long the wait may be.
        with self.assertRaisesRegex(UnavailableError, f"{server}: .*certificate"):
            Client(server, token_file=TOKEN_FILE).acquire(self.name)
        plain = server.replace("https:", "http:")
        with self.assertRaisesRegex(UnavailableError, f"{plain}: use https"):
            Client(plain, token_file=TOKEN_FILE).acquire(self.name)
        # One good server of several is enough.
        servers = [server, *SERVERS.split(",")]
        for _ in range(4):
            Client(servers, token_file=TOKEN_FILE).acquire(self.name, wait=SOON).release()


@unittest.skipUnless(SERVERS, "no service: see clients/test")
class RealServiceForAsyncio(unittest.IsolatedAsyncioTestCase):
    async def test_asked(self) -> None:
        name = f"test/aio/{secrets.token_hex(4)}"
        client = AsyncClient(SERVERS.split(","), token_file=TOKEN_FILE)

        async def work(lock: AsyncLock) -> None:
            ask(name, "step-down")
            await lock.wait_stopping()
            await asyncio.Event().wait()

        with self.assertRaises(AskedError):
            await client.run(name, work, wait=SOON)
        async with client.acquire(name, wait=SOON):
            pass  # it was released

    async def test_a_session(self) -> None:
        name = f"test/aio/{secrets.token_hex(4)}"
        client = AsyncClient(SERVERS.split(","), token_file=TOKEN_FILE)
        async with client.session() as session:
            with self.assertRaises(AskedError):
                async with session.acquire_all([f"{name}/b", f"{name}/a"], wait=SOON) as locks:
                    ask(locks[0].name, "step-down")
                    async with asyncio.timeout(SOON):
                        await asyncio.Event().wait()
            session.check()
            kept = await session.acquire(f"{name}/a", wait=SOON)
        async with client.acquire(f"{name}/a", wait=SOON) as after:
            self.assertEqual(after.token, kept.token + 1)


@unittest.skipUnless(os.environ.get("TENURE_TEST_README"), "no service at the README's address")
class Readme(unittest.TestCase):
    def test_programs(self) -> None:
        programs = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
        self.assertEqual(len(programs), 4)
        for program in programs:
            with self.subTest(program):
                folder = Path(TOKEN_FILE).parent  # where the file "token" is
                path = os.pathsep.join([str(README.parent / "src"), os.environ.get("PYTHONPATH", "")])
                ran = subprocess.run(
                    [sys.executable, "-c", program],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": path},
                    capture_output=True,
                    text=True,
                    timeout=2 * SOON,
                )
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                self.assertRegex(ran.stdout, r"under token \d+\n$")


if __name__ == "__main__":
    unittest.main()
