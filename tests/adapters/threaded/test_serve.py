"""Servers that a signal ends, wherever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.adapters.harness import PATIENCE

#: Signals itself at the line of a number among those that follow the announcement, `serve`'s own and those of what it waits by.
PROGRAM = """
import signal, sys
from adapters.threaded.serve import serve
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
serve(lambda: (), announce)
"""


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
