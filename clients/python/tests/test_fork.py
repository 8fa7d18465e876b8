# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A process that is forked from the holder has no lock, and leaves the holder's alone."""

from __future__ import annotations

import asyncio
import copy
import ctypes
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import unittest
import warnings
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

from tenurelock import AsyncClient, AsyncLock, Client, Greater, Lock, ProblemError
from tenurelock.process import Latch
from tenurelock.transport import HTTPCaller

from .fake import SOON, ManualClock, Server, Service, fork, heard, in_child, says
from .test_transport import STREAM, Script


def stays(lock: Lock) -> None:
    """Leaves the block in order."""
    with lock:
        pass


def exits(lock: Lock) -> None:
    with lock:
        sys.exit(0)


def fails(lock: Lock) -> None:
    with lock:
        raise RuntimeError("of the child")


def works(lock: Lock) -> None:
    """Does what a worker does that tidies up."""
    try:
        lock.check()
    finally:
        lock.release()


class Stuck:
    """Stops another thread in the midst of what it does."""

    def __init__(self, test: unittest.TestCase) -> None:
        self._there, self._end = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        test.addCleanup(self._end.set)

    def __call__(self) -> int:
        if threading.current_thread() is self._thread:
            self._there.set()
            self._end.wait()
        return 0

    def thread(self, work: Callable[[], object]) -> None:
        """Has a thread do the work, and returns when it is where this is called."""
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        if not self._there.wait(SOON):
            raise AssertionError("the thread never came there")

    def goes_on(self) -> None:
        self._end.set()


class OneHolder(unittest.TestCase):
    def setUp(self) -> None:
        quicker = mock.patch("tenurelock.lock._STEP", 0.01)  # how soon a clock that was moved is read
        quicker.start()
        self.addCleanup(quicker.stop)
        self.service, self.clock = Service(), ManualClock()
        self.server = Server(self.service, self)
        self.client = Client(self.server.url, token="t", clock=self.clock)
        self.lost = (
            rf'^tenurelock\.errors\.LostError: "n" \(token 1\): process {os.getpid()} holds it; '
            "this process was forked from it$"
        )

    def still_held(self, lock: Lock | AsyncLock) -> None:
        """Sees that the parent holds the lock, and that nobody else has sent anything."""
        lock.check()
        self.assertEqual([path for path, _ in self.service.calls], ["/v1/acquire", "/v1/heartbeat"])


@unittest.skipUnless(hasattr(os, "fork"), "nothing forks here")
class Forks(OneHolder):
    def test_a_child_has_no_lock(self) -> None:
        with self.client.acquire("n") as lock:
            for work in (lock.check, lock.release, lambda: works(lock)):
                self.assertRegex(in_child(work), self.lost)
            for is_set in (lock.stopping.is_set, lock.stopping.wait, lock.over.is_set, lock.over.wait):
                self.assertEqual(in_child(is_set), "True")
            self.assertRegex(in_child(lambda: f"tenurelock.errors.LostError: {lock.reason}"), self.lost)
            self.assertEqual(in_child(lock.remaining), "0.0")
            self.assertEqual(in_child(lambda: lock.start(0)), "False")
            self.assertFalse(lock.stopping.is_set() or lock.over.is_set() or lock.reason)
            self.still_held(lock)
        self.assertIsNone(self.service.holder)

    def test_nor_has_a_child_of_a_child(self) -> None:
        with self.client.acquire("n") as lock:
            self.assertRegex(in_child(lambda: in_child(lock.check)), self.lost)

    def test_leaving_the_block_in_a_child_sends_nothing(self) -> None:
        with self.client.acquire("n") as lock:
            self.assertRegex(in_child(lambda: stays(lock)), self.lost)
            self.assertEqual(in_child(lambda: exits(lock)), "SystemExit: 0")
            self.assertEqual(in_child(lambda: fails(lock)), "RuntimeError: of the child")
            self.still_held(lock)

    def test_multiprocessing(self) -> None:
        forking = multiprocessing.get_context("fork")
        told, tells = forking.Pipe(duplex=False)

        def work(lock: Lock) -> None:
            try:
                works(lock)
            except Exception as error:
                tells.send(f"{type(error).__module__}.{type(error).__name__}: {error}")

        with self.client.acquire("n") as lock:
            worker = forking.Process(target=work, args=(lock,))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                worker.start()
            self.assertTrue(told.poll(SOON))
            self.assertRegex(told.recv(), self.lost)
            worker.join(SOON)
            self.still_held(lock)

    def test_on_stop_is_not_called_in_a_child(self) -> None:
        told: list[object] = []

        def stops() -> list[object]:
            lock.stopping.wait()
            time.sleep(0.05)
            return told

        with self.client.acquire("n", on_stop=told.append) as lock:
            self.assertEqual(in_child(stops), "[]")

    def test_a_child_with_the_id_of_the_holder(self) -> None:
        with self.client.acquire("n") as lock, mock.patch("os.getpid", return_value=os.getpid()):
            self.assertRegex(in_child(lock.check), self.lost)

    def test_a_fork_that_python_does_not_see(self) -> None:
        forks: Callable[[], int] = ctypes.PyDLL(None).fork
        with self.client.acquire("n") as lock:
            for work in (lock.check, lock.release, lambda: stays(lock)):
                self.assertRegex(in_child(work, forks), self.lost)
            self.still_held(lock)

    def test_the_client_works_in_a_child(self) -> None:
        def acquires() -> int:
            with self.client.acquire("n", wait=SOON) as lock:
                self.clock.advance(3000)
                while lock.remaining() < 12:
                    time.sleep(0.01)  # until a thread has sent a heartbeat
                return lock.token

        with self.client.acquire("n") as lock:
            self.assertRegex(in_child(lambda: self.client.acquire("n", wait=0)), "HeldError: .*token 1")
            lock.check()
        self.assertEqual(in_child(acquires), "2")
        self.assertIsNone(self.service.holder)

    def test_connections_stay_the_parents(self) -> None:
        def is_open() -> bool:
            beats.abort()
            beats.close()
            try:
                os.fstat(file)
            except OSError:
                return False
            return True

        with self.client.acquire("n") as lock:
            beats = lock._beats
            assert isinstance(beats, HTTPCaller) and beats._socket is not None
            file = beats._socket.fileno()
            self.assertEqual(in_child(is_open), "False")
            self.assertRegex(in_child(lambda: beats.call("/v1/heartbeat", {}, SOON)), "aborted")
            connections = self.server.connections
            self.clock.advance(3000)
            limit = time.monotonic() + SOON
            while lock.remaining() < 12 and time.monotonic() < limit:
                time.sleep(0.01)
            self.assertEqual((lock.remaining(), self.server.connections), (12.0, connections))

    def test_while_another_thread_checks(self) -> None:
        stuck = Stuck(self)
        with Client(self.server.url, token="t", clock=stuck).acquire("n") as lock:
            stuck.thread(lock.remaining)
            for work in (lock.check, lock.release):
                self.assertRegex(in_child(work), self.lost)

    def test_while_another_thread_reads_the_clock(self) -> None:
        stuck = Stuck(self)
        clock = Greater(lambda: (stuck(), 0))
        stuck.thread(clock)
        self.assertEqual(in_child(clock), "0")

    def test_while_another_thread_aborts_a_call(self) -> None:
        with self.client.acquire("n") as lock:
            beats, stuck = lock._beats, Stuck(self)
            assert isinstance(beats, HTTPCaller)

            def aborts() -> None:
                with beats._mutex:
                    stuck()

            def ends() -> str:
                beats.abort()
                beats.close()
                return "done"

            stuck.thread(aborts)
            self.assertEqual(in_child(ends), "done")
            stuck.goes_on()

    def test_while_others_wait(self) -> None:
        def waits() -> bool:
            lock.stopping.set()
            return lock.stopping.wait()

        with self.client.acquire("n") as lock:
            threads = [threading.Thread(target=lock.stopping.wait, daemon=True) for _ in range(5)]
            for thread in threads:
                thread.start()
                self.assertEqual(in_child(waits), "True")
        for thread in threads:
            thread.join(SOON)
            self.assertFalse(thread.is_alive())

    def test_in_the_midst_of_an_acquire(self) -> None:
        told = threading.Event()

        def waits(connected: socket.socket) -> None:
            connected.sendall(STREAM + b'event: waiting\ndata: {"holder": "a", "token": 7}\n\n')
            told.wait(SOON)
            refused = b'"type": "urn:tenure:problem:forbidden", "status": 403'
            connected.sendall(b"event: problem\ndata: {%s}\n\n" % refused)

        held = b'{"type": "urn:tenure:problem:held", "status": 409, "holder": "a", "token": 7}'
        first = b"HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\n"
        first += b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(held), held)
        server = Script(lambda connected: connected.sendall(first), waits)
        reads, writes = os.pipe()
        children: list[int] = []

        def waiting(_: object) -> None:
            if len(children) == 0:
                children.append(0)
                return
            children.append(fork())
            if children[-1] != 0:
                os.close(writes)
                self.assertRegex(
                    heard(reads, children[-1]),
                    f"UnavailableError: process {os.getpid()} makes the acquire; this process was forked",
                )
                told.set()

        def acquires() -> Lock:
            with mock.patch("tenurelock.client.Acquiring._met", lambda self, held: waiting(held)):
                return Client(server.url, token="t").acquire("n", waiting=waiting)

        try:
            with self.assertRaises(ProblemError):  # the parent gets its answer
                acquires()
        except BaseException as error:
            if children[-1:] == [0]:
                says(writes, lambda: raise_(error))
            raise

    def test_in_a_signal_handler(self) -> None:
        """A wait that is under way when its thread forks ends in the child."""
        latch, children = Latch(), list[int]()

        def forks(*_: object) -> None:
            children.append(fork())
            if children[0] != 0:
                latch.set()

        reads, writes = os.pipe()
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, forks))
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        woken = latch.wait()
        if children == [0]:
            says(writes, lambda: woken)
        os.close(writes)
        self.assertEqual(heard(reads, children[0]), "True")


def raise_(error: BaseException) -> None:
    raise error


@unittest.skipUnless(hasattr(os, "fork"), "nothing forks here")
class ForksOfAsyncio(OneHolder):
    def test_a_child_has_no_lock(self) -> None:
        """The loop of the parent does not run in a child, so nothing there may wait for it."""
        client = AsyncClient(self.server.url, token="t", clock=self.clock)

        def step(coroutine: Coroutine[Any, Any, object]) -> object:
            """Runs what does not wait."""
            try:
                coroutine.send(None)
            except StopIteration as end:
                return end.value
            return "it waits"

        async def acquires() -> None:
            await client.acquire("n", wait=0)

        async def holds() -> None:
            block = client.acquire("n")
            lock = await block.__aenter__()
            self.assertRegex(in_child(lock.check), self.lost)
            self.assertRegex(in_child(lambda: step(lock.release())), self.lost)
            waits = in_child(lambda: f"tenurelock.errors.LostError: {step(lock.wait_stopping())}")
            self.assertRegex(waits, self.lost)
            self.assertRegex(in_child(lambda: step(block.__aexit__(None, None, None))), self.lost)
            failed = RuntimeError("of the child")
            self.assertEqual(in_child(lambda: step(block.__aexit__(RuntimeError, failed, None))), "None")
            self.still_held(lock)
            self.assertRegex(in_child(lambda: asyncio.run(acquires())), "HeldError")
            await block.__aexit__(None, None, None)

        asyncio.run(holds())
        self.assertIsNone(self.service.holder)


class Copies(OneHolder):
    def test_a_copy_is_no_second_lock(self) -> None:
        aio = AsyncClient(self.server.url, token="t", clock=self.clock)

        async def acquire() -> AsyncLock:
            return await aio.acquire("n", wait=SOON)

        lock = self.client.acquire("n")
        for copies in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.subTest(copies), self.assertRaisesRegex(TypeError, '^the lock "n" can be neither'):
                copies(lock)
        lock.release()

        async def copies_it() -> None:
            async with aio.acquire("n") as held:
                with self.assertRaisesRegex(TypeError, '^the lock "n" can be neither'):
                    copy.copy(held)

        asyncio.run(copies_it())

    def test_a_copy_of_a_client_is_the_client(self) -> None:
        self.assertIs(copy.copy(self.client), self.client)
        self.assertIs(copy.deepcopy([self.client])[0], self.client)
        with self.assertRaisesRegex(TypeError, "Make one in the other process"):
            pickle.dumps(self.client)


if __name__ == "__main__":
    unittest.main()
