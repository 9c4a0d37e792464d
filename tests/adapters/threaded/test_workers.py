"""The pool of threads."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from mqproto.adapters.threaded.workers import Workers

PATIENCE = 60.0


def test_threads_start_as_they_are_needed_and_not_beyond_the_limit() -> None:
    pool = Workers("pool", 3)
    go_on = threading.Event()
    began: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        began.put(threading.current_thread().name)
        go_on.wait(PATIENCE)

    for _ in range(10):
        assert pool.submit(work)
    names = {began.get(timeout=PATIENCE) for _ in range(3)}
    assert names == {"pool-1", "pool-2", "pool-3"}
    assert began.empty()
    go_on.set()
    assert pool.close(PATIENCE)
    assert sum(1 for _ in iter(began.empty, True) if began.get()) == 7
    assert not pool.submit(work)
    assert pool.close(PATIENCE)


def test_an_idle_thread_is_used_again() -> None:
    pool = Workers("pool", 3)
    names: SimpleQueue[str] = SimpleQueue()
    idle = threading.Event()
    seen = set()
    for _ in range(3):
        assert pool.submit(lambda: names.put(threading.current_thread().name))
        seen.add(names.get(timeout=PATIENCE))
        while not pool._idle:
            idle.wait(0.001)
    assert seen == {"pool-1"}
    assert pool.close(PATIENCE)


@pytest.mark.parametrize("failure", [ValueError, SystemExit, KeyboardInterrupt])
def test_work_that_fails_costs_no_thread(failure: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    pool = Workers("pool", 1)
    done = threading.Event()

    def fail() -> None:
        raise failure("wrong")

    pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(PATIENCE)
    assert pool.close(PATIENCE)
    assert "wrong" in caplog.text


def test_closing_waits_no_longer_than_it_may() -> None:
    pool = Workers("pool", 1)
    go_on = threading.Event()
    pool.submit(lambda: go_on.wait(PATIENCE))
    assert not pool.close(0.01)
    go_on.set()
    assert pool.close(PATIENCE)


def test_closing_from_inside_does_not_wait_for_itself() -> None:
    pool = Workers("pool", 1)
    results: SimpleQueue[bool] = SimpleQueue()
    pool.submit(lambda: results.put(pool.close(PATIENCE)))
    assert results.get(timeout=PATIENCE)
    assert pool.close(PATIENCE)


def test_where_no_thread_can_start_the_work_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the threads that there are, or by the caller: so it is at the exit of an interpreter (Python 3.12)."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    done: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        done.put(threading.current_thread().name)

    lonely, staffed = Workers("lonely", 2), Workers("staffed", 2)
    go_on = threading.Event()
    began = threading.Event()

    def hold() -> None:
        began.set()
        go_on.wait(PATIENCE)

    assert staffed.submit(hold)
    assert began.wait(PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert lonely.submit(work)
        assert done.get_nowait() == threading.current_thread().name
        assert staffed.submit(work)
        assert done.empty()
        go_on.set()
        assert done.get(timeout=PATIENCE) == "staffed-1"
    assert lonely.submit(work)
    assert done.get(timeout=PATIENCE) == "lonely-1"
    assert lonely.close(PATIENCE)
    assert staffed.close(PATIENCE)


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_interrupt_where_work_is_queued_costs_at_most_that_work(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is submitted later finds a thread, though another that was started waits for what did not come."""
    pool = Workers("pool", 2)
    go_on, done = threading.Event(), threading.Event()
    put = pool._queue.put

    class Interrupted:
        get, get_nowait = pool._queue.get, pool._queue.get_nowait

        def put(self, work: object) -> None:
            if place == "after":
                put(work)  # type: ignore[arg-type]
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool, "_queue", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            pool.submit(lambda: go_on.wait(PATIENCE))
    if place == "before":
        assert pool.submit(lambda: go_on.wait(PATIENCE))
    assert pool.submit(done.set)
    assert done.wait(PATIENCE)
    go_on.set()
    assert pool.close(PATIENCE)


def test_an_interrupt_while_a_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the others, whether it has started or not."""
    pool = Workers("pool", 3)
    start = threading.Thread.start

    def start_and_break_off(thread: threading.Thread) -> None:
        if len(pool._threads) == 1:
            start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_and_break_off)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                pool.submit(lambda: None)
    done = threading.Event()
    assert pool.submit(done.set)
    assert done.wait(PATIENCE)
    assert pool.close(PATIENCE)
