"""Options of clients as users write them: keyword arguments with Apache's names in snake_case (docs/protocol/client.md
1.9), times in milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, TypedDict

from mqproto.acl import Credentials
from mqproto.message import MessageQueue
from mqproto.selectors import Selector
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.external_offsets import OffsetStorage
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from mqproto.wire.compression import Compression

if TYPE_CHECKING:
    import ssl


class ClientOptions(TypedDict, total=False):
    """Options of every client."""

    client_ip: str
    instance_name: str
    #: Topics and groups live in it; also taken from a name server address `http://MQ_INST_x_y.host:port`
    #: (docs/protocol/client.md 1.8).
    namespace: str
    #: One that travels beside the names, for servers of 5.2 and later.
    namespace_v2: str
    #: Where name servers are asked for by HTTP when none are given, and the list's name there (docs/protocol/client.md
    #: 1.4).
    namesrv_domain: str
    namesrv_domain_subgroup: str
    unit_name: str
    unit_mode: bool
    vip_channel_enabled: bool
    poll_name_server_interval: int
    heartbeat_broker_interval: int
    mq_client_api_timeout: int
    connect_timeout_millis: int
    client_channel_max_idle_time_seconds: int
    #: Keys of an account, for brokers with access control: `mqproto.acl.SessionCredentials`, or an object of your own
    #: with its attributes.
    credentials: Credentials | None
    #: Encrypt all connections. Whom to trust say the settings of `mqproto.adapters.base.settings.tls_settings`, or
    #: `ssl_context`.
    tls: bool
    ssl_context: ssl.SSLContext | None
    tls_config_file: str
    tls_test_mode_enable: bool
    tls_client_auth_server: bool
    tls_client_trust_cert_path: str
    tls_client_cert_path: str
    tls_client_key_path: str
    tls_client_key_password: str
    tls_check_hostname: bool


class ProducerOptions(ClientOptions, total=False):
    """Options of a producer."""

    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: int
    send_msg_max_timeout_per_request: int
    compress_msg_body_over_howmuch: int
    compress_level: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    max_message_size: int
    enable_msg_trace: bool
    customized_trace_topic: str
    send_latency_fault_enable: bool
    latency_max: tuple[int, ...]
    not_available_duration: tuple[int, ...]
    retry_response_codes: Collection[int]
    send_window_messages: int
    send_window_bytes: int
    #: "ZLIB", "LZ4" or "ZSTD".
    compress_type: str | Compression


class TransactionOptions(ProducerOptions, total=False):
    """Options of a producer of messages in transactions."""

    check_thread_pool_max_size: int
    check_request_hold_max: int


class ConsumerOptions(ClientOptions, total=False):
    """Options of a push consumer and of a simple consumer."""

    message_model: MessageModel
    #: How queues are shared out among the members of the group, all of which must do it in the same way: "AVG",
    #: "AVG_BY_CIRCLE" or "CONSISTENT_HASH", or an object such as `mqproto.ByConfig` or one of the application's own
    #: (`mqproto.Strategy`).
    allocate_message_queue_strategy: Strategy | str
    #: Where the application keeps the group's offsets itself.
    offset_store: OffsetStorage | None
    #: Messages of a queue one after the other, by one member of the group at a time; RECONSUME_LATER pauses the queue.
    orderly: bool
    consume_from_where: ConsumeFromWhere
    consume_timestamp: str
    consume_thread_min: int
    consume_concurrently_max_span: int
    pull_threshold_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_queue: int
    pull_threshold_size_for_topic: int
    pull_interval: int
    consume_message_batch_max_size: int
    pull_batch_size: int
    post_subscription_when_pull: bool
    max_reconsume_times: int
    suspend_current_queue_time_millis: int
    consume_timeout: int
    await_termination_millis_when_shutdown: int
    pull_time_delay_millis_when_exception: int
    persist_consumer_offset_interval: int
    enable_msg_trace: bool
    customized_trace_topic: str
    local_offset_store_dir: str


class PullingOptions(ClientOptions, total=False):
    """Options that pull consumers and lite pull consumers share."""

    message_model: MessageModel
    #: As for push consumers.
    allocate_message_queue_strategy: Strategy | str
    offset_store: OffsetStorage | None
    local_offset_store_dir: str
    broker_suspend_max_time_millis: int
    consumer_timeout_millis_when_suspend: int
    consumer_pull_timeout_millis: int
    persist_consumer_offset_interval: int
    #: Whether the client id and every request say that this client pulls, as Apache's does since 4.9.4.
    enable_stream_request_type: bool


class PullConsumerOptions(PullingOptions, total=False):
    """Options of a pull consumer."""

    max_reconsume_times: int


class LitePullOptions(PullingOptions, total=False):
    """Options of a lite pull consumer."""

    consume_from_where: ConsumeFromWhere
    consume_timestamp: str
    auto_commit: bool
    auto_commit_interval_millis: int
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    poll_timeout_millis: int
    topic_metadata_check_interval_millis: int
    pull_time_delay_millis_when_exception: int
    enable_msg_trace: bool
    customized_trace_topic: str


class SendOptions(TypedDict, total=False):
    """Keyword arguments of all methods that send."""

    #: Where the message goes, in one attempt.
    queue: MessageQueue | None
    #: Chooses the queue: `selector(queues, message, argument)`.
    selector: Selector | None
    argument: object
    #: The budget of all of it; `send_msg_timeout` unless given.
    timeout_ms: int | None
