"""Processes that begin where their program has imported everything: a start costs half a second of processor time
otherwise.

One process of the program waits (`attend`) and forks for each command; the tests' side of it is `Forking`. It imports
nothing but what an interpreter has at hand, so that a program may import it before it patches modules.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Final

#: How many seconds the end of a process is waited for.
PATIENCE: Final = 60.0
#: Bytes of a request (the words of a command, or the number of a process whose end is waited for) and of an answer.
_LIMIT: Final = 1 << 20
#: As they are before anybody patches them.
_fork, _waitpid, _sleep, _Socket = os.fork, os.waitpid, time.sleep, socket.socket


def attend(descriptor: int) -> list[str] | None:
    """Fork for each command that comes.

    Returns in each new process, with the command's words, and here when nobody asks any more.
    """
    control = _Socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, _LIMIT, 2)
        if not data:
            return None
        request = json.loads(data)
        if isinstance(request, int):
            control.send(json.dumps(_ended(request)).encode())
            continue
        number = _fork()
        if number == 0:
            control.close()
            for given, place in zip(descriptors, (1, 2), strict=True):
                os.dup2(given, place)
                os.close(given)
            return [str(word) for word in request]
        for given in descriptors:
            os.close(given)
        control.send(json.dumps(number).encode())


def _ended(number: int) -> int | None:
    """The exit status of a process that ends now, as subprocess has it; None when it does not end soon."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found, status = _waitpid(number, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        _sleep(0.002)
    return None


class Forked:
    """A process that `Forking` has started; the part of subprocess.Popen that tests use."""

    def __init__(self, parent: Forking, number: int, stdout: IO[bytes]) -> None:
        self._parent, self._number = parent, number
        self._status: int | None = None
        self.stdout = stdout

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit status. Raises TimeoutExpired when it does not end soon."""
        if self._status is None:
            self._status = self._parent.ended(self._number)
        if self._status is None:
            raise subprocess.TimeoutExpired(f"process {self._number}", timeout)
        return self._status

    def send_signal(self, number: int) -> None:
        """Its number is its own until its end has been waited for."""
        if self._status is None:
            os.kill(self._number, number)

    def kill(self) -> None:
        """End it without notice."""
        self.send_signal(signal.SIGKILL)


class Forking:
    """A program that attends: its command line gets one word more, the number of a descriptor."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno())],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, words: list[str], errors: int) -> Forked:
        """A process for one command; `errors` is the descriptor of its standard error."""
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._control, [json.dumps(words).encode()], [writing, errors])
            return Forked(self, int(json.loads(self._control.recv(_LIMIT))), os.fdopen(reading, "rb"))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)

    @property
    def alive(self) -> bool:
        """Whether the program is there to be asked."""
        return self._process.poll() is None

    def ended(self, number: int) -> int | None:
        """The exit status of one of its processes, None when it does not end soon."""
        self._control.send(json.dumps(number).encode())
        status = json.loads(self._control.recv(_LIMIT))
        return None if status is None else int(status)

    def close(self) -> None:
        """End the program; its processes go on."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
