"""An interrupt (Ctrl-C, SystemExit out of a handler) that comes to whoever is inside a node, or has just been there.

What is half-changed is not used any more: the driver ends, everybody who waits is told, and no byte is written that
does not belong there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from mqproto import Message
from mqproto.adapters import threaded
from mqproto.adapters.io.node_access import NodeAccess
from mqproto.adapters.io.sockets import listen, port_of
from mqproto.adapters.sync.client import SyncClient
from mqproto.errors import StateError
from mqproto.state.node.contract import Deliver, Link, Ticket
from tests.adapters.conftest import runtime_without_threads_left
from tests.adapters.harness import NAMES, PATIENCE, Proxy, Runtime
from tests.adapters.interrupts import Interrupt, Recorder, Sender, interrupt, loop_of, recorder
from tests.adapters.io.drivers.peers import heard
from tests.adapters.toys import Caller

#: Compiled code cannot be interrupted at these places, nor its methods be replaced.
pytestmark = pytest.mark.pure

#: Of the places of a send where an interrupt may come every so many is tried.
STRIDE = 2


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_without_threads_left(request.param) as opened:
        yield opened


class Mute(Caller):
    """Answers nothing, and says when something has come."""

    def received(self, link: Link, data: bytes, now: int) -> None:
        super().received(link, data, now)
        self.note(f"received {len(self.arrived)}")


class Rig:
    """A driver with a link to a peer that never answers, and somebody who waits for an answer."""

    def __init__(self, runtime: Runtime, stack: ExitStack) -> None:
        self.runtime = runtime
        self.peer, self.node = Mute(), Caller()
        self.delivered: list[object] = []
        listener = listen("127.0.0.1", 0, "toy")
        address = f"127.0.0.1:{port_of(listener)}"
        self._start(stack, self.peer, {"main": listener})
        self.driver = self._start(stack, self.node, {}, self._deliver, self.node.cancel)
        self.link: Link = self.driver.enter(self.node.dial, address, 60_000)
        self.outcomes: list[object] = []
        self._waiting = threading.Thread(target=self._wait)
        self._waiting.start()
        heard(self.peer, "received 9")
        while self.link.driver_slot.sending:  # whoever asked has still to say that it is sent
            self.driver.enter(self.node.note_time)

    def _start(self, stack: ExitStack, *arguments: Any) -> Any:
        driver = Proxy(self.runtime, self.runtime.call(self.runtime.module.Driver, *arguments))
        stack.callback(lambda: driver.stop(PATIENCE))
        driver.start()
        return driver

    def _deliver(self, task: object) -> None:
        self.delivered.append(task)
        if isinstance(task, BaseException):
            raise task

    def _wait(self) -> None:
        try:
            self.outcomes.append(self.driver.wait(self.node.ask, self.link, b"answer me"))
        except BaseException as failure:
            self.outcomes.append(failure)

    def interrupted(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of the driver, from inside the runtime, to which an interrupt comes."""

        def call() -> BaseException | None:
            try:
                function(*arguments)
            except BaseException as failure:
                return failure
            return None

        assert isinstance(self.runtime.call(call), KeyboardInterrupt)

    def check_ended(self) -> None:
        """The driver has ended out of turn, and everybody knows why."""
        self._waiting.join(PATIENCE)
        (outcome,) = self.outcomes
        assert isinstance(outcome, StateError)
        failure = self.driver.failure
        assert isinstance(failure, StateError)
        assert isinstance(failure.__cause__, KeyboardInterrupt)
        assert self.driver.is_over()
        with pytest.raises(StateError, match=r"interrupted \(KeyboardInterrupt\).*make a new one") as caught:
            self.driver.enter(self.node.note_time)
        assert caught.value.__cause__ is failure
        heard(self.peer, "closed")
        assert bytes(self.peer.arrived) == b"answer me", "nothing of the entry that was interrupted"
        self.driver.stop(PATIENCE)
        assert not self.driver._pending


@pytest.fixture
def rig(runtime: Runtime) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(runtime, stack)


def write(rig: Rig, now: int) -> None:
    rig.node.write(rig.link, b"not to be sent")


def write_and_break_off(rig: Rig, now: int) -> None:
    write(rig, now)
    raise KeyboardInterrupt


def settled(rig: Rig, now: int) -> Ticket[bytes]:
    return rig.node.answer_at_once(ValueError("settled"), now)


def test_in_the_verb(rig: Rig) -> None:
    rig.interrupted(rig.driver._target.enter, lambda now: write_and_break_off(rig, now))
    rig.check_ended()


@pytest.mark.parametrize("what", ["data_to_send", "next_deadline"])
def test_while_the_driver_takes_what_there_is(rig: Rig, what: str) -> None:
    setattr(rig.node, what, interrupt)
    rig.interrupted(rig.driver._target.enter, lambda now: write(rig, now))
    rig.check_ended()


@pytest.mark.parametrize("after", [False, True])
def test_when_the_node_has_been_left(rig: Rig, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before or after what was taken is counted as sent; none of it is."""
    target = rig.driver._target
    settle = target._settle

    def settle_and_break_off(batch: Any) -> None:
        ours = b"not to be sent" in batch[0][1]
        if ours:
            monkeypatch.setattr(target, "_settle", settle)
        if after or not ours:
            settle(batch)
        if ours:
            raise KeyboardInterrupt

    monkeypatch.setattr(target, "_settle", settle_and_break_off)
    monkeypatch.setattr("mqproto.adapters.io.node_access.send_batch", lambda batch: None)
    rig.interrupted(target.enter, lambda now: write(rig, now))
    rig.check_ended()


def test_while_others_are_told(rig: Rig) -> None:
    """Whose operation was taken out to be told, and who was not told, is told at the end."""
    told: list[str] = []

    def tell() -> None:
        told.append("told")
        if len(told) == 1:
            raise KeyboardInterrupt

    rig.interrupted(rig.driver._target.launch, tell, lambda now: settled(rig, now), ())
    rig.check_ended()
    assert told == ["told"] * 2


def test_while_something_is_handed_over(rig: Rig) -> None:
    def verb(now: int) -> None:
        rig.node.actions.append(Deliver(KeyboardInterrupt()))

    rig.interrupted(rig.driver._target.enter, verb)
    rig.check_ended()
    assert len(rig.delivered) == 1


def test_while_the_loop_is_woken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rig.driver._target, "wake", interrupt)
        rig.interrupted(rig.driver._target.enter, lambda now: rig.node.run(lambda: None, now))
    rig.check_ended()


def test_before_the_node_is_entered_nothing_happens(rig: Rig) -> None:
    """Somebody else may be inside for a while."""
    target = rig.driver._target
    lock = target._lock

    class Waited:
        """The lock, in whose wait an interrupt comes to the thread that made this."""

        def __init__(self) -> None:
            self._thread = threading.get_ident()

        def __enter__(self) -> None:
            if threading.get_ident() == self._thread:
                raise KeyboardInterrupt
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def enter() -> None:
        target._lock = Waited()
        try:
            target.enter(rig.node.note_time)
        finally:
            target._lock = lock

    rig.interrupted(enter)
    rig.driver.enter(rig.node.note_time)
    assert not rig.driver.is_over()
    assert not rig.outcomes
    rig.driver.stop(PATIENCE)
    rig._waiting.join(PATIENCE)


def test_in_the_send_only_the_connection_is_lost(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows how much went out.

    Everything else goes on, and whoever was to be told by this caller is told by the loop.
    """
    told = threading.Event()

    def verb(now: int) -> Ticket[bytes]:
        write(rig, now)
        return rig.node.ask(rig.link, b"given up", now)

    other = rig.runtime.call(rig.driver._target.launch, told.set, lambda now: rig.node.ask(rig.link, b"", now), ())

    def settle_other_and_write(now: int) -> Ticket[bytes]:
        other.settle(b"settled")
        rig.node.actions.append(other)
        rig.node.tickets.remove(other)
        return verb(now)

    with monkeypatch.context() as patch:
        patch.setattr("mqproto.adapters.io.node_access.send_buffers", interrupt)
        rig.interrupted(rig.driver._target.launch, lambda: None, settle_other_and_write, ())
    heard(rig.node, "closed interrupted while sending")
    heard(rig.peer, "closed")
    assert told.wait(PATIENCE)
    assert len(rig.node.cancelled) == 1, "the operation whose caller has no ticket"
    assert bytes(rig.peer.arrived) == b"answer me"
    assert not rig.driver.is_over()
    rig.driver.enter(rig.node.note_time)
    rig.driver.stop(PATIENCE)
    rig._waiting.join(PATIENCE)


def test_when_the_loop_has_ended_meanwhile(rig: Rig) -> None:
    """Whoever was about to be told by the interrupted is told by it, for the loop has told all others before."""
    told: list[str] = []

    def tell() -> None:
        told.append("told")
        if len(told) == 1:
            raise KeyboardInterrupt

    ticket = rig.runtime.call(rig.driver._target.launch, tell, lambda now: rig.node.ask(rig.link, b"", now), ())
    rig.driver._target._shut_down = True
    rig.interrupted(rig.driver._target.enter, lambda now: rig.node.actions.append(ticket))
    assert told == ["told"] * 2
    rig._waiting.join(PATIENCE)


# --- every place


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as opened:
        yield opened


def test_at_every_place_of_a_send(server: Recorder) -> None:
    """Each time with a new client: nobody waits for ever, and the broker never gets bytes that do not belong
    together.
    """
    ends = set()
    at = 1
    while True:
        sender = Sender(server, threaded)
        with Interrupt(NodeAccess.launch.__code__, at) as cut, suppress(KeyboardInterrupt):
            sender.send_all()
        ends.add(sender.check())
        if not cut.came:
            break
        at += STRIDE
    assert len(sender.futures) == 3
    assert sender.results
    assert ends == {True, False}
    assert cut.places > 100


def not_in_threading(name: str) -> bool:
    return name != threading.__file__


# sockets of drivers that were being made
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", ["start", "close"])
def test_at_every_place_of_a_start_and_an_end(server: Recorder, step: str) -> None:
    at = 1
    while True:
        producer = threaded.Producer("g", server.address)
        if step == "close":
            producer.start()
            producer.send(Message("topic", b"before"))
        with Interrupt(getattr(SyncClient, step).__code__, at, not_in_threading) as cut, suppress(KeyboardInterrupt):
            getattr(producer, step)()
        producer.close()
        server.taken(PATIENCE)
        if producer._instance is not None and (loop := loop_of(producer)).ident:
            loop.join(PATIENCE)
            assert not loop.is_alive()
        if not cut.came:
            break
        at += 1
    assert cut.places > 100
    with threaded.Producer("g", server.address) as producer:
        producer.send(Message("topic", b"a later client is not confused"))
