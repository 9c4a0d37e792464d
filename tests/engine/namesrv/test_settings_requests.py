"""The name server's own settings, read and changed by request."""

from __future__ import annotations

import pytest

from engine.settings import NamesrvSettings, parse_properties
from mqproto.codec import encode
from mqproto.codes import RequestCode
from tests.engine.namesrv.harness import Rig, SaveJob

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
