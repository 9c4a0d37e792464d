"""Offsets of a consumer group: the table in memory, and the two places where it is kept.

In CLUSTERING the group's brokers keep the offsets (docs/protocol/client.md 5.3), in BROADCASTING a file of the client
does (5.4), unless the application keeps them itself (`external_offsets`). All kinds hold a table in memory that
consumption moves; persisting copies it out every few seconds, so a crash repeats messages and never skips one.

Owns: the table, the requests and the file's text.
Leaves to others: which offset is right (`process_queue`), when to persist (`loops`), the file itself (adapter).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol

from mqproto.errors import ClientError, MQError, refusal
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import queue_order
from mqproto.state.flows.effects import Call, Flow, Oneway, Sleep, Work, answer, current, success
from mqproto.state.node.contract import Job
from mqproto.wire import fastjson
from mqproto.wire.bodies.members import I64, queue_map
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import QueryConsumerOffsetResponse

#: Both requests about offsets wait this long (docs/protocol/client.md 5.3).
OFFSET_TIMEOUT_MS: Final = 5_000
#: How often a broker gets offsets that it has got before. A push consumer's pulls bring them too, every 15 s or so.
TELL_ALL_MS: Final = 30_000
#: How long a commit waits before it looks again whether another save of the local file has ended.
SAVE_PAUSE_MS: Final = 10

_OFFSETS: Final = queue_map(I64)

#: Finds the address of the broker that keeps a queue's offset, and answers the time; raises an MQError when there is
#: none.
Locate = Callable[[MessageQueue, int], Flow[tuple[str, int]]]


class OffsetStore(Protocol):
    """Table of one consumer. Offsets are the next to be consumed: everything below is done with."""

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory; None when there is none."""

    def update(self, queue: MessageQueue, offset: int, *, may_decrease: bool = False) -> None:
        """Set the offset in memory; a lower one than known is ignored unless the caller corrects or resets."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory, so that the next `fetch` asks the place where it is kept."""

    def fetch(self, queue: MessageQueue, now: int) -> Flow[tuple[int | None, int]]:
        """Read the kept offset, None when none was kept, and the time. Raises MQError when that cannot be known now."""

    def persist(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        """Keep the offsets that these queues have in memory.

        Failures are left to the next time (docs/protocol/client.md 5.5).
        """

    def refresh(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        """The same every few seconds: offsets that were kept already need not be sent again each time."""

    def keep(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        """Keep the last offset of a queue that is forgotten already. Where another member has the queue next, this ends
        when it can read that offset, or never will.
        """

    def commit(self, queue: MessageQueue, offset: int, now: int) -> Flow[tuple[MQError | None, int]]:
        """Keep an offset and wait until it is kept: None, or why it is not, and the time. The one in memory stays."""

    def table(self) -> dict[MessageQueue, int]:
        """A copy of what is in memory."""


class GroupOffsets:
    """Part in memory of all kinds of stores."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, may_decrease: bool = False) -> None:
        if may_decrease or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    def table(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)


class RemoteOffsets(GroupOffsets):
    """Offsets kept by the brokers (CLUSTERING)."""

    __slots__ = ("_group", "_locate", "_tell_all_at", "_told")

    def __init__(self, group: str, locate: Locate) -> None:
        super().__init__()
        self._group = group
        self._locate = locate
        self._told: dict[MessageQueue, int] = {}
        self._tell_all_at = 0

    def forget(self, queue: MessageQueue) -> None:
        super().forget(queue)
        self._told.pop(queue, None)

    def _fields(self, queue: MessageQueue) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }

    def fetch(self, queue: MessageQueue, now: int) -> Flow[tuple[int | None, int]]:
        """QUERY_CONSUMER_OFFSET. Only code 22 means that none was kept: after any other refusal a group that starts at
        the end would jump over messages that it has not seen (the trap of docs/protocol/client.md 4.3).
        """
        address, now = yield from self._locate(queue, now)
        outcome, now = yield Call(
            address, RequestCode.QUERY_CONSUMER_OFFSET, self._fields(queue), deadline=now + OFFSET_TIMEOUT_MS
        )
        command = answer(outcome)
        if command.code == ResponseCode.QUERY_NOT_FOUND:
            return None, now
        if command.code != ResponseCode.SUCCESS:
            raise refusal(command.code, command.remark, address)
        offset = QueryConsumerOffsetResponse.decode(command.fields).offset
        return None if offset < 0 else offset, now

    def persist(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        """UPDATE_CONSUMER_OFFSET one-way for each queue, changed or not.

        Each offset is looked up when its turn comes: one that was read before would undo a correction made meanwhile.
        """
        for queue in sorted(queues, key=queue_order):
            offset = self.known(queue)
            if offset is not None:
                now = yield from self._send(queue, offset, now)

    def refresh(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        """The changed ones, and sometimes all: a broker that lost the last ones in a crash learns them again."""
        if now >= self._tell_all_at:
            self._tell_all_at = now + TELL_ALL_MS
        else:
            known, told = self._offsets, self._told
            queues = [queue for queue in queues if known.get(queue) != told.get(queue)]
        return self.persist(queues, now)

    def keep(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        yield from self.commit(queue, offset, now)
        self._told.pop(queue, None)  # somebody else may store another one from now on

    def commit(self, queue: MessageQueue, offset: int, now: int) -> Flow[tuple[MQError | None, int]]:
        """UPDATE_CONSUMER_OFFSET with an answer."""
        fields = {**self._fields(queue), "commitOffset": str(offset)}
        try:
            address, now = yield from self._locate(queue, now)
            outcome, now = yield Call(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, fields, deadline=now + OFFSET_TIMEOUT_MS
            )
            success(outcome, address)
        except MQError as error:
            return error, (yield from current(now))
        return None, now

    def _send(self, queue: MessageQueue, offset: int, now: int) -> Flow[int]:
        fields = {**self._fields(queue), "commitOffset": str(offset)}
        try:
            address, now = yield from self._locate(queue, now)
            lost, now = yield Oneway(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, fields, deadline=now + OFFSET_TIMEOUT_MS
            )
            if lost is None:
                self._told[queue] = offset
        except MQError:  # the next time brings it
            now = yield from current(now)
        return now


class OffsetFile(Protocol):
    """File of one group of one client, as the adapter found it: it reads once, at the start, and writes by jobs."""

    #: What the file holds; None when there is none.
    main: bytes | None
    #: What its backup (".bak") holds.
    backup: bytes | None

    def save(self, text_of: Callable[[bytes | None], str], *, set_aside: bool) -> Job:
        """A job that replaces the file, all or nothing, by what `text_of` makes of what it holds then, and keeps that
        as the backup.
        With `set_aside` it is damaged: it goes to a third name, where nothing overwrites it, and the backup stays.
        """


class LocalOffsets(GroupOffsets):
    """Offsets kept in a file of this client (BROADCASTING)."""

    __slots__ = ("_file", "_kept", "_saving", "_set_aside", "_wanted", "_warn")

    def __init__(self, file: OffsetFile, warn: Callable[[str], None]) -> None:
        """Reads what the adapter found. A damaged file never stops the start: the backup stands in, else the group
        begins where it is configured to; `warn` gets a line about both.
        """
        super().__init__()
        self._file = file
        self._warn = warn
        self._saving = False
        self._set_aside = False
        self._kept = self._load()
        self._wanted: dict[MessageQueue, int] = {}

    def _load(self) -> dict[MessageQueue, int]:
        if self._file.main is None and self._file.backup is None:
            return {}
        try:
            return parse_offsets(self._file.main or b"")
        except fastjson.JsonError as error:
            self._set_aside = self._file.main is not None
            damage = f"local offset file is damaged or missing ({error})"
        try:
            kept = parse_offsets(self._file.backup or b"")
        except fastjson.JsonError as error:
            self._warn(f"{damage}, its backup too ({error}): consumption begins at the configured place")
            return {}
        self._warn(f"{damage}: its backup is used")
        return kept

    def fetch(self, queue: MessageQueue, now: int) -> Flow[tuple[int | None, int]]:
        yield from ()  # a flow without effects
        return self._kept.get(queue), now

    def persist(self, queues: Collection[MessageQueue], now: int) -> Flow[None]:
        yield from self._save({queue: self._offsets[queue] for queue in queues if queue in self._offsets})

    refresh = persist

    def keep(self, queue: MessageQueue, offset: int, now: int) -> Flow[None]:
        yield from self._save({queue: offset})

    def commit(self, queue: MessageQueue, offset: int, now: int) -> Flow[tuple[MQError | None, int]]:
        self._wanted[queue] = offset
        while self._saving:  # it takes this one along, or fails and is tried again here
            _, now = yield Sleep(now + SAVE_PAUSE_MS)
        failure = yield from self._save({})
        return None if failure is None else ClientError(f"local offset file cannot be written: {failure}"), (
            yield from current(now)
        )

    def _save(self, offsets: dict[MessageQueue, int]) -> Flow[Exception | None]:
        """Merge the offsets into the file, if they are new; one save at a time. Entries that others have written
        meanwhile stay: a Java program of the same group may use the file too. A failure is told and tried again the
        next time: a file that cannot be written must not stop consumption.
        """
        self._wanted.update(offsets)
        if self._saving:
            return None  # the save under way goes on with these
        self._saving = True
        failure: Exception | None = None
        while (merged := {**self._kept, **self._wanted}) != self._kept:
            failure, _ = yield Work(
                self._file.save(partial(merged_text, self._kept, dict(self._wanted)), set_aside=self._set_aside)
            )
            if failure is not None:
                self._warn(f"local offset file cannot be written, going on in memory: {failure}")
                break
            self._kept = merged
            self._set_aside = False
        self._saving = False
        return failure


def parse_offsets(text: bytes) -> dict[MessageQueue, int]:
    """Read Java's offset file (docs/protocol/client.md 5.4).

    Raises JsonError for anything else, an empty file included.
    """
    document = fastjson.loads(text)
    if not isinstance(document, dict) or "offsetTable" not in document:
        raise fastjson.JsonError("no offset table")
    offsets = _OFFSETS.read(document["offsetTable"])
    if any(offset < 0 or not queue.topic or not queue.broker_name for queue, offset in offsets.items()):
        raise fastjson.JsonError("an entry that no queue can have")
    return offsets


def merged_text(known: dict[MessageQueue, int], changed: dict[MessageQueue, int], held: bytes | None) -> str:
    """The text of a file that holds `held`, with the changed entries.

    Of a damaged or missing file what was known counts.
    """
    try:
        present = parse_offsets(held or b"")
    except fastjson.JsonError:
        present = known
    return format_offsets({**present, **changed})


def format_offsets(offsets: dict[MessageQueue, int]) -> str:
    """Java's offset file to the byte, in queue order."""
    entries = ",".join(
        "{\n\t\t\t"
        f'"brokerName":{fastjson.dumps(queue.broker_name)},\n\t\t\t'
        f'"queueId":{queue.queue_id},\n\t\t\t'
        f'"topic":{fastjson.dumps(queue.topic)}\n\t\t}}:{offset}'
        for queue, offset in sorted(offsets.items(), key=lambda item: queue_order(item[0]))
    )
    return f'{{\n\t"offsetTable":{{{entries}\n\t}}\n}}'
