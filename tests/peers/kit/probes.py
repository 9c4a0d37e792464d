"""Client probes from a test's point of view: start a command, read its lines, judge its end.

A probe prints one JSON object a line (java/Probe.java names the fields) and ends with status 0 when it reached what it
was asked for. The Java probe runs many commands in one process, because a JVM's start costs a second of CPU; the others
are a process for each command.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from tests.peers.kit import peers
from tests.peers.kit.forking import Forked, Forking
from tests.peers.kit.peers import PeerFailedError
from tests.peers.kit.servers import ADAPTERS, ROOT

Line = dict[str, Any]


@dataclass
class Outcome:
    """Output of a command, and how it ended."""

    lines: list[Line] = field(default_factory=list)
    status: int = 0
    errors: str = ""  #: the end of its standard error

    @property
    def sent(self) -> list[Line]:
        """Results of sends."""
        return [line for line in self.lines if "queueOffset" in line and "body" not in line]

    @property
    def messages(self) -> list[Line]:
        """Messages received, in the order of their coming."""
        return [line for line in self.lines if "body" in line and "properties" in line]

    @property
    def refused(self) -> list[Line]:
        """Messages that the listener refused, as it was told to."""
        return [line for line in self.lines if "refused" in line]

    @property
    def queues(self) -> list[Line]:
        """Lines of `offsets`."""
        return [line for line in self.lines if "committed" in line]


def is_line(text: bytes) -> bool:
    """Whether it is one of a probe.

    Some libraries log to the standard output now and then; who is killed may leave a piece of a line.
    """
    return text.startswith(b"{") and text.endswith(b"\n")


class Running(Protocol):
    """A command under way."""

    outcome: Outcome

    def next_line(self, seconds: float) -> Line | None:
        """The next line that it prints, also added to `outcome`; None when it ended.

        Raises PeerFailedError when the time is over.
        """

    def waiting(self) -> bool:
        """Whether `next_line` would return at once."""

    def stop(self) -> None:
        """Ask a consumer to leave now, as its group's other members would see it leave."""

    def abandon(self) -> None:
        """Its test is over: let it end, if it has not."""


def wait_for(running: Running, key: str, seconds: float = 120) -> Line:
    """Read lines until one has `key`, and return that one."""
    until = time.monotonic() + seconds
    while (line := running.next_line(until - time.monotonic())) is not None:
        if key in line:
            return line
    raise PeerFailedError(f"ended with {running.outcome.status} before {key!r}: {describe(running.outcome)}")


def finish(running: Running, seconds: float = 150, status: int | None = 0) -> Outcome:
    """Wait for the end; raises PeerFailedError unless it ends in time and with `status` (None: any)."""
    until = time.monotonic() + seconds
    while running.next_line(until - time.monotonic()) is not None:
        pass
    if status is not None and running.outcome.status != status:
        raise PeerFailedError(f"ended with {running.outcome.status}, not {status}: {describe(running.outcome)}")
    return running.outcome


def describe(outcome: Outcome) -> str:
    """An outcome for a failure's text: what failed, and the last lines, shortened."""
    failed = [line for line in outcome.lines[:-8] if "failed" in line]
    lines = [json.dumps(line)[:600] for line in (*failed[:8], *outcome.lines[-8:])]
    return "\n  ".join([f"{len(outcome.lines)} lines, the last:", *lines, outcome.errors[-1500:]])


class Client(Protocol):
    """A client library and its probe."""

    kind: str

    def start(self, command: str, **options: object) -> Running:
        """Start a command; names with a trailing underscore lose it (`from_`)."""


def run(client: Client, command: str, *, status: int | None = 0, limit: float = 150, **options: object) -> Outcome:
    """One command from start to end."""
    return finish(client.start(command, **options), limit, status)


def _pairs(options: dict[str, object]) -> list[str]:
    pairs = []
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        assert "\t" not in text
        assert "\n" not in text
        pairs.append(f"{name.rstrip('_')}={text}")
    return pairs


# --- the Java probe, one process for many commands
# ----------------------------------------------------------------------


class JavaClient:
    """Apache's Java client of one release; `binary` sends headers in the ROCKETMQ form.

    Its process lives until `close`.
    """

    def __init__(self, version: str, binary: bool = False) -> None:
        self.kind = f"java-{version}{'-binary' if binary else ''}"
        self.offsets = Path(tempfile.mkdtemp(prefix="peers-offsets-"))
        command = peers.java_probe_command(version, "serve", offsets=self.offsets, binary=binary)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed when the process has ended
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        self._steps: dict[int, queue.SimpleQueue[Line | None]] = {}
        self._open: list[JavaStep] = []
        self._numbers = itertools.count(1)
        self._reader = threading.Thread(target=self._read, name=self.kind, daemon=True)
        self._reader.start()

    def start(self, command: str, **options: object) -> Running:
        step = next(self._numbers)
        lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._steps[step] = lines
        self._write(str(step), command, *_pairs(options))
        self._open.append(JavaStep(self, step, lines))
        return self._open[-1]

    @property
    def alive(self) -> bool:
        """Whether commands can be started."""
        return self._process.poll() is None

    def abandon(self) -> None:
        """Nobody waits for the commands that are under way."""
        for step in self._open:
            step.abandon()
        self._open.clear()

    def stop_step(self, step: int) -> None:
        """End the waiting of a consumer."""
        self._write(str(step), "stop")

    def errors(self) -> str:
        """The end of what the process wrote to its standard error."""
        self._errors.flush()
        data = os.pread(self._errors.fileno(), 1 << 20, 0)
        return data.decode(errors="replace")[-1500:]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        shutil.rmtree(self.offsets, ignore_errors=True)

    def _write(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(("\t".join(words) + "\n").encode())
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not is_line(text):
                continue
            line: Line = json.loads(text)
            step = line.pop("step")
            self._steps[step].put(line)
            if "exit" in line:
                self._steps[step].put(None)
        for lines in [*self._steps.values()]:
            lines.put(None)


class JavaStep:
    """A command in the process of a JavaClient."""

    def __init__(self, client: JavaClient, step: int, lines: queue.SimpleQueue[Line | None]) -> None:
        self._client, self._step, self._lines = client, step, lines
        self._ended = False
        self.outcome = Outcome(status=-1)

    def next_line(self, seconds: float) -> Line | None:
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            self.outcome.errors = self._client.errors()
            raise PeerFailedError(f"{self._client.kind}: nothing more in time; {describe(self.outcome)}") from None
        if line is None:
            self._ended = True
            self.outcome.errors = self._client.errors()
            self._lines.put(None)
            return None
        if "exit" in line:
            self.outcome.status = line["exit"]
            return self.next_line(seconds)
        self.outcome.lines.append(line)
        return line

    def waiting(self) -> bool:
        return not self._lines.empty()

    def stop(self) -> None:
        self._client.stop_step(self._step)

    def abandon(self) -> None:
        if not self._ended and self._client.alive:
            self.stop()


# --- the others, a process for each command ---------------------------------------------------------------------------


class ProcessClient:
    """A client whose probe runs one command: cpp, node, go, and ours over an adapter (ours-threaded ...)."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.offsets = Path(tempfile.mkdtemp(prefix="peers-offsets-"))
        self._forking: Forking | None = None
        self._open: list[ProcessStep] = []

    def start(self, command: str, **options: object) -> Running:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed when the process has ended
        self._open.append(ProcessStep(self.kind, self._spawn([command, *_pairs(options)], errors), errors))
        return self._open[-1]

    @property
    def alive(self) -> bool:
        """Whether commands can be started."""
        return self._forking is None or self._forking.alive

    def abandon(self) -> None:
        """End the commands that are under way."""
        for step in self._open:
            step.abandon()
        self._open.clear()

    def _spawn(self, arguments: list[str], errors: IO[bytes]) -> subprocess.Popen[bytes] | Forked:
        if self.kind.startswith("ours-"):
            return self._forks().start(arguments, errors.fileno())
        if self.kind == "cpp":
            line = peers.cpp_probe_command(*arguments)
        elif self.kind == "node":
            line = peers.node_probe_command(*arguments)
        else:
            line = peers.go_probe_command(*arguments, offsets=self.offsets)
        return subprocess.Popen(line, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)

    def _forks(self) -> Forking:
        if self._forking is None:
            adapter = self.kind.removeprefix("ours-")
            assert adapter in ADAPTERS, self.kind
            self._forking = Forking(
                [sys.executable, "-m", "tests.peers.kit.ours.ours", adapter, str(self.offsets), "attend"], ROOT
            )
        return self._forking

    def close(self) -> None:
        """Nothing is left running between commands."""
        if self._forking is not None:
            self._forking.close()
        shutil.rmtree(self.offsets, ignore_errors=True)


class ProcessStep:
    """A command in a process of its own."""

    def __init__(self, kind: str, process: subprocess.Popen[bytes] | Forked, errors: IO[bytes]) -> None:
        self.kind = kind
        self.outcome = Outcome(status=-1)
        self._process, self._errors = process, errors
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=kind, daemon=True)
        self._reader.start()

    def next_line(self, seconds: float) -> Line | None:
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            self._process.kill()
            self._end()
            raise PeerFailedError(f"{self.kind}: nothing more in time; {describe(self.outcome)}") from None
        if line is None:
            self._end()
            self._lines.put(None)
            return None
        self.outcome.lines.append(line)
        return line

    def waiting(self) -> bool:
        return not self._lines.empty()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it without notice."""
        self._process.kill()

    def abandon(self) -> None:
        if not self._errors.closed:
            self.kill()
            self._end()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if is_line(text):
                self._lines.put(json.loads(text))
        self._lines.put(None)

    def _end(self) -> None:
        if self._errors.closed:
            return
        try:
            self.outcome.status = self._process.wait(60)
        except subprocess.TimeoutExpired:  # it closed its output and hangs
            self._process.kill()
            self.outcome.status = self._process.wait()
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.seek(0)
        self.outcome.errors = self._errors.read().decode(errors="replace")[-3000:]
        self._errors.close()


# --- all of them ------------------------------------------------------------------------------------------------------


def install(kind: str) -> None:
    """What a client needs, by its kind: java-VERSION, java-VERSION-binary, cpp, node, go; ours needs nothing.

    Raises PeerMissingError.
    """
    if not kind.startswith("ours-"):
        peers.INSTALLERS[kind.removesuffix("-binary")]()


class Clients:
    """Clients by kind, each made when first asked for, and anew when its program has died; `close` ends them all."""

    def __init__(self) -> None:
        self._made: dict[str, JavaClient | ProcessClient] = {}

    def __getitem__(self, kind: str) -> JavaClient | ProcessClient:
        if kind in self._made and not self._made[kind].alive:
            self._made.pop(kind).close()
        if kind not in self._made:
            if kind.startswith("java-"):
                version = kind.removeprefix("java-")
                self._made[kind] = JavaClient(version.removesuffix("-binary"), binary=version.endswith("-binary"))
            else:
                self._made[kind] = ProcessClient(kind)
        return self._made[kind]

    def abandon(self) -> None:
        """A test is over: what it has started, and has not seen the end of, ends."""
        for client in self._made.values():
            client.abandon()

    def close(self) -> None:
        """End every process that is still there."""
        for client in self._made.values():
            client.close()


@contextlib.contextmanager
def all_clients() -> Iterator[Clients]:
    """Clients for the time of a session."""
    clients = Clients()
    try:
        yield clients
    finally:
        clients.close()
