"""A name server with the driver's part played by hand: bytes and times in, answers and actions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.codec import Command, FrameSplitter, decode, encode
from mqproto.engine.namesrv import KvConfig, NameServerNode
from mqproto.engine.settings import NamesrvSettings
from mqproto.state.node.contract import HangUp, Job, Link, Run
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicTable
from mqproto.wire.codes import RequestCode
from mqproto.wire.ids import body_crc


class SaveJob:
    """A save that the test ends when it wants to."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self) -> None:
        """Nothing: the text is looked at instead."""


class Rig:
    """The server, its clock, and what it did."""

    def __init__(
        self,
        settings: NamesrvSettings | None = None,
        *,
        kv_config: KvConfig | None = None,
        save_kv_config: Callable[[str], Job] | None = None,
        save_settings: Callable[[dict[str, str]], Job] | None = None,
    ) -> None:
        self.settings = settings or NamesrvSettings()
        self.node = NameServerNode(
            self.settings, kv_config=kv_config, save_kv_config=save_kv_config, save_settings=save_settings
        )
        self.now = 1_000
        self._opaque = 100
        self._accepted = 0
        self.node.begin(self.now)

    def connect(self, address: str = "") -> Link:
        self._accepted += 1
        link = self.node.accept("main", address or f"10.0.0.9:{40_000 + self._accepted}", "10.0.0.1:9876", self.now)
        assert link is not None
        return link

    def send(self, link: Link, data: bytes) -> list[Command]:
        """Bytes to the server; what it wrote back, all of it taken by the peer."""
        self.node.received(link, data, self.now)
        return self.taken(link)

    def taken(self, link: Link) -> list[Command]:
        """What waits for a peer, as commands."""
        buffers = self.node.data_to_send(link)
        link.unsent = 0
        self.node.touched.discard(link)
        return [decode(frame) for frame in FrameSplitter().feed(b"".join(map(bytes, buffers)))]

    def request(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **facts: Any) -> Command:
        """A request with the next opaque."""
        self._opaque += 1
        return Command(code, fields or {}, body, opaque=self._opaque, **facts)

    def ask(
        self, link: Link, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **facts: Any
    ) -> Command:
        """One request, one answer."""
        request = self.request(code, fields, body, **facts)
        (answer,) = self.send(link, encode(request))
        assert answer.is_response
        assert answer.opaque == request.opaque
        return answer

    def advance(self, milliseconds: int) -> None:
        """Let time pass as a driver does: `timer` at every deadline on the way."""
        until = self.now + milliseconds
        while (when := self.node.next_deadline()) is not None and when <= until:
            self.now = max(self.now, when)
            self.node.timer(self.now)
        self.now = until

    def hung_up(self) -> list[Link]:
        """The links that the server ended since the last call."""
        ended = [action.link for action in self.node.actions if isinstance(action, HangUp)]
        self.node.actions = [action for action in self.node.actions if not isinstance(action, HangUp)]
        return ended

    def jobs(self) -> list[Job]:
        """The jobs that the server wants to have run since the last call."""
        wanted = [action.job for action in self.node.actions if isinstance(action, Run)]
        self.node.actions = [action for action in self.node.actions if not isinstance(action, Run)]
        return wanted

    # --- brokers ---

    def register(
        self,
        link: Link,
        name: str = "broker-a",
        address: str = "10.0.0.1:10911",
        broker_id: int = 0,
        *,
        topics: tuple[str, ...] | list[TopicConfig] = ("T", "U"),
        version: DataVersion | None = None,
        cluster: str = "c",
        filter_servers: tuple[str, ...] = (),
    ) -> Command:
        """A registration in the plain form, which the server has to take."""
        configs = [TopicConfig(topic, 4, 4) if isinstance(topic, str) else topic for topic in topics]
        table = TopicTable(version or DataVersion(1, 1), {topic.name: topic for topic in configs})
        body = RegisterBrokerBody(table, list(filter_servers)).to_json()
        fields = self.broker(name, address, broker_id, cluster)
        answer = self.ask(link, RequestCode.REGISTER_BROKER, {**fields, "bodyCrc32": str(body_crc(body))}, body)
        assert answer.code == 0, answer.remark
        return answer

    @staticmethod
    def broker(
        name: str = "broker-a", address: str = "10.0.0.1:10911", broker_id: int = 0, cluster: str = "c"
    ) -> dict[str, str]:
        """Header fields that name a broker."""
        return {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": cluster,
            "haServerAddr": address.replace(":109", ":119"),
            "brokerId": str(broker_id),
        }
