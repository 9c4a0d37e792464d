"""Requests in a form in which ours can be compared with those of Apache's clients.

What may differ between any two runs, and so is left out or made equal here: opaques, the order of fields and
properties, times, numbers of subscriptions, ids that a client makes up, signatures (`acl`: tests of their own), the
language and release of the sender, and how far a consumer was when it told that. Everything else is compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mqproto.wire import properties
from mqproto.wire.batch import decode_batch
from mqproto.wire.codes import RequestCode
from mqproto.wire.compression import inflate
from mqproto.wire.flags import COMPRESSED

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
#: 5.x has a code of its own for pulls of lite pull consumers.
LITE_PULL_MESSAGE = 361
PULLS = (RequestCode.PULL_MESSAGE, LITE_PULL_MESSAGE)
#: Where anything may stand.
ANY = "*"
#: Fields that are each program's own, by code; 0 for all codes.
OWN: dict[int, tuple[str, ...]] = {
    0: ("subVersion", "Signature"),
    RequestCode.SEND_MESSAGE_V2: ("g",),
    RequestCode.SEND_BATCH_MESSAGE: ("g",),
    RequestCode.SEND_REPLY_MESSAGE_V2: ("g",),
}
#: Properties that are made up by the sender, and what such an id looks like.
OWN_PROPERTIES = ("UNIQ_KEY", "CORRELATION_ID")
MADE_UP = re.compile("[0-9A-F]{32}")


@dataclass(frozen=True)
class Question:
    """A request: what is asked, by which fields and body.

    `body` is the text of it where it is JSON, with members in order.
    """

    code: int
    fields: tuple[tuple[str, str], ...]
    body: str = ""
    oneway: bool = False

    def __getitem__(self, name: str) -> str:
        return dict(self.fields)[name]

    def get(self, name: str) -> str | None:
        return dict(self.fields).get(name)

    def having(self, **changes: str | None) -> Question:
        """The same with other fields; None takes one away."""
        fields = {**dict(self.fields), **changes}
        return replace(self, fields=tuple(sorted((name, text) for name, text in fields.items() if text is not None)))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def canonical(value: Any) -> str:
    """JSON in which the order of members, and of lists of objects, which stand for sets, says nothing."""
    return json.dumps(_ordered(value), sort_keys=True)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: ANY if name == "subVersion" else _ordered(one) for name, one in value.items()}
    if isinstance(value, list):
        return sorted((_ordered(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


def questions(code: int, fields: Mapping[str, str], body: bytes | memoryview, *, oneway: bool) -> list[Question]:
    """One request as it is compared: one that locks or unlocks several queues is as good as one for each."""
    if code not in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        return [question(code, fields, body, oneway=oneway)]
    asked = json.loads(bytes(body))
    parts = [json.dumps({**asked, "mqSet": [queue]}).encode() for queue in asked["mqSet"]]
    return [question(code, fields, part, oneway=oneway) for part in parts]


def question(code: int, fields: Mapping[str, str], body: bytes | memoryview, *, oneway: bool) -> Question:
    """One request in a form in which requests are equal that mean the same."""
    own = OWN[0] + OWN.get(code, ())
    told = {name: ANY if name in own else text for name, text in fields.items()}
    if code in SENDS:
        return _send(code, told, bytes(body), oneway)
    if code in PULLS:
        # Whether there is something to commit, and what, is a matter of time; that both say the same is checked.
        flags = int(told["sysFlag"])
        assert bool(flags & 1) == (int(told["commitOffset"]) > 0), told
        told |= {"sysFlag": str(flags & ~1), "commitOffset": ANY}
    if code == RequestCode.UPDATE_CONSUMER_OFFSET:
        told["commitOffset"] = ANY
    if code == RequestCode.END_TRANSACTION:
        # The half's id is made up by its sender.
        told["msgId"] = ANY
    text = canonical(json.loads(bytes(body))) if bytes(body[:1]) in (b"{", b"[") else bytes(body).decode("latin-1")
    return Question(code, tuple(sorted(told.items())), text, oneway)


def _send(code: int, told: dict[str, str], body: bytes, oneway: bool) -> Question:
    told["i"] = _properties(told["i"], trace=told["b"].endswith("TRACE_TOPIC"))
    if code == RequestCode.SEND_BATCH_MESSAGE:
        parts = [
            [one.flag, _properties(one.properties.decode()), one.body.decode("latin-1")] for one in decode_batch(body)
        ]
        return Question(code, tuple(sorted(told.items())), json.dumps(parts), oneway)
    flags = int(told["f"])
    plain = inflate(body, flags) if flags & COMPRESSED else body
    text = plain.decode("latin-1")
    if told["b"].endswith("TRACE_TOPIC"):
        text = json.dumps(sorted(_trace_record(record) for record in text.split("\x02") if record))
    return Question(code, tuple(sorted(told.items())), text, oneway)


def _properties(text: str, *, trace: bool = False) -> str:
    values = properties.decode(text)
    told = {name: ANY if name in OWN_PROPERTIES else value for name, value in values.items()}
    if trace:
        told["KEYS"] = " ".join(sorted(word for word in values["KEYS"].split() if not MADE_UP.fullmatch(word)))
    return json.dumps(told, sort_keys=True)


#: Times, costs and ids that were made up, by the kind of a record of the trace (docs/protocol/client.md 3.14).
OWN_OF_TRACE = {"Pub": (1, 5, 10), "SubBefore": (1, 4), "SubAfter": (1, 3, 7)}


def _trace_record(text: str) -> list[str]:
    fields = text.split("\x01")
    return [ANY if place in OWN_OF_TRACE[fields[0]] else field for place, field in enumerate(fields)]
