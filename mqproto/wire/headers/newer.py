"""Headers of requests that only 5.x has, as far as brokers of 4.x can answer them, and fields that 5.x adds to
others.
"""

from __future__ import annotations

from mqproto.wire.headers.table import I32, I64, Header, header


@header()
class ResetOneQueueFields(Header):
    """Fields that 5.x adds to INVOKE_BROKER_TO_RESET_OFFSET 222: one queue instead of all (-1), and an offset instead
    of a time.
    """

    queue_id: I32 = -1
    offset: I64 | None = None


@header()
class QueryTopicsByConsumerRequest(Header):
    """QUERY_TOPICS_BY_CONSUMER 343."""

    group: str


@header()
class QuerySubscriptionByConsumerRequest(Header):
    """QUERY_SUBSCRIPTION_BY_CONSUMER 345."""

    group: str
    topic: str


@header()
class GetTopicConfigRequest(Header):
    """GET_TOPIC_CONFIG 351."""

    topic: str


@header()
class GetSubscriptionGroupConfigRequest(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG 352."""

    group: str


# --- from brokers to name servers ---


@header()
class RegisterBrokerFields(Header):
    """Fields that 5.x adds to REGISTER_BROKER 103: after how much silence the broker is to count as gone."""

    heartbeat_timeout_millis: I64 | None = None


@header()
class RegisterTopicRequest(Header):
    """REGISTER_TOPIC_IN_NAMESRV 217."""

    topic: str


@header()
class GetBrokerMemberGroupRequest(Header):
    """GET_BROKER_MEMBER_GROUP 901."""

    cluster_name: str
    broker_name: str


@header()
class BrokerHeartbeatRequest(Header):
    """BROKER_HEARTBEAT 904, as far as a name server reads it."""

    cluster_name: str
    broker_addr: str
    broker_name: str
