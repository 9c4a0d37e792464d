"""Requests of recorded clients, fed to a broker of ours, and how its answers differ from the recorded ones.

The requests of the recorded scenarios are fed to one broker in order and at their times, as Apache's got them, so that
the state that one scenario leaves is there for the next. Compared are code, remark, names of the fields, the offsets in
them, messages and bodies. Physical offsets differ between two logs; requests that name one are translated by where the
same message lies in ours.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from mqproto.codec import Command, decode, encode
from mqproto.message import MessageExt
from mqproto.wire.fastjson import JavaMap, JsonError, loads
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World
from tests.golden.golden import FOLLOWED, GOLDEN, Entry

#: Requests that name a message by its physical offset.
BY_PLACE = {36: "offset", 33: "offset", 37: "commitLogOffset"}
#: The recorder had killed all clients before, between two captures.
AFTER_A_KILL = ("admin-resetOffsetByTime-offline",)
#: Tells consumers that their group has changed.
NOTIFY = 40
END_TRANSACTION, CHECK = 37, 39
#: Names a message by an id that ends with it.
CONSUME_DIRECTLY = 309
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

    def __init__(
        self,
        reason: str,
        versions: str,
        code: int,
        what: str,
        scenarios: str = "",
        *,
        suite: str = "plain",
        **values: Any,
    ) -> None:
        self.reason = reason
        self.suite = suite
        self.versions = versions.split()
        self.code = code
        self.what = what
        self.scenarios = scenarios.split()
        self.values = values  #: of the difference; without them any

    def covers(self, version: str, difference: Difference) -> bool:
        return (
            version in self.versions
            and difference.code == self.code
            and difference.what == self.what
            and (not self.scenarios or difference.scenario in self.scenarios)
            and all(getattr(difference, name) == value for name, value in self.values.items())
        )


def place(message: MessageExt) -> tuple[str, int, int, bytes, str | None]:
    return message.topic, message.queue_id, message.queue_offset, message.body, message.tags


def differences(
    version: str, scenario: str, request: Entry, theirs: Command | None, ours: Command | None
) -> list[Difference]:
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
                (
                    "fields",
                    tuple(sorted(set(theirs.fields) - set(ours.fields))),
                    tuple(sorted(set(ours.fields) - set(theirs.fields))),
                )
            )
        for name in VALUES:
            if name in theirs.fields and theirs.fields[name] != ours.fields.get(name):
                found.append((name, theirs.fields[name], ours.fields.get(name)))
        found += bodies(version, request.code, theirs, ours)
    return [Difference(scenario, request.code, *one) for one in found]


#: Members of bodies that differ in any two runs, or with the log.
VOLATILE = {
    *(
        "timestamp",
        "counter",
        "lastUpdateTimestamp",
        "lastTimestamp",
        "lastConsumeTimestamp",
        "lastLockTimestamp",
        "lastPullTimestamp",
    ),
    *(
        "physicOffset",
        "physicSize",
        "consumeTps",
        "tps",
        "sum",
        "avgpt",
        "spentTimeMills",
        "clientAddr",
        "remoteIP",
        "brokerAddr",
    ),
}
#: Codes whose answers have message records for a body.
RECORDS = (11, 361, 12, 33)
#: Answered by lines of `key=value`; ours has keys more.
GET_CONFIG = 26
#: Answered by a table whose values are of the moment.
RUNTIME_INFO = 28


def facts(value: Any, name: str = "") -> Any:
    """A body's content in one form for all orders of its members, without what is volatile."""
    if name in VOLATILE:
        return "?"
    if isinstance(value, JavaMap):
        return {repr(facts(key)): facts(one) for key, one in value}
    if isinstance(value, dict):
        return {str(key): facts(one, str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((facts(one) for one in value), key=repr)
    return value


def content(code: int, body: bytes) -> Any:
    if code == GET_CONFIG:
        return {line.partition("=")[0]: "?" for line in body.decode().splitlines()}
    try:
        read = facts(loads(body)) if body else {}
    except JsonError:
        return body
    if code == RUNTIME_INFO:
        return {re.sub(r"_/.*", "_PATH", key): "?" for key in read["table"]}
    return read


def bodies(version: str, code: int, theirs: Command, ours: Command) -> list[tuple[str, Any, Any]]:
    if code in RECORDS:
        messages = [decode_records(answer.body) for answer in (theirs, ours)]
        places = [[place(message) for message in one] for one in messages]
        ids = [[message.properties.get("UNIQ_KEY") for message in one] for one in messages]
        found: list[tuple[str, Any, Any]] = []
        if places[0] != places[1]:
            found.append(("messages", places[0], places[1]))
        elif ids[0] != ids[1]:
            found.append(("ids", ids[0], ids[1]))
        return found
    expected, found_here = content(code, bytes(theirs.body)), content(code, bytes(ours.body))
    if code == GET_CONFIG:
        found_here = common(found_here, expected)
    if version != FOLLOWED:
        expected, found_here = common(expected, found_here), common(found_here, expected)
    return [("body", *apart(expected, found_here))] if expected != found_here else []


def common(one: Any, other: Any) -> Any:
    """What both know of: releases differ in the members of bodies, and we follow one of them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: common(one[key], other[key]) for key in one.keys() & other.keys()}
    return one


def apart(one: Any, other: Any) -> tuple[Any, Any]:
    """Only what differs, for a text that can be read and an excuse that can be written."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = {
            key: apart(one.get(key), other.get(key))
            for key in one.keys() | other.keys()
            if one.get(key) != other.get(key)
        }
        return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}
    if isinstance(one, list) and isinstance(other, list):
        return [each for each in one if each not in other], [each for each in other if each not in one]
    return one, other


class Replay:
    """One broker, fed with everything that a release's clients asked."""

    def __init__(self, version: str, **settings: Any) -> None:
        self.version = version
        self.world = World(**settings)
        #: Requests that were fed by `run_all`.
        self.count = 0
        #: Groups whose changes Apache's broker told of and ours did not, by scenario.
        self.untold: list[str] = []
        #: By the recorder's number. Some stay open over many scenarios.
        self.peers: dict[int, Peer] = {}
        #: Recorded physical offset -> ours, or -> topic, queue and queue offset.
        self.known: dict[int, int] = {}
        self.places: dict[int, tuple[str, int, int]] = {}

    def run(self, scenario: str) -> list[Difference]:
        recorded = [entry for entry in GOLDEN.capture(self.version, scenario) if entry.link == "client-broker"]
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
            found += differences(self.version, scenario, request, self.theirs.get(key), self.ours.get(key))
        return found

    def run_all(self, scenarios: list[str]) -> list[Difference]:
        """Scenarios that were recorded one after the other."""
        found = []
        for scenario in scenarios:
            if scenario in AFTER_A_KILL:
                for number in list(self.peers):
                    self.peers.pop(number).close()
            found += self.run(scenario)
            self.count += len(self.requests)
            for number, pushes in self.their_pushes.items():
                told = {
                    push.fields.get("consumerGroup") for push in self.our_pushes.get(number, []) if push.code == NOTIFY
                }
                groups = {push.fields.get("consumerGroup") for push in pushes if push.code == NOTIFY}
                self.untold += [f"{scenario}: {group}" for group in groups - told]
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
        ours = [push for push in self.our_pushes[number] if not push.is_oneway]
        if index < len(ours):  # else its own request has no answer either, which is a difference
            answer.opaque = ours[index].opaque
            self.peers[number].feed(encode(answer))

    def translated(self, entry: Entry, command: Command) -> bytes:
        """The frame, with the physical offset of ours if it names one."""
        field = BY_PLACE.get(entry.code)
        if entry.code == CONSUME_DIRECTLY:
            theirs = int(command.fields["msgId"][-16:], 16)
            command.fields["msgId"] = f"{command.fields['msgId'][:-16]}{self.known.get(theirs, theirs):016X}"
            return encode(command)
        if entry.code == END_TRANSACTION and command.fields.get("fromTransactionCheck") == "true":
            command.fields.update(self.check(entry.connection, command.fields["msgId"]))
            return encode(command)
        if field is None:
            return entry.frame
        theirs = int(command.fields[field])
        ours = self.known.get(theirs)
        if ours is None and theirs in self.places:
            topic, queue_id, offset = self.places[theirs]
            found = self.world.store.reader.entry(self.world.store.queue(topic, queue_id), offset)
            ours = None if found is None else found[0]
        command.fields[field] = str(theirs if ours is None else ours)
        return encode(command)

    def check(self, number: int, unique_id: str) -> dict[str, str]:
        """Where our broker said that a half message is when it asked for its outcome; it may ask some seconds later
        than Apache's did.
        """
        for _ in range(40):
            for push in reversed(self.our_pushes[number]):
                if push.code == CHECK and push.fields["msgId"] == unique_id:
                    return {name: push.fields[name] for name in ("commitLogOffset", "tranStateTableOffset")}
            self.world.advance(100)
            self.collect()
        return {}

    def learn(self, request: Entry | None, theirs: Command, ours: Command | None) -> None:
        """Where the messages that an answer tells of lie, in their log and in ours."""
        if request is None:
            return
        if request.code in (310, 320) and ours is not None:
            pairs = zip(
                theirs.fields.get("msgId", "").split(","), ours.fields.get("msgId", "").split(","), strict=False
            )
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
