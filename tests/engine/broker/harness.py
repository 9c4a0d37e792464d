"""A broker under virtual time over a store in memory, and peers that talk frames to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mqproto.codec import JSON, Command, FrameSplitter, decode, encode
from mqproto.engine.broker.node import MAIN, BrokerNode
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.message import MessageExt
from mqproto.state.node.contract import Dial, HangUp, Job, Link, Run
from mqproto.wire.record import decode_records

WALL = 1_700_000_000_000
HOST = "192.0.2.2"
ADDRESS = f"{HOST}:10911"
PEER = "192.0.2.3:40000"


def send_fields(topic: str = "T", properties: str = "", **changes: Any) -> dict[str, str]:
    """The header of a plain SEND_MESSAGE_V2; `changes` by one-letter names, `-` leaves a field out."""
    fields = {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1699999999000",
        "h": "0",
        "i": properties,
        "j": "0",
    }
    fields |= {"k": "false", "l": "0", "m": "false"}
    fields |= changes
    return {name: value for name, value in fields.items() if value != "-"}


def pull_fields(topic: str = "T", group: str = "G", queue: int = 0, offset: int = 0, **changes: Any) -> dict[str, str]:
    """The header of a pull that carries its subscription and is not held; `changes` by Java's names."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
    }
    fields |= {
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    fields |= changes
    return {name: value for name, value in fields.items() if value != "-"}


def heartbeat(
    client: str = "c1", groups: tuple[str, ...] = ("G",), producers: tuple[str, ...] = (), **changes: Any
) -> bytes:
    """The body of a heartbeat of one client; `changes` by Java's names."""
    subscriptions = [
        {"topic": "T", "subString": "*", "subVersion": 1, "expressionType": "TAG", "tagsSet": [], "codeSet": []}
    ]
    consumer = {
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    consumers = [consumer | {"groupName": group} | changes for group in groups]
    body = {
        "clientID": client,
        "consumerDataSet": consumers,
        "producerDataSet": [{"groupName": name} for name in producers],
    }
    return json.dumps(body).encode()


class Peer:
    """The other end of one link."""

    def __init__(self, world: World, link: Link) -> None:
        self.world = world
        self.link = link
        self.splitter = FrameSplitter()
        self.opaque = 0
        #: Frames as they came, length words included.
        self.frames: list[bytes] = []

    def frame(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        kind: int = JSON,
        version: int = 407,
        language: int = 0,
    ) -> bytes:
        self.opaque += 1
        return encode(
            Command(code, fields, body, self.opaque, flag, language=language, version=version, serialize_type=kind)
        )

    def feed(self, data: bytes) -> None:
        self.world.broker.received(self.link, data, self.world.now)
        self.world.act()

    def tell(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **options: Any) -> None:
        """Send a request and leave its answer to `read`."""
        self.feed(self.frame(code, fields, body, **options))

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **options: Any) -> Command:
        """Send a request and give its answer, which is the only thing that comes: at once, or when what is due now has
        been done.
        """
        self.tell(code, fields, body, **options)
        answers = self.read()
        if not answers:
            self.world.advance(0)
            answers = self.read()
        assert [(one.is_response, one.opaque) for one in answers] == [(True, self.opaque)], answers
        return answers[0]

    def read(self) -> list[Command]:
        """What the broker has written to this link since the last call."""
        self.world.broker.touched.discard(self.link)
        data = b"".join(self.world.broker.data_to_send(self.link))
        self.link.unsent -= len(data)
        frames = self.splitter.feed(data)
        assert self.splitter.pending == 0
        self.frames += [len(frame).to_bytes(4, "big") + frame for frame in frames]
        return [decode(frame) for frame in frames]

    def answer(
        self,
        request: Command,
        code: int = 0,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request of the broker."""
        self.feed(encode(Command(code, fields, body, request.opaque, 1, remark)))

    def send(self, topic: str = "T", body: bytes = b"hi", properties: str = "", **changes: Any) -> Command:
        return self.ask(310, send_fields(topic, properties, **changes), body)

    def pull(self, topic: str = "T", group: str = "G", queue: int = 0, offset: int = 0, **changes: Any) -> Command:
        return self.ask(11, pull_fields(topic, group, queue, offset, **changes))

    def messages(self, topic: str = "T", queue: int = 0, offset: int = 0) -> list[MessageExt]:
        answer = self.pull(topic, "READER", queue, offset)
        return decode_records(answer.body) if answer.code == 0 else []

    def heartbeat(self, body: bytes, **options: Any) -> Command:
        self.tell(34, None, body, **options)
        answers = self.read()
        (answer,) = [one for one in answers if one.is_response]
        return answer

    def close(self) -> None:
        self.world.broker.closed(self.link, "closed by peer", self.world.now)
        self.world.act()

    def ended(self) -> bool:
        return self.link.ended


class World:
    """One broker and the time. Jobs run at once, unless `hold_jobs` is set."""

    def __init__(
        self,
        *,
        files: MemoryFiles | None = None,
        store: dict[str, Any] | None = None,
        begin: bool = True,
        now: int = 1000,
        utc_offset_ms: int = 0,
        save_settings: Callable[[dict[str, str]], Job] | None = None,
        **settings: Any,
    ) -> None:
        self.files = files or MemoryFiles()
        self.now = now
        sizes: dict[str, Any] = {
            "store_path_root_dir": "/store",
            "mapped_file_size_commit_log": 1 << 22,
            "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 1000,
            "max_index_num": 4000,
            "clean_resource_interval": 0,
        }
        self.store = Store.open(StoreSettings(**(sizes | (store or {}))), self.files, wall=WALL)
        named: dict[str, Any] = {"broker_name": "broker-a", "broker_cluster_name": "DefaultCluster"}
        self.broker = BrokerNode(
            BrokerSettings(**(named | settings)),
            self.store,
            host=HOST,
            port=10911,
            files=self.files,
            utc_offset_ms=utc_offset_ms,
            save_settings=save_settings,
        )
        self.hold_jobs = False
        self.jobs: list[Job] = []
        self.dials: list[Dial] = []
        self.hang_ups: list[HangUp] = []
        self.set_wall()
        if begin:
            self.broker.begin(self.now)
            self.act()

    def set_wall(self, ahead: int = 0) -> None:
        """Let the wall clock show WALL at time 0, and `ahead` milliseconds more."""
        self.broker.wall_ahead = WALL + ahead

    @property
    def wall(self) -> int:
        return self.now + self.broker.wall_ahead

    def act(self) -> None:
        """Do what a driver does after each entry."""
        while self.broker.actions:
            actions = list(self.broker.actions)
            self.broker.actions.clear()
            for action in actions:
                match action:
                    case Run(job):
                        if self.hold_jobs:
                            self.jobs.append(job)
                        else:
                            self.run(job)
                    case Dial():
                        self.dials.append(action)
                    case HangUp():
                        self.hang_ups.append(action)
                    case _:
                        raise AssertionError(action)

    def run(self, job: Job) -> None:
        failure = None
        try:
            job.run()
        except OSError as error:
            failure = error
        self.broker.done(job, failure, self.now)

    def run_held(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            self.run(job)
        self.act()

    def connect(self, address: str = PEER, listener: str = MAIN) -> Peer:
        link = self.broker.accept(listener, address, ADDRESS, self.now)
        assert link is not None
        return Peer(self, link)

    def open_dialled(self) -> Peer:
        """The oldest dialled link comes up."""
        dial = self.dials.pop(0)
        self.broker.opened(dial.link, self.now)
        self.act()
        return Peer(self, dial.link)

    def advance(self, ms: int) -> None:
        """Let time pass; every deadline is met at its very millisecond."""
        end = self.now + ms
        while (due := self.broker.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.broker.timer(self.now)
            self.act()
        self.now = end

    def advance_until(self, condition: Callable[[], bool], limit_ms: int = 10_000_000) -> int:
        """Let time pass from deadline to deadline until the condition holds; gives how long it took."""
        begin = self.now
        while not condition():
            due = self.broker.next_deadline()
            assert due is not None
            assert due <= begin + limit_ms
            self.now = max(self.now, due)
            self.broker.timer(self.now)
            self.act()
        return self.now - begin

    def close(self) -> None:
        self.broker.close(self.now)
        self.act()
