"""Ctrl-C in programs of tasks, as `asyncio.run` and `trio.run` handle it, at every place of ours: once, or twice by an
impatient user.

The program ends by KeyboardInterrupt, at once, and nobody complains of what was left behind.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import trio

from mqproto import ConsumeFromWhere, ConsumeStatus, Message, MessageExt
from mqproto.adapters.anyio import Producer, PushConsumer
from mqproto.adapters.threaded import Producer as PlainProducer
from mqproto.adapters.threaded import Standalone
from tests.adapters.conftest import QUICK_RETRIES
from tests.adapters.harness import PATIENCE
from tests.adapters.interrupts import Interrupt, Recorder, bodies, our_files, recorder, sent_bodies

Main = Callable[[], Coroutine[Any, Any, None]]

RUNS: dict[str, Callable[[Main], None]] = {
    "asyncio": lambda main: asyncio.run(main()),
    "trio": lambda main: trio.run(main),
}

#: Of the places in the life of a producer, and of a consumer, every so many is tried.
PRODUCER_STRIDE = 151
CONSUMER_STRIDE = 499


def once() -> None:
    signal.raise_signal(signal.SIGINT)


def twice() -> None:
    once()
    once()


class Complaints(logging.Handler):
    """What asyncio logs, what warnings say, and what is raised where nobody can catch it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


@contextmanager
def no_complaints() -> Iterator[None]:
    """Nobody complains, and no thread is left."""
    complaints, logger = Complaints(), logging.getLogger("asyncio")
    before, hook = set(threading.enumerate()), sys.unraisablehook
    sys.unraisablehook = lambda found: complaints.heard.append(f"unraisable: {found.exc_value!r} in {found.object!r}")
    logger.addHandler(complaints)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
            gc.collect()
    finally:
        logger.removeHandler(complaints)
        sys.unraisablehook = hook
    # the broker, which lives on, may start threads for jobs
    ours = re.compile("AnyIO|mqproto-(producer|consumer|admin)")
    left = [thread.name for thread in set(threading.enumerate()) - before if ours.match(thread.name)]
    complaints.heard += [str(warning.message) for warning in warned] + [f"a thread is left: {name}" for name in left]
    assert not complaints.heard, complaints.heard


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    """Whoever started the tests may ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run_interrupted(
    backend: str, main: Main, at: int, how: Callable[[], None], counts: Callable[[str], bool] = our_files
) -> Interrupt:
    """Run a program to which Ctrl-C comes at the `at`-th place. It ends by that, unless there are no so many places."""

    def run() -> None:
        RUNS[backend](main)

    with no_complaints(), Interrupt(run.__code__, at, counts, how) as interrupt:
        try:
            run()
        except KeyboardInterrupt:
            assert interrupt.came
        else:
            assert not interrupt.came, f"it went on after {interrupt.stack}"
    return interrupt


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as opened:
        yield opened


@pytest.mark.parametrize("how", [once, twice], ids=lambda how: how.__name__)
@pytest.mark.parametrize("backend", RUNS)
def test_at_every_place_of_the_life_of_a_producer(server: Recorder, backend: str, how: Callable[[], None]) -> None:
    async def main() -> None:
        async with Producer("g", server.address) as producer:
            for body in bodies(3):
                await producer.send(Message("topic", body))
        await anyio.sleep(0)

    at = 1
    while True:
        interrupt = run_interrupted(backend, main, at, how)
        for data in server.taken(PATIENCE):
            assert set(sent_bodies(data)) <= set(bodies(3))
        if not interrupt.came:
            break
        at += PRODUCER_STRIDE
    assert interrupt.places > 300


@pytest.fixture(scope="module")
def broker() -> Iterator[Standalone]:
    with Standalone(settings=QUICK_RETRIES) as opened:
        with PlainProducer("p", opened.namesrv_address) as producer:
            for number in range(4):
                producer.send(Message("topic", b"%d" % number))
        yield opened


def consumer_of(broker: Standalone, group: str, listener: Callable[..., Any]) -> PushConsumer:
    consumer = PushConsumer(
        group, listener, broker.namesrv_address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe("topic")
    return consumer


@pytest.mark.parametrize("how", [once, twice], ids=lambda how: how.__name__)
@pytest.mark.parametrize("backend", RUNS)
def test_in_a_listener(broker: Standalone, backend: str, how: Callable[[], None]) -> None:
    """It is no answer of the listener's alone: the program hears of it. The message comes again."""
    group = f"{backend}-{how.__name__}-listener"

    async def interrupted() -> None:
        calls = itertools.count()

        async def listener(messages: Sequence[MessageExt]) -> ConsumeStatus:
            if next(calls) == 0:
                how()
            return ConsumeStatus.RECONSUME_LATER

        async with consumer_of(broker, group, listener):
            await anyio.sleep_forever()

    async def later() -> None:
        heard: set[bytes] = set()
        all_heard = anyio.Event()

        async def listener(messages: Sequence[MessageExt]) -> ConsumeStatus:
            heard.update(message.body for message in messages)
            if len(heard) == 4:
                all_heard.set()
            return ConsumeStatus.SUCCESS

        async with consumer_of(broker, group, listener):
            with anyio.fail_after(PATIENCE):
                await all_heard.wait()

    with no_complaints():
        with pytest.raises(KeyboardInterrupt):
            RUNS[backend](interrupted)
        RUNS[backend](later)


@pytest.mark.parametrize("how", [once, twice], ids=lambda how: how.__name__)
@pytest.mark.parametrize("backend", RUNS)
def test_at_every_place_of_the_life_of_a_consumer(broker: Standalone, backend: str, how: Callable[[], None]) -> None:
    """Those of its listener are among them."""
    numbers = itertools.count()

    async def main() -> None:
        heard: list[bytes] = []
        all_heard = anyio.Event()

        async def listener(messages: Sequence[MessageExt]) -> ConsumeStatus:
            await anyio.sleep(0)
            heard.extend(message.body for message in messages)
            if len(heard) >= 4:
                all_heard.set()
            return ConsumeStatus.SUCCESS

        async with consumer_of(broker, f"{backend}-{how.__name__}-{next(numbers)}", listener):
            await all_heard.wait()
        await anyio.sleep(0)

    at = 1
    while run_interrupted(backend, main, at, how, lambda name: our_files(name) or name == __file__).came:
        at += CONSUMER_STRIDE
    assert at > 300
