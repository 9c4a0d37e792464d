"""A broker process that is killed under load, again and again: no acknowledged message is missing.

`--kills 200` is the long run (`docs/testing.md`). Senders over several connections note every acknowledgement; after
each start all of them are compared with what the broker serves.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from mqproto import MessageExt
from mqproto.codec import FrameSplitter, decode, encode_request
from mqproto.engine.store import DiskFiles
from mqproto.engine.store.doctor import check
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.record import decode_records
from tests.adapters.harness import PATIENCE

ROOT: Final = Path(__file__).parents[3]
TOPIC: Final = "Killed"
QUEUES: Final = 4
SENDERS: Final = 4
IN_FLIGHT: Final = 8
#: Small files, so that the log, queues and index roll all the time.
SETTINGS: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "flushIntervalConsumeQueue": 20,
    "flushConsumeQueueThoroughInterval": 50,
    "fileReservedTime": 10_000,
    "cleanFileForciblyEnable": "false",
}


class Ledger:
    """What was acknowledged: for each queue offset, the unique id and a sum of the body."""

    def __init__(self, kill_at: int) -> None:
        self.acknowledged: list[dict[int, tuple[str, int]]] = [{} for _ in range(QUEUES)]
        #: Called when so many were acknowledged in one life.
        self.kill_at = kill_at
        self.count = 0
        self.lock = threading.Lock()
        self.enough = threading.Event()

    def note(self, queue_id: int, offset: int, key: str, total: int) -> None:
        with self.lock:
            assert offset not in self.acknowledged[queue_id], "two messages in one place"
            self.acknowledged[queue_id][offset] = (key, total)
            self.count += 1
            if self.count >= self.kill_at:
                self.enough.set()


class Link:
    """One connection, asking and being answered."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.splitter = FrameSplitter()
        self.opaque = 0

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        self.opaque += 1
        self.sock.sendall(encode_request(code, self.opaque, fields, body))

    def answers(self) -> list[tuple[int, int, dict[str, str], bytes]]:
        """Opaque, code, fields and body of at least one answer."""
        while True:
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionResetError
            frames = [decode(frame) for frame in self.splitter.feed(data)]
            if frames:
                return [(frame.opaque, frame.code, frame.fields, bytes(frame.body)) for frame in frames]


def send_all(address: str, ledger: Ledger, seed: int) -> None:
    """Send with several messages in flight until the broker is gone."""
    rng = random.Random(seed)
    waiting: dict[int, tuple[int, str, int]] = {}
    with suppress(ConnectionError):
        link = Link(address)
        with link.sock:
            while True:
                while len(waiting) < IN_FLIGHT:
                    body = rng.randbytes(rng.randrange(1, 2000))
                    key = f"{seed:016X}{link.opaque:016X}"
                    queue_id = rng.randrange(QUEUES)
                    waiting[link.opaque + 1] = (queue_id, key, crc32(body))
                    link.ask(RequestCode.SEND_MESSAGE_V2, send_fields(queue_id, key), body)
                for opaque, code, fields, _ in link.answers():
                    queue_id, key, total = waiting.pop(opaque)
                    if code == ResponseCode.SUCCESS:
                        ledger.note(queue_id, int(fields["queueOffset"]), key, total)


def send_fields(queue_id: int, key: str) -> dict[str, str]:
    properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02"
    return {
        "a": "killers", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(queue_id), "f": "0", "g": "1", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def pull(link: Link, queue_id: int, offset: int) -> tuple[list[MessageExt], int]:
    """Messages from an offset on, and the queue's end."""
    fields = {
        "consumerGroup": "judge",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
    }
    rest = {
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    link.ask(RequestCode.PULL_MESSAGE, fields | rest)
    ((_, code, answer, body),) = link.answers()
    assert code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), code
    return (decode_records(body) if body else []), int(answer["maxOffset"])


def compare(address: str, ledger: Ledger, begin: list[int], rng: random.Random) -> list[int]:
    """Every acknowledged message from `begin` on is there, offsets are dense, a sample from before is still there.

    Gives the ends.
    """
    link = Link(address)
    ends = []
    with link.sock:
        for queue_id, acknowledged in enumerate(ledger.acknowledged):
            offset, end = begin[queue_id], begin[queue_id] + 1
            while offset < end:
                messages, end = pull(link, queue_id, offset)
                assert messages or offset == end, f"nothing at {offset} of {end} in queue {queue_id}"
                for message in messages:
                    assert message.queue_offset == offset, (
                        f"offset {message.queue_offset} instead of {offset} in queue {queue_id}"
                    )
                    assert_same(message, acknowledged.get(offset))
                    offset += 1
            assert not acknowledged or max(acknowledged) < end, (
                f"queue {queue_id} ends at {end}, acknowledged was {max(acknowledged)}"
            )
            for place in rng.sample(sorted(acknowledged), min(10, len(acknowledged))):
                assert_same(pull(link, queue_id, place)[0][0], acknowledged[place])
            ends.append(end)
    return ends


def assert_same(message: MessageExt, expected: tuple[str, int] | None) -> None:
    if expected is not None:
        assert (message.properties["UNIQ_KEY"], crc32(message.body)) == expected, (
            f"another message at {message.queue_offset}"
        )


@contextmanager
def broker(folder: Path, flush: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-m",
        "adapters",
        "standalone",
        "--json",
        "--port",
        "0",
        "--namesrv-port",
        "0",
        "--store",
        str(folder),
    ]
    for key, value in {**SETTINGS, "flushDiskType": flush}.items():
        command += ["--set", f"{key}={value}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            yield process, json.loads(line)["broker"]
        finally:
            process.kill()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_nothing_acknowledged_is_missing(tmp_path: Path, flush: str, request: pytest.FixtureRequest) -> None:
    kills: int = request.config.getoption("--kills") // 2
    rng = random.Random(flush)
    ledger = Ledger(0)
    folder = tmp_path / "store"
    ends = [0] * QUEUES
    for life in range(kills):
        with broker(folder, flush) as (process, address):
            if life:
                ends = compare(address, ledger, ends, rng)
            ledger.count, ledger.kill_at = 0, rng.randrange(1, 1500)
            ledger.enough.clear()
            seeds = range(life * SENDERS, (life + 1) * SENDERS)
            senders = [threading.Thread(target=send_all, args=(address, ledger, seed)) for seed in seeds]
            for sender in senders:
                sender.start()
            assert ledger.enough.wait(PATIENCE), f"the broker acknowledges no more in life {life}"
            process.kill()
            for sender in senders:
                sender.join(PATIENCE)
    with broker(folder, flush) as (process, address):
        compare(address, ledger, [0] * QUEUES, rng)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    report = check(DiskFiles(), str(folder), index_pair=(SETTINGS["maxHashSlotNum"], SETTINGS["maxIndexNum"]))
    assert report.clean, [str(finding) for finding in report.findings]
    assert sum(map(len, ledger.acknowledged)) <= report.records
