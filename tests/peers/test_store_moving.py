"""Topics that moved here from another directory, under Apache's brokers: what they were, where they were."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest

from engine.settings import apply
from engine.store import DiskFiles, Store, StoreSettings
from engine.store.doctor import open_directory
from engine.store.doctor.exportfile import ExportReader
from engine.store.doctor.exporting import Export
from engine.store.doctor.importing import Import
from engine.store.doctor.planning import DirectoryTarget, NoTarget, Planner
from engine.store.doctor.tables import TableFiles, Tables
from mqproto.bodies import GroupConfig, TopicConfig
from mqproto.hosts import encode_host
from mqproto.ids import java_hash
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

pytestmark = pytest.mark.timeout(300)


def settings_of(root: Path) -> StoreSettings:
    settings = StoreSettings(store_path_root_dir=str(root))
    apply(settings, SETTINGS)
    return settings


def write_source(root: Path, port: int) -> None:
    """A directory that has lost its first file to retention: its queues do not begin at 0. Its broker had the port of the next one."""
    store = Store.open(settings_of(root), wall=START)
    host = encode_host(f"127.0.0.1:{port}")
    for number in range(700):
        topic, queue_id = ("Orders", number % 2) if number % 7 else ("Bills", 0)
        keys, unique = f"key-{number}", f"{number:032X}"
        properties = f"KEYS\1{keys}\2UNIQ_KEY\1{unique}\2TAGS\1t{number % 3}".encode()
        store.append(
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
    importing = Import(DiskFiles(), settings_of(root), ExportReader(io.BytesIO(data).read), planner.plan, wall=START + 10_000_000)
    for _ in importing.run():
        pass
    importing.close()


@pytest.mark.parametrize("kind", ["ours:threaded", *(f"apache:{version}" for version in JAVA_VERSIONS)])
def test_moved_topics_are_served(clients: Clients, tmp_path: Path, kind: str) -> None:
    need(JAVA)
    if kind.startswith("apache"):
        need(kind)
    port = free_port()
    write_source(tmp_path / "source", port)
    bring(export(tmp_path / "source"), tmp_path / "new" / "store")
    source = open_directory(DiskFiles(), str(tmp_path / "source"))
    with serve(kind, tmp_path / "new", port, **SETTINGS) as server:
        pair = Pair(server, clients[JAVA], clients, itertools.count(1))
        found = survey(pair, TOPICS, "Orders")
        for topic, count in TOPICS.items():
            for queue_id in range(count):
                queue = source.queue(topic, queue_id)
                end = queue.end()
                begin = queue.begin(LOG_FILE, end)
                assert 0 < begin < end
                line = found.queues[topic, queue_id]
                assert (line["min"], line["max"]) == (begin, end)
                for offset in range(begin, end):
                    entry = queue.entry(offset)
                    assert entry is not None
                    number = found.messages[topic, queue_id, offset]["flag"]
                    assert found.messages[topic, queue_id, offset]["body"] is not None
                    assert found.messages[topic, queue_id, offset]["storeTimestamp"] == START + 1000 * number
        assert found.tables["offsets"]["Orders@billing"] == {"0": 200, "1": 201}
        assert found.tables["groups"]["billing"]["retryMaxTimes"] == 3
    source.close()
