"""Stubs of the interfaces of the broker's rooms: with them a family of requests is tried without a broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from mqproto.codec import Command
from mqproto.engine.broker.interfaces.clock import Alarm
from mqproto.engine.broker.interfaces.requests import Peer, Receiver, Refused
from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.slices import Steps
from mqproto.engine.store import ColdRead, Queue, Read, Reader
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.state.node.contract import Buffer, Link
from mqproto.state.node.deadlines import Deadlines
from mqproto.wire.bodies import Body

T = TypeVar("T")
WALL = 1_700_000_000_000


class Reply(NamedTuple):
    """One answer, as a handler gave it."""

    code: int
    fields: Mapping[str, str] | None
    body: bytes
    remark: str | None


class StubPeer:
    """Peer that keeps what it is answered."""

    def __init__(self) -> None:
        self.address = "192.0.2.3:40000"
        self.ended = False
        self.unsent = 0
        self.replies: list[Reply] = []

    def write(self, data: Buffer) -> None:
        raise AssertionError("frames that are made already")

    def reply(
        self,
        request: Command,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: Buffer = b"",
        *,
        remark: str | None = None,
    ) -> None:
        self.replies.append(Reply(code, fields, bytes(body), remark))


class StubTimers:
    """Clock that a test moves; alarms ring when it says so."""

    def __init__(self, now: int = 1000) -> None:
        self.now = now
        self.alarms: Deadlines[Alarm] = Deadlines()

    @property
    def wall(self) -> int:
        return WALL + self.now

    def after(self, delay_ms: int, alarm: Alarm) -> None:
        when = self.now + delay_ms
        known = self.alarms.when(alarm)
        if known is None or when < known:
            self.alarms.set(alarm, when)

    def advance(self, ms: int) -> None:
        """Let time pass; every alarm rings at its time."""
        end = self.now + ms
        while (due := self.alarms.earliest()) is not None and due <= end:
            self.now = max(self.now, due)
            for alarm in self.alarms.due(self.now):
                alarm()
        self.now = end


class StubNotices(list[str]):
    """Notices that were given."""

    def notice(self, text: str) -> None:
        self.append(text)


def outcome(steps: Steps[T]) -> T:
    """Work in slices, done to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


class StubAnswers:
    """Long answers and other work, given at once."""

    def reply(self, link: Peer, request: Command, body: Body) -> None:
        link.reply(request, 0, body=body.to_json())

    def answer(self, link: Peer, request: Command, steps: Steps[T], then: Callable[[T], None]) -> None:
        then(outcome(steps))

    def run(self, owner: Hashable, steps: Steps[T], then: Callable[[T], None], own: bool = False) -> bool:
        then(outcome(steps))
        return True


class StubReads:
    """Reads from the disk, done at once."""

    def __init__(self) -> None:
        self.own = Link("the broker itself")

    def answer(
        self, link: Peer, request: Command, read: Read[T], then: Callable[[T], None], needed: bool = False
    ) -> None:
        if isinstance(read, ColdRead):
            read.run()
            then(read.result)
        else:
            then(read)

    def across(
        self,
        link: Peer,
        request: Command,
        queues: Sequence[Queue],
        read: Callable[[Reader, Sequence[Queue]], list[T]],
        then: Callable[[list[T]], None],
    ) -> None:
        raise NotImplementedError

    def wait(
        self,
        link: Receiver,
        job: ColdRead[T],
        then: Callable[[T], None],
        refuse: Callable[[Refused], None],
        needed: bool = False,
        patience_ms: int | None = None,
    ) -> None:
        job.run()
        then(job.result)


class StubConfirmations:
    """Confirmations that are given at once."""

    def confirm(self, link: Peer, request: Command) -> None:
        link.reply(request, 0)


class Saves:
    """Manager of tables in memory, with its timers and notices; its jobs run when a test says so."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.files = files or MemoryFiles()
        self.timers = StubTimers()
        self.notices = StubNotices()
        self.manager = ConfigManager("/config", self.files, self.timers.after, self.notices.notice, self._at_once)

    def _at_once(self, owner: object, steps: Steps[str], then: Callable[[str], None]) -> None:
        then(outcome(steps))

    def run_jobs(self) -> int:
        """Run the jobs of now; gives how many there were."""
        jobs, self.manager.jobs[:] = self.manager.jobs[:], []
        for job in jobs:
            failure = None
            try:
                job.run()
            except OSError as error:
                failure = error
            assert self.manager.done(job, failure)
        return len(jobs)
