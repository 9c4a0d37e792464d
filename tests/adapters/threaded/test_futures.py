"""Futures of threads: the standard library's in all that can be seen, whenever somebody begins to wait."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, InvalidStateError, as_completed, wait
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto.adapters.threaded import futures
from mqproto.adapters.threaded.futures import SendFuture
from mqproto.adapters.threaded.workers import Workers
from mqproto.errors import NoRoute, StateError
from mqproto.state.node.contract import Ticket

PATIENCE = 60.0
ROUNDS = 200


def read(ticket: Ticket[Any]) -> Any:
    """What drivers do."""
    if not ticket.settled:
        raise StateError("it has ended")
    return ticket.result()


@pytest.fixture
def pool() -> Iterator[Workers]:
    workers = Workers("callbacks", 2)
    yield workers
    assert workers.close(PATIENCE)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns so often that every order of what they do comes about."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def make(pool: Workers) -> Callable[[], SendFuture[Any]]:
    def made() -> SendFuture[Any]:
        future: SendFuture[Any] = SendFuture(pool, read)
        future.ticket = Ticket()
        return future

    return made


def end(future: SendFuture[Any], value: object = "done") -> None:
    """As a driver does."""
    future.ticket.settle(value)
    future.ended()


def end_all(futures: list[SendFuture[Any]]) -> None:
    for future in futures:
        end(future)


def fail(future: SendFuture[Any], failure: BaseException) -> None:
    future.ticket.fail(failure)
    future.ended()


class Beside:
    """Functions in threads of their own, all at once."""

    def __init__(self, *functions: Callable[[], object]) -> None:
        self._gate = threading.Barrier(len(functions) + 1)
        self._threads = [threading.Thread(target=self._run, args=(function,)) for function in functions]
        for thread in self._threads:
            thread.start()
        self._gate.wait(PATIENCE)

    def _run(self, function: Callable[[], object]) -> None:
        self._gate.wait(PATIENCE)
        function()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_it_is_a_future_that_runs(make: Callable[[], SendFuture[Any]]) -> None:
    future = make()
    assert isinstance(future, Future)
    assert (future.running(), future.done(), future.cancel(), future.cancelled()) == (True, False, False, False)
    for asked in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            asked(0)
    end(future, 7)
    assert (future.running(), future.done(), future.cancel(), future.cancelled()) == (False, True, False, False)
    assert (future.result(), future.exception()) == (7, None)
    assert "finished returned int" in repr(future)


def test_failures_are_raised(make: Callable[[], SendFuture[Any]]) -> None:
    failure = NoRoute("topic")
    waited_for, other, left = make(), make(), make()
    with pytest.raises(TimeoutError):
        waited_for.result(0)
    for future in (waited_for, other):
        fail(future, failure)
        assert future.done()
        assert future.exception() is failure
        with pytest.raises(NoRoute):
            future.result()
    left.ended()
    assert isinstance(left.exception(), StateError), "its driver has ended before it"


def test_an_interrupt_that_ended_an_operation_is_its_outcome(make: Callable[[], SendFuture[Any]]) -> None:
    """It is not raised in the driver's thread."""
    future = make()
    fail(future, KeyboardInterrupt())
    assert isinstance(future.exception(), KeyboardInterrupt)


def test_what_nobody_waits_for_makes_nothing_to_wait_with(make: Callable[[], SendFuture[Any]]) -> None:
    future, failed = make(), make()
    end(future, None)
    fail(failed, NoRoute("topic"))
    assert future.done()
    assert failed.done()
    assert future.result(0) is None
    assert future._made is None
    assert failed._made is None


class Traced(Ticket[Any]):
    """Can be told to be gone."""


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("settle", [end, partial(fail, failure=NoRoute("topic"))])
def test_what_has_ended_is_not_kept(pool: Workers, settle: Callable[[SendFuture[Any]], None], watched: bool) -> None:
    """Nor does it wait for the garbage collector: the operation leads to the future, which must not lead back, and has
    the message.
    """
    gc.collect()
    gc.disable()
    try:
        future: SendFuture[Any] = SendFuture(pool, read)
        future.ticket = Traced()
        future.ticket.wake = future.ended
        ticket = weakref.ref(future.ticket)
        if watched:
            with pytest.raises(TimeoutError):
                future.exception(0)
        settle(future)
        assert future.done()
        assert ticket() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("watched", [False, True])
def test_it_is_settled_once(make: Callable[[], SendFuture[Any]], watched: bool) -> None:
    future = make()
    if watched:
        with pytest.raises(TimeoutError):
            future.exception(0)
    end(future, 1)
    with pytest.raises(InvalidStateError):
        future.set_result(2)
    with pytest.raises(InvalidStateError):
        future.set_exception(NoRoute("topic"))
    assert future.result() == 1


def test_callbacks_run_in_the_pool_and_once(make: Callable[[], SendFuture[Any]]) -> None:
    calls: SimpleQueue[tuple[str, str, Any]] = SimpleQueue()

    def note(name: str) -> Callable[[Future[Any]], None]:
        return lambda future: calls.put((name, threading.current_thread().name.rpartition("-")[0], future.result(0)))

    future = make()
    future.add_done_callback(note("before"))
    future.add_done_callback(note("too"))
    end(future)
    future.add_done_callback(note("after"))
    seen = [calls.get(timeout=PATIENCE) for _ in range(3)]
    assert sorted(seen) == [(name, "callbacks", "done") for name in ("after", "before", "too")]
    assert calls.empty()


def test_waiting_for_several(make: Callable[[], SendFuture[Any]]) -> None:
    futures = [make() for _ in range(6)]
    for future in futures[:3]:
        end(future)
    done, left = wait(futures, timeout=0)
    assert (done, left) == (set(futures[:3]), set(futures[3:]))
    arrivals = as_completed(futures, timeout=PATIENCE)
    assert {next(arrivals) for _ in range(3)} == set(futures[:3])
    for future in reversed(futures[3:]):
        end(future)
        assert next(arrivals) is future
    assert next(arrivals, None) is None
    failed = make()
    beside = Beside(lambda: fail(failed, NoRoute("topic")))
    assert wait([failed, make()], PATIENCE, FIRST_EXCEPTION).done == {failed}
    beside.join()


def test_awaiting(make: Callable[[], SendFuture[Any]]) -> None:
    good, bad, over, left = (make() for _ in range(4))
    end(over, 3)

    async def await_all() -> None:
        wrapped = [asyncio.wrap_future(future) for future in (good, bad, over, left)]
        beside = Beside(lambda: end(good, 1), lambda: fail(bad, NoRoute("topic")))
        assert await asyncio.wait_for(wrapped[0], PATIENCE) == 1
        with pytest.raises(NoRoute):
            await asyncio.wait_for(wrapped[1], PATIENCE)
        assert await asyncio.wait_for(wrapped[2], PATIENCE) == 3
        beside.join()
        wrapped[3].cancel()

    asyncio.run(await_all())
    assert left.running(), "the operation itself goes on"


class Announced:
    """A lock that says when somebody wants it."""

    def __init__(self, events: SimpleQueue[str]) -> None:
        self.lock = threading.RLock()
        self._events = events

    def __enter__(self) -> None:
        self._events.put("wanted")
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_nothing_ends_while_somebody_is_about_to_wait(
    make: Callable[[], SendFuture[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for settle in (end, partial(fail, failure=NoRoute("topic"))):
        events: SimpleQueue[str] = SimpleQueue()
        future = make()
        announced = Announced(events)
        monkeypatch.setattr(futures, "_deciding", announced)
        with announced.lock:
            beside = Beside(partial(settle, future), lambda: None)
            assert events.get(timeout=PATIENCE) == "wanted"
            assert not future.done()
        beside.join()
        assert future.done()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_fork_while_somebody_is_about_to_wait(pool: Workers) -> None:
    """Who that was is not in the child, whose futures are its own affair."""

    def settle() -> None:
        future: SendFuture[Any] = SendFuture(pool, read)
        future.set_result(None)
        assert wait([future], 0).done == {future}

    child = multiprocessing.get_context("fork").Process(target=settle, daemon=True)
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with futures._deciding:
            held.set()
            over.wait(PATIENCE)

    beside = Beside(hold)
    assert held.wait(PATIENCE)
    try:
        child.start()
        child.join(PATIENCE)
    finally:
        over.set()
        child.kill()
        beside.join()
    assert child.exitcode == 0


class Noting(SendFuture[Any]):
    """Notes what is written in which order."""

    written: list[str]

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__.setdefault("written", []).append(name)
        super().__setattr__(name, value)


def test_whoever_sees_it_done_sees_the_outcome(pool: Workers) -> None:
    """Because that is written before; no lock is taken to look."""
    for settle in (end, partial(fail, failure=NoRoute("topic"))):
        future = Noting(pool, read)
        future.ticket = Ticket()
        settle(future)
        assert future.written[-1] == "_state"


def wait_and_note(future: SendFuture[Any], seen: list[Any]) -> None:
    seen.append(future.result(PATIENCE))


def note_result(calls: SimpleQueue[int], future: Future[Any]) -> None:
    calls.put(future.result(0))


@pytest.mark.usefixtures("quick_switches")
def test_whoever_begins_to_wait_as_it_ends_hears_of_it(make: Callable[[], SendFuture[Any]]) -> None:
    for number in range(ROUNDS):
        future = make()
        calls: SimpleQueue[int] = SimpleQueue()
        seen: list[int] = []
        beside = Beside(
            partial(end, future, number),
            partial(wait_and_note, future, seen),
            partial(future.add_done_callback, partial(note_result, calls)),
        )
        beside.join()
        assert seen == [number]
        assert calls.get(timeout=PATIENCE) == number
        assert calls.empty()


@pytest.mark.usefixtures("quick_switches")
def test_whoever_counts_what_is_done_as_it_ends_counts_right(make: Callable[[], SendFuture[Any]]) -> None:
    """`wait` counts twice: whatever ends in between would end the waiting too early."""
    for _ in range(ROUNDS):
        futures = [make() for _ in range(8)]
        beside = Beside(partial(end_all, futures[:4]), partial(end_all, futures[4:]))
        done, left = wait(futures, PATIENCE)
        assert not left
        assert all(future.done() for future in done)
        beside.join()


def interrupted_at(place: str) -> Callable[..., Any]:
    """A function in the place of a part of the standard library's, to which an interrupt comes: before or after it has
    done its work.
    """

    def call(real: Callable[..., Any], *arguments: Any) -> Any:
        if place == "after":
            real(*arguments)
        raise KeyboardInterrupt

    return call


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("settle", [end, partial(fail, failure=NoRoute("topic"))])
def test_who_was_not_told_because_of_an_interrupt_is_told_again(
    make: Callable[[], SendFuture[Any]],
    settle: Callable[[SendFuture[Any]], None],
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the driver does that. Callbacks are called once all the same."""
    future = make()
    calls: SimpleQueue[object] = SimpleQueue()
    future.add_done_callback(lambda one: calls.put(one.exception()))
    future.add_done_callback(lambda one: calls.put(one.exception()))
    outcomes: SimpleQueue[object] = SimpleQueue()
    beside = Beside(lambda: outcomes.put(future.exception(PATIENCE)))
    condition = future._condition
    with monkeypatch.context() as patch:
        patch.setattr(condition, "notify_all", partial(interrupted_at(place), condition.notify_all))
        with pytest.raises(KeyboardInterrupt):
            settle(future)
    future.ended()
    beside.join()
    expected = future.exception(0)
    assert outcomes.get(timeout=PATIENCE) is expected
    assert [calls.get(timeout=PATIENCE) for _ in range(2)] == [expected] * 2
    future.ended()
    assert calls.empty()
    assert "ticket" not in vars(future)


def test_an_interrupt_among_callbacks(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether the pool has one: it gets it again, and calls it once."""
    future: SendFuture[Any] = SendFuture(pool, read)
    future.ticket = Ticket()
    calls: SimpleQueue[str] = SimpleQueue()
    for name in ("first", "second"):
        future.add_done_callback(lambda _, name=name: calls.put(name))  # type: ignore[misc]
    with monkeypatch.context() as patch:
        patch.setattr(pool, "submit", partial(interrupted_at("after"), pool.submit))
        with pytest.raises(KeyboardInterrupt):
            end(future)
    assert calls.get(timeout=PATIENCE) == "first"
    future.ended()
    assert calls.get(timeout=PATIENCE) == "second"
    assert pool.close(PATIENCE)
    assert calls.empty()
