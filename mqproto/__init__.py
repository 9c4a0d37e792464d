"""RocketMQ's protocol in Python, without I/O: values, codecs and machines. See `adapters` for clients and servers that run."""

from __future__ import annotations

from mqproto.bodies import ConsumeFromWhere, MessageModel
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue, SendResult, SendStatus
from mqproto.replies import reply_to
from mqproto.transactions import LocalTransactionState, TransactionSendResult

__version__ = "0.1.0"

__all__ = [
    "ConsumeFromWhere",
    "ConsumeStatus",
    "LocalTransactionState",
    "MQError",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "SendResult",
    "SendStatus",
    "TransactionSendResult",
    "__version__",
    "reply_to",
]
