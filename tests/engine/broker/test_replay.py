"""Replay of what real clients asked Apache's brokers: ours answers the same.

The requests of the recorded scenarios are fed to one broker in order and at their times, as Apache's got them, so that the state that
one scenario leaves is there for the next. Compared are code, remark, names of the fields, the offsets in them, messages and bodies.
Physical offsets differ between two logs; requests that name one are translated by where the same message lies in ours.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

from mqproto.codec import Command, decode, encode
from mqproto.fastjson import loads
from mqproto.message import MessageExt
from mqproto.record import decode_records
from tests.engine.broker.harness import Peer, World
from tests.golden.golden import GOLDEN, Entry

#: In the order in which they were recorded.
SCENARIOS = (  # noqa: SIM905 - a list of words reads better as words
    "topics produce-sync produce-auto-create produce-unicode produce-async produce-oneway produce-batch produce-compressed produce-orderly "
    "produce-vip consume consume-tag consume-live consume-delayed consume-retry consume-dead-letter consume-orderly consume-broadcast "
    "rebalance pull offsets query view transact-commit transact-rollback transact-check transact-check-rollback transact-consume "
    "sql-not-latest sql-wrong litepull request-reply binary-client-produce binary-client-consume ipv6-ids"
).split()

#: Recorded with a broker of its own, in which only the topics were made before.
ALONE = ("topics", "sql")

#: Requests that name a message by its physical offset.
BY_PLACE = {36: "offset", 33: "offset", 37: "commitLogOffset"}
#: Values that are the same in both, whatever the log.
VALUES = ("queueOffset", "queueId", "nextBeginOffset", "minOffset", "maxOffset", "offset", "suggestWhichBrokerId")


@dataclass(frozen=True)
class Difference:
    """One way in which an answer of ours is not what Apache's broker answered."""

    scenario: str
    code: int
    what: str
    theirs: Any
    ours: Any


class Excuse:
    """A difference that we stand for, and why."""

    def __init__(self, reason: str, versions: str, code: int, what: str, scenarios: str = "", **values: Any) -> None:
        self.reason = reason
        self.versions = versions.split()
        self.code = code
        self.what = what
        self.scenarios = scenarios.split()
        self.values = values

    def covers(self, version: str, difference: Difference) -> bool:
        return (
            version in self.versions
            and difference.code == self.code
            and difference.what == self.what
            and (not self.scenarios or difference.scenario in self.scenarios)
            and all(getattr(difference, name) == value for name, value in self.values.items())
        )


ALL = "4.4.0 4.9.7 5.3.3"
LATE = "the consumer's subscription not latest"
CHECKS = "transact-rollback transact-check transact-check-rollback transact-consume"
NO_CHECKS = "producers are not asked about halves yet, so none is put back, and none of those scenarios is committed"
TIMING = "Apache's threads handled the pull before the heartbeat that came first; ours has no such race"
EXCUSES = (
    Excuse("our own words for what cannot be compiled", ALL, 46, "remark", "sql-wrong"),
    Excuse("a remark that Apache forgets to clear", "4.9.7 5.3.3", 17, "remark", theirs="not set any response code", ours=None),
    Excuse("5.x has an empty remark", "5.3.3", 31, "remark", theirs="", ours=None),
    Excuse("only 5.x says that", "5.3.3", 310, "fields", theirs=("transactionId",), ours=()),
    Excuse("only 5.x says that", "5.3.3", 320, "fields", theirs=("transactionId",), ours=()),
    Excuse("only 5.x says that", "5.3.3", 34, "fields", theirs=("IS_SUB_CHANGE", "IS_SUPPORT_HEART_BEAT_V2"), ours=()),
    Excuse("only 5.x says that", "5.3.3", 11, "fields", theirs=("groupSysFlag", "topicSysFlag"), ours=()),
    Excuse("only 5.x says that", "5.3.3", 361, "fields", theirs=("groupSysFlag", "topicSysFlag"), ours=()),
    Excuse("the first at or after the time, and the end for a later one (REB-08)", "4.4.0 4.9.7", 29, "offset"),
    Excuse("Apache lost an offset that was committed at the same time as another", "4.9.7", 14, "offset", "offsets", theirs="0", ours="4"),
    Excuse(TIMING, "4.9.7", 11, "no answer", theirs=LATE),
    Excuse(TIMING, "4.4.0", 11, "no answer", theirs=LATE),
    Excuse(TIMING, "4.4.0 4.9.7", 11, "code", theirs=(25, LATE), ours=(0, "FOUND")),
    Excuse("Apache ends a hold up to 5 s late", "4.4.0", 11, "extra answer", "rebalance", ours=(19, "NO_MESSAGE_IN_QUEUE")),
    Excuse("5.x has no offset 0 for a queue without messages", "5.3.3", 14, "code", ours=(0, None)),
    Excuse("each message of a batch keeps its own id (MSG-08)", "5.3.3", 11, "ids"),
    Excuse("each message of a batch keeps its own id (MSG-08)", "5.3.3", 361, "ids"),
    Excuse("the capture ends before Apache's answer", "5.3.3", 34, "extra answer", "view sql-wrong", ours=(0, None)),
    Excuse("who asked closes without a word: Apache waits out its 10 s, ours knows at once", "5.3.3", 325, "extra answer", "request-reply"),
    Excuse(NO_CHECKS, ALL, 310, "queueOffset", CHECKS),
    Excuse(NO_CHECKS, "4.9.7 5.3.3", 11, "nextBeginOffset", CHECKS),
    Excuse(NO_CHECKS, "4.9.7 5.3.3", 11, "maxOffset", CHECKS),
    Excuse(NO_CHECKS, "4.9.7 5.3.3", 11, "messages", CHECKS),
    Excuse(NO_CHECKS, "4.4.0", 11, "no answer", CHECKS, theirs="FOUND"),
    Excuse(NO_CHECKS, "4.9.7 5.3.3", 11, "extra answer", CHECKS, ours=(21, "OFFSET_OVERFLOW_BADLY")),
    Excuse(NO_CHECKS, "4.4.0", 11, "extra answer", CHECKS, ours=(21, "NO_MESSAGE_IN_QUEUE")),
)


def place(message: MessageExt) -> tuple[str, int, int, bytes, str | None]:
    return message.topic, message.queue_id, message.queue_offset, message.body, message.tags


def differences(scenario: str, request: Entry, theirs: Command | None, ours: Command | None) -> list[Difference]:
    """How two answers to one request differ."""
    found: list[tuple[str, Any, Any]] = []
    if theirs is None or ours is None:
        if ours is not None:
            found.append(("extra answer", None, (ours.code, ours.remark)))
        elif theirs is not None:
            found.append(("no answer", theirs.remark, None))
    elif theirs.code != ours.code:
        found.append(("code", (theirs.code, theirs.remark), (ours.code, ours.remark)))
    else:
        if theirs.remark != ours.remark:
            found.append(("remark", theirs.remark, ours.remark))
        if set(theirs.fields) != set(ours.fields):
            found.append(
                ("fields", tuple(sorted(set(theirs.fields) - set(ours.fields))), tuple(sorted(set(ours.fields) - set(theirs.fields))))
            )
        for name in VALUES:
            if name in theirs.fields and theirs.fields[name] != ours.fields.get(name):
                found.append((name, theirs.fields[name], ours.fields.get(name)))
        found += bodies(request.code, theirs, ours)
    return [Difference(scenario, request.code, *one) for one in found]


def bodies(code: int, theirs: Command, ours: Command) -> list[tuple[str, Any, Any]]:
    if code in (11, 361, 12, 33):
        messages = [decode_records(answer.body) for answer in (theirs, ours)]
        places = [[place(message) for message in one] for one in messages]
        ids = [[message.properties.get("UNIQ_KEY") for message in one] for one in messages]
        found: list[tuple[str, Any, Any]] = []
        if places[0] != places[1]:
            found.append(("messages", places[0], places[1]))
        elif ids[0] != ids[1]:
            found.append(("ids", ids[0], ids[1]))
        return found
    if code in (38, 41) and theirs.code == 0:
        values = [{name: sorted(map(str, value)) for name, value in loads(bytes(answer.body)).items()} for answer in (theirs, ours)]
        return [("body", values[0], values[1])] if values[0] != values[1] else []
    return [("body", theirs.body, ours.body)] if theirs.body != ours.body else []


class Replay:
    """One broker, fed with everything that a release's clients asked."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.world = World(enable_property_filter=True)
        #: Recorded physical offset -> ours, or -> topic, queue and queue offset.
        self.known: dict[int, int] = {}
        self.places: dict[int, tuple[str, int, int]] = {}

    def run(self, scenario: str) -> list[Difference]:
        recorded = [entry for entry in GOLDEN.capture(self.version, scenario) if entry.link == "client-broker"]
        self.peers: dict[int, Peer] = {}
        self.requests: dict[tuple[int, int], Entry] = {}
        self.theirs: dict[tuple[int, int], Command] = {}
        self.ours: dict[tuple[int, int], Command] = {}
        self.their_pushes: dict[int, list[Command]] = defaultdict(list)
        self.our_pushes: dict[int, list[Command]] = defaultdict(list)
        begin = self.world.now + 10
        self.align_clock(recorded, begin)
        for entry in recorded:
            self.world.advance(max(0, begin + int(entry.at) - self.world.now))
            self.collect()
            self.step(entry)
            self.collect()
        found = []
        for key, request in self.requests.items():
            found += differences(scenario, request, self.theirs.get(key), self.ours.get(key))
        return found

    def align_clock(self, recorded: list[Entry], begin: int) -> None:
        """Requests name wall times: let our clock show what theirs showed."""
        for entry in recorded:
            if entry.is_request and entry.code == 310:
                self.world.broker.wall_ahead = int(entry.fields["g"]) - (begin + int(entry.at))
                return

    def step(self, entry: Entry) -> None:
        number = entry.connection
        if entry.event == "close" and number in self.peers:
            self.peers[number].close()
        elif entry.event == "open" or (entry.frame and number not in self.peers):
            listener = "fast" if entry.port == 10909 else "main"
            self.peers[number] = self.world.connect(f"192.0.2.3:{20_000 + number}", listener)
        if not entry.frame:
            return
        command = decode(entry.frame[4:])
        if entry.direction == ">" and entry.is_request:
            self.requests[(number, entry.opaque)] = entry
            self.peers[number].feed(self.translated(entry, command))
        elif entry.direction == ">":
            self.answer_push(number, command)
        elif entry.is_request:
            self.their_pushes[number].append(command)
        else:
            self.theirs[(number, entry.opaque)] = command
            self.learn(self.requests.get((number, entry.opaque)), command, self.ours.get((number, entry.opaque)))

    def answer_push(self, number: int, answer: Command) -> None:
        """A client answers the broker: the same to our request of the same kind."""
        pushes = [push for push in self.their_pushes[number] if not push.is_oneway]
        index = [push.opaque for push in pushes].index(answer.opaque)
        answer.opaque = [push for push in self.our_pushes[number] if not push.is_oneway][index].opaque
        self.peers[number].feed(encode(answer))

    def translated(self, entry: Entry, command: Command) -> bytes:
        """The frame, with the physical offset of ours if it names one."""
        field = BY_PLACE.get(entry.code)
        if field is None:
            return entry.frame
        theirs = int(command.fields[field])
        ours = self.known.get(theirs)
        if ours is None and theirs in self.places:
            topic, queue_id, offset = self.places[theirs]
            found = self.world.store.entry(self.world.store.queue(topic, queue_id), offset)
            ours = None if found is None else found[0]
        command.fields[field] = str(theirs if ours is None else ours)
        return encode(command)

    def learn(self, request: Entry | None, theirs: Command, ours: Command | None) -> None:
        """Where the messages that an answer tells of lie, in their log and in ours."""
        if request is None:
            return
        if request.code in (310, 320) and ours is not None:
            pairs = zip(theirs.fields.get("msgId", "").split(","), ours.fields.get("msgId", "").split(","), strict=False)
            self.known.update((int(a[-16:], 16), int(b[-16:], 16)) for a, b in pairs if a and b)
        if request.code in (11, 361) and theirs.code == 0:
            for message in decode_records(theirs.body):
                self.places[message.physical_offset] = (message.topic, message.queue_id, message.queue_offset)

    def collect(self) -> None:
        for number, peer in self.peers.items():
            for command in peer.read():
                if command.is_response:
                    self.ours[(number, command.opaque)] = command
                else:
                    self.our_pushes[number].append(command)


@pytest.mark.parametrize("version", GOLDEN.versions)
def test_answers_agree(version: str) -> None:
    used: set[Excuse] = set()
    unexplained: list[Difference] = []
    recorded = set(GOLDEN.capture_names(version))
    count = 0
    for scenarios in (SCENARIOS, ALONE):
        replay = Replay(version)
        for scenario in scenarios:
            if scenario not in recorded:
                continue
            for difference in replay.run(scenario):
                excuse = next((one for one in EXCUSES if one.covers(version, difference)), None)
                if excuse is None:
                    unexplained.append(difference)
                else:
                    used.add(excuse)
            count += len(replay.requests)
            told = {number: {push.fields.get("consumerGroup") for push in pushes} for number, pushes in replay.our_pushes.items()}
            for number, pushes in replay.their_pushes.items():
                assert {push.fields.get("consumerGroup") for push in pushes if push.code == 40} <= told.get(number, set())
    assert unexplained == []
    assert count > 500
    idle = [one.reason for one in EXCUSES if version in one.versions and one not in used]
    assert idle == [], "excuses that nothing needs any more"
