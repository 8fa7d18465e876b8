# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""A lock against a service in memory: answers lost, late and doubled, suspends, releases."""

from __future__ import annotations

import threading
import time
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from tenurelock import (
    AskedError,
    Client,
    ExpiredError,
    HeldError,
    Lock,
    LostError,
    ProblemError,
    ReleasedError,
    TenureError,
    UnavailableError,
    UncertainError,
)

from tenurelock.answers import Reply
from tenurelock.client import Acquiring
from tenurelock.clock import Clock, Greater, Raw
from tenurelock.transport import CallError

from .fake import SOON, ManualClock, Service, bad_gateway, doubled, dropped, hang, lost, problem, until

HOUR = 3600 * 1000


def lost_after(clock: ManualClock, ms: int) -> Callable[[Service, str, dict[str, Any]], Reply]:
    """Carries the call out, and loses the answer after that time."""

    def fault(service: Service, path: str, body: dict[str, Any]) -> Reply:
        clock.advance(ms)
        return lost(service, path, body)

    return fault


class OneLock(unittest.TestCase):
    def setUp(self) -> None:
        self.service, self.clock = Service(), ManualClock()
        quicker = mock.patch("tenurelock.lock._STEP", 0.01)  # how soon a clock that was moved is read
        quicker.start()
        self.addCleanup(quicker.stop)

    def acquire(self, **options: Any) -> Lock:
        lock = self.service.client(self.clock).acquire("n", **options)
        self.addCleanup(self.end, lock)
        return lock

    def end(self, lock: Lock) -> None:
        self.service.faults.clear()
        self.service.always.clear()
        try:
            lock.release()
        except TenureError:
            pass

    def slow(self, ms: int) -> Callable[[Service, str, dict[str, Any]], Reply]:
        def fault(service: Service, path: str, body: dict[str, Any]) -> Reply:
            reply = service.carry_out(path, body)
            self.clock.advance(ms)
            return reply

        return fault

    def late_failure(self, ms: int) -> Callable[[Service, str, dict[str, Any]], Reply]:
        def fault(service: Service, path: str, body: dict[str, Any]) -> Reply:
            self.clock.advance(ms)
            return dropped(service, path, body)

        return fault


class Holding(OneLock):
    def test_held_from_the_first_confirmed_heartbeat(self) -> None:
        self.service.faults["/v1/acquire"] = [self.slow(4000)]
        self.service.faults["/v1/heartbeat"] = [self.slow(1000)]
        lock = self.acquire()
        # Not from the grant, which is 5 s old, and not from the answer: from before the heartbeat.
        self.assertEqual(lock.remaining(), 11.0)
        lock.check()

    def test_a_pair_is_two_calls(self) -> None:
        self.service.counts = True
        self.service.faults["/v1/acquire"] = [self.slow(1499)]
        lock = self.acquire()
        lock.check()
        self.assertEqual(lock.remaining(), 10.501)
        lock.release()
        self.assertEqual([path for path, _ in self.service.calls], ["/v1/acquire", "/v1/release"])

    def test_a_counted_grant_is_held_on(self) -> None:
        self.service.counts = True
        lock = self.acquire()
        self.clock.advance(3000)
        until(lambda: lock.remaining() == 12.0)
        (sent,) = self.service.bodies("/v1/heartbeat")
        self.assertEqual(sent["after"], f"t{1:012}-0000000000000")
        self.service.always["/v1/heartbeat"] = dropped
        self.clock.advance(12000)
        self.assertRaises(ExpiredError, lock.check)

    def test_a_grant_that_comes_late_needs_a_heartbeat(self) -> None:
        self.service.counts = True
        self.service.faults["/v1/acquire"] = [self.slow(1500)]
        lock = self.acquire()
        self.assertEqual(lock.remaining(), 12.0)
        self.assertEqual(len(self.service.bodies("/v1/heartbeat")), 1)

    def test_an_acquire_that_is_sent_again_counts_from_its_own_sending(self) -> None:
        self.service.counts = True
        # The first had no effect, and the answer to the second comes long after that was sent.
        self.service.faults["/v1/acquire"] = [self.late_failure(9000), self.slow(1000)]
        lock = self.acquire()
        self.assertEqual(lock.remaining(), 11.0)
        self.assertEqual(self.service.bodies("/v1/heartbeat"), [])

    def test_a_grant_in_a_stream_is_no_lease(self) -> None:
        self.service.take_away()

        def waiting(held: HeldError) -> None:
            # The grant is on its way for a while.
            self.service.free()
            self.clock.advance(2000)

        self.service.faults["/v1/heartbeat"] = [lost_after(self.clock, 1000), self.slow(1000)]
        lock = self.acquire(waiting=waiting)
        # Not from when the grant came: from before the first sending of the heartbeat.
        self.assertEqual(lock.remaining(), 10.0)
        lock.check()

    def test_repeated_heartbeats_count_from_the_first_sending(self) -> None:
        self.service.faults["/v1/heartbeat"] = [lost_after(self.clock, 2000), dropped, bad_gateway]
        lock = self.acquire()
        self.assertEqual(lock.remaining(), 10.0)
        sent = self.service.bodies("/v1/heartbeat")
        self.assertEqual(len(sent), 4)
        self.assertTrue(all(body == sent[0] for body in sent), sent)

    def test_a_doubled_heartbeat_is_confirmed(self) -> None:
        self.service.faults["/v1/heartbeat"] = [doubled]
        self.acquire().check()

    def test_heartbeats_go_on(self) -> None:
        self.service = Service(heartbeat_ms=10)
        lock = self.service.client().acquire("n")
        until(lambda: len(self.service.bodies("/v1/heartbeat")) > 5)
        sent = self.service.bodies("/v1/heartbeat")
        for before, after in zip(sent, sent[1:]):
            self.assertEqual(after["after"], before["next"])
        lock.release()

    def test_lost(self) -> None:
        told: list[TenureError] = []
        lock = self.acquire(on_stop=told.append)
        self.service.take_away()
        self.clock.advance(3000)
        self.assertTrue(lock.over.wait(SOON))
        with self.assertRaisesRegex(LostError, "another"):
            lock.check()
        self.assertTrue(lock.stopping.is_set())
        until(lambda: [type(reason) for reason in told] == [LostError])

    def test_the_deadline_needs_no_network(self) -> None:
        lock = self.acquire()
        self.service.always["/v1/heartbeat"] = hang
        self.clock.advance(3000)
        until(lambda: len(self.service.bodies("/v1/heartbeat")) > 1)
        self.assertFalse(lock.stopping.is_set())
        self.clock.advance(8999)
        lock.check()
        self.clock.advance(1)
        with self.assertRaises(ExpiredError):
            lock.check()
        self.assertTrue(lock.over.wait(SOON))
        self.assertIsInstance(lock.reason, ExpiredError)

    def test_the_reason_is_there_before_the_end_is_told(self) -> None:
        lock = self.acquire()
        seen: list[TenureError | None] = []
        tell = lock.over.set

        def told() -> None:
            seen.append(lock.reason)
            tell()

        with mock.patch.object(lock.over, "set", told):
            self.clock.advance(HOUR)
            self.assertTrue(lock.over.wait(SOON))
        self.assertEqual([type(reason) for reason in seen], [ExpiredError])

    def test_a_suspend_is_seen(self) -> None:
        lock = self.acquire()
        self.clock.advance(HOUR)
        with self.assertRaises(ExpiredError):
            lock.check()
        self.assertEqual(lock.remaining(), 0.0)
        self.assertTrue(lock.over.wait(SOON))

    def test_expired_is_final(self) -> None:
        def late(service: Service, path: str, body: dict[str, Any]) -> Reply:
            reply = service.carry_out(path, body)
            self.clock.advance(9000)
            return reply

        lock = self.acquire()
        self.service.faults["/v1/heartbeat"] = [late]
        self.clock.advance(3000)
        self.assertTrue(lock.over.wait(SOON))
        with self.assertRaises(ExpiredError):
            lock.check()

    def test_refusals_that_are_not_410_are_asked_again(self) -> None:
        lock = self.acquire()
        for kind, status in (("unauthenticated", 401), ("forbidden", 403), ("limited", 429), ("unknown", 503)):
            self.service.faults.setdefault("/v1/heartbeat", []).append(
                lambda *_, kind=kind, status=status: problem(kind, status)
            )
        self.clock.advance(3000)
        until(lambda: len(self.service.bodies("/v1/heartbeat")) == 6)
        lock.check()
        sent = self.service.bodies("/v1/heartbeat")[1:]
        self.assertTrue(all(body == sent[0] for body in sent), sent)

    def test_asked(self) -> None:
        told: list[TenureError] = []
        lock = self.acquire(on_stop=told.append, stop_timeout=6.0)
        self.service.asked = {"kind": "step-down", "by": "ops", "reason": "deploy"}
        self.clock.advance(3000)
        self.assertTrue(lock.stopping.wait(SOON))
        self.assertIsInstance(lock.reason, AskedError)
        self.assertFalse(lock.over.is_set())
        lock.check()
        self.clock.advance(3000)  # it is held on while the work stops
        until(lambda: lock.remaining() == 12.0)  # that heartbeat is confirmed
        self.clock.advance(3000)  # and no longer
        self.clock.advance(8999)
        lock.check()
        self.clock.advance(1)
        self.assertTrue(lock.over.wait(SOON))
        with self.assertRaises(ExpiredError):
            lock.check()
        self.assertEqual(len(self.service.bodies("/v1/heartbeat")), 3)
        until(lambda: [type(reason) for reason in told] == [AskedError, ExpiredError])

    def test_a_slow_callback_holds_up_nothing(self) -> None:
        stuck = threading.Event()
        self.addCleanup(stuck.set)
        lock = self.acquire(on_stop=lambda _: stuck.wait() and None)
        self.service.asked = {"kind": "step-down", "by": "ops", "reason": "deploy"}
        self.clock.advance(3000)
        self.assertTrue(lock.stopping.wait(SOON))
        self.clock.advance(3000)
        until(lambda: len(self.service.bodies("/v1/heartbeat")) == 3)


class History(OneLock):
    def test_it_is_asked_for(self) -> None:
        self.acquire(history=True).release()
        self.acquire().release()
        self.assertEqual([body.get("history") for body in self.service.bodies("/v1/acquire")], [True, None])


class Releasing(OneLock):
    def test_release(self) -> None:
        lock = self.acquire()
        with self.assertRaisesRegex(ValueError, "data has 262145 bytes"):
            lock.release(data=bytes(256 * 1024 + 1))
        lock.check()
        lock.release(data=b"next: 17")
        self.assertIsNone(self.service.holder)
        with self.assertRaises(ReleasedError):
            lock.check()
        self.assertEqual(self.acquire().data, b"next: 17")

    def test_a_5xx_is_perhaps_released(self) -> None:
        lock = self.acquire()
        checked: list[type[TenureError] | None] = []

        def watched(service: Service, path: str, body: dict[str, Any]) -> Reply:
            try:
                lock.check()
                checked.append(None)
            except TenureError as error:
                checked.append(type(error))
            return bad_gateway(service, path, body)

        self.service.faults["/v1/release"] = [watched, watched]
        lock.release()
        # Between the answers nobody may act, although the service's answer was an error.
        self.assertEqual(checked, [ReleasedError, ReleasedError])
        sent = self.service.bodies("/v1/release")
        self.assertEqual([body["after"] for body in sent], [sent[0]["after"]] * 3)

    def test_no_answer_for_a_lease(self) -> None:
        lock = self.acquire()

        def slow(service: Service, path: str, body: dict[str, Any]) -> Reply:
            self.clock.advance(8000)
            return dropped(service, path, body)

        self.service.always["/v1/release"] = slow
        with self.assertRaisesRegex(UncertainError, "expires by itself"):
            lock.release()
        self.assertEqual(len(self.service.bodies("/v1/release")), 2)
        with self.assertRaises(UncertainError):
            lock.release()  # as the first one

    def test_with_a_heartbeat_under_way(self) -> None:
        lock = self.acquire()
        self.service.faults["/v1/heartbeat"] = [lost]
        self.service.always["/v1/heartbeat"] = hang
        self.clock.advance(3000)
        until(lambda: len(self.service.bodies("/v1/heartbeat")) == 3)
        lock.release()
        newest = self.service.bodies("/v1/heartbeat")[-1]
        self.assertEqual([body["after"] for body in self.service.bodies("/v1/release")], [newest["next"]])
        self.assertIsNone(self.service.holder)

    def test_with_a_heartbeat_that_never_came(self) -> None:
        lock = self.acquire()
        self.service.always["/v1/heartbeat"] = hang
        self.clock.advance(3000)
        until(lambda: len(self.service.bodies("/v1/heartbeat")) == 2)
        lock.release()
        newest = self.service.bodies("/v1/heartbeat")[-1]
        self.assertEqual(
            [body["after"] for body in self.service.bodies("/v1/release")], [newest["next"], newest["after"]]
        )
        self.assertIsNone(self.service.holder)

    def test_the_block_raises_that_the_lock_was_lost(self) -> None:
        with self.assertRaises(LostError):
            with self.acquire():
                self.service.take_away()

    def test_the_block_tells_that_the_work_failed(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.acquire():
                1 / 0
        self.assertEqual(self.service.failed, "ZeroDivisionError: division by zero")
        with self.assertRaises(AskedError):
            with self.acquire():
                raise AskedError("step-down", "ops", "deploy")
        self.assertIsNone(self.service.failed)

    def test_run(self) -> None:
        token = self.service.client(self.clock).run("n", lambda lock: lock.token, wait=0)
        self.assertEqual((token, self.service.holder), (1, None))


class Acquires(unittest.TestCase):
    def setUp(self) -> None:
        self.service = Service()

    def test_try(self) -> None:
        self.service.take_away()
        with self.assertRaises(HeldError) as raised:
            self.service.client().acquire("n", wait=0)
        held = raised.exception
        self.assertEqual((held.holder, held.token, held.free_in), ("another", 1, 0.5))
        self.assertEqual(self.service.bodies("/v1/acquire")[0]["wait_ms"], 0)

    def test_waits(self) -> None:
        self.service.take_away()
        holders: list[str] = []

        def waiting(held: HeldError) -> None:
            holders.append(held.holder)
            self.service.free()

        lock = self.service.client().acquire("n", owner="me", waiting=waiting)
        lock.release()
        self.assertEqual(holders, ["another"])
        sent = self.service.bodies("/v1/acquire")
        self.assertEqual([(body["owner"], body["wait_ms"]) for body in sent], [("me", 0), ("me", 20000)])

    def test_a_stream_tells_of_each_holder(self) -> None:
        self.service.take_away()
        told: list[tuple[str, int, bool]] = []

        def waiting(held: HeldError) -> None:
            told.append((held.holder, held.token, held.reserved))
            if held.reserved:
                self.service.free()

        first = {"holder": "another", "token": 1}
        kept = {"holder": "b", "token": 1, "free_in_ms": 500, "reserved": True}
        self.service.streams = [[first, first, {"holder": "a", "token": 2}, kept]]
        self.service.client().acquire("n", waiting=waiting).release()
        self.assertEqual(told, [("another", 1, False), ("a", 2, False), ("b", 1, True)])
        self.assertEqual([body["wait_ms"] for body in self.service.streamed], [20000])

    def test_a_stream_that_fails_is_followed_by_a_long_poll(self) -> None:
        self.service.take_away()
        calls: list[str] = []

        def still(service: Service, path: str, body: dict[str, Any]) -> Reply:
            if len(calls) > 5:
                service.free()
            return service.carry_out(path, body)

        cut: list[Any] = [OSError("cut")]
        self.service.always["/v1/acquire"] = still
        self.service.streams = [cut, [{"holder": "a", "token": 2}], cut, cut]
        with mock.patch("tenurelock.client._LONGEST_WAIT", 0.01):
            asks = Acquiring._ask

            def noted(acquiring: Acquiring, body: dict[str, Any], wait: float) -> Any:
                before = len(self.service.streamed)
                answer = asks(acquiring, body, wait)
                calls.append("stream" if len(self.service.streamed) > before else "poll")
                return answer

            with mock.patch.object(Acquiring, "_ask", noted):
                self.service.client().acquire("n", waiting=lambda held: None).release()
        # The first only tries. One stream is good, and after two that are not there are no more.
        self.assertEqual(calls[:7], ["poll", "stream", "poll", "stream", "stream", "poll", "stream"])
        self.assertEqual(set(calls[7:]), {"poll"})

    def test_what_the_callback_raises_ends_the_acquire(self) -> None:
        self.service.take_away()
        self.service.streams = [[{"holder": "a", "token": 2}]]

        def waiting(held: HeldError) -> None:
            if held.holder == "a":
                raise ConnectionError("of the program, not of the network")

        with self.assertRaisesRegex(ConnectionError, "of the program"):
            self.service.client().acquire("n", waiting=waiting)
        self.assertEqual(len(self.service.streamed), 1)

    def test_the_wait_ends(self) -> None:
        self.service.take_away()
        with self.assertRaises(HeldError):
            self.service.client().acquire("n", wait=0.2)
        self.assertGreaterEqual(len(self.service.bodies("/v1/acquire")), 2)

    def test_a_lost_grant_is_no_lock(self) -> None:
        def lost_and_freed(service: Service, path: str, body: dict[str, Any]) -> Reply:
            service.carry_out(path, body)
            service.free()  # nobody's heartbeat came
            raise ConnectionResetError("lost")

        self.service.faults["/v1/acquire"] = [lost_and_freed]
        lock = self.service.client().acquire("n")
        self.assertEqual(lock.token, 2)
        lock.release()

    def test_a_grant_that_is_freed_before_its_heartbeat(self) -> None:
        def freed(service: Service, path: str, body: dict[str, Any]) -> Reply:
            service.free()
            return service.carry_out(path, body)

        self.service.faults["/v1/heartbeat"] = [freed]
        lock = self.service.client().acquire("n")
        self.assertEqual(lock.token, 2)
        lock.release()

    def test_says_by_which_clock_it_counts(self) -> None:
        now = 0

        clocks: list[tuple[Clock, str | None]] = [
            (Raw(lambda: (now, now, now)), "raw"),
            (Greater(lambda: (now, now)), None),
            (lambda: now, None),
        ]
        for clock, want in clocks:
            client = self.service.client()
            client.clock = clock
            client.acquire("n").release()
            self.assertEqual(self.service.bodies("/v1/acquire")[-1].get("clock"), want)

    def test_an_older_service_does_not_know_the_clock(self) -> None:
        def older(service: Service, path: str, body: dict[str, Any]) -> Reply:
            return problem("bad-request", 400) if "clock" in body else service.carry_out(path, body)

        self.service.always["/v1/acquire"] = older
        client = self.service.client()
        client.clock = Raw(lambda: (0, 0, 0))
        client.acquire("n", wait=0).release()
        self.assertEqual([body.get("clock") for body in self.service.bodies("/v1/acquire")], ["raw", None])
        self.service.always["/v1/acquire"] = lambda *_: problem("bad-request", 400)
        with self.assertRaisesRegex(ProblemError, "bad-request"):
            client.acquire("n")
        self.assertEqual(len(self.service.bodies("/v1/acquire")), 4)

    def test_refused(self) -> None:
        self.service.faults["/v1/acquire"] = [lambda *_: problem("forbidden", 403)]
        with self.assertRaisesRegex(ProblemError, "forbidden"):
            self.service.client().acquire("n")

    def test_no_server(self) -> None:
        self.service.always["/v1/acquire"] = dropped
        with self.assertRaises(UnavailableError):
            self.service.client(servers=3).acquire("n", wait=0)
        self.assertEqual(len(self.service.bodies("/v1/acquire")), 3)  # each was asked

    def test_no_server_any_more(self) -> None:
        # Who held the lock when a server last answered is not who holds it.
        self.service.take_away()
        self.service.faults["/v1/acquire"] = [lambda service, path, body: service.carry_out(path, body)]
        self.service.always["/v1/acquire"] = dropped
        with self.assertRaises(UnavailableError):
            self.service.client(servers=3).acquire("n", wait=1)

    def test_a_silent_service_is_logged_once(self) -> None:
        self.service.faults["/v1/acquire"] = [dropped] * 4
        with mock.patch("tenurelock.client._SILENCE", 0.0), self.assertLogs("tenurelock", "WARNING") as logs:
            self.service.client().acquire("n").release()
        self.assertRegex(logs.output[0], 'acquire "n": no answer for 0 s: .*the call was lost; trying again')
        self.assertRegex(logs.output[1], 'acquire "n": the service answers again')
        self.assertEqual(len(logs.output), 2)

    def test_a_mistake_that_stays_is_raised_at_once(self) -> None:
        def wrong(*_: object) -> Reply:
            raise CallError("https://a: certificate", permanent=True)

        self.service.faults["/v1/acquire"] = [wrong, dropped, wrong, wrong]  # by two servers in turn
        with self.assertRaisesRegex(UnavailableError, "https://a: certificate"):
            self.service.client(servers=2).acquire("n")
        self.assertEqual(len(self.service.bodies("/v1/acquire")), 4)

    def test_servers_that_end_tell_to_ask_elsewhere(self) -> None:
        self.service.faults["/v1/acquire"] = [lambda *_: problem("unavailable", 503)]
        client = self.service.client(servers=2)
        client.acquire("n", wait=0).release()
        self.assertEqual(client.callers[0].moves, 1)

    def test_arguments(self) -> None:
        client = self.service.client()
        bad: list[dict[str, Any]] = [{"name": ""}, {"wait": -1.0}, {"stop_timeout": 0.0}]
        for options in bad:
            with self.subTest(options), self.assertRaises(ValueError):
                client.acquire(**{"name": "n", **options})
        bad_servers: list[str | list[str]] = [[], "127.0.0.1:1", "ftp://x", "http://", "unix:x", "http://h/?q"]
        for servers in bad_servers:
            with self.subTest(servers), self.assertRaises(ValueError):
                Client(servers)
        for token in ("", "two words", "ümlaut", "line\n"):
            with self.subTest(token), self.assertRaises(ValueError):
                Client("http://h", token=token)
        path: Any = "ca.pem"  # as other clients take it
        with self.assertRaisesRegex(TypeError, 'create_default_context\\(cafile="ca.pem"\\)'):
            Client("https://h", tls=path)


if __name__ == "__main__":
    unittest.main()
