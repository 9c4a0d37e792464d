"""A transaction producer that a script plays."""

from __future__ import annotations

from typing import Any

from mqproto.codec import Command
from mqproto.wire.record import decode_record
from tests.engine.broker.harness import PEER, WALL, Peer, World, heartbeat, send_fields

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
INTERVAL = 60_000


def text(name: str, group: str = "PG", more: str = "") -> str:
    return f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01{name}\x02{more}"


class Producer:
    """One member of a producer group."""

    def __init__(self, world: World, group: str = "PG", *, address: str = PEER, online: bool = True) -> None:
        self.world = world
        self.group = group
        self.peer: Peer = world.connect(address)
        self._questions: list[Command] = []
        if online:
            self.beat()

    def beat(self) -> None:
        self.peer.tell(34, None, heartbeat(self.group, groups=(), producers=(self.group,)))
        *self._questions[len(self._questions) :], answer = self.peer.read()
        assert (answer.code, answer.is_response) == (0, True)

    def prepare(self, name: str = "u", more: str = "", body: bytes = b"", **changes: Any) -> Command:
        """Store a half message, born now."""
        fields = send_fields("T", text(name, self.group, more), f="4", g=str(self.world.wall)) | changes
        answer = self.peer.ask(310, fields, body or name.encode())
        assert answer.code == 0, answer
        return answer

    def end(self, half: Command, how: int, **changes: str) -> Command | None:
        """End the transaction by the answer that its half got, or by a question about it."""
        offset = half.fields.get("commitLogOffset") or str(int(half.fields["msgId"][-16:], 16))
        fields = {"producerGroup": self.group, "commitLogOffset": offset, "commitOrRollback": str(how), "msgId": "x"}
        fields["tranStateTableOffset"] = half.fields.get("tranStateTableOffset") or half.fields["queueOffset"]
        self.peer.tell(37, fields | changes)
        answers = self.peer.read()
        return answers[0] if answers else None

    def asked(self) -> list[Command]:
        """The questions since the last reading."""
        found = self._questions + self.peer.read()
        self._questions = []
        assert all((one.code, one.is_oneway, one.is_response) == (39, True, False) for one in found), found
        return found

    def asked_about(self) -> list[str]:
        """Names of the transactions that it was asked about since the last reading."""
        return [question.fields["transactionId"] for question in self.asked()]


def wait(ms: int, *producers: Producer) -> None:
    """Let time pass while producers show that they are there."""
    world = producers[0].world
    end = world.now + ms
    while world.now < end:
        for producer in producers:
            producer.beat()
        world.advance(min(30_000, end - world.now))


def bodies(world: World, topic: str = "T", queue: int = 0) -> list[bytes]:
    """What a topic holds, as it is stored."""
    found = world.store.find_queue(topic, queue)
    if found is None:
        return []
    entries = [world.store.reader.entry(found, offset) for offset in range(found.min_offset, found.max_offset)]
    records = [world.store.reader.record(entry[0]) for entry in entries if entry is not None]
    return [decode_record(record).body for record in records if record is not None]


def progress(world: World) -> tuple[int | None, int | None]:
    """What is committed for the half queue and the op queue."""
    offsets = world.broker.offsets
    return offsets.find("CID_RMQ_SYS_TRANS", HALF, 0), offsets.find("CID_RMQ_SYS_TRANS", OP, 0)


def again(world: World, *, crash: bool = False, wait: int = 0, **settings: Any) -> World:
    """The broker stops, or dies, and starts again over the same disk."""
    if crash:
        files = world.files.process_death()
    else:
        world.close()
        assert world.broker.ended
        files = world.files
    later = World(files=files, now=world.now + wait, **settings)
    later.advance(0)
    return later


__all__ = [
    "COMMIT",
    "GIVEN_UP",
    "HALF",
    "INTERVAL",
    "OP",
    "ROLLBACK",
    "UNKNOWN",
    "WALL",
    "Producer",
    "again",
    "bodies",
    "progress",
    "text",
    "wait",
]
