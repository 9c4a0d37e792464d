"""Name servers and brokers of a capture, and a stage on which a client of ours takes the place of the recorded one.

Our client has the id of the recorded one. The servers answer each request as they answered the same request there, in
order, and are silent when there was no further answer to it; a pull that was held is held for as long. Locks are given
to whoever asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mqproto.codec import Command, decode, encode, encode_response
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity, ClientSettings
from mqproto.wire import properties
from mqproto.wire.bodies import LockAnswer, LockRequest
from mqproto.wire.codes import RequestCode
from mqproto.wire.names import TRACE_TOPIC
from tests.golden.golden import GOLDEN, Entry, Exchange
from tests.mqproto.state.conformance.questions import PULLS, SENDS, Question, question, questions
from tests.mqproto.state.stage import NS, Peer, Stage, success

#: The recorded broker, as routes name it, and its second port.
BROKER, SECOND_PORT = "127.0.0.1:10911", "127.0.0.1:10909"
#: Fields that say who asks and of whom, or what only 5.x says.
NOT_ASKED = ("bname", "Signature", "AccessKey", "ReqT", "committed", "boundaryType")
#: A pull whose answer took longer was held.
HELD_MS = 500


@dataclass
class Recorded:
    """One client of a capture: its connections, groups and requests."""

    client_id: str
    #: When its first connection was made, and when its last one ended, if it did.
    begun: float
    ended: float = float("inf")
    connections: set[int] = field(default_factory=set)
    #: ("producer" or "consumer", group)
    roles: set[tuple[str, str]] = field(default_factory=set)
    exchanges: list[Exchange] = field(default_factory=list)


def clients(version: str, name: str) -> list[Recorded]:
    """The clients that began in a capture, in the order of their first connections to the broker."""
    entries = [one for one in GOLDEN.capture(version, name) if one.link == "client-broker"]
    links: dict[int, Recorded] = {one.connection: Recorded("", one.at) for one in entries if one.event == "open"}
    for one in entries:
        if one.event == "close" and one.connection in links:
            links[one.connection].ended = one.at
        if one.connection in links and one.is_request and one.direction == ">":
            _learn(links[one.connection], one)
    found: list[Recorded] = []
    for connection, link in links.items():
        same = [one for one in found if _same(one, link)]
        recorded = same[0] if same else link
        if not same:
            found.append(link)
        recorded.connections.add(connection)
        recorded.client_id = recorded.client_id or link.client_id
        recorded.roles |= link.roles
        recorded.ended = max(recorded.ended, link.ended)
    for exchange in GOLDEN.exchanges(version, name):
        if exchange.request.direction == ">":
            for recorded in found:
                if exchange.request.connection in recorded.connections:
                    recorded.exchanges.append(exchange)
    return found


def _same(one: Recorded, other: Recorded) -> bool:
    if one.client_id and other.client_id:
        return one.client_id == other.client_id
    return bool(one.roles & other.roles) and other.begun < one.ended


def _learn(link: Recorded, request: Entry) -> None:
    fields = request.fields
    if request.code == RequestCode.HEART_BEAT:
        data = json.loads(request.body)
        link.client_id = data["clientID"]
        link.roles |= {("producer", one["groupName"]) for one in data["producerDataSet"]}
        link.roles |= {("consumer", one["groupName"]) for one in data["consumerDataSet"]}
    elif request.code == RequestCode.UNREGISTER_CLIENT:
        link.client_id = fields["clientID"]
        link.roles |= {(role, fields[f"{role}Group"]) for role in ("producer", "consumer") if f"{role}Group" in fields}
    elif request.code == RequestCode.CHECK_CLIENT_CONFIG:
        data = json.loads(request.body)
        link.client_id = data["clientId"]
        link.roles.add(("consumer", data["group"]))
    elif request.code in SENDS:
        link.roles.add(("producer", fields["a"]))
    elif "consumerGroup" in fields:
        link.roles.add(("consumer", fields["consumerGroup"]))
    link.roles.discard(("producer", "CLIENT_INNER_PRODUCER"))


def asked(requests: Iterable[Entry | Command]) -> list[Question]:
    """Requests as they are compared."""
    found: list[Question] = []
    for one in requests:
        flag = one.flag if isinstance(one, Command) else int(one.header.get("flag", 0))
        found += questions(one.code, one.fields, one.body, oneway=bool(flag & 2))
    return found


class Replay(Stage):
    """The stage for one client of a capture, chosen by what it is: `role` and `group`, or the only one; `member` counts
    those.
    """

    def __init__(
        self, version: str, name: str, role: str = "", group: str = "", member: int = 0, **settings: Any
    ) -> None:
        self.version, self.name, self.role = version, name, role
        known = clients(version, name)
        chosen = [one for one in known if not role or (role, group) in one.roles]
        self.recorded = chosen[min(member, len(chosen) - 1)] if chosen else Recorded("", 0)
        #: Whether look-ups can be told apart: name servers are not told who asks.
        self.alone = len(known) <= 1
        ip, _, instance = self.recorded.client_id.partition("@")
        identity = ClientIdentity(ip or "192.0.2.3", 4711, instance.removesuffix("@STREAM") or "instance", 0)
        super().__init__(ClientNode(ClientSettings(name_servers=(NS,), **settings), identity))
        self.recorded.exchanges += self._traces(known)
        opened = {
            one.connection
            for one in GOLDEN.capture(version, name)
            if one.event == "open" and one.link == "client-namesrv"
        }
        self.look_ups = [one for one in GOLDEN.exchanges(version, name) if one.request.connection in opened]
        self._answers: dict[Question, list[Exchange]] = {}
        for exchange in [*self.look_ups, *self.recorded.exchanges]:
            self._answers.setdefault(_key(exchange.request), []).append(exchange)
        self._due: list[tuple[int, bytes]] = []
        #: The broker tells the members of a group that there is a new one.
        self._notices = self.pushed(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)[:1]
        #: What names of a client in a namespace begin with. No recorded client is in one.
        self.prefix = f"{self.node.namespace.name}%" if self.node.namespace else ""
        for address in (NS, BROKER):
            self.peers[address] = Peer()
            self.peers[address].answers = dict.fromkeys(range(1_000), self._answer)
        self.peers[SECOND_PORT] = self.peers[BROKER]

    def _traces(self, known: list[Recorded]) -> list[Exchange]:
        """What the recorded client told the trace topic, which it did by a client of its own: of sends, or of
        deliveries.
        """
        kind = b"Pub" if self.role == "producer" else b"Sub"
        sends = [
            one
            for client in known
            if client is not self.recorded
            for one in client.exchanges
            if one.request.code in SENDS
        ]
        return [one for one in sends if one.request.fields["b"] == TRACE_TOPIC and one.request.body.startswith(kind)]

    # --- what was asked

    @property
    def theirs(self) -> list[Question]:
        """What the recorded client asked, of the broker and, if it was alone, of the name server."""
        return asked(one.request for one in [*(self.look_ups if self.alone else ()), *self.recorded.exchanges])

    @property
    def ours(self) -> list[Question]:
        """What our client asked, of the same servers."""
        got = [*(self.peers[NS].got if self.alone else ()), *self.peers[BROKER].got]
        return asked(self.plain(one) for one in got if not one.is_response)

    def plain(self, request: Command) -> Command:
        """A request of ours as if our client were in no namespace."""
        if not self.prefix:
            return request
        fields = {name: text.replace(self.prefix, "") for name, text in request.fields.items()}
        return Command(
            request.code, fields, bytes(request.body).replace(self.prefix.encode(), b""), request.opaque, request.flag
        )

    def commits(self) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
        """The offset that was committed last for each queue: theirs and ours."""
        found = []
        requests: list[list[Any]] = [
            [one.request for one in self.recorded.exchanges],
            [self.plain(one) for one in self.peers[BROKER].got],
        ]
        for some in requests:
            commits = [one.fields for one in some if one.code == RequestCode.UPDATE_CONSUMER_OFFSET]
            found.append({(one["topic"], one["queueId"]): one["commitOffset"] for one in commits})
        return found[0], found[1]

    def recorded_of(self, *codes: int) -> list[Exchange]:
        """The recorded requests of some codes, with their answers."""
        return [one for one in self.recorded.exchanges if one.request.code in codes]

    # --- the servers

    def _answer(self, request: Command) -> bytes | None:
        if request.code == RequestCode.LOCK_BATCH_MQ:
            return success(request, body=LockAnswer(LockRequest.from_json(bytes(request.body)).queues).to_json())
        if request.code == RequestCode.UNLOCK_BATCH_MQ or (
            request.code == RequestCode.UPDATE_CONSUMER_OFFSET and not request.is_oneway
        ):
            return success(request)
        if request.code == RequestCode.HEART_BEAT:
            for one in self._notices:
                fields = {"consumerGroup": self.node.namespace.wrap(one.fields["consumerGroup"])}
                self._due.append((self.now + 10, encoded(one.code, fields, b"", 2)))
            self._notices.clear()
        known = self._answers.get(_key(self.plain(request)))
        if not known:
            return success(request) if request.code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT) else None
        exchange = known[0]
        if len(known) > 1:
            del known[0]
        elif request.code == RequestCode.PULL_MESSAGE:
            known.clear()
        if exchange.answer is None or request.is_oneway:
            return None
        answer = decode(exchange.answer.frame[4:])
        frame = encode_response(request.opaque, answer.code, answer.fields, bytes(answer.body), remark=answer.remark)
        held_ms = int(exchange.answer.at - exchange.request.at)
        if request.code == RequestCode.PULL_MESSAGE and held_ms > HELD_MS:
            self._due.append((self.now + held_ms, frame))
            return None
        return frame

    def pushed(self, code: int) -> list[Entry]:
        """What the broker asked of the recorded client, of one code."""
        entries = GOLDEN.capture(self.version, self.name)
        return [
            one for one in entries if one.is_request and one.direction == "<" and one.code == code and self._mine(one)
        ]

    def _mine(self, entry: Entry) -> bool:
        return entry.connection in self.recorded.connections

    def advance(self, ms: int) -> Replay:
        end = self.now + ms
        while due := sorted(one for one in self._due if one[0] <= end):
            at, frame = due[0]
            self._due.remove(due[0])
            super().advance(max(0, at - self.now))
            if BROKER in self.links:
                self.receive(BROKER, frame)
        super().advance(end - self.now)
        return self


def _key(request: Entry | Command) -> Question:
    """What makes two requests the same to the servers: a send is its topic's next one, a heartbeat any heartbeat."""
    fields = dict(request.fields)
    code = RequestCode.PULL_MESSAGE if request.code in PULLS else request.code
    if code in SENDS:
        text = json.dumps([fields["b"], properties.decode(fields["i"]).get("MSG_TYPE")])
        return Question(-1, (), text)
    if code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
        return Question(code, ())
    if code == RequestCode.PULL_MESSAGE:
        return Question(
            code, tuple((name, fields[name]) for name in ("consumerGroup", "topic", "queueId", "queueOffset"))
        )
    for name in NOT_ASKED:
        fields.pop(name, None)
    return question(code, fields, request.body, oneway=False)


def encoded(code: int, fields: dict[str, str], body: bytes, flag: int = 0) -> bytes:
    """A frame of a broker that asks something."""
    return encode(Command(code, fields, body, 900, flag))
