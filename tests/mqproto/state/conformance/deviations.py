"""Deviations: where what we send differs from what Apache's clients send for the same job, and why.

Each deviation between our client and that of the release that we follow quotes the decision that gives the reason, with
its number on that page. The others are differences between Apache's releases, or what is a matter of time. One that
occurs in no capture any more has to go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mqproto.wire.codes import RequestCode
from mqproto.wire.names import RETRY_PREFIX
from tests.golden.golden import VERSIONS
from tests.mqproto.state.conformance.questions import LITE_PULL_MESSAGE, SENDS, Question, canonical

INNER: Final = "CLIENT_INNER_PRODUCER"
HEARTBEAT, UNREGISTER, ROUTE = RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.GET_ROUTEINFO_BY_TOPIC

OF_QUEUES: Final = (RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET)


@dataclass(frozen=True)
class Deviation:
    """One way in which requests may differ.

    `forget` makes requests of both sides equal that differ in this way alone. `theirs` and `ours` tell requests that
    only one side makes; `fewer` those that we make less often.
    """

    name: str
    #: Number and part of the decision that gives the reason, for a difference to the release that we follow.
    decision: str = ""
    versions: tuple[str, ...] = VERSIONS
    #: Patterns of the captures in which it may occur.
    captures: tuple[str, ...] = ("*",)
    forget: Callable[[Question], Question] | None = None
    theirs: Callable[[Question], bool] | None = None
    ours: Callable[[Question], bool] | None = None
    fewer: Callable[[Question], bool] | None = None


def without_inner(asked: Question) -> Question:
    if asked.code != HEARTBEAT:
        return asked
    told = asked.json
    producers = [one for one in told["producerDataSet"] if one["groupName"] != INNER]
    return replace(asked, body=canonical({**told, "producerDataSet": producers}))


def without(*names: str, code: int | None = None) -> Callable[[Question], Question]:
    """Forget fields, or members of the body, of requests of one code or of all."""

    def forget(asked: Question) -> Question:
        if code not in (None, asked.code):
            return asked
        body = asked.body
        if body.startswith("{"):
            body = canonical({name: value for name, value in json.loads(body).items() if name not in names})
        return replace(asked.having(**dict.fromkeys(names)), body=body)

    return forget


def untopical(asked: Question) -> Question:
    return asked.having(topic=None) if asked.code == RequestCode.END_TRANSACTION else asked


def lite_as_pull(asked: Question) -> Question:
    return replace(asked, code=RequestCode.PULL_MESSAGE) if asked.code == LITE_PULL_MESSAGE else asked


def unnumbered(asked: Question) -> Question:
    """The group of a client's trace, without the number that it has with Apache's."""
    return (
        asked.having(a=re.sub(r"^(_INNER_TRACE_PRODUCER-.*)-\d+$", r"\1", asked["a"])) if asked.code in SENDS else asked
    )


def unnamed_packing(asked: Question) -> Question:
    """Before 4.9.4 nobody said how a body is packed."""
    if asked.code in SENDS and int(asked["f"]) & 0x700:
        return asked.having(f=str(int(asked["f"]) & ~0x700))
    return asked


def batch_without_id(asked: Question) -> Question:
    """The properties of a batch, which are no message's, without an id."""
    if asked.code != RequestCode.SEND_BATCH_MESSAGE:
        return asked
    values = {name: value for name, value in json.loads(asked["i"]).items() if name != "UNIQ_KEY"}
    return asked.having(i=json.dumps(values, sort_keys=True))


def of_nothing(asked: Question) -> bool:
    """A heartbeat of a consumer that pulls and has not pulled anything."""
    return asked.code == HEARTBEAT and any(
        one["consumeType"] == "CONSUME_ACTIVELY" and not one["subscriptionDataSet"]
        for one in asked.json["consumerDataSet"]
    )


def of_retries(asked: Question) -> bool:
    """What a consumer asks about a queue of retries: an offset, a pull, a commit, a lock."""
    if asked.code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        return str(asked.json["mqSet"][0]["topic"]).startswith(RETRY_PREFIX)
    return asked.code in OF_QUEUES and asked["topic"].startswith(RETRY_PREFIX)


def empty_heartbeat(asked: Question) -> bool:
    return asked.code == HEARTBEAT and not asked.json["producerDataSet"] and not asked.json["consumerDataSet"]


DEVIATIONS: Final = (
    Deviation(
        "heartbeats name no inner producer",
        "D25: The inner producer group appears only when a consumer uses it.",
        forget=without_inner,
    ),
    Deviation(
        "the inner producer does not say goodbye",
        "D25: The inner producer group appears only when a consumer uses it.",
        theirs=lambda asked: asked.code == UNREGISTER and asked.get("producerGroup") == INNER,
    ),
    Deviation(
        "a heartbeat of nobody",
        "D25: The inner producer group appears only when a consumer uses it.",
        theirs=empty_heartbeat,
    ),
    Deviation(
        "the template's route is looked up when it is needed",
        "D30: The route of the template topic is looked up when a topic has none",
        theirs=lambda asked: asked.code == ROUTE and asked["topic"] == "TBW102",
    ),
    Deviation(
        "a link begins with a heartbeat",
        "D24: A new link to a broker begins with a heartbeat.",
        ours=lambda asked: asked.code == HEARTBEAT and (not asked.json["consumerDataSet"] or of_nothing(asked)),
    ),
    Deviation(
        "no goodbye to brokers of topics that are not in use",
        "D25: UNREGISTER goes only to brokers with an open link",
        versions=("4.4.0",),
        captures=("offsets",),
        theirs=lambda asked: asked.code == UNREGISTER and asked.get("producerGroup") != INNER,
    ),
    Deviation(
        "a link begins with a heartbeat, whatever else will be refused",
        "D24: A new link to a broker begins with a heartbeat.",
        captures=("sql-wrong",),
        ours=lambda asked: asked.code == HEARTBEAT,
    ),
    Deviation(
        "a refused account is refused once",
        "D44: A refusal of the account (an `AclException` in the remark, or code 16 of 5.3) is `AccessDenied` and "
        "final",
        fewer=lambda asked: asked.code in SENDS,
    ),
    Deviation("the trace's group has no number", "D50: its group has no number", forget=unnumbered),
    Deviation(
        "new retry topics are found within seconds",
        "D68: a new retry topic is found within seconds",
        ours=of_retries,
    ),
    Deviation(
        "heartbeats go to brokers of topics in use",
        "D31: Routes of topics that nobody uses any more are dropped",
        versions=("4.4.0",),
        theirs=of_nothing,
    ),
    Deviation(
        "where a group begins is committed",
        "D62: Where a group begins is committed at once.",
        versions=("5.3.3",),
        ours=lambda asked: asked.code == RequestCode.UPDATE_CONSUMER_OFFSET,
    ),
    Deviation(
        "the last offset of a queue is taken before another member begins",
        "D73: A queue is unlocked when the broker has answered that it has taken its last offset",
        captures=("consume-orderly", "rebalance"),
        forget=lambda asked: replace(asked, oneway=True) if asked.code == RequestCode.UPDATE_CONSUMER_OFFSET else asked,
    ),
    # --- what came of how the other side was recorded
    Deviation(
        "a program that fails says no goodbye",
        captures=("acl-produce-*", "request-reply", "sql-wrong"),
        ours=lambda asked: asked.code == UNREGISTER,
    ),
    # --- what differs from one of Apache's releases to the other
    Deviation("4.4 names no broker in sends", versions=("4.4.0",), forget=lambda asked: asked.having(n=None)),
    Deviation("4.4 names no broker elsewhere", versions=("4.4.0",), forget=lambda asked: asked.having(bname=None)),
    Deviation("4.4 does not say how a body is packed", versions=("4.4.0",), forget=unnamed_packing),
    Deviation("5.x limits answers by bytes", versions=("5.3.3",), forget=without("maxMsgBytes")),
    Deviation("5.x ends transactions with their topic", versions=("5.3.3",), forget=untopical),
    Deviation("5.x has a code for lite pulls", versions=("5.3.3",), forget=lite_as_pull),
    Deviation(
        "5.x has a version of heartbeats",
        versions=("5.3.3",),
        forget=without("heartbeatFingerprint", "withoutSub", code=HEARTBEAT),
    ),
    Deviation("5.x asks for committed ends", versions=("5.3.3",), forget=without("committed")),
    Deviation("5.x asks for a lower bound", versions=("5.3.3",), forget=without("boundaryType")),
    Deviation("5.x gives batches an id", versions=("5.3.3",), forget=batch_without_id),
    Deviation("5.x locks at one of several replicas", versions=("5.3.3",), forget=without("onlyThisBroker")),
)
