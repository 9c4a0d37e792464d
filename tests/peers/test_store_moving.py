"""Topics that moved here from another directory, under Apache's brokers: what they were, where they were."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest

from mqproto.engine.settings import apply
from mqproto.engine.store import DiskFiles, Store, StoreSettings
from mqproto.engine.store.doctor import open_directory
from mqproto.engine.store.doctor.exportfile import ExportReader
from mqproto.engine.store.doctor.exporting import Export
from mqproto.engine.store.doctor.importing import Import
from mqproto.engine.store.doctor.planning import DirectoryTarget, NoTarget, Planner
from mqproto.engine.store.doctor.views.tables import TableFiles, Tables
from mqproto.wire.bodies import GroupConfig, TopicConfig
from mqproto.wire.hosts import encode_host
from mqproto.wire.ids import java_hash
from tests.peers.conftest import need
from tests.peers.kit.filling import LOG_FILE, SMALL_FILES
from tests.peers.kit.pairs import Pair
from tests.peers.kit.peers import JAVA_VERSIONS
from tests.peers.kit.probes import Clients
from tests.peers.kit.servers import free_port, serve
from tests.peers.kit.survey import survey

JAVA = "java-4.9.7"
#: A survey knows how 4.x looks for a time within one file of a queue.
SETTINGS = {**SMALL_FILES, "mappedFileSizeConsumeQueue": "20000", "mapedFileSizeConsumeQueue": "20000"}
START = 1_790_000_000_000
TOPICS = {"Orders": 2, "Bills": 1}


def settings_of(root: Path) -> StoreSettings:
    settings = StoreSettings(store_path_root_dir=str(root))
    apply(settings, SETTINGS)
    return settings


def write_source(root: Path, port: int) -> None:
    """A directory that has lost its first file to retention: its queues do not begin at 0.

    Its broker had the port of the next one.
    """
    store = Store.open(settings_of(root), wall=START)
    host = encode_host(f"127.0.0.1:{port}")
    for number in range(700):
        topic, queue_id = ("Orders", number % 2) if number % 7 else ("Bills", 0)
        keys, unique = f"key-{number}", f"{number:032X}"
        properties = f"KEYS\1{keys}\2UNIQ_KEY\1{unique}\2TAGS\1t{number % 3}".encode()
        store.writer.append(
            store.queue(topic, queue_id), b"%d." % number * 80, properties, flag=number, sys_flag=0, born_time=START + number,
            born_host=host, store_host=host, reconsume_times=0, prepared_offset=0, tags_code=java_hash(f"t{number % 3}"),
            uniq_key=unique, keys=keys, wall=START + 1000 * number,
        )  # fmt: skip
    store.close(START)
    (root / "commitlog" / f"{0:020d}").unlink()
    tables = Tables()
    for topic, queues in TOPICS.items():
        tables.topics.topics[topic] = TopicConfig(topic, queues, queues)
    tables.groups.groups["billing"] = GroupConfig("billing", retry_max_times=3)
    tables.offsets.offsets["Orders@billing"] = {0: 200, 1: 201}
    files = TableFiles(DiskFiles(), str(root))
    files.load()
    files.save(tables, topics=True, groups=True, offsets=True)


def export(root: Path) -> bytes:
    directory = open_directory(DiskFiles(), str(root))
    made = Export(directory, list(TOPICS), created=START)
    for _ in made.survey():
        pass
    data = b"".join(made.pieces())
    directory.close()
    return data


def bounds(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """First offset and end of each queue."""
    directory = open_directory(DiskFiles(), str(root))
    found = {}
    for queue in directory.queues():
        end = queue.end()
        found[queue.topic, queue.queue_id] = queue.begin(LOG_FILE, end), end
        assert 0 < found[queue.topic, queue.queue_id][0] < end
    directory.close()
    return found


def bring(data: bytes, root: Path) -> None:
    """Import into a directory, new or not."""
    reader = ExportReader(io.BytesIO(data).read)
    directory = open_directory(DiskFiles(), str(root)) if root.exists() else None
    target = NoTarget() if directory is None else DirectoryTarget(directory, TOPICS)
    for _ in target.survey() if isinstance(target, DirectoryTarget) else ():
        pass
    planner = Planner(reader, target, rename={})
    for _ in planner.run():
        pass
    planner.merge(TableFiles(DiskFiles(), str(root)).load())
    if directory is not None:
        directory.close()
    importing = Import(
        DiskFiles(), settings_of(root), ExportReader(io.BytesIO(data).read), planner.plan, wall=START + 10_000_000
    )
    for _ in importing.run():
        pass
    importing.close()


def write_other(root: Path, port: int) -> None:
    """A directory with a message of its own, whose log begins at 0."""
    store = Store.open(settings_of(root), wall=START)
    host = encode_host(f"127.0.0.1:{port}")
    store.writer.append(store.queue("Else", 0), b"x", b"", 0, 0, START, host, host, 0, 0, 0, None, None, START)
    store.close(START)


@pytest.mark.parametrize("target", ["new", "old"])
@pytest.mark.parametrize("kind", ["ours:threaded", *(f"apache:{version}" for version in JAVA_VERSIONS)])
def test_moved_topics_are_served(clients: Clients, tmp_path: Path, kind: str, target: str) -> None:
    need(JAVA)
    if kind.startswith("apache"):
        need(kind)
    port = free_port()
    write_source(tmp_path / "source", port)
    root = tmp_path / target / "store"
    root.parent.mkdir()
    if target == "old":
        write_other(root, port)
    bring(export(tmp_path / "source"), root)
    # which take the blank places of a log that begins at 0 for messages
    blank = target == "old" and kind.startswith("apache")
    ranges = bounds(tmp_path / "source")
    holes = {(*queue, offset) for queue, (begin, _) in ranges.items() for offset in range(begin)} if blank else set()
    with serve(kind, root.parent, port, **SETTINGS) as server:
        pair = Pair(server, clients[JAVA], clients, itertools.count(1))
        found = survey(pair, TOPICS, "Orders", holes)
    for (topic, queue_id), (begin, end) in ranges.items():
        line = found.queues[topic, queue_id]
        assert (line["min"], line["max"]) == (0 if blank else begin, end)
        for offset in range(begin, end):
            message = found.messages[topic, queue_id, offset]
            assert message["storeTimestamp"] == START + 1000 * message["flag"]
            assert message["keys"] == f"key-{message['flag']}"
    assert found.tables["offsets"]["Orders@billing"] == {"0": 200, "1": 201}
    assert found.tables["groups"]["billing"]["retryMaxTimes"] == 3
