"""Headers between clients and brokers, both ways.

Each docstring names the requests, with their codes; who sends them is in docs/protocol/broker.md and
docs/protocol/client.md.
"""

from __future__ import annotations

from mqproto.wire.headers.table import I32, I64, Header, header


@header()
class SendMessageRequest(Header):
    """SEND_MESSAGE 10, SEND_REPLY_MESSAGE 324."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: I32 | None = None


@header(msg_region="MSG_REGION", trace_on="TRACE_ON")
class SendMessageResponse(Header):
    """Answer to SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, SEND_REPLY_MESSAGE 324,
    SEND_REPLY_MESSAGE_V2 325.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    msg_region: str | None = None
    trace_on: str | None = None


@header(
    producer_group="a",
    topic="b",
    default_topic="c",
    default_topic_queue_nums="d",
    queue_id="e",
    sys_flag="f",
    born_timestamp="g",
    flag="h",
    properties="i",
    reconsume_times="j",
    unit_mode="k",
    max_reconsume_times="l",
    batch="m",
    broker_name="n",
)
class SendMessageRequestV2(SendMessageRequest):
    """SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, SEND_REPLY_MESSAGE_V2 325: the fields of `SendMessageRequest` under
    one-letter names.
    """

    broker_name: str | None = None


@header()
class PullMessageRequest(Header):
    """PULL_MESSAGE 11, LITE_PULL_MESSAGE 361."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    subscription: str | None = None
    #: Required in Java, yet some clients leave it out, and only a comparison with the heartbeat needs it.
    sub_version: I64 = 0
    expression_type: str | None = None


@header()
class PullMessageResponse(Header):
    """Answer to PULL_MESSAGE 11, LITE_PULL_MESSAGE 361."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64


@header(unique_key_query="_UNIQUE_KEY_QUERY")
class QueryMessageRequest(Header):
    """QUERY_MESSAGE 12."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: str | None = None


@header()
class QueryMessageResponse(Header):
    """Answer to QUERY_MESSAGE 12."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


@header()
class QueryConsumerOffsetRequest(Header):
    """QUERY_CONSUMER_OFFSET 14."""

    consumer_group: str
    topic: str
    queue_id: I32


@header()
class QueryConsumerOffsetResponse(Header):
    """Answer to QUERY_CONSUMER_OFFSET 14."""

    offset: I64


@header()
class UpdateConsumerOffsetRequest(Header):
    """UPDATE_CONSUMER_OFFSET 15."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


@header()
class SearchOffsetRequest(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP 29."""

    topic: str
    queue_id: I32
    timestamp: I64


@header()
class SearchOffsetResponse(Header):
    """Answer to SEARCH_OFFSET_BY_TIMESTAMP 29."""

    offset: I64


@header()
class GetMaxOffsetRequest(Header):
    """GET_MAX_OFFSET 30."""

    topic: str
    queue_id: I32


@header()
class GetMaxOffsetResponse(Header):
    """Answer to GET_MAX_OFFSET 30."""

    offset: I64


@header()
class GetMinOffsetRequest(Header):
    """GET_MIN_OFFSET 31."""

    topic: str
    queue_id: I32


@header()
class GetMinOffsetResponse(Header):
    """Answer to GET_MIN_OFFSET 31."""

    offset: I64


@header()
class GetEarliestMsgStoretimeRequest(Header):
    """GET_EARLIEST_MSG_STORETIME 32."""

    topic: str
    queue_id: I32


@header()
class GetEarliestMsgStoretimeResponse(Header):
    """Answer to GET_EARLIEST_MSG_STORETIME 32."""

    timestamp: I64


@header()
class ViewMessageRequest(Header):
    """VIEW_MESSAGE_BY_ID 33."""

    offset: I64


@header(client_id="clientID")
class UnregisterClientRequest(Header):
    """UNREGISTER_CLIENT 35."""

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@header()
class ConsumerSendMsgBackRequest(Header):
    """CONSUMER_SEND_MSG_BACK 36."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


@header()
class EndTransactionRequest(Header):
    """END_TRANSACTION 37."""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None


@header()
class GetConsumerListByGroupRequest(Header):
    """GET_CONSUMER_LIST_BY_GROUP 38."""

    consumer_group: str


@header()
class CheckTransactionStateRequest(Header):
    """CHECK_TRANSACTION_STATE 39."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@header()
class NotifyConsumerIdsChangedRequest(Header):
    """NOTIFY_CONSUMER_IDS_CHANGED 40."""

    consumer_group: str


@header()
class ResetOffsetRequest(Header):
    """RESET_CONSUMER_CLIENT_OFFSET 220, INVOKE_BROKER_TO_RESET_OFFSET 222."""

    topic: str
    group: str
    timestamp: I64 = 0
    is_force: bool = False


@header()
class GetConsumerStatusRequest(Header):
    """GET_CONSUMER_STATUS_FROM_CLIENT 221, INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223."""

    topic: str
    group: str
    client_addr: str | None = None


@header()
class GetConsumerRunningInfoRequest(Header):
    """GET_CONSUMER_RUNNING_INFO 307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@header()
class ConsumeMessageDirectlyRequest(Header):
    """CONSUME_MESSAGE_DIRECTLY 309."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


@header()
class ReplyMessageRequest(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT 326."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    store_timestamp: I64 = 0
