"""Settings that take effect at once do so wherever something was made from them (docs/protocol/admin.md 5)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mqproto.codec import decode
from mqproto.engine.settings import BrokerSettings, table
from mqproto.engine.store import StoreSettings
from tests.engine.broker.harness import PEER, Peer, World, pull_fields, send_fields
from tests.engine.broker.sends.test_fast_send import frame, java


def update(world: World, text: str) -> None:
    assert world.connect("192.0.2.8:1").ask(25, None, text.encode()).code == 0


class FastPeer:
    """Peer whose sends take the fast path from the second on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.peer = world.connect()
        self.opaque = 0
        self.general = 0
        handler = world.broker.handlers[310]

        def counted(*arguments: object) -> None:
            self.general += 1
            handler(*arguments)  # type: ignore[arg-type]

        world.broker.handlers[310] = counted

    def send(self, **changes: str) -> dict[str, str]:
        self.opaque += 1
        self.peer.feed(frame(java(send_fields(**changes), self.opaque), b"hi"))
        (answer,) = self.peer.read()
        assert answer.opaque == self.opaque
        return dict(answer.fields) | {"code": str(answer.code)}


@pytest.fixture
def fast(world: World) -> FastPeer:
    fast = FastPeer(world)
    for _ in range(3):
        fast.send()
    assert fast.general == 1
    return fast


def test_answers_of_the_fast_path_have_the_new_texts(world: World, fast: FastPeer) -> None:
    update(world, "regionId=%{x}%s\ntraceOn=false\n")
    answers = [fast.send() for _ in range(3)]
    assert [(answer["MSG_REGION"], answer["TRACE_ON"]) for answer in answers] == [("%{x}%s", "false")] * 3
    assert fast.general == 2, "learnt anew"


def test_refusals_have_them_too(world: World, peer: Peer) -> None:
    update(world, "regionId=here")
    refused = peer.send("a b")
    assert (refused.code, refused.fields["MSG_REGION"]) == (1, "here")


@pytest.mark.parametrize(
    ("text", "code", "changes"),
    [
        ("startAcceptSendRequestTimeStamp=99999999999999", 1, {}),
        ("maxMessageSize=1", 13, {}),
        ("rejectTransactionMessage=true", 16, {"i": "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"}),
    ],
)
def test_sends_are_refused_from_then_on(
    world: World, fast: FastPeer, text: str, code: int, changes: dict[str, str]
) -> None:
    update(world, text)
    assert fast.send(**changes)["code"] == str(code)


def test_topics_are_made_or_not(world: World, peer: Peer) -> None:
    update(world, "autoCreateTopicEnable=false")
    assert peer.send("New").code == 17
    update(world, "autoCreateTopicEnable=true")
    assert peer.send("New").code == 0


def test_the_template_comes_with_automatic_topics() -> None:
    """With Apache's broker the switch is of no use where the template was not there from the start."""
    world = World(auto_create_topic_enable=False, default_topic_queue_nums=3)
    peer = world.connect()
    assert peer.send("New").code == 17
    update(world, "autoCreateTopicEnable=true")
    assert peer.send("New").code == 0
    assert json.loads(bytes(peer.ask(21).body))["topicConfigTable"]["TBW102"]["writeQueueNums"] == 3
    assert peer.ask(17, {"topic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}).code == 1, (
        "it is a system topic"
    )


def test_groups_are_made_or_not(world: World, peer: Peer) -> None:
    peer.send()
    update(world, "autoCreateSubscriptionGroup=false")
    assert peer.pull(group="New").code == 26


def test_reading_is_forbidden_and_allowed(world: World, peer: Peer) -> None:
    peer.send()
    update(world, "brokerPermission=2")
    assert peer.pull().code == 16
    update(world, "brokerPermission=6")
    assert peer.pull().code == 0


def parked(world: World, peer: Peer, offset: int = 1) -> Callable[[], int]:
    """Park a pull; how long it was held."""
    peer.tell(11, pull_fields(offset=offset, sysFlag="6"))
    assert peer.read() == []
    begun = world.now

    def held() -> int:
        while not peer.read():
            world.advance(1000)
        return world.now - begun

    return held


def test_pulls_are_parked_for_as_long_as_is_set(world: World, peer: Peer) -> None:
    peer.send()
    assert parked(world, peer)() == 15_000
    update(world, "longPollingEnable=false\nshortPollingTimeMills=2000")
    assert parked(world, peer)() == 2000
    update(world, "longPollingEnable=true\nbrokerSuspendMaxTimeMillis=4000")
    assert parked(world, peer)() == 4000


def test_fewer_pulls_are_parked(world: World, peer: Peer) -> None:
    peer.send()
    update(world, "pullThreadPoolQueueCapacity=4")
    other = world.connect("192.0.2.4:1")
    parked(world, peer)
    assert peer.ask(11, pull_fields(offset=1, sysFlag="6")).code == 2, "one of four is the share of one link"
    parked(world, other)


def test_idle_links_end_after_the_new_time(world: World, peer: Peer) -> None:
    """Links that are open look at it when their old time is over."""
    update(world, "serverChannelMaxIdleTimeSeconds=300")
    later = world.connect("192.0.2.4:1")
    world.advance(299_000)
    assert not peer.ended()
    world.advance(1000)
    assert peer.ended()
    assert later.ended()
    update(world, "serverChannelMaxIdleTimeSeconds=1")
    short = world.connect("192.0.2.4:1")
    world.advance(1000)
    assert short.ended()


def test_acknowledgements_wait_for_the_new_time() -> None:
    world = World(store={"flush_disk_type": "SYNC_FLUSH"})
    peer = world.connect(PEER)
    peer.send()
    update(world, "syncFlushTimeout=100")
    world.hold_jobs = True
    peer.tell(310, send_fields(), b"x")
    assert peer.read() == []
    world.advance(100)
    assert [answer.code for answer in peer.read()] == [10]


def test_messages_are_indexed_or_not(world: World, peer: Peer) -> None:
    def found(key: str) -> int:
        fields = {"topic": "T", "key": key, "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 50)}
        peer.tell(12, fields)
        (answer,) = peer.read()
        return answer.code

    peer.send(properties="KEYS\x01one\x02")
    update(world, "messageIndexEnable=false")
    peer.send(properties="KEYS\x01two\x02")
    update(world, "messageIndexEnable=true")
    peer.send(properties="KEYS\x01three\x02")
    assert [found(key) for key in ("one", "two", "three")] == [0, 22, 0]


def test_answers_to_pulls_have_the_new_size(world: World, peer: Peer) -> None:
    for _ in range(5):
        peer.send()
    update(world, "maxTransferCountOnMessageInMemory=2")
    assert peer.pull().fields["nextBeginOffset"] == "2"
    update(
        world,
        "maxTransferCountOnMessageInMemory=32\nmaxTransferCountOnMessageInDisk=3\naccessMessageInMemoryMaxRatio=0",
    )
    assert peer.pull().fields["nextBeginOffset"] == "3", "nothing counts as in memory"


def test_registrations_have_the_new_period_and_form() -> None:
    world = World(namesrv_addr="192.0.2.9:9876")
    server = world.open_dialled()
    server.answer(server.read()[0])
    update(world, "registerNameServerPeriod=10000\ncompressedRegister=true")
    world.advance(10_000)
    (request,) = server.read()
    assert (request.code, request.fields["compressed"]) == (103, "true")


def test_a_busy_disk_is_noticed_after_the_new_time() -> None:
    world = World(store={"flush_disk_type": "SYNC_FLUSH"})
    peer = world.connect(PEER)
    peer.send()
    world.hold_jobs = True
    peer.tell(310, send_fields(), b"x")
    assert world.broker.admission.quiet_until == world.now + 1000
    update(world, "osPageCacheBusyTimeOutMills=10")
    assert world.broker.admission.quiet_until == world.now + 10


def test_every_setting_can_be_changed(world: World, peer: Peer) -> None:
    """To its own default, one by one and all at once; nothing fails, and nothing that is live needs a restart."""
    for settings in (BrokerSettings, StoreSettings):
        values = settings()
        texts = {key: each.text(getattr(values, each.attribute)) for key, each in table(settings).items()}
        texts = {key: text for key, text in texts.items() if key not in ("configBlackList", "rocketmqHome")}
        for key, text in texts.items():
            answer = peer.ask(25, None, f"{key}={text}".encode())
            assert answer.code == 0, answer.remark
            if table(settings)[key].live:
                assert answer.remark is None
        assert peer.ask(25, None, "".join(f"{key}={text}\n" for key, text in texts.items()).encode()).code == 0
    assert decode(peer.frames[-1][4:]).code == 0
