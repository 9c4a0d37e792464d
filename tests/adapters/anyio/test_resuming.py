"""Tasks that go on within the call that settles their future."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mqproto.adapters.anyio import Driver
from mqproto.adapters.anyio.resuming import Resuming
from tests.adapters.harness import PATIENCE
from tests.adapters.toys import Echo


def test_the_task_goes_on_within_the_call() -> None:
    """... as the current task, and finds the event loop as it left it."""
    order: list[object] = []

    async def wait(future: Resuming) -> None:
        await future
        order.append(asyncio.current_task())
        await asyncio.sleep(0)
        order.append("later")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future = Resuming(loop=loop)
        task = loop.create_task(wait(future))
        await asyncio.sleep(0)

        def settle() -> None:
            future.resume()
            order.append("settled")

        loop.call_soon(settle)
        await task
        assert order == [task, "settled", "later"]

    asyncio.run(main())


def test_a_cancelled_task_is_not_resumed() -> None:
    async def wait(future: Resuming) -> None:
        await future

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future = Resuming(loop=loop)
        task = loop.create_task(wait(future))
        await asyncio.sleep(0)
        task.cancel()
        future.resume()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_future_that_nobody_waits_for_yet_is_settled() -> None:
    async def main() -> None:
        future = Resuming(loop=asyncio.get_running_loop())
        future.resume()
        await future

    asyncio.run(main())


def test_an_interrupt_of_one_leaves_the_others_to_the_event_loop() -> None:
    went_on: list[int] = []

    async def wait(signal: Any, number: int) -> None:
        await signal
        went_on.append(number)
        if number == 1:
            raise KeyboardInterrupt

    async def main() -> None:
        loop = asyncio.get_running_loop()
        driver: Any = Driver(Echo())
        driver._loop = loop
        driver._turning = True
        signals = [driver.signal() for _ in range(3)]
        tasks = [loop.create_task(wait(signal, number)) for number, (signal, _) in enumerate(signals)]
        await asyncio.sleep(0)
        for _, fill in signals:
            fill()
        assert not went_on
        caught: list[type[BaseException]] = []

        def resume() -> None:
            try:
                driver._resume()
            except BaseException as interrupt:
                caught.append(type(interrupt))

        loop.call_soon(resume)
        async with asyncio.timeout(PATIENCE):
            await tasks[2]
        assert went_on == [0, 1, 2]
        assert caught == [KeyboardInterrupt]
        assert isinstance(tasks[1].exception(), KeyboardInterrupt)
        await driver.stop()

    asyncio.run(main())
