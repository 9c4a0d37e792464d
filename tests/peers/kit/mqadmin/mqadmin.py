"""Apache's mqadmin 4.9.7 against a server, as a test sees it: a command in, its text out.

The tool's start costs seconds, so one process runs many commands (java/Admin.java).
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType

from tests.peers.kit import peers
from tests.peers.kit.peers import PeerFailedError
from tests.peers.kit.servers import Server

VERSION = "4.9.7"

#: What the tool says on its standard error besides its own failure: stack frames, and lines of its libraries.
_NOISE = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|WARNING: |SLF4J|\d\d:\d\d:\d\d[.,]\d+ .*(DEBUG|WARN|INFO)|OpenJDK|log4j:|RocketMQLog"
)
_LOG_LINES = re.compile(r"^\d\d:\d\d:\d\d(\.\d+ \[|,\d+ \|-).*\n", re.MULTILINE)


def report(out: str, error: str) -> str:
    """Both outputs of a command as one text, without stack frames and log lines."""
    out = _LOG_LINES.sub("", out).lstrip("\n").rstrip("\n")
    lines = [line for line in error.splitlines() if line.strip() and not _NOISE.match(line)]
    return "\n".join([*([out] if out else []), *(["(standard error)", *lines] if lines else [])])


class ToolProcess:
    """A process of the tool. Commands run one after the other, for any server."""

    def __init__(self, folder: Path) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed when the process has ended
        self._process = subprocess.Popen(
            peers.admin_service_command(VERSION),
            cwd=folder,
            env=peers.admin_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="mqadmin", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        self._process.stdout.close()
        self._errors.close()

    def run(self, words: list[str], seconds: float) -> str:
        """What one command prints.

        Raises PeerFailedError when it does not end in time, or ends the tool: close the process then.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(("\t".join(words) + "\n").encode())
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise PeerFailedError(f"mqadmin {' '.join(words)}: no end in {seconds} s") from None
        if line is None:
            self._errors.seek(0)
            raise PeerFailedError(
                f"mqadmin {' '.join(words)}: ended the tool\n{self._errors.read().decode(errors='replace')[-3000:]}"
            )
        out, error = (bytes.fromhex(part[1:]).decode() for part in line.decode().split()[1:])
        return report(out, error)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"> "):  # the remoting layer logs to stdout now and then
                self._lines.put(line)
        self._lines.put(None)


class Tool:
    """The tool for any number of servers.

    Its process starts with the first command, and again after one that ended it.
    """

    def __init__(self) -> None:
        #: Where the tool writes what it writes to files.
        self.folder = Path(tempfile.mkdtemp(prefix="peers-mqadmin-"))
        self._process: ToolProcess | None = None

    def __enter__(self) -> Tool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, words: list[str], seconds: float) -> str:
        """What one command prints. Raises PeerFailedError when it does not end in time, or ends the tool."""
        if self._process is None:
            self._process = ToolProcess(self.folder)
        try:
            return self._process.run(words, seconds)
        except PeerFailedError:
            self._end()
            raise

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class Mqadmin:
    """The tool and the server that it is asked about."""

    def __init__(self, tool: Tool, server: Server) -> None:
        self._tool, self.server = tool, server

    @property
    def folder(self) -> Path:
        """Where the tool writes what it writes to files."""
        return self._tool.folder

    def run(self, *words: str, seconds: float = 120) -> str:
        """What one command prints. Raises PeerFailedError when it does not end in time, or ends the tool.

        The tool gives a server five seconds for an answer, and a busy machine has two tries more.
        """
        for _ in range(3):
            said = self._tool.run([*words, "-n", self.server.names], seconds)
            if "RemotingTimeoutException" not in said:
                break
        return said

    def endless(self, lines: int, *words: str, seconds: float = 120) -> str:
        """The first lines of a command that has no end of its own, in a process of its own that is killed then."""
        command = peers.admin_command(VERSION, *words, "-n", self.server.names)
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=peers.admin_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
            timer = threading.Timer(seconds, os.kill, (process.pid, signal.SIGKILL))
            timer.start()
            assert process.stdout is not None
            said = [line.decode() for _, line in zip(range(lines), process.stdout, strict=False)]
            timer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
            errors.seek(0)
            return report("".join(said), errors.read().decode(errors="replace"))
