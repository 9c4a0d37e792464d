"""Interrupts that come to greenlets, of which the main one is meant: inside the node, in a driver's loop, in the
application's own code.

Signals find whichever greenlet runs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import mqproto.adapters.gevent

pytest.importorskip("gevent")

import gevent
import gevent.event

from mqproto import ConsumeFromWhere, ConsumeStatus, Message
from mqproto.adapters.io.loop import LoopDriver
from mqproto.adapters.io.node_access import NodeAccess
from mqproto.adapters.sync.client import SyncClient
from mqproto.adapters.threaded import Standalone
from tests.adapters.conftest import QUICK_RETRIES
from tests.adapters.harness import PATIENCE
from tests.adapters.interrupts import Interrupt, Recorder, Sender, bodies, loop_of, recorder

GEVENT = str(Path(gevent.__file__).parent)
#: Of the places where an interrupt may come every so many is tried.
STRIDE = 7


def not_gevent(name: str) -> bool:
    """Its functions are not for us to mend."""
    return not name.startswith(GEVENT)


@pytest.fixture(autouse=True)
def _silent_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints where an interrupt came."""
    monkeypatch.setattr(gevent.get_hub(), "exception_stream", None)


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as opened:
        yield opened


class GreenSender(Sender):
    """The other one who sends is a greenlet."""

    def _beside(self, function: Callable[[], None]) -> Callable[[float], object]:
        join: Callable[[float], object] = gevent.spawn(function).join
        return join

    def _wait_held(self) -> None:
        with gevent.Timeout(PATIENCE):
            while not self.server.held.acquire(blocking=False):
                gevent.sleep(0.001)

    def _loop_runs(self) -> bool:
        return not loop_of(self.producer).dead


def test_in_a_listener() -> None:
    """It is no answer of the listener's alone: the main greenlet hears of it. The message comes again."""
    heard: list[bytes] = []
    came_again = gevent.event.Event()

    def listener(messages: Any) -> ConsumeStatus:
        heard.extend(message.body for message in messages)
        if len(heard) == 1:
            signal.raise_signal(signal.SIGINT)
        came_again.set()
        return ConsumeStatus.SUCCESS

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    try:
        with Standalone(settings=QUICK_RETRIES) as broker:
            with mqproto.adapters.gevent.Producer("p", broker.namesrv_address) as producer:
                producer.send(Message("topic", b"x"))
            first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            with mqproto.adapters.gevent.PushConsumer(
                "g", listener, broker.namesrv_address, consume_from_where=first
            ) as consumer:
                consumer.subscribe("topic")
                with pytest.raises(KeyboardInterrupt):
                    came_again.wait(PATIENCE)
                assert came_again.wait(PATIENCE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [b"x"] * 2


@pytest.mark.pure
def test_while_the_driver_counts_what_it_has_sent(server: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections are closed all the same."""
    producer = mqproto.adapters.gevent.Producer("g", server.address).start()
    producer.send(Message("topic", b"before"))
    driver: Any = producer._driver
    settle = driver._settle
    came: list[object] = []

    def cut_off(batch: Any) -> None:
        if gevent.getcurrent() is driver._greenlet and not came:
            came.append(batch)
            raise KeyboardInterrupt
        settle(batch)

    monkeypatch.setattr(driver, "_settle", cut_off)
    futures = [producer.submit(Message("topic", body)) for body in bodies(2)]  # the second one is the loop's to write
    with pytest.raises(KeyboardInterrupt):
        futures[1].result(PATIENCE)
    producer.close()
    assert came
    assert server.taken(PATIENCE)


CODES = {"caller": NodeAccess.launch.__code__, "driver": LoopDriver._turn.__code__}


@pytest.mark.pure
@pytest.mark.parametrize("who", CODES)
def test_at_every_place_of_a_send(server: Recorder, who: str) -> None:
    """Each time with a new client. What comes to the driver's greenlet ends the driver, and comes to the main one."""
    ends = set()
    at = 1
    while True:
        sender = GreenSender(server, mqproto.adapters.gevent)
        with Interrupt(CODES[who], at, not_gevent) as cut:
            try:
                sender.send_all()
            except KeyboardInterrupt:
                assert cut.came
            else:
                assert not cut.came, cut.stack
        ends.add(sender.check())
        if not cut.came:
            break
        at += STRIDE
    assert len(sender.futures) == 3
    assert ends == {True, False}
    assert cut.places > 100


@pytest.mark.pure
# sockets of drivers that were being made
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", ["start", "close"])
def test_at_every_place_of_a_start_and_an_end(server: Recorder, step: str) -> None:
    """Those of the driver's greenlet are among them."""
    at = 1
    while True:
        producer = mqproto.adapters.gevent.Producer("g", server.address)
        if step == "close":
            producer.start()
            producer.send(Message("topic", b"before"))
        code: CodeType = getattr(SyncClient, step).__code__
        with Interrupt(code, at, not_gevent) as cut, suppress(KeyboardInterrupt):
            getattr(producer, step)()
        producer.close()
        if producer._instance is not None and (loop := loop_of(producer)).started:
            loop.join(PATIENCE)
            assert loop.dead
        server.taken(PATIENCE)
        if not cut.came:
            break
        at += STRIDE
    assert cut.places > 100
    with mqproto.adapters.gevent.Producer("g", server.address) as producer:
        producer.send(Message("topic", b"a later client is not confused"))
