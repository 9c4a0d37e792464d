"""Taking a lock by trying."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mqproto.adapters.threaded import Driver, yielding_lock
from mqproto.adapters.threaded.yielding_lock import YieldingLock
from tests.adapters.harness import PATIENCE as SECONDS
from tests.adapters.toys import Echo


class Busy:
    """A lock that is found taken for so many tries; being waited for, it is got."""

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.waited = 0
        self.held = False

    def acquire(self, blocking: bool = True) -> bool:
        if blocking:
            self.waited += 1
        elif self.tries:
            self.tries -= 1
            return False
        self.held = True
        return True

    def release(self) -> None:
        assert self.held
        self.held = False


@pytest.mark.parametrize("tries", [0, 1, yielding_lock._TRIES])
def test_it_tries_and_does_not_wait(tries: int) -> None:
    lock: Any = Busy(tries)
    with YieldingLock(lock):
        assert lock.held
    assert (lock.tries, lock.waited, lock.held) == (0, 0, False)


def test_it_waits_in_the_end() -> None:
    lock: Any = Busy(yielding_lock._TRIES + 1)
    with YieldingLock(lock):
        assert lock.held
    assert (lock.tries, lock.waited, lock.held) == (0, 1, False)


def test_it_lets_go_after_an_error() -> None:
    lock = threading.Lock()
    with pytest.raises(ZeroDivisionError), YieldingLock(lock):
        raise ZeroDivisionError
    assert not lock.locked()


def test_one_at_a_time() -> None:
    lock, count = threading.Lock(), 0

    def work() -> None:
        nonlocal count
        for _ in range(2_000):
            with YieldingLock(lock):
                seen = count
                lock.locked()  # a call, where the interpreter may turn to another thread
                count = seen + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert count == 8_000


def test_who_enters_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of pools do, the main thread does not."""
    lock: Any = Busy(0)
    driver = Driver(Echo())
    monkeypatch.setattr(driver, "_patience", YieldingLock(lock))
    held = []
    driver.start()
    try:
        driver.enter_from_pool(lambda now: held.append(lock.held))
        thread = threading.Thread(target=driver.enter_from_pool, args=(lambda now: held.append(lock.held),))
        thread.start()
        thread.join(SECONDS)
    finally:
        driver.stop(SECONDS)
    assert held == [False, True]
