"""Replies to messages that ask for one (docs/protocol/client.md 3.13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqproto.errors import NoReplyAddress
from mqproto.message import Message, MessageExt
from mqproto.wire import properties as names

#: What `MSG_TYPE` says of a reply.
REPLY_TYPE: Final = "reply"


@dataclass(slots=True)
class ReplyMessage(Message):
    """Reply on its way to the client that asked; made by `reply_to`, sent like any message by any producer of the
    cluster.
    """

    #: Which request it answers.
    correlation_id: str = ""
    #: The id of the client that asked.
    reply_to_client: str = ""
    #: How long that client waits, in milliseconds, as it said.
    ttl: str = ""

    def wire_properties(self) -> dict[str, str]:
        found = Message.wire_properties(self)
        del found[names.WAIT]  # a reply is pushed, and whether it is stored as well is the broker's affair
        found[names.MSG_TYPE] = REPLY_TYPE
        found[names.CORRELATION_ID] = self.correlation_id
        found[names.REPLY_TO_CLIENT] = self.reply_to_client
        if self.ttl:
            found[names.TTL] = self.ttl
        return found


def reply_topic(cluster: str) -> str:
    """The topic by which replies pass through the brokers of a cluster."""
    return f"{cluster}_REPLY_TOPIC"


def reply_to(request: MessageExt, body: bytes) -> ReplyMessage:
    """The reply to a received request; send it by a producer's `send`.

    The broker hands it on to the client that waits. A SendFailed of that send, with a BrokerError of code 1 as its
    cause, says that no broker could: the client has left, say. A client whose time is over drops the reply in silence.
    Raises NoReplyAddress unless a broker of 4.6 or later delivered the message and its sender waits for a reply.
    """
    found = request.properties
    missing = [name for name in (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT) if not found.get(name)]
    if missing:
        raise NoReplyAddress(request.msg_id, missing[0])
    return ReplyMessage(
        reply_topic(found[names.CLUSTER]),
        body,
        correlation_id=found[names.CORRELATION_ID],
        reply_to_client=found[names.REPLY_TO_CLIENT],
        ttl=found.get(names.TTL, ""),
    )
