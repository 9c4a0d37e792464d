"""Servers that a signal ends, wherever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.adapters.harness import PATIENCE

#: Signals itself at the line of a number among those that follow the announcement, `serve`'s own and those of what it
#: waits by.
PROGRAM = """
import signal, sys
from mqproto.adapters.threaded.run_until_signal import run_until_signal
goal, lines = int(sys.argv[1]), 0
def trace(frame, event, argument):
    global lines
    lines += event == "line"
    if lines == goal and event == "line":
        signal.raise_signal(signal.SIGTERM)
    return trace
def announce(opened):
    print("serving", flush=True)
    sys._getframe(1).f_trace = trace
    sys.settrace(trace)
run_until_signal(lambda: (), announce)
"""

#: While the main thread waits, another one gets the signal: to the interpreter it is one that came too late to be seen
#: before the wait and too early to interrupt it.
MISSED = """
import signal, sys, threading
from mqproto.adapters.threaded.run_until_signal import run_until_signal
main = threading.get_ident()
def kill():
    while sys._current_frames()[main].f_code.co_name not in ("select", "serve"):
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
def announce(opened):
    threading.Thread(target=kill).start()
    print("serving", flush=True)
run_until_signal(lambda: (), announce)
print("over", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals come in their own way there")
def test_a_signal_that_interrupts_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", MISSED], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.communicate(timeout=PATIENCE)[0] == "serving\nover\n"
            assert process.returncode == 0
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="signals come in their own way there")
@pytest.mark.parametrize("line", [1, 2, 4, 6, 8, 10, 12, 14, 16, 20])
def test_a_signal_that_comes_on_the_way_into_waiting(line: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(line)], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n"
            process.send_signal(signal.SIGTERM)  # for the numbers of lines that there are not
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM), "an interpreter that ends has no handlers any more"
        finally:
            process.kill()
