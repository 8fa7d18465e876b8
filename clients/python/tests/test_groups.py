# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Semaphores, and locks for readers and writers, against a service in memory."""

from __future__ import annotations

import asyncio
import threading
import unittest
from typing import Any

from tenurelock import AsyncClient, HeldError, LastWriter, Lock, ProblemError, TenureError
from tenurelock.answers import Reply, Unknown, read_acquire
from tenurelock.lease import Grant

from .fake import SOON, Fault, Service, dropped, lost, problem, until
from .fake_sessions import Sessions
from .test_session import OneSession

ACQUIRE, DRAIN = "/v1/acquire", "/v1/drain"

GRANT = (
    '{"name": "%s", "token": 7, "beat": "aaaaaaaaaaaaa-bbbbbbbbbbbbb", "lease_ms": 15000, "heartbeat_ms": 3000, '
    '"free_after_ms": 5000%s}'
)


class Slots(OneSession):
    def test_a_slot_is_a_lock_of_its_own(self) -> None:
        renders = self.client.semaphore("renders", 2)
        self.assertEqual(self.service.calls, [])
        with renders.acquire(owner="a", label="v7", data=b"x", history=True) as first, renders.acquire() as second:
            self.assertEqual(
                [(lock.name, lock.slot, lock.slots, lock.token, lock.fence_token) for lock in (first, second)],
                [("renders:slot/0", 0, 2, 1, 1), ("renders:slot/1", 1, 2, 1, 1)],
            )
            with self.assertRaises(HeldError) as raised:
                renders.acquire(wait=0)
            self.assertEqual(raised.exception.name, "renders")
            self.clock.advance(3000)
            until(lambda: first.remaining() == second.remaining() == 12.0)
        body = self.service.bodies(ACQUIRE)[0]
        self.assertEqual((body["name"], body["slots"], body["owner"], body["label"]), ("renders", 2, "a", "v7"))
        self.assertEqual([body.get("history") for body in self.service.bodies(ACQUIRE)], [True, None, None])
        beats = self.service.bodies("/v1/heartbeat")
        self.assertEqual({beat["name"] for beat in beats}, {"renders:slot/0", "renders:slot/1"})
        self.assertEqual(self.service.holder_of("renders:slot/0"), None)
        self.assertEqual(self.service.records["renders:slot/0"].data, "eA==")

    def test_under_a_session(self) -> None:
        session = self.open()
        lock = session.semaphore("renders", 3).acquire()
        self.assertEqual((lock.name, lock.slot, lock.slots), ("renders:slot/0", 0, 3))
        self.assertEqual(self.service.records["renders:slot/0"].session, session.id)
        lock.release()
        self.assertIsNone(self.service.holder_of("renders:slot/0"))

    def test_arguments(self) -> None:
        wrong: list[Any] = [0, -1, 1001, 2.0, True, "3"]
        for slots in wrong:
            with self.subTest(slots), self.assertRaisesRegex(ValueError, "want a whole number from 1 to 1000"):
                self.client.semaphore("renders", slots)
        with self.assertRaises(ValueError):
            self.client.semaphore("", 3)

    def test_a_server_that_does_not_know_them(self) -> None:
        self.service.always[ACQUIRE] = lambda *_: problem("bad-request", 400)
        with self.assertRaisesRegex(ProblemError, "bad-request"):
            self.client.semaphore("renders", 3).acquire()


class ReadersAndWriters(OneSession):
    def setUp(self) -> None:
        super().setUp()
        self.catalog = self.client.rwlock("catalog")

    def writes(self, session: bool = False, **options: Any) -> tuple[threading.Thread, list[Lock | TenureError]]:
        """Has a thread write."""
        got: list[Lock | TenureError] = []
        lock = self.open().rwlock("catalog") if session else self.catalog

        def write() -> None:
            try:
                got.append(lock.write(**options))
            except TenureError as error:
                got.append(error)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        return thread, got

    def drains(self, more: int = 0) -> None:
        before = len(self.service.bodies(DRAIN))
        until(lambda: len(self.service.bodies(DRAIN)) > before + more)

    def test_readers_and_a_writer(self) -> None:
        with self.catalog.read() as reader, self.catalog.read() as other:
            self.assertEqual((reader.name, other.name, reader.fence_token), ("catalog:read/0", "catalog:read/1", 1))
            self.assertIsNone(reader.last_writer)
            with self.assertRaises(HeldError):
                self.catalog.write(wait=0)
        with self.catalog.write(owner="w") as writer:
            self.assertEqual((writer.name, writer.token, writer.fence_token), ("catalog:gate", 1, 2))
            with self.assertRaises(HeldError):
                self.catalog.read(wait=0)
        self.assertEqual(self.service.bodies(DRAIN), [])
        with self.catalog.read() as reader:
            self.assertEqual((reader.fence_token, reader.last_writer), (3, LastWriter("w", 1, "crashed")))

    def test_a_writer_waits_for_the_readers(self) -> None:
        for session in (False, True):
            with self.subTest(session=session):
                reader = self.catalog.read()
                told: list[TenureError] = []
                thread, got = self.writes(session, on_stop=told.append)
                self.drains()
                # The gate is kept alive meanwhile, by heartbeats of its own or the session's.
                beats = "/v1/sessions/heartbeat" if session else "/v1/heartbeat"
                for _ in range(6):
                    sent = len(self.service.bodies(beats))
                    self.clock.advance(3000)
                    until(lambda: len(self.service.bodies(beats)) > sent)
                    until(lambda: reader.remaining() == 12.0)
                self.drains(1)
                self.assertEqual(got, [])
                reader.release()
                thread.join(SOON)
                (writer,) = got
                assert isinstance(writer, Lock)
                until(lambda: writer.remaining() > 0)
                writer.check()
                gate = self.service.records["catalog:gate"]
                self.assertEqual(self.service.bodies(DRAIN)[-1]["token"], gate.token)
                self.assertEqual(gate.session is not None, session)
                writer.release()
                self.assertNotIn("data", self.service.bodies("/v1/release")[-1])
                self.assertEqual(told, [])

    def test_no_answer_to_a_drain(self) -> None:
        reader = self.catalog.read()
        kinds = {"unknown": 503, "limited": 429, "unauthenticated": 401, "forbidden": 403}
        problems: list[Fault] = [lambda *_, kind=kind: problem(kind, kinds[kind]) for kind in kinds]
        self.service.faults[DRAIN] = [dropped, lost, *problems]
        thread, got = self.writes()
        self.drains(6)
        reader.release()
        thread.join(SOON)
        self.assertIsInstance(got[0], Lock)

    def test_the_wait_ends_while_it_drains(self) -> None:
        with self.catalog.write(owner="before"):
            pass
        kept = self.service.records["catalog:gate"].data
        with self.catalog.read(owner="r"):
            with self.assertRaises(HeldError) as raised:
                self.catalog.write(wait=0.3)
            self.assertEqual((raised.exception.holder, raised.exception.name), ("r", "catalog"))
            gate = self.service.records["catalog:gate"]
            self.assertIsNone(self.service.holder_of("catalog:gate"))
            self.assertEqual(gate.data, kept)  # as if it had not come
        self.assertEqual(self.service.bodies("/v1/release")[1]["data"], kept)

    def test_a_drain_counts_only_if_the_gate_is_held(self) -> None:
        for session in (False, True):
            with self.subTest(session=session):
                late: list[bool] = []

                def slow(service: Service, path: str, body: dict[str, Any]) -> Reply:
                    self.clock.advance(12000)
                    late.append(True)
                    return Reply(200, "application/json", b"{}")

                reader = self.catalog.read()
                self.service.faults[DRAIN] = [slow]
                _, got = self.writes(session, wait=0.5)
                until(lambda: len(got) == 1)
                self.assertEqual(late, [True])
                self.assertIsInstance(got[0], TenureError)
                self.end_(reader)
                self.service.records.clear()

    def end_(self, lock: Lock) -> None:
        try:
            lock.release()
        except TenureError:
            pass

    def test_a_gate_that_is_lost_while_it_drains(self) -> None:
        reader = self.catalog.read()
        taken: list[bool] = []

        def takes(service: Service, path: str, body: dict[str, Any]) -> Reply:
            self.service.hold("catalog:gate")
            self.service.let_go("catalog:gate")
            taken.append(True)
            return problem("lost", 410)

        told: list[TenureError] = []
        self.service.faults[DRAIN] = [takes]
        thread, got = self.writes(on_stop=told.append)
        until(lambda: taken == [True])
        reader.release()
        thread.join(SOON)
        (writer,) = got
        assert isinstance(writer, Lock)
        self.assertEqual((writer.token, told), (3, []))

    def test_a_request_while_it_drains(self) -> None:
        """The gate is given up for it, and acquired again."""
        reader = self.catalog.read()
        thread, got = self.writes()
        self.drains()
        self.service.asked = {"kind": "step-down", "by": "ops", "reason": "deploy"}
        self.clock.advance(3000)
        until(lambda: self.service.records["catalog:gate"].token >= 2)
        self.service.asked = None
        for body in self.service.bodies(DRAIN):
            self.assertLessEqual(body["wait_ms"], 5000)  # a request is seen when the call returns
        reader.release()
        thread.join(SOON)
        self.assertIsInstance(got[0], Lock)

    def test_work_that_does_not_stop_may_have_written(self) -> None:
        session = self.open()
        writer = session.rwlock("catalog").write(stop_timeout=1.0)
        self.service.ask(session.id, writer.name, writer.token)
        self.beat(session)
        self.assertTrue(writer.stopping.wait(SOON))
        for _ in range(6):
            self.beat(session)
        until(lambda: self.service.holder_of(writer.name) is None)
        (body,) = self.service.bodies("/v1/sessions/release")
        self.assertNotIn("data", body["locks"][0])

    def test_no_data(self) -> None:
        for acquire in (self.catalog.read, self.catalog.write):
            with self.assertRaisesRegex(ValueError, "keep them with the resource"):
                acquire(data=b"x")
            lock = acquire()
            with self.assertRaisesRegex(ValueError, "keep them with the resource"):
                lock.release(data=b"x")
            lock.check()
            lock.release()


class Answers(unittest.TestCase):
    def test_grants(self) -> None:
        slots, shared, exclusive = {"slots": 3}, {"shared": True}, {"exclusive": True}
        last = '{"owner": "w", "token": 2, "end": "expired"}'
        for asks, name, more, want in (
            (slots, "n:slot/2", ', "slot": 2, "slots": 3', True),
            (slots, "n:slot/2", ', "slot": 1, "slots": 3', False),
            (slots, "n:slot/3", ', "slot": 3, "slots": 3', False),
            (slots, "n:slot/2", "", False),
            (slots, "n", ', "slot": 2, "slots": 3', False),
            (slots, "n", "", False),
            (shared, "n:read/3", ', "fence_token": 3', True),
            (shared, "n:read/3", f', "fence_token": 3, "last_writer": {last}', True),
            (shared, "n:read/3", ', "fence_token": 3, "last_writer": "w"', False),
            (shared, "n:read/3", "", False),
            (shared, ":read/3", ', "fence_token": 3', False),
            (shared, "n:read/x", ', "fence_token": 3', False),
            (shared, "n:gate", ', "fence_token": 3', False),
            (shared, "n", ', "fence_token": 3', False),
            (exclusive, "n:gate", ', "fence_token": 14', True),
            (exclusive, "n:gate", ', "fence_token": 14, "drain": true, "unwritten": "aGk="', True),
            (exclusive, "n:gate", ', "fence_token": 14, "drain": 1', False),
            (exclusive, "n:gate", ', "fence_token": 14, "unwritten": "?"', False),
            (exclusive, "n:read/3", ', "fence_token": 14', False),
            (exclusive, "n", "", False),
            ({}, "n", "", True),
            ({}, "n:gate", "", False),
        ):
            with self.subTest(asks, name=name, more=more):
                got = read_acquire(Reply(200, "application/json", (GRANT % (name, more)).encode()), "n", asks)
                self.assertIsInstance(got, Grant if want else Unknown)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_all(self) -> None:
        service = Sessions()
        client = AsyncClient("http://127.0.0.1:1")
        client._client = service.client()
        async with client.semaphore("renders", 3).acquire() as slot:
            self.assertEqual((slot.name, slot.slot, slot.slots), ("renders:slot/0", 0, 3))
        async with client.rwlock("catalog").read() as reader:
            writing = asyncio.ensure_future(client.rwlock("catalog").write())
            async with asyncio.timeout(SOON):
                while not service.bodies(DRAIN):
                    await asyncio.sleep(0.005)
            self.assertFalse(writing.done())
            self.assertEqual(reader.fence_token, 1)
        writer = await writing
        self.assertEqual((writer.name, writer.fence_token), ("catalog:gate", 2))
        await writer.release()
        async with client.session() as session:
            async with session.semaphore("renders", 3).acquire() as slot:
                self.assertEqual(slot.name, "renders:slot/0")
            async with session.rwlock("catalog").write() as writer:
                self.assertEqual((writer.name, writer.fence_token), ("catalog:gate", 4))
        self.assertIsNone(service.holder_of("catalog:gate"))

    async def test_a_drain_that_is_cancelled(self) -> None:
        service = Sessions()
        client = AsyncClient("http://127.0.0.1:1")
        client._client = service.client()
        async with client.rwlock("catalog").read():
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.rwlock("catalog").write()
            async with asyncio.timeout(SOON):
                while service.holder_of("catalog:gate") is not None:
                    await asyncio.sleep(0.005)
        self.assertEqual(service.bodies("/v1/release")[0]["data"], "")


if __name__ == "__main__":
    unittest.main()
