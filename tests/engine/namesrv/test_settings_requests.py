"""The name server's own settings, read and changed by request."""

from __future__ import annotations

import pytest

from mqproto.codec import encode
from mqproto.engine.settings import NamesrvSettings, parse_properties
from mqproto.wire.codes import RequestCode
from tests.engine.namesrv.harness import Rig, SaveJob
from tests.golden.golden import GOLDEN

UPDATE, GET = RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG


def test_all_settings_are_listed() -> None:
    settings = NamesrvSettings(kv_config_path="/data/kv.json")
    settings.unknown["mystery"] = "?"
    rig = Rig(settings)
    answer = rig.ask(rig.connect(), GET)
    pairs = parse_properties(bytes(answer.body))
    assert answer.code == 0
    assert pairs["kvConfigPath"] == "/data/kv.json"
    assert pairs["listenPort"] == "9876"
    assert pairs["mystery"] == "?"


def test_a_change_takes_effect_and_is_saved() -> None:
    saved: list[dict[str, str]] = []
    jobs: list[SaveJob] = []

    def save(changes: dict[str, str]) -> SaveJob:
        saved.append(changes)
        jobs.append(SaveJob(""))
        return jobs[-1]

    rig = Rig(save_settings=save)
    link = rig.connect()
    request = rig.request(UPDATE, body=b"orderMessageEnable=true\nclusterTest=false\n")
    assert rig.send(link, encode(request)) == []
    assert rig.settings.order_message_enable is True
    assert saved == [{"orderMessageEnable": "true"}]
    rig.node.done(jobs[0], None, rig.now)
    assert [(answer.code, answer.remark) for answer in rig.taken(link)] == [(0, None)]


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"", 0, None),
        (b"clusterTest=false\n", 0, None),
        (b"kvConfigPath=/x\norderMessageEnable=true\n", 16, "Can not update config in black list."),
        (b"configBlackList=\n", 16, "Can not update config in black list."),
        (b"rocketmqHome=/x", 16, "Can not update config in black list."),
        (b"orderMessageEnable=\\u12", 1, "string2Properties error: line 1: \\u12 is no \\uXXXX"),
        (b"orderMessageEnable=true\nnoSuchKey=1\n", 1, "setting noSuchKey=1: there is no such setting"),
        (b"listenPort=70000", 1, "setting listenPort=70000: must be between 0 and 65535"),
    ],
)
def test_answers(body: bytes, code: int, remark: str | None) -> None:
    """Apache skips a bad value and an unknown key in silence; here they are told. Nothing is changed then."""
    rig = Rig()
    answer = rig.ask(rig.connect(), UPDATE, body=body)
    assert (answer.code, answer.remark) == (code, remark)
    assert rig.settings == NamesrvSettings()


def test_the_idle_time_can_be_changed_while_links_are_open() -> None:
    rig = Rig()
    link = rig.connect()
    rig.ask(link, UPDATE, body=b"serverChannelMaxIdleTimeSeconds=300\n")
    rig.advance(299_999)
    assert rig.hung_up() == []
    rig.advance(1)
    assert rig.hung_up() == [link]


def test_links_are_bounded() -> None:
    rig = Rig()
    link = rig.connect()
    rig.ask(link, UPDATE, body=b"maxConnections=2\nwriteBufferHighWaterMark=100\n")
    assert link.unsent_limit == 4 << 20
    assert rig.connect().unsent_limit == 100
    assert rig.node.accept("main", "10.0.0.9:1", "10.0.0.1:9876", rig.now) is None


def test_every_key_of_apaches_is_shown() -> None:
    text = (GOLDEN.root / "bodies" / "319-GET_NAMESRV_CONFIG-response.4.9.7.json").read_text()
    rig = Rig()
    assert (
        parse_properties(text.partition("\n")[2]).keys()
        <= parse_properties(bytes(rig.ask(rig.connect(), GET).body)).keys()
    )


def test_a_change_that_needs_a_restart_and_one_without_effect() -> None:
    rig = Rig()
    link = rig.connect()
    answer = rig.ask(link, UPDATE, body=b"listenPort=9877\nserverWorkerThreads=9\n")
    assert answer.code == 0
    assert answer.remark == (
        "serverWorkerThreads has no effect here: there are no thread pools; listenPort takes effect at the next start"
    )
    assert rig.settings.listen_port == 9876
    pairs = parse_properties(bytes(rig.ask(link, GET).body))
    assert (pairs["listenPort"], pairs["serverWorkerThreads"]) == ("9877", "9")
    assert len(rig.node.notices) == 2


def test_a_failed_save_is_told() -> None:
    jobs: list[SaveJob] = []

    def save(changes: dict[str, str]) -> SaveJob:
        jobs.append(SaveJob(""))
        return jobs[-1]

    rig = Rig(save_settings=save)
    link = rig.connect()
    rig.send(link, encode(rig.request(UPDATE, body=b"orderMessageEnable=true\n")))
    rig.node.done(jobs[0], OSError(28, "No space left on device"), rig.now)
    (answer,) = rig.taken(link)
    assert (answer.code, answer.remark) == (1, "not saved: [Errno 28] No space left on device")
