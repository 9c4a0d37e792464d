"""Name servers and brokers of Apache, as far as a capture of mqadmin has them: they answer what they answered there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqproto.codec import Command, decode, encode_response
from mqproto.state.admin import AdminCore
from tests.golden.golden import Entry, Exchange, Golden
from tests.mqproto.state.stage import NS, Peer, Stage

#: The address of the recorded broker, as routes name it.
BROKER = "127.0.0.1:10911"
#: What Apache's clients say beside their questions: that they are there, that they leave, and whether topics can be
#: created.
BESIDE = {34, 35}
#: Says which kind of client asks (4.9.4 and later; its tools read queues with a pull consumer), and who.
FIELDS_BESIDE = {"ReqT", "AccessKey", "Signature"}

#: Code, fields and body of a request, in a form that can be compared.
Question = tuple[int, frozenset[tuple[str, str]], bytes]


def question(code: int, fields: Mapping[str, str], body: bytes | memoryview) -> Question:
    return code, frozenset((name, text) for name, text in fields.items() if name not in FIELDS_BESIDE), bytes(body)


class Recorded:
    """One scenario of mqadmin, and a stage on which our operations meet the servers of it."""

    def __init__(self, golden: Golden, version: str, name: str, story: str = "admin") -> None:
        entries = golden.capture(version, f"{story}-{name}")
        #: Only links that the tool opened: consumers of the scenario before go on with theirs.
        own = {entry.connection for entry in entries if entry.event == "open" and entry.link.startswith("client-")}
        exchanges = [one for one in golden.exchanges(version, f"{story}-{name}") if one.request.connection in own]
        self.exchanges = [one for one in exchanges if one.request.direction == ">" and not _beside(one.request)]
        self.stage = Stage()
        self.core = AdminCore(self.stage.node)
        for address, link in ((NS, "client-namesrv"), (BROKER, "client-broker")):
            peer = self.stage.peers[address] = Peer()
            for code in {one.request.code for one in self.exchanges}:
                peer.answers[code] = _Answers([one for one in self.exchanges if one.request.link == link])

    def theirs(self, without: frozenset[int] = frozenset()) -> set[Question]:
        """What the tool asked."""
        return {
            question(one.request.code, one.request.fields, one.request.body)
            for one in self.exchanges
            if one.request.code not in without
        }

    def ours(self, without: frozenset[int] = frozenset()) -> set[Question]:
        """What we asked."""
        commands = [command for peer in self.stage.peers.values() for command in peer.got]
        return {
            question(one.code, one.fields, one.body) for one in commands if one.code not in without and not _beside(one)
        }

    def field(self, code: int, name: str) -> str:
        """A field of the tool's first request of a code."""
        return next(one.request.fields[name] for one in self.exchanges if one.request.code == code)

    def run(self, flow: Any) -> Any:
        return self.stage.run(flow)


class _Answers:
    """The recorded answers of one server: that to the same request, else that to the first one of the same code."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._exchanges = [one for one in exchanges if one.answer is not None]

    def __call__(self, request: Command) -> bytes | None:
        asked = question(request.code, request.fields, request.body)
        same_code = [one for one in self._exchanges if one.request.code == request.code]
        same = [one for one in same_code if question(one.request.code, one.request.fields, one.request.body) == asked]
        for one in same or same_code:
            assert one.answer is not None
            answer = decode(one.answer.frame[4:])
            return encode_response(request.opaque, answer.code, answer.fields, answer.body, remark=answer.remark)
        return None


def _beside(request: Entry | Command) -> bool:
    return request.code in BESIDE or (request.code == 105 and request.fields.get("topic") == "TBW102")
