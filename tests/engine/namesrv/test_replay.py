"""Name-server requests that Apache's clients, tools and brokers sent, asked again: our answers agree with those of
Apache's name server.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from mqproto.codec import Command, decode, encode
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import ClusterInfo, KVTable, RegisterBrokerBody, TopicConfig, TopicList, TopicRoute
from mqproto.wire.codes import RequestCode
from mqproto.wire.ids import body_crc
from tests.engine.namesrv.harness import Rig
from tests.golden.golden import GOLDEN, VERSIONS, Entry, Exchange

LIFE: Final = [
    f"{part}{kind}" for kind in ("", "-unforced", "-compressed") for part in ("boot", "register-again", "shutdown")
]
#: In the order of recording; broadcasting, rebalancing and the like were recorded anew elsewhere.
PLAIN: Final = (
    "topics produce-sync produce-auto-create produce-unicode produce-async produce-oneway produce-batch "
    "produce-compressed produce-orderly produce-vip produce-no-topic consume consume-tag consume-live consume-delayed "
    "consume-retry consume-dead-letter consume-orderly pull pull-missing-topic offsets query view transact-commit "
    "transact-rollback transact-check transact-check-rollback transact-consume sql-wrong litepull "
    "binary-client-produce binary-client-consume ipv6-ids"
)
BINARY: Final = (
    "binary-server-boot binary-server-topics binary-server-json-client-produce binary-server-json-client-consume "
    "binary-both-produce binary-both-consume binary-both-transact binary-both-admin"
)

TRACE: Final = "trace-topics trace trace-query trace-sendMessage"
#: A server of its own, whose topics were made before the first capture.
MORE: Final = "consume-broadcast rebalance request-reply produce-lz4 produce-zstd consume-packed"
ACL: Final = (
    "acl-produce-good acl-produce-batch acl-produce-denied acl-produce-unsigned acl-produce-unknown-key "
    "acl-produce-wrong-secret acl-produce-admin acl-consume-good acl-consume-denied acl-consume-unsigned acl-transact "
    "acl-admin-unsigned acl-admin-signed-admin acl-admin-signed-user acl-admin-version acl-admin-update "
    "acl-admin-white acl-admin-delete"
)
GROUPS: Final = {
    "life": LIFE,
    "plain": PLAIN.split(" "),
    "binary": BINARY.split(" "),
    "trace": TRACE.split(" "),
    "more": MORE.split(" "),
    "sql": ["sql"],
    "acl": ACL.split(" "),
}

#: Topics, and their queues, that a server of a group had before the first capture.
MADE_BEFORE: Final = {
    "more": {"Packed": 1, "News": 2, "Shared": 8, "Asked": 2},
    "sql": {"Filtered": 1},
    "trace": {"RMQ_SYS_TRACE_TOPIC": 1},
}


def scenarios(version: str, group: str) -> list[str]:
    """The captures of a group in the order of recording."""
    names = GOLDEN.capture_names(version)
    if group == "admin":
        # One capture for each command. Connections were numbered throughout.
        opened = {
            name: [e.connection for e in GOLDEN.capture(version, name) if e.event == "open"]
            for name in names
            if name[:6] == "admin-"
        }
        return sorted((name for name in opened if opened[name]), key=lambda name: min(opened[name]))
    return [name for name in GROUPS[group] if name in names]


def check_answer(exchange: Exchange, ours: Command) -> None:
    """The same code, fields and contents; what order lists have, and what 5.x says of acting masters, may differ."""
    assert exchange.answer is not None
    theirs = decode(exchange.answer.frame[4:])
    asked = decode(exchange.request.frame[4:])
    assert ours.code == theirs.code, ours.remark
    assert ours.fields == theirs.fields
    assert ours.remark == plain_remark(theirs.remark)
    assert ours.serialize_type == asked.serialize_type
    match asked.code:
        case RequestCode.GET_ROUTEINFO_BY_TOPIC if ours.code == 0:
            assert route_facts(ours.body) == route_facts(theirs.body)
            assert (b'"brokerAddrs":{"0":' in bytes(ours.body)) == (asked.version >= 401)
        case RequestCode.GET_BROKER_CLUSTER_INFO:
            assert ClusterInfo.from_json(ours.body) == ClusterInfo.from_json(theirs.body)
        case RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            assert set(TopicList.from_json(ours.body).topics) == set(TopicList.from_json(theirs.body).topics)
        case RequestCode.GET_NAMESRV_CONFIG:
            assert b"kvConfigPath=" in bytes(ours.body)
            assert b"\norderMessageEnable=false\n" in bytes(ours.body)
        case RequestCode.REGISTER_BROKER if theirs.body:
            # 5.x sends an empty table when there is none.
            assert KVTable.from_json(ours.body or b"{}") == KVTable.from_json(theirs.body)
        case _:
            assert bytes(ours.body) == bytes(theirs.body)


def plain_remark(remark: str | None) -> str | None:
    return remark and re.sub(r"https://\S+", "http://rocketmq.apache.org/docs/faq/", remark)


def route_facts(body: bytes | memoryview) -> TopicRoute:
    route = TopicRoute.from_json(body)
    queues = sorted(route.queues, key=lambda each: each.broker_name)
    return replace(route, queues=queues, brokers=sorted(route.brokers, key=lambda each: each.broker_name))


#: A one-way registration has no answer that tells when it took effect; on the recorder's busy machine it took up to 75
#: ms.
UNSEEN_MS: Final = 100


def happened(entry: Entry) -> float:
    """When an entry took effect.

    In one capture a PUT_KV_CONFIG overtook a registration that had come 4 ms before, on another link.
    """
    return entry.at - 10 if entry.is_request and entry.code == RequestCode.PUT_KV_CONFIG else entry.at


class Replay:
    """A server that is fed with one group of captures, each connection as it was."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.rig = Rig()
        self.links: dict[int, Link] = {}
        self.compared = 0
        self.announced = 0.0
        self.refused = False

    def seed(self, topics: dict[str, int]) -> None:
        """What happened before the first capture of a group: the broker came, with its system topics and these (and
        their queues).
        """
        (registration,) = [
            entry for entry in GOLDEN.capture(self.version, "boot") if entry.is_request and entry.code == 103
        ]
        command = decode(registration.frame[4:])
        body = RegisterBrokerBody.decode(
            command.body, compressed=command.fields["compressed"] == "true", version=command.version
        )
        body.topic_table.topics |= {name: TopicConfig(name, queues, queues) for name, queues in topics.items()}
        command.body = body.to_json()
        command.fields |= {"bodyCrc32": str(body_crc(command.body)), "compressed": "false"}
        self.links[1] = self.rig.connect()
        (answer,) = self.rig.send(self.links[1], encode(command))
        assert answer.code == 0, answer.remark

    def play(self, name: str) -> None:
        exchanges = {id(exchange.request): exchange for exchange in GOLDEN.exchanges(self.version, name)}
        began = self.rig.now
        self.announced = -UNSEEN_MS
        entries = [entry for entry in GOLDEN.capture(self.version, name) if entry.link.endswith("-namesrv")]
        for entry in sorted(entries, key=happened):
            self.rig.advance(began + int(happened(entry)) - self.rig.now)
            if entry.event == "close":
                link = self.links.pop(entry.connection, None)
                if link is not None:
                    self.rig.node.closed(link, "closed by the peer", self.rig.now)
            elif entry.is_request:
                self.ask(exchanges[id(entry)])
        assert self.rig.hung_up() == []

    def ask(self, exchange: Exchange) -> None:
        request = exchange.request
        link = self.links.get(request.connection)
        if link is None:
            link = self.links[request.connection] = self.rig.connect()
        answers = self.rig.send(link, request.frame)
        if request.header.get("flag", 0) & 2:
            assert answers == []
            self.announced = request.at
            return
        (ours,) = answers
        assert ours.opaque == decode(request.frame[4:]).opaque
        if exchange.answer is None or (exchange.answer.code == 17 and request.at - self.announced < UNSEEN_MS):
            return
        if exchange.answer.code == 1 and request.code == RequestCode.REGISTER_BROKER:
            # 5.3 did not read what a 5.3 broker had compressed without saying so, and knew nothing of it from then on.
            self.refused = True
            assert RegisterBrokerBody.decode(request.body, compressed=True, version=479).topic_table.topics
            assert ours.code == 0
        elif not (self.refused and request.code == RequestCode.GET_BROKER_CLUSTER_INFO):
            check_answer(exchange, ours)
            self.compared += 1


@pytest.mark.parametrize("group", [*GROUPS, "admin"])
@pytest.mark.parametrize("version", VERSIONS)
def test_answers_agree_with_apaches_name_server(version: str, group: str) -> None:
    names = scenarios(version, group)
    if not names:
        pytest.skip(f"nothing was recorded of {group} with {version}")
    replay = Replay(version)
    if group not in ("life", "binary"):
        replay.seed(MADE_BEFORE.get(group, {}))
    for name in names:
        replay.play(name)
    assert replay.compared >= len(names) // 2
