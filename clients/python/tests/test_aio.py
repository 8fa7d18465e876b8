# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The client for asyncio: which task is cancelled, and what comes out of the block."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from tenurelock import (
    AskedError,
    AsyncClient,
    AsyncLock,
    ExpiredError,
    HeldError,
    LostError,
    TenureError,
)
from tenurelock.answers import Reply

from .fake import SOON, ManualClock, Service, hang

ASKED = {"kind": "step-down", "by": "ops", "reason": "deploy"}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.005)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        quicker = mock.patch("tenurelock.lock._STEP", 0.01)  # how soon a clock that was moved is read
        quicker.start()
        self.addCleanup(quicker.stop)
        self.service, self.clock = Service(), ManualClock()
        self.client = AsyncClient("http://127.0.0.1:1")
        self.client._client = self.fake = self.service.client(self.clock)

    async def forever(self) -> None:
        async with asyncio.timeout(SOON):
            await asyncio.Event().wait()

    async def test_held_and_released(self) -> None:
        async with self.client.acquire("n", wait=0, history=True) as lock:
            self.assertIs(self.service.bodies("/v1/acquire")[0]["history"], True)
            lock.check()
            self.assertEqual(lock.remaining(), 12.0)
            self.assertEqual(lock.token, 1)
        self.assertIsNone(self.service.holder)
        with self.assertRaises(TenureError):
            lock.check()

    async def test_waiting_is_called_in_the_loop(self) -> None:
        self.service.take_away()
        self.service.streams = [[{"holder": "a", "token": 2}, {"holder": "b", "token": 3}]]
        loop, told = asyncio.get_running_loop(), []

        async def waiting(held: HeldError) -> None:
            self.assertIs(asyncio.get_running_loop(), loop)
            await asyncio.sleep(0)
            told.append(held.holder)
            if held.holder == "b":
                self.service.free()

        async with self.client.acquire("n", waiting=waiting) as lock:
            lock.check()
        self.assertEqual(told, ["another", "a", "b"])

        def refuses(held: HeldError) -> None:
            raise ValueError(held.holder)

        self.service.take_away()
        with self.assertRaisesRegex(ValueError, "another"):
            await self.client.acquire("n", waiting=refuses)

    async def test_a_loss_cancels_the_block(self) -> None:
        with self.assertRaises(LostError):
            async with self.client.acquire("n"):
                self.service.take_away()
                self.clock.advance(3000)
                await self.forever()
        task = asyncio.current_task()
        assert task is not None
        self.assertEqual(task.cancelling(), 0)
        await asyncio.sleep(0)  # nothing of the cancellation is left

    async def test_the_deadline_cancels_the_block_without_a_network(self) -> None:
        with self.assertRaises(ExpiredError):
            async with self.client.acquire("n"):
                self.service.always["/v1/heartbeat"] = hang
                self.clock.advance(12000)
                await self.forever()

    async def test_asked(self) -> None:
        self.service.asked = ASKED
        ended_in_order = False
        with self.assertRaisesRegex(AskedError, "deploy"):
            async with self.client.acquire("n") as lock:
                try:
                    await self.forever()
                finally:
                    await asyncio.sleep(0.01)
                    lock.check()
                    ended_in_order = True
        self.assertTrue(ended_in_order)
        self.assertIsNone(self.service.holder)
        self.assertIsNone(self.service.failed)

    async def test_asked_and_then_the_deadline(self) -> None:
        self.service.asked = ASKED
        with self.assertRaises(ExpiredError):
            async with self.client.acquire("n", stop_timeout=0.001):
                try:
                    await self.forever()
                finally:
                    self.clock.advance(12000)
                    await self.forever()  # an end that takes too long is cancelled too

    async def test_the_block_ends_as_it_is_asked(self) -> None:
        self.service.heartbeat_ms = 1
        async with self.client.acquire("n") as lock:
            self.service.asked = ASKED
            self.clock.advance(1)
            # The loop stands; the cancellation waits until it goes on, which is in the release.
            while not lock._lock.stopping.wait(0.01):
                self.clock.advance(1)
        await asyncio.sleep(0)
        self.assertIsNone(self.service.holder)

    async def test_cancelled_from_outside(self) -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with self.client.acquire("n"):
                entered.set()
                await self.forever()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertIsNone(self.service.holder)

    async def test_an_acquire_that_is_cancelled_holds_nothing(self) -> None:
        def slow(service: Service, path: str, body: dict[str, Any]) -> Reply:
            reply = service.carry_out(path, body)
            task.get_loop().call_soon_threadsafe(task.cancel)
            self.fake.callers[0].aborted.wait(SOON)
            return reply  # the grant comes after all

        self.service.faults["/v1/acquire"] = [slow]

        async def work() -> AsyncLock:
            return await self.client.acquire("n")

        task = asyncio.create_task(work())
        with self.assertRaises(asyncio.CancelledError):
            await task
        await until(lambda: self.service.holder is None)
        self.assertEqual(self.service.bodies("/v1/heartbeat"), [])

    async def test_awaited_alone(self) -> None:
        lock = await self.client.acquire("n")
        self.service.take_away()
        self.clock.advance(3000)
        async with asyncio.timeout(SOON):
            self.assertIsInstance(await lock.wait_stopping(), LostError)
        with self.assertRaises(LostError):
            await lock.release()

    async def test_run(self) -> None:
        async def work(lock: AsyncLock) -> int:
            return lock.token

        self.assertEqual(await self.client.run("n", work, wait=0), 1)

    async def test_failed(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with self.client.acquire("n"):
                1 / 0
        self.assertEqual(self.service.failed, "ZeroDivisionError: division by zero")


if __name__ == "__main__":
    unittest.main()
