"""Requests about offsets, without a broker: what they ask of the table and of the store."""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.pulls.offsets import OffsetRequests
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.delay_progress import DelayProgress
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.wire.bodies import OffsetTable
from tests.engine.broker.stubs import WALL, Saves, StubAnswers, StubPeer, StubReads

HOST = bytes.fromhex("c0000202") + (10911).to_bytes(4, "big")


class Tried:
    """The family of requests over a store in memory, and a peer."""

    def __init__(self) -> None:
        saves = Saves()
        settings = StoreSettings(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        self.store = Store.open(settings, MemoryFiles(), wall=WALL)
        self.offsets = ConsumerOffsets(BrokerSettings(), saves.manager)
        progress = DelayProgress(saves.manager, 10_000)
        self.requests = OffsetRequests(self.store, self.offsets, progress, StubReads(), StubAnswers())
        self.peer = StubPeer()

    def ask(self, code: int, **fields: str) -> tuple[int, str | None]:
        """Code and offset of the answer."""
        self.requests.handlers[code](self.peer, Command(code, {"topic": "T", "queueId": "0"} | fields))  # type: ignore[arg-type]  # a peer of a test is no link
        reply = self.peer.replies.pop()
        return reply.code, (reply.fields or {}).get("offset")

    def append(self) -> None:
        queue = self.store.queue("T", 0)
        self.store.writer.append(queue, b"body", b"", 0, 0, WALL, HOST, HOST, 0, 0, 0, None, None, WALL, b"")


def test_ends_of_a_queue() -> None:
    tried = Tried()
    assert (tried.ask(30), tried.ask(31)) == ((0, "0"), (0, "0")), "there is none yet"
    tried.append()
    tried.append()
    assert (tried.ask(30), tried.ask(31)) == ((0, "2"), (0, "0"))


def test_committed_offsets() -> None:
    tried = Tried()
    tried.append()
    assert tried.ask(14, consumerGroup="G") == (0, "0"), "a young queue is read from its first message"
    assert tried.ask(14, consumerGroup="G", setZeroIfNotFound="false") == (22, None)
    assert tried.ask(15, consumerGroup="G", commitOffset="1") == (0, None)
    assert tried.ask(14, consumerGroup="G") == (0, "1")
    tried.requests.on_dump(tried.peer, Command(43))
    assert OffsetTable.from_json(tried.peer.replies.pop().body).offsets == {"T@G": {0: 1}}
