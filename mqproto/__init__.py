"""RocketMQ's protocol in Python, without I/O: values, codecs and machines.

Clients and servers that run are in `mqproto.adapters`.
"""

from __future__ import annotations

from mqproto.acl import SessionCredentials
from mqproto.consume_hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeOutcome,
    FilterMessageContext,
    FilterMessageHook,
)
from mqproto.errors import MQError
from mqproto.hooks import CheckForbiddenHook, CommunicationMode, SendContext, SendMessageHook
from mqproto.message import (
    ConsumeContext,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    PullResult,
    PullStatus,
    SendResult,
    SendStatus,
)
from mqproto.replies import reply_to
from mqproto.selectors import select_by_hash
from mqproto.splitting import split_batch
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy
from mqproto.state.consumer.allocation.strategies import (
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    MachineRoomResolver,
)
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.transactions import LocalTransactionState, TransactionSendResult
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel

__version__ = "0.1.0"

__all__ = [
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "CheckForbiddenHook",
    "CommunicationMode",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeOutcome",
    "ConsumeStatus",
    "FilterMessageContext",
    "FilterMessageHook",
    "LocalTransactionState",
    "MQError",
    "MachineRoomNearby",
    "MachineRoomResolver",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "OffsetStorage",
    "PullResult",
    "PullStatus",
    "SendContext",
    "SendMessageHook",
    "SendResult",
    "SendStatus",
    "SessionCredentials",
    "Strategy",
    "TransactionSendResult",
    "__version__",
    "reply_to",
    "select_by_hash",
    "split_batch",
]
