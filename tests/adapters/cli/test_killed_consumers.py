"""Consumer processes that are killed in the middle of their work, on every runtime: every message is handled at least
once, and what comes again has the id that it had.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from mqproto import Message
from mqproto.adapters.threaded import Producer, Standalone
from tests.adapters.harness import NAMES, PATIENCE

ROOT: Final = Path(__file__).parents[3]
KILLS: Final = 2
#: Messages that are sent in each half of the life of a consumer, and how many it handles; the others it has fetched. In
#: the second half it pulls again, which tells the broker how far it is.
SENT: Final = 40
HANDLED: Final = 20

#: Each message needs a byte to be handled, and is a line then, written at once.
PROGRAM: Final = """
    import os, sys
    from {reader} import {read}
    from mqproto.adapters.{package} import PushConsumer
    from mqproto import ConsumeFromWhere, ConsumeStatus

    def listen(messages):
        for message in messages:
            {read}(0, 1)
            os.write(1, message.body + b" " + message.msg_id.encode() + b"\\n")
        return ConsumeStatus.SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer("g", listen, sys.argv[1], consume_from_where=first, persist_consumer_offset_interval=100)
    consumer.subscribe("T")
"""
TASKS: Final = """
async def main():
    await consumer.start()
    await anyio.sleep_forever()
import anyio
anyio.run(main, backend="{name}")
"""
FOREVER: Final = {
    "threaded": "consumer.start()\nimport threading\nthreading.Event().wait()",
    "gevent": "consumer.start()\nimport gevent\ngevent.sleep(3600)",
    "asyncio": TASKS.format(name="asyncio"),
    "trio": TASKS.format(name="trio"),
}


class Handled:
    """What consumers have handled: the ids of each body."""

    def __init__(self) -> None:
        self.ids: dict[str, set[str]] = defaultdict(set)

    def take(self, line: bytes) -> None:
        body, _, msg_id = line.decode().strip().partition(" ")
        self.ids[body].add(msg_id)

    def work(self, process: subprocess.Popen[bytes], count: int) -> None:
        """Have the process handle so many messages, whatever they are."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x" * count)
        process.stdin.flush()
        for done in range(count):
            line = process.stdout.readline()
            assert line, f"no more comes: {done} of {count} messages were handled"
            self.take(line)

    @contextmanager
    def consumer(self, name: str, namesrv: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process that is killed at the end."""
        package = name if name in ("threaded", "gevent") else "anyio"
        reader, read = ("gevent.os", "tp_read") if name == "gevent" else ("os", "read")
        program = textwrap.dedent(PROGRAM.format(package=package, reader=reader, read=read)) + FOREVER[name]
        command = [sys.executable, "-c", program, namesrv]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            watch = threading.Timer(PATIENCE, process.kill)
            watch.start()
            try:
                yield process
            finally:
                watch.cancel()
                process.kill()
                assert process.stdout is not None
                for line in process.stdout:
                    self.take(line)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost(name: str) -> None:
    handled = Handled()
    sent: dict[str, set[str]] = {}
    with Standalone() as server, Producer("p", server.namesrv_address) as producer:

        def send() -> None:
            for number in range(len(sent), len(sent) + SENT):
                sent[str(number)] = {producer.send(Message("T", b"%d" % number)).msg_id}

        for _ in range(KILLS):
            with handled.consumer(name, server.namesrv_address) as process:
                for _ in range(2):
                    send()
                    handled.work(process, HANDLED)
        with handled.consumer(name, server.namesrv_address) as process:
            send()
            while len(handled.ids) < len(sent):
                handled.work(process, 1)
    assert handled.ids == sent
