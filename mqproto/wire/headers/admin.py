"""Headers of the requests that operators send to brokers.

Each docstring names the requests, with their codes; who sends them is in docs/protocol/broker.md and
docs/protocol/client.md.
"""

from __future__ import annotations

from mqproto.wire.headers.table import I32, I64, Header, header


@header()
class CreateTopicRequest(Header):
    """UPDATE_AND_CREATE_TOPIC 17."""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool = False


@header()
class GetBrokerConfigResponse(Header):
    """Answer to GET_BROKER_CONFIG 26."""

    version: str


@header()
class CreateAccessConfigRequest(Header):
    """UPDATE_AND_CREATE_ACL_CONFIG 50."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@header()
class DeleteAccessConfigRequest(Header):
    """DELETE_ACL_CONFIG 51."""

    access_key: str


@header()
class UpdateGlobalWhiteAddrsConfigRequest(Header):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53."""

    global_white_addrs: str
    #: Required in Java, but mqadmin of 4.9.7 leaves it out for the default file.
    acl_file_full_path: str | None = None


@header()
class GetBrokerAclConfigResponse(Header):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO 52."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


@header()
class GetTopicStatsInfoRequest(Header):
    """GET_TOPIC_STATS_INFO 202."""

    topic: str


@header()
class GetConsumerConnectionListRequest(Header):
    """GET_CONSUMER_CONNECTION_LIST 203."""

    consumer_group: str


@header()
class GetProducerConnectionListRequest(Header):
    """GET_PRODUCER_CONNECTION_LIST 204."""

    producer_group: str


@header()
class DeleteSubscriptionGroupRequest(Header):
    """DELETE_SUBSCRIPTIONGROUP 207."""

    group_name: str
    remove_offset: bool = False


@header()
class GetConsumeStatsRequest(Header):
    """GET_CONSUME_STATS 208."""

    consumer_group: str
    topic: str | None = None


@header()
class DeleteTopicRequest(Header):
    """DELETE_TOPIC_IN_BROKER 215."""

    topic: str


@header()
class QueryTopicConsumeByWhoRequest(Header):
    """QUERY_TOPIC_CONSUME_BY_WHO 300."""

    topic: str


@header()
class RegisterFilterServerRequest(Header):
    """REGISTER_FILTER_SERVER 301."""

    filter_server_addr: str


@header()
class RegisterFilterServerResponse(Header):
    """Answer to REGISTER_FILTER_SERVER 301."""

    broker_name: str
    broker_id: I64 = 0


@header()
class QueryConsumeTimeSpanRequest(Header):
    """QUERY_CONSUME_TIME_SPAN 303."""

    topic: str
    group: str


@header()
class QueryCorrectionOffsetRequest(Header):
    """QUERY_CORRECTION_OFFSET 308."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@header()
class CloneGroupOffsetRequest(Header):
    """CLONE_GROUP_OFFSET 314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@header()
class ViewBrokerStatsDataRequest(Header):
    """VIEW_BROKER_STATS_DATA 315."""

    stats_name: str
    stats_key: str


@header()
class GetConsumeStatsInBrokerRequest(Header):
    """GET_BROKER_CONSUME_STATS 317."""

    is_order: bool = False


@header()
class QueryConsumeQueueRequest(Header):
    """QUERY_CONSUME_QUEUE 321."""

    topic: str | None = None
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


@header()
class ResumeCheckHalfMessageRequest(Header):
    """RESUME_CHECK_HALF_MESSAGE 323."""

    msg_id: str | None = None
