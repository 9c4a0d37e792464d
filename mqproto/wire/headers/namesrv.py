"""Headers of the name server: registrations, routes, key-value settings, topic lists.

Each docstring names the requests, with their codes; who sends them is in docs/protocol/broker.md and
docs/protocol/client.md.
"""

from __future__ import annotations

from mqproto.wire.headers.table import I32, I64, Header, header


@header()
class PutKVConfigRequest(Header):
    """PUT_KV_CONFIG 100."""

    namespace: str
    key: str
    value: str


@header()
class GetKVConfigRequest(Header):
    """GET_KV_CONFIG 101."""

    namespace: str
    key: str


@header()
class GetKVConfigResponse(Header):
    """Answer to GET_KV_CONFIG 101."""

    value: str | None = None


@header()
class DeleteKVConfigRequest(Header):
    """DELETE_KV_CONFIG 102."""

    namespace: str
    key: str


@header()
class GetKVListByNamespaceRequest(Header):
    """GET_KVLIST_BY_NAMESPACE 219."""

    namespace: str


@header()
class RegisterBrokerRequest(Header):
    """REGISTER_BROKER 103."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = 0


@header()
class RegisterBrokerResponse(Header):
    """Answer to REGISTER_BROKER 103."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header()
class UnregisterBrokerRequest(Header):
    """UNREGISTER_BROKER 104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@header()
class GetRouteInfoRequest(Header):
    """GET_ROUTEINFO_BY_TOPIC 105."""

    topic: str
    accept_standard_json_only: bool | None = None


@header()
class QueryDataVersionRequest(Header):
    """QUERY_DATA_VERSION 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@header()
class QueryDataVersionResponse(Header):
    """Answer to QUERY_DATA_VERSION 322."""

    changed: bool


@header()
class WipeWritePermOfBrokerRequest(Header):
    """WIPE_WRITE_PERM_OF_BROKER 205."""

    broker_name: str


@header()
class WipeWritePermOfBrokerResponse(Header):
    """Answer to WIPE_WRITE_PERM_OF_BROKER 205."""

    wipe_topic_count: I32


@header()
class AddWritePermOfBrokerRequest(Header):
    """ADD_WRITE_PERM_OF_BROKER 327."""

    broker_name: str


@header()
class AddWritePermOfBrokerResponse(Header):
    """Answer to ADD_WRITE_PERM_OF_BROKER 327."""

    add_topic_count: I32


@header()
class DeleteTopicFromNamesrvRequest(Header):
    """DELETE_TOPIC_IN_NAMESRV 216."""

    topic: str
    cluster_name: str | None = None


@header()
class GetTopicsByClusterRequest(Header):
    """GET_TOPICS_BY_CLUSTER 224."""

    cluster: str
