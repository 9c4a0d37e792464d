"""Fast path of sends: it means the same as the general way, same records, same answers, byte for byte."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.codec import Command, decode, encode
from mqproto.engine.broker.core.core import ClientLink, Handler
from mqproto.engine.broker.core.header_templates import HEADER_TEMPLATES_MAX, STRANGERS_MAX, HeaderTemplate
from mqproto.engine.broker.sends.fast_send import SendTemplate
from tests.engine.broker.harness import World, heartbeat, pull_fields, send_fields
from tests.golden.golden import GOLDEN


def frame(header: str | bytes, body: bytes = b"") -> bytes:
    data = header.encode() if isinstance(header, str) else header
    return (4 + len(data) + len(body)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + body


def java(fields: dict[str, str], opaque: int, code: int = 310, flag: int = 0) -> bytes:
    header = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
    }
    return json.dumps(header | {"version": 407}, separators=(",", ":"), ensure_ascii=False).encode()


class Twins:
    """Two brokers, one of which forgets every header at once."""

    def __init__(self, **options: Any) -> None:
        self.fast = World(**options)
        self.general = World(**options)
        self.peers = [world.connect() for world in (self.fast, self.general)]
        #: Frames that took the fast path.
        self.taken = 0
        for code in (10, 11, 310):
            self.fast.broker.handlers[code] = self._counted(self.fast.broker.handlers[code])

    def make_topics(self, *topics: str) -> None:
        """Store a first message in each: its acknowledgement waits until the topic is saved, and those behind it go the
        general way.
        """
        for world in (self.fast, self.general):
            other = world.connect("192.0.2.8:1")
            self.taken += len(topics)
            for topic in topics:
                other.send(topic)
        self.taken -= len(topics)

    def _counted(self, handler: Handler) -> Handler:
        def counted(link: ClientLink, request: Command) -> None:
            self.taken -= 1
            handler(link, request)

        return counted

    def feed(self, *frames: bytes) -> list[bytes]:
        """Feed both; gives the answers, which are the same."""
        fast, general = self.peers
        before = len(fast.frames)
        self.taken += len(frames)
        fast.feed(b"".join(frames))
        for one in frames:
            general.feed(one)
            assert isinstance(general.link, ClientLink)
            general.link.header_template = None
            general.link.header_templates.clear()
        for peer in self.peers:
            peer.read()
        assert fast.frames[before:] == general.frames[before:]
        return fast.frames[before:]

    def check_stores(self) -> None:
        """Both logs hold the same bytes."""
        logs = [world.store.reader.record for world in (self.fast, self.general)]
        at = 0
        while (record := logs[0](at)) is not None:
            assert bytes(record) == bytes(logs[1](at) or b"")
            at += len(record)
        assert self.fast.store.end == self.general.store.end

    @property
    def header_templates(self) -> list[HeaderTemplate]:
        link = self.peers[0].link
        assert isinstance(link, ClientLink)
        return link.header_templates


PROPERTIES = [
    "",
    "TAGS\x01a\x02",
    "TAGS\x01a",
    "WAIT\x01true",
    "WAIT\x01true\x02",
    "WAIT\x01false\x02TAGS\x01a\x02",
    "TAGS\x01a\x02WAIT\x01TRUE\x02KEYS\x01k1 k2\x02",
    "UNIQ_KEY\x0101\x02KEYS\x01k\x02WAIT\x01true\x02TAGS\x01t\x02",
    "WAIT\x01true\x02WAIT\x01false\x02",
    "AWAIT\x01true\x02WAIT\x01true\x02",
    "A\x01xWAIT\x01true\x02WAIT\x01true\x02",
    "X\x01TAGS\x01inner\x02TAGS\x01outer\x02",
    "TAGS\x01a\x02TAGS\x01b\x02",
    "TAGS\x01\x02KEYS\x01k\x02",
    "MYTAGS\x01a\x02",
    "CLUSTER\x01other\x02TAGS\x01a\x02",
    "DELAY\x013\x02",
    "DELAY\x01x\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    "TRAN_MSG\x01false\x02",
    "KEYS\x01订单 é\x02",
    'K\x01a "quoted" \\ back/slash\nline\x02',
    "K\x01" + "v" * 33_000,
]


@pytest.mark.parametrize("text", PROPERTIES)
def test_properties(text: str) -> None:
    twins = Twins()
    usual = "TAGS\x01a\x02WAIT\x01true\x02"
    twins.feed(frame(java(send_fields("T", usual), 1), b"first"))
    twins.feed(frame(java(send_fields("T", text), 2), b"body"), frame(java(send_fields("T", usual, e="3"), 3), b"last"))
    assert twins.taken >= 1
    twins.check_stores()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=8)
NAME = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "CLUSTER", "DELAY", "A", "AWAIT", "", "XTAGS"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(NAME, st.one_of(st.sampled_from(["true", "false", "1", ""]), TEXT)), max_size=4),
            st.sampled_from(["\x02", ""]),
            st.sampled_from(["0", "1", "3", "4", "-1", "007", "x", ""]),
            st.sampled_from(["0", "1699999999123", "-5", "9223372036854775807", "9223372036854775808"]),
            st.integers(-3, 1 << 31),
            st.binary(max_size=20),
        ),
        max_size=6,
    )
)
def test_any_send(sends: list[tuple[list[tuple[str, str]], str, str, str, int, bytes]]) -> None:
    twins = Twins()
    twins.make_topics("T")
    frames = [frame(java(send_fields("T", "TAGS\x01a\x02"), 1), b"first")]
    for entries, end, queue, birth, opaque, body in sends:
        text = "\x02".join(f"{name}\x01{value}" for name, value in entries) + (end if entries else "")
        frames.append(frame(java(send_fields("T", text, e=queue, g=birth), min(opaque, (1 << 31) - 1)), body))
    twins.feed(*frames)
    twins.check_stores()


#: One header of each client as it writes it: C++, Go, Node (peers speak these).
CLIENTS = {
    "cpp": '{{"code":10,"extFields":{{"AccessKey":"","OnsChannel":"ALIYUN","Signature":"x","batch":"0",'
    '"bornTimestamp":"{born}",'
    '"defaultTopic":"TBW102","defaultTopicQueueNums":4,"flag":0,"producerGroup":"P","properties":"{props}",'
    '"queueId":{queue},'
    '"reconsumeTimes":"0","sysFlag":0,"topic":"T","unitMode":"0"}},"flag":0,"language":"CPP","opaque":{opaque},'
    '"remark":"",'
    '"serializeTypeCurrentRPC":"JSON","version":63}}\n',
    "go": '{{"code":10,"language":"GO","version":317,"opaque":{opaque},"flag":0,"remark":"",'
    '"extFields":{{"batch":"false",'
    '"bornTimestamp":"{born}","defaultTopic":"TBW102","defaultTopicQueueNums":"4","flag":"0","maxReconsumeTimes":"0",'
    '"producerGroup":"P","properties":"{props}","queueId":"{queue}","reconsumeTimes":"0","sysFlag":"0","topic":"T",'
    '"unitMode":"false"}}}}',
    "node": '{{"code":310,"language":"JAVA","opaque":{opaque},"flag":0,"version":121,"extFields":{{"a":"P","b":"T",'
    '"c":"TBW102","d":8,'
    '"e": {queue}, "f":0,"g": {born}, "h":0,"i":"{props}","j":0,"k":false}}}}',
}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client(client: str) -> None:
    twins = Twins()
    sends = [(1, 0, 1699999999123), (2, 3, 1699999999124), (123456789, 1, 1)]
    for opaque, queue, born in sends:
        props = f"TAGS\\u0001t{queue}\\u0002UNIQ_KEY\\u0001AbC{opaque}\\u0002"
        answers = twins.feed(
            frame(CLIENTS[client].format(opaque=opaque, queue=queue, born=born, props=props), b"x%d" % opaque)
        )
        assert b'"code":0,' in answers[0]
        assert b'"opaque":%d,' % opaque in answers[0]
    assert twins.taken == 2
    twins.check_stores()


def test_recorded_sends_of_every_release() -> None:
    """Java's own headers are recognised from the second one of a topic on."""
    for version in GOLDEN.versions:
        twins = Twins()
        entries = [
            entry
            for name in ("produce-sync", "produce-async", "produce-orderly")
            for entry in GOLDEN.capture(version, name)
        ]
        sent = [
            entry.frame
            for entry in entries
            if entry.link == "client-broker" and entry.direction == ">" and entry.code == 310
        ]
        assert len(sent) == 12
        twins.make_topics(*{decode(frame[4:]).fields["b"] for frame in sent})
        twins.feed(*sent)
        twins.check_stores()
        # The first of each of three pairs of group and topic goes the general way.
        assert twins.taken == len(sent) - 3


class TestHeaderTemplates:
    def test_several_topics_in_turn(self) -> None:
        twins = Twins()
        for turn in range(3):
            for topic in "ABC":
                twins.feed(frame(java(send_fields(topic), turn * 3 + ord(topic)), b"x"))
        # Each new topic makes the templates before it stale once.
        assert twins.taken >= 3
        assert len(twins.header_templates) == 3
        twins.check_stores()

    def test_there_are_so_many_and_no_more(self) -> None:
        twins = Twins()
        for world in (twins.fast, twins.general):
            for n in range(HEADER_TEMPLATES_MAX + 1):
                world.connect().send(f"T{n}")
        for n in range(HEADER_TEMPLATES_MAX + 1):
            twins.feed(frame(java(send_fields(f"T{n}"), 1), b"x"))
        assert len(twins.header_templates) == HEADER_TEMPLATES_MAX
        late = frame(java(send_fields(f"T{HEADER_TEMPLATES_MAX}"), 1), b"x")
        for _ in range(STRANGERS_MAX):
            twins.feed(late)
        assert {
            header_template.topic
            for header_template in twins.header_templates
            if isinstance(header_template, SendTemplate)
        } == {f"T{HEADER_TEMPLATES_MAX}"}
        twins.check_stores()

    def test_a_changed_topic_is_looked_at_anew(self) -> None:
        twins = Twins()
        twins.make_topics("T")
        for opaque in range(3):
            assert b'"code":0,' in twins.feed(frame(java(send_fields("T", e="3"), opaque), b"x"))[0]
        assert twins.taken == 2
        for world in (twins.fast, twins.general):
            config = world.broker.topics.find("T")
            assert config is not None
            config.write_queues = config.read_queues = 2
            world.broker.topics.put(config, world.wall)
        assert b'"code":1,' in twins.feed(frame(java(send_fields("T", e="3"), 2), b"x"))[0]
        twins.check_stores()

    def test_a_deleted_topic(self) -> None:
        twins = Twins()
        fields = send_fields("T")
        twins.feed(frame(java(fields, 1), b"x"), frame(java(fields, 2), b"x"))
        for peer in twins.peers:
            peer.world.connect().ask(215, {"topic": "T"})
        answers = twins.feed(frame(java(fields, 3), b"x"))
        assert b'"queueOffset":"0"' in answers[0]
        twins.check_stores()

    @pytest.mark.parametrize(
        "header",
        [
            java(send_fields("T"), 1).replace(b'"e":"0"', b'"e":"0","e":"1"'),
            java(send_fields("T"), 1).replace(b'"e":"0"', b'"e":-1'),
            java(send_fields("T"), 1).replace(b'"e":"0"', b'"e":0.0'),
            java(send_fields("T"), 1).replace(b'"opaque":1', b'"opaque":"1"'),
            java(send_fields("T"), 1).replace(b'"opaque":1', b'"opaque":-7'),
            java(send_fields("T", "K\x01a\"b\x02"), 1),
            java(send_fields("T", i="-"), 1),
            java(send_fields("T", z="v" * 5000), 1),
        ],
    )  # fmt: skip
    def test_headers_that_are_read_in_full_each_time(self, header: bytes) -> None:
        twins = Twins()
        for _ in range(3):
            twins.feed(frame(header, b"x"))
        twins.check_stores()

    def test_a_text_that_would_end_a_value_early_fits_nothing(self) -> None:
        """What stands between quotes cannot smuggle members in."""
        twins = Twins()
        usual = java(send_fields("T", "TAGS\x01a\x02"), 1)
        twins.feed(frame(usual, b"x"))
        for inner in (b'a","j":"9","x":"', b"a\\", b'a\\",\\"e\\":\\"3'):
            twins.feed(frame(usual.replace(b"TAGS\\u0001a\\u0002", inner), b"x"))
        twins.feed(frame(usual.replace(b'"opaque":1', b'"opaque":1,"code":11'), b"x"))
        twins.check_stores()

    def test_a_member_that_is_there_twice(self) -> None:
        twins = Twins()
        usual = java(send_fields("T", "TAGS\x01a\x02"), 1).replace(b'"e":"0"', b'"e":"0","e":"0"')
        twins.feed(frame(usual, b"x"))
        twins.feed(frame(usual.replace(b'"e":"0","e":"0"', b'"e":"3","e":"0"'), b"x"))
        twins.check_stores()

    def test_bytes_that_are_no_text(self) -> None:
        twins = Twins()
        usual = java(send_fields("T", "TAGS\x01a\x02"), 1)
        twins.feed(frame(usual, b"x"), frame(usual.replace(b"TAGS\\u0001a", b"TAGS\\u0001\xff\xfe"), b"x"))
        twins.check_stores()

    def test_one_way(self) -> None:
        twins = Twins()
        for opaque in range(3):
            assert twins.feed(frame(java(send_fields("T"), opaque + 1, flag=2), b"x")) == []
        assert twins.taken == 2
        twins.check_stores()


def test_pulls_are_the_same() -> None:
    twins = Twins()
    twins.feed(
        *(frame(java(send_fields("T", f"TAGS\x01t{n % 2}\x02", e=str(n % 3)), n + 1), b"x%d" % n) for n in range(12))
    )
    sends = twins.taken
    variants: list[dict[str, Any]] = [
        {},
        {"queue": 1},
        {"queue": 3},
        {"queue": 4},
        {"offset": 2, "commitOffset": "2"},
        {"offset": 4},
        {"offset": 5},
        {"topic": "U"},
        {"sysFlag": "5", "commitOffset": "1"},
        {"sysFlag": "5", "commitOffset": "3", "queue": 2},
        {"sysFlag": "5", "commitOffset": "-1"},
        {"subscription": "t1"},
        {"subscription": "t1", "queue": 1},
        {"sysFlag": "6", "offset": 4},
        {"sysFlag": "6", "offset": 4, "queue": 1},
        # Refused, and it must not rub off on those that wait.
        {"sysFlag": "6", "offset": 4, "queue": 4},
    ]
    for n, changes in enumerate(variants):
        twins.feed(frame(java(pull_fields(**changes), 100 + n, code=11)))
    assert twins.taken - sends >= 7
    tables = [world.broker.offsets.table for world in (twins.fast, twins.general)]
    assert tables[0] == tables[1] == {"T@G": {0: 1, 2: 3}}
    waiting = [len(world.broker.parked_pulls) for world in (twins.fast, twins.general)]
    assert waiting == [2, 2]
    for world in (twins.fast, twins.general):
        world.advance(15_000)
    late = [[encode(one) for one in peer.read()] for peer in twins.peers]
    assert late[0] == late[1]
    assert len(late[0]) == 2


def test_under_sync_flush() -> None:
    twins = Twins(store={"flush_disk_type": "SYNC_FLUSH"})
    for opaque in range(1, 5):
        assert (
            len(
                twins.feed(
                    frame(
                        java(send_fields("T", "WAIT\x01true\x02" if opaque % 2 else "WAIT\x01false\x02"), opaque), b"x"
                    )
                )
            )
            == 1
        )
    assert twins.taken == 3
    twins.check_stores()


def test_a_refused_message_is_refused_alike() -> None:
    twins = Twins(store={"max_message_size": 100})
    fields = send_fields("T")
    twins.feed(frame(java(fields, 1), b"x"))
    answers = twins.feed(frame(java(fields, 2), bytes(70_000)), frame(java(fields, 3), b"x"))
    assert b'"code":13,' in answers[0]
    assert b'"queueOffset":"1"' in answers[1]
    twins.check_stores()


def steps(world: World, data: bytes) -> int:
    """How many calls it takes to handle a read: a measure of work that no other load of the machine changes."""
    peer = world.connect()
    peer.feed(data)
    peer.read()
    world.broker.next_deadline()
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        world.broker.received(peer.link, data, world.now)
        world.broker.next_deadline()
    finally:
        sys.setprofile(None)
    assert len(peer.read()) == 8
    return count


def test_a_message_costs_the_same_however_much_there_is_besides() -> None:
    """The cost of one message grows neither with topics and queues nor with links and parked pulls."""
    small, large = World(), World()
    for world, others in ((small, 1), (large, 200)):
        world.connect().send("T")
        for n in range(others):
            other = world.connect(f"192.0.2.9:{1000 + n}")
            for queue in range(4):
                other.send(f"Topic{n}", e=str(queue))
            other.heartbeat(heartbeat(f"client{n}", (f"G{n}",), (f"P{n}",)))
            other.read()
            other.tell(11, pull_fields(f"Topic{n}", f"G{n}", 0, 1, sysFlag="6"))
    assert len(large.broker.parked_pulls) == 200
    data = b"".join(
        frame(java(send_fields("T", "TAGS\x01a\x02WAIT\x01true\x02", e=str(n % 4)), n + 1), b"x" * 100)
        for n in range(8)
    )
    # What a turn does once, such as looking at the next deadline, may differ by a call or two; what a message does may
    # not.
    assert abs(steps(large, data) - steps(small, data)) < 8
