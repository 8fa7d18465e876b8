# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A signal handler may do what it likes with a lock: it waits for nothing that it has interrupted, and
no thread waits for it.

Python runs a handler between two instructions of the main thread. Here one is run before each of
them, one after the other, by the interpreter's hook for debuggers.
"""

from __future__ import annotations

import functools
import itertools
import signal
import sys
import threading
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import tenurelock
from tenurelock import ExpiredError, Greater, Lock, ReleasedError, TenureError, UncertainError
from tenurelock.clock import MILLISECOND
from tenurelock.lease import Grant, Heartbeat, Lease, State

from .fake import SOON, ManualClock, Service, until
from .fake_sessions import Sessions

# What is interrupted: this package, and what it uses of threading.
INTERRUPTED = (str(Path(tenurelock.__file__).parent), threading.__file__)


class Interruption:
    """Runs a handler before an instruction of what a thread does."""

    def __init__(self, work: Callable[[], object], handler: Callable[[], object], at: int) -> None:
        self._work, self._handler, self._left = work, handler, at
        self.came = False
        self.raised: BaseException | None = None

    def run(self, otherwise: Callable[[], object] = lambda: None) -> None:
        """Does the work in a thread, which must end: if no handler has run, after what is done
        otherwise."""
        thread = threading.Thread(target=self._interrupted, daemon=True)
        thread.start()
        thread.join(0.2)
        if not self.came:
            otherwise()
        thread.join(SOON)
        if thread.is_alive():
            frame, where = sys._current_frames().get(thread.ident or 0), list[str]()
            while frame is not None:
                where.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
                frame = frame.f_back
            raise AssertionError(f"it waits for itself: {' < '.join(where)}")

    def _interrupted(self) -> None:
        sys.settrace(self._trace)
        try:
            self._work()
        except BaseException as error:
            self.raised = error
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(INTERRUPTED):
            return None
        frame.f_trace_opcodes = True
        # Python 3.13.0 tells of lines alone.
        if event in ("opcode", "line") and not self.came:
            self._left -= 1
            if self._left < 0:
                self.came = True
                self._handler()
        return self._trace


def looks(lock: Lock) -> bool:
    return lock.stopping.wait(0)


def stops(lock: Lock) -> None:
    lock.stopping.set()


def check(lock: Lock) -> None:
    try:
        lock.check()
    except TenureError:
        pass


def release(lock: Lock) -> None:
    try:
        lock.release()
    except TenureError:
        pass


class Signals(unittest.TestCase):
    def setUp(self) -> None:
        quicker = mock.patch("tenurelock.lock._STEP", 0.001)  # how soon a clock that was moved is read
        quicker.start()
        self.addCleanup(quicker.stop)
        self.service, self.clock = Service(), ManualClock()
        self.client = self.service.client(self.clock)

    def interrupted(
        self, work: Callable[[Lock], object], handler: Callable[[Lock], object]
    ) -> Iterator[tuple[Lock, BaseException | None]]:
        """Yields a lock for each instruction of the work, and what the work raised."""
        for at in itertools.count():
            self.service.free()
            lock = self.client.acquire("n")
            interruption = Interruption(
                functools.partial(work, lock), functools.partial(handler, lock), at
            )
            interruption.run(functools.partial(release, lock))
            if not interruption.came:
                self.assertGreater(at, 2)
                return
            yield lock, interruption.raised

    def test_check_in_a_handler(self) -> None:
        for work in (Lock.check, Lock.remaining, looks, stops):
            for lock, raised in self.interrupted(work, Lock.check):
                self.assertIsNone(raised)
                lock.check()
                lock.release()
        for lock, raised in self.interrupted(Lock.release, check):
            self.assertIsNone(raised)
            self.assertIsNone(self.service.holder)

    def test_release_in_a_handler(self) -> None:
        for work in (Lock.check, Lock.remaining, Lock.release, looks, stops):
            for lock, raised in self.interrupted(work, release):
                self.assertIn(type(raised), (type(None), ReleasedError))
                self.assertIsNone(self.service.holder)
                with self.assertRaises(ReleasedError):
                    lock.check()

    def test_release_in_a_handler_ends_a_wait(self) -> None:
        with mock.patch("tenurelock.process._LOOK", 2 * SOON):
            for lock, raised in self.interrupted(lambda lock: lock.stopping.wait(), release):
                self.assertIsNone(raised)
                self.assertIsNone(self.service.holder)

    def test_the_deadline_does_not_wait_for_a_handler(self) -> None:
        over: list[bool] = []

        def handler(lock: Lock) -> None:
            self.clock.advance(12000)
            over.append(lock.over.wait(SOON) and isinstance(lock.reason, ExpiredError))

        for work in (check, Lock.remaining, looks, stops):
            for lock, raised in self.interrupted(work, handler):
                self.assertIsNone(raised)
                self.assertTrue(over.pop())
                release(lock)

    def test_heartbeats_do_not_wait_for_a_handler(self) -> None:
        confirmed: list[bool] = []

        def handler(lock: Lock) -> None:
            self.clock.advance(3000)
            until(lambda: lock.remaining() == 12)
            confirmed.append(True)

        for work in (Lock.check, Lock.remaining, looks):
            for lock, raised in self.interrupted(work, handler):
                self.assertIsNone(raised)
                self.assertTrue(confirmed.pop())
                lock.release()

    def test_a_handler_that_raises_in_a_release(self) -> None:
        """The lock is released, or the next call says that this is not certain."""

        def exits(lock: Lock) -> None:
            raise SystemExit

        self.service.lease_ms = 100
        # Not within threading: there a mutex would stay locked that no signal leaves so.
        ours = mock.patch(f"{__name__}.INTERRUPTED", INTERRUPTED[:1])
        ours.start()
        self.addCleanup(ours.stop)
        for lock, raised in self.interrupted(Lock.release, exits):
            self.assertIsInstance(raised, SystemExit)
            lock.abandon()  # its threads
            lock._limit = 0.01  # a second call waits for four of them
            try:
                lock.release()
            except UncertainError:
                continue
            self.assertIsNone(self.service.holder)

    def test_a_release_in_the_midst_of_a_heartbeat(self) -> None:
        """Also of one in another thread: it names the beat that the service has, at any instant."""

        def sends() -> None:
            sent.append(lease.send(3))

        def confirms() -> None:
            lease.confirm(open_, 9, 3, None, 4)

        def releases() -> None:
            release = lease.release(4)
            while (beat := release.call(4)) is not None:
                named.add(beat)
                release.refused()

        for work, handler in ((sends, releases), (confirms, releases), (releases, sends)):
            for at in itertools.count():
                sent, named = list[Heartbeat | None](), set[str]()
                lease = Lease(Grant("n", 1, "a-0", 9), 9)
                first = lease.send(0)
                assert first is not None
                lease.confirm(first, 9, 3, None, 1)
                if work is confirms:
                    sends()
                    open_ = sent[0] or first
                interruption = Interruption(work, handler, at)
                interruption.run()
                if not interruption.came:
                    self.assertGreater(at, 2)
                    break
                self.assertIsNone(interruption.raised)
                self.assertLessEqual({beat.next for beat in sent if beat is not None}, named)
                self.assertEqual(lease.state(4), State.RELEASED)

    def test_the_clock_in_a_handler(self) -> None:
        for suspended in (0, 1000):
            for at in itertools.count():
                mono = wall = 0
                clock = Greater(lambda: (mono * MILLISECOND, wall * MILLISECOND))
                said: list[int] = []

                def handler() -> None:
                    nonlocal mono, wall
                    mono, wall = mono + 10, wall + 10 + suspended
                    said.append(clock())

                interruption = Interruption(clock, handler, at)
                interruption.run()
                if not interruption.came:
                    self.assertGreater(at, 2)
                    break
                want = (10 + suspended) * MILLISECOND
                self.assertEqual((said, clock()), ([want], want), f"before instruction {at}")

    def test_under_a_session(self) -> None:
        """It waits for its session as little as for itself."""
        service = Sessions()
        session = service.client(self.clock).session()

        def handler() -> None:
            check(lock)
            session.check()
            release(lock)

        for work in (Lock.check, Lock.remaining, release):
            for at in itertools.count():
                lock = session.acquire("n")
                interruption = Interruption(functools.partial(work, lock), handler, at)
                interruption.run(functools.partial(release, lock))
                if not interruption.came:
                    self.assertGreater(at, 2)
                    break
                self.assertIn(type(interruption.raised), (type(None), ReleasedError))
                release(lock)
                self.assertIsNone(service.holder_of("n"))
        session.close()

    def test_a_signal(self) -> None:
        """The same in the main thread, by a signal."""
        checked: list[float] = []

        def clock() -> int:
            if threading.current_thread() is threading.main_thread() and signals:
                signal.raise_signal(signals.pop())
            return 0

        def handler(*_: object) -> None:
            lock.check()
            checked.append(lock.remaining())
            lock.release()

        signals: list[int] = []
        self.client.clock = clock
        lock = self.client.acquire("n")
        self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, handler))
        signals.append(signal.SIGTERM)

        def too_late(*_: object) -> None:
            raise AssertionError("it waits for itself")

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, too_late))
        self.addCleanup(signal.alarm, 0)
        signal.alarm(int(SOON))
        with self.assertRaises(ReleasedError):
            lock.check()
        self.assertEqual(checked, [12.0])
        self.assertIsNone(self.service.holder)


if __name__ == "__main__":
    unittest.main()
