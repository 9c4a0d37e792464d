"""Transactions in a simulated cluster: producers that a script plays, brokers that ask them, crashes in between
(docs/protocol/store.md 12).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from mqproto.adapters.simulated import Cluster, SimulatedConditions
from mqproto.adapters.simulated.checks import read_logs
from mqproto.adapters.simulated.clients import SimulatedProducer
from mqproto.codec import Command
from mqproto.message import Message
from mqproto.state.client import broker_requests
from mqproto.state.client.broker_requests import BrokerRequests
from mqproto.state.flows.effects import Call, Flow, Oneway
from mqproto.state.flows.tasks import DialledLink
from mqproto.wire.record import decode_record

COMMIT, ROLLBACK = 8, 12
SETTINGS = {
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "500",
    "transactionCheckMax": "10000",
    "mappedFileSizeCommitLog": "65536",
    "maxMessageSize": "8192",
}


class Shops:
    """Transaction producers of several groups. What each transaction is to become is known from its beginning."""

    def __init__(self, seed: int, flush: str) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(
            seed=seed,
            settings=SETTINGS | {"flushDiskType": flush},
            conditions=SimulatedConditions(delay_max=5, job_max=10),
        )
        self.address = self.cluster.broker.addresses["main"]
        self.producers: list[SimulatedProducer] = []
        for group in ("shop-1", "shop-2", "shop-2"):
            producer = self.cluster.producer(group)
            producer.send(Message("bought", b"first"))
            self.producers.append(producer)
        #: Halves that were acknowledged, and what they become.
        self.decided: dict[str, int] = {}
        self.prepared: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.peace = False

    def begin(self, name: str) -> None:
        """One transaction: a half message, and then its end, or nothing."""
        random = self.random
        producer = random.choice(self.producers)
        how = self.decided[name] = random.choice((COMMIT, ROLLBACK))
        at_once = random.random() < 0.5

        def flow(now: int) -> Flow[None]:
            text = f"TRAN_MSG\x01true\x02PGROUP\x01{producer.core.group}\x02UNIQ_KEY\x01{name}\x02"
            fields = {"a": producer.core.group, "b": "bought", "c": "TBW102", "d": "4", "e": "0", "f": "4", "h": "0"}
            fields["g"] = str(now + self.cluster.simulator.wall_ahead)
            fields |= {"i": text, "j": "0", "k": "false", "l": "0", "m": "false"}
            outcome, now = yield Call(self.address, 310, fields, name.encode(), now + 3000)
            if isinstance(outcome, Command) and outcome.code == 0:
                self.prepared.add(name)
                if at_once:
                    offset = int(outcome.fields["msgId"][-16:], 16)
                    _, now = yield Oneway(
                        self.address,
                        37,
                        ending(producer.core.group, outcome.fields["queueOffset"], offset, how),
                        b"",
                        now + 1000,
                    )

        producer.begin(flow)

    def answer(self, requests: BrokerRequests, link: DialledLink, request: Command, now: int) -> None:
        """A broker asks."""
        message = decode_record(request.body)
        name = message.properties["UNIQ_KEY"]
        group = message.properties["PGROUP"]
        assert any(
            producer.node.broker_requests is requests and producer.core.group == group for producer in self.producers
        )
        self.asked[name] += 1
        if self.peace or self.random.random() < 0.6:
            fields = request.fields
            link.oneway(
                37, ending(group, fields["tranStateTableOffset"], int(fields["commitLogOffset"]), self.decided[name])
            )

    def delivered(self) -> Counter[str]:
        stored, violations = read_logs(self.cluster)
        assert violations == []
        found: Counter[str] = Counter()
        for queue, messages in stored.items():
            if queue.topic == "bought":
                found.update(message.msg_id for message in messages if message.body != b"first")
        return found


def ending(group: str, offset: str, physical: int, how: int) -> dict[str, Any]:
    fields = {"producerGroup": group, "tranStateTableOffset": offset, "commitLogOffset": str(physical), "msgId": "x"}
    return fields | {"commitOrRollback": str(how), "fromTransactionCheck": "false"}


@pytest.mark.parametrize("fault", ["none", "cuts", "stop", "crash", "power"])
@pytest.mark.parametrize("seed", range(3))
def test_every_transaction_becomes_what_it_was_to(seed: int, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed ones are there, rolled back ones never, whatever happens; without crashes each is there once."""
    shops = Shops(seed, "SYNC_FLUSH" if fault == "power" else "ASYNC_FLUSH")
    cluster, random = shops.cluster, shops.random
    monkeypatch.setitem(broker_requests.HANDLERS, 39, shops.answer)
    for n in range(60):
        for name in range(random.choice((0, 1, 3))):
            shops.begin(f"{n}-{name}")
        cluster.run_for(random.choice((1, 20, 300, 2000)))
        if fault != "none" and random.random() < 0.1:
            if fault == "cuts":
                cluster.simulator.conditions = SimulatedConditions(
                    delay_max=20, cut=random.choice((0.0, 0.02)), job_max=10
                )
            elif fault == "stop":
                cluster.broker.stop()
                cluster.broker.start()
            else:
                cluster.broker.crash(power=fault == "power")
                cluster.broker.start()
    cluster.simulator.conditions = SimulatedConditions(delay_max=2, job_max=3)
    shops.peace = True
    cluster.run_for(180_000)
    delivered = shops.delivered()
    assert delivered.keys() <= shops.decided.keys()
    missing = [name for name in shops.prepared if shops.decided[name] == COMMIT and not delivered[name]]
    wrong = [name for name in delivered if shops.decided[name] == ROLLBACK]
    assert (missing, wrong) == ([], [])
    if fault in ("none", "cuts", "stop"):
        assert set(delivered.values()) == {1}
    assert cluster.broker.node.transactions.half_messages.open == 0
    assert len(shops.asked) > 10
    before = sum(shops.asked.values())
    cluster.run_for(60_000)
    assert sum(shops.asked.values()) == before, "nothing that is decided is asked about"
