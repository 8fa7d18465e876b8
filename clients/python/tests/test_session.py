# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""Sessions against a service in memory: answers lost, late and doubled, suspends, requests, closings."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from tenurelock import (
    AskedError,
    AsyncClient,
    ExpiredError,
    HeldError,
    Lock,
    LostError,
    NoSessionsError,
    ProblemError,
    ReleasedError,
    Session,
    TenureError,
    UnavailableError,
    UncertainError,
)
from tenurelock.answers import (
    Answer,
    Confirmed,
    Reply,
    Results,
    Unknown,
    read_opening,
    read_results,
    read_session_heartbeat,
)
from tenurelock.lease import Grant
from tenurelock.process import Latch
from tenurelock.session import SessionLock
from tenurelock.terms import Terms

from .fake import (
    SOON,
    Fault,
    ManualClock,
    Service,
    answer,
    bad_gateway,
    doubled,
    dropped,
    hang,
    in_child,
    lost,
    problem,
    until,
)
from .fake_sessions import Sessions

OPEN, HEARTBEAT, CLOSE = "/v1/sessions/open", "/v1/sessions/heartbeat", "/v1/sessions/close"
ATTACH, RELEASE = "/v1/sessions/attach", "/v1/sessions/release"


class OneSession(unittest.TestCase):
    def setUp(self) -> None:
        quicker = mock.patch("tenurelock.lock._STEP", 0.01)  # how soon a clock that was moved is read
        quicker.start()
        self.addCleanup(quicker.stop)
        self.service, self.clock = Sessions(), ManualClock()
        self.client = self.service.client(self.clock)

    def open(self, **options: Any) -> Session:
        session = self.client.session(**options)
        self.addCleanup(self.end, session)
        return session

    def end(self, session: Session) -> None:
        self.service.faults.clear()
        self.service.always.clear()
        try:
            session.close()
        except TenureError:
            pass

    def slow(self, ms: int, then: Callable[[Service, str, dict[str, Any]], Reply] | None = None) -> Fault:
        """Carries the call out; the answer, or what comes then, takes that time."""

        def fault(service: Service, path: str, body: dict[str, Any]) -> Reply:
            reply = service.carry_out(path, body)
            self.clock.advance(ms)
            return then(service, path, body) if then is not None else reply

        return fault

    def watched(self, work: Callable[[], object], then: Fault | None = None) -> Fault:
        """Does the work when the call comes."""

        def fault(service: Service, path: str, body: dict[str, Any]) -> Reply:
            work()
            return then(service, path, body) if then is not None else service.carry_out(path, body)

        return fault

    def beat(self, session: Session, ms: int = 3000) -> None:
        """Has a heartbeat be sent and confirmed."""
        sent = len(self.service.bodies(HEARTBEAT))
        self.clock.advance(ms)
        until(lambda: len(self.service.bodies(HEARTBEAT)) > sent and session.remaining() == 12.0)

    def ended(self, lock: Lock, error: type[TenureError], says: str) -> None:
        with self.assertRaisesRegex(error, says):
            lock.check()
        self.assertEqual(lock.remaining(), 0.0)
        self.assertTrue(lock.over.wait(SOON))
        self.assertTrue(lock.stopping.is_set())


class Opening(OneSession):
    def test_held_from_the_first_confirmed_heartbeat(self) -> None:
        self.service.faults[OPEN] = [self.slow(4000)]
        self.service.faults[HEARTBEAT] = [self.slow(1000)]
        session = self.open(owner="me", label="v7")
        self.assertEqual((session.id, session.owner, session.remaining()), ("S1", "me", 11.0))
        session.check()
        (body,) = self.service.bodies(OPEN)
        self.assertEqual((body["owner"], body["label"]), ("me", "v7"))

    def test_a_first_heartbeat_that_is_answered_too_late_is_of_no_session(self) -> None:
        self.service.faults[OPEN] = [self.slow(6000)]
        self.service.faults[HEARTBEAT] = [self.slow(6000)]
        session = self.open()
        self.assertEqual((session.id, session.remaining()), ("S2", 12.0))

    def test_without_an_answer_another_one_is_opened(self) -> None:
        self.service.faults[OPEN] = [lost, bad_gateway, dropped]
        self.service.faults[HEARTBEAT] = [doubled]
        self.assertEqual(self.open().id, "S3")
        self.assertEqual(len(self.service.bodies(OPEN)), 4)

    def test_a_first_heartbeat_is_sent_again_as_it_was(self) -> None:
        self.service.faults[HEARTBEAT] = [self.slow(2000, lost), dropped, bad_gateway]
        self.assertEqual(self.open().remaining(), 10.0)
        sent = self.service.bodies(HEARTBEAT)
        self.assertEqual(len(sent), 4)
        self.assertTrue(all(body == sent[0] for body in sent), sent)

    def test_no_sessions(self) -> None:
        self.service.always[OPEN] = lambda *_: problem("no-sessions", 409)
        with self.assertRaisesRegex(NoSessionsError, "acquire each lock with Client.acquire"):
            self.client.session()
        self.assertTrue(issubclass(NoSessionsError, ProblemError))

    def test_no_server(self) -> None:
        self.service.always[OPEN] = dropped
        with self.assertRaises(UnavailableError):
            self.service.client(servers=3).session(wait=0)
        self.assertEqual(len(self.service.bodies(OPEN)), 3)  # each was asked


class Holding(OneSession):
    def test_a_lock_is_attached_and_has_no_heartbeats(self) -> None:
        session = self.open(owner="me")
        lock = session.acquire("a", label="v7", data=b"x")
        self.assertEqual((lock.name, lock.token, lock.data, lock.remaining()), ("a", 1, b"x", 12.0))
        for _ in range(3):
            self.beat(session)
        lock.check()
        self.assertEqual(lock.remaining(), 12.0)
        self.assertEqual(self.service.bodies("/v1/heartbeat"), [])
        self.assertEqual(self.service.bodies("/v1/acquire")[0]["owner"], "me")
        with self.assertRaises(HeldError):
            self.client.acquire("a", wait=0)

    def test_the_deadline_of_the_session_counts(self) -> None:
        session = self.open()
        self.clock.advance(2000)
        self.service.counts = True  # the grant has a later one
        lock = session.acquire("a")
        self.assertEqual(lock.remaining(), 10.0)
        self.service.always[HEARTBEAT] = hang
        self.clock.advance(9999)
        lock.check()
        self.clock.advance(1)
        self.ended(lock, ExpiredError, 'a" .token 1.: session S1 has expired')
        self.assertTrue(session.over.wait(SOON))

    def test_until_it_is_attached_the_earlier_deadline_counts(self) -> None:
        session = self.open()
        self.beat(session)
        self.service.counts, self.service.usable_ms = True, 2000
        locks: list[Lock] = []
        left: list[float] = []

        def looks() -> None:
            (lock,) = session._locks.values()
            locks.append(lock)
            left.append(lock.remaining())
            self.clock.advance(1999)
            lock.check()
            self.clock.advance(1)
            self.assertRaises(ExpiredError, lock.check)
            self.service.usable_ms = 12000

        self.service.faults[ATTACH] = [self.watched(looks)]
        lock = session.acquire("a")
        self.assertEqual(left, [2.0])
        # Expired is final: that attachment was released, and the lock was acquired again.
        self.assertIsNot(lock, locks[0])
        self.assertEqual((lock.token, len(self.service.bodies(RELEASE))), (2, 1))

    def test_a_grant_that_does_not_count_is_no_lock_until_it_is_attached(self) -> None:
        session = self.open()
        held: list[bool] = []

        def looks() -> None:
            held.extend(lock.holds() for lock in session._locks.values())

        self.service.faults[ATTACH] = [self.watched(looks)]
        session.acquire("a").check()
        self.assertEqual(held, [False])

    def test_an_attachment_is_sent_again_as_it_was(self) -> None:
        session = self.open()
        self.service.faults[ATTACH] = [lost, dropped, bad_gateway, doubled]
        lock = session.acquire("a")
        lock.check()
        sent = self.service.bodies(ATTACH)
        self.assertEqual(len(sent), 4)
        self.assertTrue(all(body == sent[0] for body in sent), sent)
        self.assertEqual(lock.token, 1)

    def test_refusals_that_are_not_410_are_asked_again(self) -> None:
        session = self.open()
        again = (("unauthenticated", 401), ("forbidden", 403), ("limited", 429), ("unknown", 503))
        for kind, status in again:
            results = {"results": [self.service._result("a", kind, status)]}
            self.service.faults.setdefault(ATTACH, []).extend(
                [lambda *_, r=results: answer(r), lambda *_, k=kind, s=status: problem(k, s)]
            )
        session.acquire("a").check()
        self.assertEqual(len(self.service.bodies(ATTACH)), 9)

    def test_a_grant_that_is_freed_before_its_attachment(self) -> None:
        session = self.open()
        self.service.faults[ATTACH] = [self.watched(lambda: self.service.hold("a"))]
        threading.Timer(0.2, self.service.let_go, ["a"]).start()
        self.assertEqual(session.acquire("a").token, 3)

    def test_an_attachment_that_is_refused(self) -> None:
        session = self.open()
        one = {"results": [self.service._result("a", "bad-request", 400)]}
        for refusal in (problem("bad-request", 400), answer(one)):
            self.service.faults[ATTACH] = [lambda *_, refusal=refusal: refusal]
            with self.assertRaisesRegex(ProblemError, "bad-request"):
                session.acquire("a")
            self.assertIsNone(self.service.holder_of("a"))
        session.check()

    def test_a_lost_session_ends_all_its_locks(self) -> None:
        told: list[TenureError] = []
        session = self.open(on_stop=told.append)
        locks = [session.acquire(name, on_stop=told.append) for name in "abc"]
        self.service.end(session.id)
        self.clock.advance(3000)
        for lock in locks:
            self.assertTrue(lock.over.wait(SOON))
            self.ended(lock, LostError, "session S1 is lost")
        until(lambda: [type(reason) for reason in told] == [LostError] * 4)
        with self.assertRaises(LostError):
            session.check()
        with self.assertRaises(LostError):
            session.acquire("d")
        # What is lost is not released.
        with self.assertRaisesRegex(LostError, "session S1 is lost"):
            locks[0].release()
        self.assertEqual(self.service.bodies(RELEASE), [])

    def test_a_session_that_is_lost_when_a_lock_is_attached(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        self.service.end(session.id)
        with self.assertRaisesRegex(LostError, "session S1 is lost"):
            session.acquire("b", wait=5)
        self.ended(lock, LostError, "session S1 is lost")

    def test_the_end_of_the_session_ends_its_acquires(self) -> None:
        session = self.open()
        self.service.hold("a")
        ends: list[TenureError] = []

        def waits() -> None:
            try:
                session.acquire("a")
            except TenureError as error:
                ends.append(error)

        thread = threading.Thread(target=waits, daemon=True)
        thread.start()
        until(lambda: len(self.service.bodies("/v1/acquire")) > 1)
        self.clock.advance(12000)
        thread.join(SOON)
        self.assertEqual([type(error) for error in ends], [ExpiredError])

    def test_a_suspend_is_seen(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        self.clock.advance(3600 * 1000)
        self.ended(lock, ExpiredError, "session S1 has expired")


class Requests(OneSession):
    def test_a_request_is_for_one_lock(self) -> None:
        told: list[TenureError] = []
        session = self.open()
        a, b = session.acquire("a", on_stop=told.append), session.acquire("b", on_stop=told.append)
        self.service.ask(session.id, "a", a.token)
        self.beat(session)
        self.assertTrue(a.stopping.wait(SOON))
        assert isinstance(a.asked, AskedError)
        self.assertEqual((a.asked.kind, a.asked.by, a.asked.reason, a.reason), ("step-down", "ops", "deploy", a.asked))
        a.check()
        self.assertFalse(a.over.is_set() or b.stopping.is_set() or session.stopping.is_set())
        self.beat(session)
        self.assertNotIn("answered", self.service.bodies(HEARTBEAT)[-1])
        a.release()
        self.service.faults[HEARTBEAT] = [lost, bad_gateway]
        self.beat(session)
        self.assertEqual([body.get("answered") for body in self.service.bodies(HEARTBEAT)[-3:]], [["Q1"]] * 3)
        self.beat(session)
        self.assertNotIn("answered", self.service.bodies(HEARTBEAT)[-1])
        until(lambda: told == [a.asked])
        b.check()

    def test_a_release_while_a_heartbeat_has_no_answer(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        self.service.ask(session.id, "a", lock.token)
        self.beat(session)
        self.service.faults[HEARTBEAT] = [self.watched(lock.release, dropped)]
        self.beat(session)
        first, again = self.service.bodies(HEARTBEAT)[-2:]
        self.assertEqual(first, again)
        self.assertNotIn("answered", first)
        self.beat(session)
        self.assertEqual(self.service.bodies(HEARTBEAT)[-1]["answered"], ["Q1"])

    def test_a_request_for_what_is_not_held_is_answered(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        self.service.ask(session.id, "a", lock.token + 1)
        self.beat(session)
        self.beat(session)
        self.assertEqual(self.service.bodies(HEARTBEAT)[-1]["answered"], ["Q1"])
        self.assertFalse(lock.stopping.is_set())

    def test_an_attachment_tells_a_request(self) -> None:
        session = self.open()
        self.service.asked = {"kind": "hand-over", "by": "ops", "reason": "deploy", "to": "b"}
        told: list[TenureError] = []
        lock = session.acquire("a", on_stop=told.append)
        self.assertTrue(lock.stopping.is_set())
        lock.check()
        until(lambda: told == [lock.asked])

    def test_work_that_does_not_stop(self) -> None:
        session = self.open()
        lock, other = session.acquire("a", stop_timeout=6.0), session.acquire("b")
        self.service.ask(session.id, "a", lock.token)
        self.beat(session)
        self.assertTrue(lock.stopping.wait(SOON))
        self.assertEqual(lock.remaining(), 6.0)
        self.beat(session)
        self.clock.advance(2999)
        lock.check()
        self.clock.advance(1)
        self.ended(lock, ExpiredError, "was asked to stop, and did not in time")
        until(lambda: session.remaining() == 12.0)
        for _ in range(4):
            self.beat(session)
        self.clock.advance(2999)
        self.assertIsNotNone(self.service.holder_of("a"))
        self.assertEqual(self.service.bodies(RELEASE), [])
        self.clock.advance(1)
        until(lambda: self.service.holder_of("a") is None)
        other.check()
        with self.assertRaises(ExpiredError):
            lock.release()  # when the work returns


class Releasing(OneSession):
    def test_release(self) -> None:
        session = self.open()
        lock, other = session.acquire("a"), session.acquire("b")
        lock.release(data=b"next: 17")
        self.assertRaises(ReleasedError, lock.check)
        other.check()
        session.check()
        (body,) = self.service.bodies(RELEASE)
        (attached,) = self.service.bodies(ATTACH)[0]["locks"]
        self.assertEqual(body, {"session": "S1", "locks": [{**attached, "data": "bmV4dDogMTc="}]})
        self.assertEqual(session.acquire("a").data, b"next: 17")

    def test_an_unanswered_release_is_repeated(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        checked: list[bool] = []
        looks = lambda: checked.append(lock.holds())
        self.service.faults[RELEASE] = [
            self.watched(looks, dropped), self.watched(looks, bad_gateway), self.watched(looks, lost)
        ]
        lock.release()
        self.assertEqual(checked, [False] * 3)
        sent = self.service.bodies(RELEASE)
        self.assertEqual(len(sent), 4)
        self.assertTrue(all(body == sent[0] for body in sent), sent)
        self.assertIsNone(self.service.holder_of("a"))

    def test_it_is_repeated_as_long_as_the_session_lasts(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        slow = [self.watched(lambda: self.beat(session, 8000), lambda *_: problem("forbidden", 403))] * 2
        self.service.faults[RELEASE] = [*slow, dropped, dropped]
        with self.assertRaisesRegex(UncertainError, "forbidden"):
            lock.release()
        until(lambda: self.service.holder_of("a") is None)
        self.assertEqual(len(self.service.bodies(RELEASE)), 5)
        session.check()

    def test_the_block(self) -> None:
        session = self.open()
        with self.assertRaises(ZeroDivisionError):
            with session.acquire("a"):
                1 / 0
        self.assertEqual(self.service.records["a"].failed, "ZeroDivisionError: division by zero")


class Closing(OneSession):
    def test_nothing_is_held_from_its_beginning(self) -> None:
        told: list[TenureError] = []
        with self.client.session() as session:
            lock = session.acquire("a", on_stop=told.append)
            seen: list[tuple[bool, bool, bool]] = []
            looks = lambda: seen.append((lock.holds(), lock.over.is_set(), session.holds()))
            self.service.faults[CLOSE] = [self.watched(looks, dropped), self.watched(looks, bad_gateway)]
        self.assertEqual(seen, [(False, True, False)] * 2)
        self.ended(lock, ReleasedError, "session S1 is closed")
        until(lambda: [type(reason) for reason in told] == [ReleasedError])
        self.assertIsNone(self.service.holder_of("a"))
        self.assertEqual(len(self.service.bodies(CLOSE)), 3)
        self.assertEqual(self.service.bodies(RELEASE), [])
        with self.assertRaisesRegex(ReleasedError, "session S1 is closed"):
            lock.release()
        with self.assertRaises(ReleasedError):
            session.acquire("b")

    def works(self, session: Session, work: Callable[[Lock], object]) -> threading.Thread:
        """Has a thread work in the block of a lock."""
        entered = threading.Event()

        def works() -> None:
            with self.assertRaises(ReleasedError), session.acquire("a") as lock:
                entered.set()
                lock.stopping.wait(SOON)
                work(lock)

        thread = threading.Thread(target=works, daemon=True)
        thread.start()
        self.assertTrue(entered.wait(SOON))
        return thread

    def test_it_waits_for_the_blocks_of_others(self) -> None:
        session, ended = self.open(), list[bool]()

        def work(lock: Lock) -> None:
            self.assertRaises(ReleasedError, lock.check)
            sent = len(self.service.bodies(HEARTBEAT))
            self.clock.advance(3000)
            until(lambda: len(self.service.bodies(HEARTBEAT)) > sent)
            ended.append(self.service.bodies(CLOSE) == [] and not session.holds() and session.remaining() == 0)

        thread = self.works(session, work)
        with self.assertRaises(ReleasedError), session.acquire("b"):
            session.close()  # not for the block that it is in
        self.assertEqual(ended, [True])
        self.assertEqual([body["locks"][0]["name"] for body in self.service.bodies(RELEASE)], ["a"])
        thread.join(SOON)

    def test_and_for_the_time_to_stop_at_most(self) -> None:
        session, closed = self.open(stop_timeout=0.1), threading.Event()
        thread = self.works(session, lambda _: closed.wait(SOON))
        with self.assertRaisesRegex(UncertainError, "session S1 expires: work under its locks did not end in time"):
            session.close()
        self.assertIsNotNone(self.service.holder_of("a"))
        self.clock.advance(15000)
        self.assertEqual(self.service.bodies(CLOSE), [])
        self.assertEqual(len(self.service.bodies(HEARTBEAT)), 1)
        closed.set()
        thread.join(SOON)

    def test_the_newest_beat_then_the_confirmed_one(self) -> None:
        for carried_out in (True, False):
            with self.subTest(carried_out=carried_out):
                session, before = self.open(), len(self.service.bodies(CLOSE))
                self.service.faults[HEARTBEAT] = [lost] if carried_out else []
                self.service.always[HEARTBEAT] = hang
                sent = len(self.service.bodies(HEARTBEAT))
                self.clock.advance(3000)
                until(lambda: len(self.service.bodies(HEARTBEAT)) > sent + carried_out)
                session.close()
                newest = self.service.bodies(HEARTBEAT)[-1]
                names = [newest["next"]] if carried_out else [newest["next"], newest["after"]]
                self.assertEqual([body["after"] for body in self.service.bodies(CLOSE)[before:]], names)
                self.assertFalse(self.service.sessions[session.id].open)
                self.service.always.clear()

    def test_no_answer_for_a_lease(self) -> None:
        session = self.open()
        self.service.always[CLOSE] = self.watched(lambda: self.clock.advance(8000), dropped)
        with self.assertRaisesRegex(UncertainError, "closing of session S1"):
            session.close()
        self.assertEqual(len(self.service.bodies(CLOSE)), 2)

    def test_an_acquire_that_a_closing_meets(self) -> None:
        session = self.open()
        self.service.faults[ATTACH] = [self.watched(session.close)]
        with self.assertRaises(ReleasedError):
            session.acquire("a")
        self.assertIsNone(self.service.holder_of("a") if self.service.records["a"].session else None)

    def test_the_block_raises_that_the_session_was_lost(self) -> None:
        with self.assertRaises(LostError):
            with self.client.session() as session:
                self.service.end(session.id)
                self.clock.advance(3000)
                self.assertTrue(session.over.wait(SOON))


class Several(OneSession):
    def test_all_in_one_call(self) -> None:
        session = self.open()
        with session.acquire_all(["c", "a", "b"]) as locks:
            self.assertEqual([lock.name for lock in locks], ["c", "a", "b"])
            locks.check()
            self.assertEqual([body["name"] for body in self.service.bodies("/v1/acquire")], ["a", "b", "c"])
            self.assertEqual([len(body["locks"]) for body in self.service.bodies(ATTACH)], [3])
        self.assertEqual([self.service.holder_of(name) for name in "abc"], [None] * 3)
        self.assertRaises(ReleasedError, locks.check)

    def test_up_to_100_in_a_call(self) -> None:
        session = self.open()
        session.acquire_all(f"n{i:03}" for i in range(201)).check()
        self.assertEqual([len(body["locks"]) for body in self.service.bodies(ATTACH)], [100, 100, 1])

    def test_a_try_takes_all_or_none(self) -> None:
        session = self.open()
        self.service.hold("b")
        with self.assertRaises(HeldError) as raised:
            session.acquire_all(["a", "b", "c"], wait=0)
        self.assertEqual(raised.exception.name, "b")
        self.assertEqual([self.service.holder_of(name) for name in "abc"], [None, "another", None])
        session.check()

    def test_each_is_attached_before_the_acquire_waits(self) -> None:
        session = self.open()
        self.service.hold("b")
        attached: list[int] = []

        def waiting(held: HeldError) -> None:
            attached.extend(len(body["locks"]) for body in self.service.bodies(ATTACH))
            self.service.let_go("b")

        locks = session.acquire_all(["a", "b", "c"], wait=SOON, waiting=waiting)
        locks.check()
        self.assertEqual(attached, [1])

    def test_and_before_a_grant_gets_old(self) -> None:
        session = self.open()
        self.service.always["/v1/acquire"] = self.slow(800)
        session.acquire_all(["a", "b", "c", "d"])
        self.assertEqual([len(body["locks"]) for body in self.service.bodies(ATTACH)], [3, 1])

    def test_one_that_is_lost_has_all_taken_again(self) -> None:
        session = self.open()

        def frees() -> None:
            self.service.hold("a")
            self.service.let_go("a")

        self.service.faults[ATTACH] = [self.watched(frees)]
        locks = session.acquire_all(["a", "b"])
        locks.check()
        self.assertEqual([lock.token for lock in locks], [3, 2])

    def test_an_unanswered_attachment_names_only_what_has_no_answer(self) -> None:
        session = self.open()

        def half(service: Service, path: str, body: dict[str, Any]) -> Reply:
            assert isinstance(service, Sessions)
            first = service.carry_out(path, {**body, "locks": body["locks"][:1]})
            return answer({"results": [*json.loads(first.body)["results"], service._result("b", "unknown", 503)]})

        self.service.faults[ATTACH] = [half]
        session.acquire_all(["a", "b"]).check()
        first, second = (body["locks"] for body in self.service.bodies(ATTACH))
        self.assertEqual(second, first[1:])

    def test_arguments(self) -> None:
        session = self.open()
        for names in ([], ["a", "a"], [""]):
            with self.subTest(names), self.assertRaises(ValueError):
                session.acquire_all(names)
        with self.assertRaisesRegex(TypeError, "such as .'abc'."):
            session.acquire_all("abc")
        with self.assertRaisesRegex(ValueError, "the locks under a session have its owner"):
            session.acquire("a", owner="b")


class Answers(unittest.TestCase):
    def test_answers(self) -> None:
        """What is not certainly the service's own answer is unknown."""
        lost_, asked = json.loads(problem("lost", 410).body), {"kind": "step-down", "by": "ops", "reason": ""}
        request = {**asked, "id": "Q", "name": "a", "token": 1}
        opening = {"session": "S", "beat": "a-0", "lease_ms": 15000, "heartbeat_ms": 3000}
        renewal = {"usable_ms": 12000, "heartbeat_ms": 3000, "requests": [request]}
        a, b = {"name": "a", "asked": asked}, {"name": "b", "problem": lost_}
        cases: list[tuple[Callable[[Reply], Answer], dict[str, Any], type[object]]] = [
            (read_opening, opening, Grant),
            *((read_opening, {**opening, key: None}, Unknown) for key in opening),
            (read_opening, {**opening, "session": ""}, Unknown),
            (read_session_heartbeat, renewal, Confirmed),
            *((read_session_heartbeat, {**renewal, key: None}, Unknown) for key in renewal),
            *(
                (read_session_heartbeat, {**renewal, "requests": [{**request, key: None}]}, Unknown)
                for key in ("id", "name", "token", "kind")
            ),
            (two, {"results": [a, b]}, Results),
            (two, {"results": [b, a]}, Unknown),
            (two, {"results": [a]}, Unknown),
            (two, {"results": [a, b, b]}, Unknown),
            (two, {"results": [a, "b"]}, Unknown),
            (two, {"results": [a, {**b, "problem": None}]}, Unknown),
            (two, {"results": [a, {**b, "problem": {**lost_, "type": "about:blank"}}]}, Unknown),
            (two, {"results": [{**a, "asked": "step-down"}, b]}, Unknown),
            (two, {}, Unknown),
        ]
        for read, body, want in cases:
            with self.subTest(read=read, body=body):
                self.assertIsInstance(read(answer(body)), want)
        page = Reply(200, "text/html", answer({"results": [a, b]}).body)
        self.assertIsInstance(two(page), Unknown)


def two(reply: Reply) -> Answer:
    return read_results(reply, ["a", "b"])


@unittest.skipUnless(hasattr(os, "fork"), "nothing forks here")
class Forks(OneSession):
    def test_a_child_has_no_session(self) -> None:
        session = self.open()
        lock = session.acquire("a")
        calls = len(self.service.calls)
        for work in (session.check, session.close, lock.check, lock.release, lambda: session.acquire("b")):
            self.assertRegex(in_child(work), "LostError: .*this process was forked from it")
        ended = in_child(lambda: (session.remaining(), lock.remaining(), lock.over.is_set()))
        self.assertEqual(ended, "(0.0, 0.0, True)")
        self.assertEqual(len(self.service.calls), calls)
        lock.check()

    def test_a_child_attaches_nothing(self) -> None:
        session = self.open()
        lock = session.acquiring(Terms("a"), attach=False).run()
        assert isinstance(lock, SessionLock)

        def attaches() -> int:
            session.attach([lock], session.caller(), Latch())
            return len(self.service.calls)

        self.assertEqual(in_child(attaches), str(len(self.service.calls)))

    def test_copies(self) -> None:
        session = self.open()
        locks = session.acquire_all(["a"])
        for held in (session, locks[0]):
            with self.assertRaisesRegex(TypeError, "can be neither copied nor pickled"):
                copy.copy(held)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        quicker = mock.patch("tenurelock.lock._STEP", 0.01)
        quicker.start()
        self.addCleanup(quicker.stop)
        self.service, self.clock = Sessions(), ManualClock()
        self.client = AsyncClient("http://127.0.0.1:1")
        self.client._client = self.service.client(self.clock)

    async def forever(self) -> None:
        async with asyncio.timeout(SOON):
            await asyncio.Event().wait()

    async def test_locks_under_a_session(self) -> None:
        async with self.client.session(owner="me") as session:
            self.assertEqual((session.id, session.owner, session.remaining()), ("S1", "me", 12.0))
            async with session.acquire("a") as lock:
                lock.check()
            async with session.acquire_all(["c", "b"]) as locks:
                locks.check()
                self.assertEqual([one.name for one in locks], ["c", "b"])
            self.assertIsNone(self.service.holder_of("b"))
            several = await session.acquire_all(["b"])
            await several.release()
            last = await session.acquire("a")
        self.assertRaises(ReleasedError, last.check)
        self.assertIsNone(self.service.holder_of("a"))

    async def test_a_loss_cancels_the_blocks(self) -> None:
        with self.assertRaisesRegex(LostError, "session S1 is lost"):
            async with self.client.session() as session:
                async with session.acquire("a"):
                    self.service.end(session.id)
                    self.clock.advance(3000)
                    await self.forever()
        task = asyncio.current_task()
        assert task is not None
        self.assertEqual(task.cancelling(), 0)
        await asyncio.sleep(0)

    async def test_a_request_cancels_the_block_of_its_lock(self) -> None:
        async with self.client.session() as session:
            with self.assertRaises(AskedError):
                async with session.acquire_all(["a", "b"]) as locks:
                    self.service.ask(session.id, "b", locks[1].token)
                    self.clock.advance(3000)
                    await self.forever()
            session.check()
            self.assertIsNone(self.service.holder_of("a"))

    async def test_a_closing_cancels_the_blocks_of_other_tasks(self) -> None:
        async def work() -> None:
            async with session.acquire_all(["a", "b", "c"]):
                held.set()
                try:
                    await self.forever()
                finally:
                    await asyncio.sleep(0.01)
                    open_.append(self.service.sessions[session.id].open)

        session, held, open_ = await self.client.session(), asyncio.Event(), list[bool]()
        task = asyncio.create_task(work())
        await held.wait()
        await session.close()
        self.assertEqual(open_, [True])
        with self.assertRaisesRegex(ReleasedError, "session S1 is closed"):
            await task

    async def test_an_acquire_that_is_cancelled_holds_nothing(self) -> None:
        self.service.hold("b")
        async with self.client.session() as session:
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await session.acquire_all(["a", "b"])
            async with asyncio.timeout(SOON):
                while self.service.holder_of("a") is not None:
                    await asyncio.sleep(0.005)


if __name__ == "__main__":
    unittest.main()
