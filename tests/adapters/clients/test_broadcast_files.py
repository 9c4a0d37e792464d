"""Offset files of broadcasting consumers: over restarts, damage, files that cannot be written, and kills."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message, MessageModel, MessageQueue
from mqproto.state.consumer.offsets import format_offsets, parse_offsets
from tests.adapters.conftest import World
from tests.adapters.harness import Collector

ROOT = Path(__file__).parents[3]


def broadcast(world: World, collector: Collector, folder: Path, **settings: Any) -> Any:
    """A consumer that hears everything."""

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    return world.consumer(
        listener, message_model=MessageModel.BROADCASTING, local_offset_store_dir=str(folder), **settings
    )


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("offsets.json"))


def test_progress_outlives_the_consumer_and_groups_do_not_share_a_file(world: World, tmp_path: Path) -> None:
    """BRO-03: 10 consumed, 5 sent while nobody listens; the path depends on neither the process nor the time."""
    producer = world.producer()
    for number in range(10):
        producer.send(Message(world.topic, b"%d" % number))
    first, other = Collector(), Collector()
    consumers = [broadcast(world, first, tmp_path), broadcast(world, other, tmp_path, group=f"other-{world.group}")]
    first.wait(10)
    other.wait(10)
    for consumer in consumers:
        consumer.close()
    assert [file.relative_to(tmp_path).parts[1:] for file in files(tmp_path)] == [
        (world.group, "offsets.json"),
        (f"other-{world.group}", "offsets.json"),
    ]
    assert {file.relative_to(tmp_path).parts[0] for file in files(tmp_path)} == {consumers[0].client_id}
    assert consumers[0].client_id.endswith("@DEFAULT")
    for number in range(10, 15):
        producer.send(Message(world.topic, b"%d" % number))
    again = Collector()
    broadcast(world, again, tmp_path)
    again.wait(5)
    producer.send(Message(world.topic, b"last"))
    again.wait(6)
    assert Counter(again.bodies()) == Counter([*(b"%d" % number for number in range(10, 15)), b"last"])


@pytest.mark.parametrize(
    "damage",
    [b"", b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"br', bytes(range(200)), b"[]", b'{"offsetTable":{"q":"7"}}'],
)
@pytest.mark.parametrize("backed_up", [True, False])
def test_a_damaged_file_stops_nobody(
    world: World, tmp_path: Path, damage: bytes, backed_up: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """BRO-01: the backup counts, else the configured beginning; the damaged file is kept aside, and whoever looks after
    it is told.
    """
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"old")).queue
    producer.send(Message(world.topic, b"new"), queue=queue)
    path = tmp_path / "192.0.2.1@DEFAULT" / world.group / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)
    if backed_up:
        path.with_name("offsets.json.bak").write_text(format_offsets({queue: 1}))
    collector = Collector()
    with caplog.at_level(logging.WARNING, "mqproto"):
        consumer = broadcast(world, collector, tmp_path, client_ip="192.0.2.1")
        collector.wait(1 if backed_up else 2)
        consumer.close()
    assert sorted(collector.bodies()) == ([b"new"] if backed_up else [b"new", b"old"])
    assert "local offset file is damaged" in caplog.text
    assert parse_offsets(path.read_bytes())[queue] == 2
    assert path.with_name("offsets.json.damaged-1").read_bytes() == damage


def test_a_file_that_cannot_be_written_stops_nobody(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """BRO-02: consumption goes on in memory, each message once, and a warning says so."""
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"old")).queue
    path = tmp_path / "192.0.2.1@DEFAULT" / world.group / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text(format_offsets({queue: 1}))
    path.with_name("offsets.json.tmp").mkdir()  # a folder in the place of the new file
    collector = Collector()
    with caplog.at_level(logging.WARNING, "mqproto"):
        consumer = broadcast(world, collector, tmp_path, client_ip="192.0.2.1")
        for number in range(8):
            producer.send(Message(world.topic, b"%d" % number))
        collector.wait(8)
        consumer.close()
    assert Counter(collector.bodies()) == Counter(b"%d" % number for number in range(8))
    assert "local offset file cannot be written" in caplog.text
    assert parse_offsets(path.read_bytes()) == {queue: 1}


SAVER = """
import sys
from pathlib import Path
from mqproto.adapters.io.files import LocalOffsetFile
from mqproto.message import MessageQueue
from mqproto.state.consumer.offsets import merged_text
queues = [MessageQueue("T", "b", number) for number in range(64)]
file = LocalOffsetFile(Path(sys.argv[1]), "c", "g")
offset = int(sys.argv[2])
while True:
    offset += 1
    file.save(lambda held: merged_text({}, dict.fromkeys(queues, offset), held), set_aside=False).run()
    print(offset, flush=True)
"""


def test_a_kill_in_the_middle_of_a_save_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    """BRO-05: 64 queues, killed again and again; nothing that was saved is taken back."""
    rng = random.Random(5)
    saved = 0
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(tmp_path), str(saved)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 20)):
            saved = int(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            saved = int(line)
        process.wait()
        process.stdout.close()
        offsets = parse_offsets((tmp_path / "c" / "g" / "offsets.json").read_bytes())
        assert set(offsets) == {MessageQueue("T", "b", number) for number in range(64)}
        assert set(offsets.values()) <= {saved, saved + 1}, "the last save may have been in the middle of telling"
        assert len(set(offsets.values())) == 1
        parse_offsets((tmp_path / "c" / "g" / "offsets.json.bak").read_bytes())
