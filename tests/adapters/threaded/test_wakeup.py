"""Waiting in the main thread for signals and for others."""

from __future__ import annotations

import signal
import threading

import pytest

from mqproto.adapters.threaded.wakeup import Wakeup
from tests.adapters.harness import PATIENCE


def test_it_is_heard_whenever_it_was_rung() -> None:
    with Wakeup() as wakeup:
        assert not wakeup.wait(0)
        wakeup.wake()
        assert wakeup.wait()
        thread = threading.Thread(target=wakeup.wake)
        thread.start()
        assert wakeup.wait(PATIENCE)
        thread.join()
        for _ in range(100_000):
            wakeup.wake()
        assert wakeup.wait()
    wakeup.wake()  # nobody waits any more


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no such signal")
def test_signals_ring_while_it_is_open() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    usr1 = signal.getsignal(signal.SIGUSR1)
    try:
        with Wakeup(signal.SIGUSR1, on_signal=lambda: heard.append(0)) as wakeup:
            signal.raise_signal(signal.SIGUSR2)
            assert not wakeup.wait(0.001), "that one is not ours"
            signal.raise_signal(signal.SIGUSR1)
            assert wakeup.wait(PATIENCE)
        assert heard == [signal.SIGUSR2, 0]
        assert signal.getsignal(signal.SIGUSR1) == usr1
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGUSR2, before)
