"""Transactions as users meet them: the verdict on a local transaction, the message that it belongs to, and the result
of both.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Protocol

from mqproto.message import Message, MessageExt, SendResult


class LocalTransactionState(Enum):
    """Verdict of an application on the local transaction that a half message belongs to."""

    #: Consumers get the message.
    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    #: Nobody gets it.
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    #: The broker asks later, this producer or another one of the group.
    UNKNOW = "UNKNOW"
    #: The same; the name above is Apache's.
    UNKNOWN = UNKNOW


@dataclass(slots=True)
class HalfMessage(Message):
    """The message whose local transaction is to be run: a copy of what the application gave, with the id that it was
    sent by.
    """

    #: The producer's id. A question about this message brings it as `MessageExt.msg_id`, so the local transaction may
    #: be kept under it.
    msg_id: str = ""


@dataclass(slots=True, unsafe_hash=True)
class TransactionSendResult(SendResult):
    """Result of a message sent in a transaction.

    `status` says how far the half message got. Anything but SEND_OK means that the local transaction was not run and
    the message was rolled back (docs/protocol/client.md 3.11).
    """

    #: The verdict that the broker got.
    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOW
    #: What the listener raised, where it did: the verdict is UNKNOW then, and the broker asks later.
    local_failure: BaseException | None = None


class TransactionListener(Protocol):
    """Listener that runs local transactions and knows what came of them.

    Both methods give a `LocalTransactionState`; None, anything else and an exception mean UNKNOW. Where methods of the
    client are awaited they may be coroutine functions. `check` may be asked of any message of the group: of one that
    another process sent, of one whose `execute` still runs, and again about one that it has answered for.
    """

    def execute(self, message: HalfMessage, argument: Any, /) -> Any:
        """Run the local transaction of a message that the broker has.

        `argument` is what `send_in_transaction` was given.
        """

    def check(self, message: MessageExt, /) -> Any:
        """What came of the local transaction of this message."""


def half_message(message: Message, msg_id: str) -> HalfMessage:
    """A copy of `message` for its local transaction."""
    copied = {field.name: getattr(message, field.name) for field in fields(Message)}
    copied["properties"] = dict(message.properties)
    return HalfMessage(**copied, msg_id=msg_id)
