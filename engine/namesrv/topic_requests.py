"""Requests about topics: routes 105, lists 206, 224, 304, 311 to 313, deletion 216, registration 217
(docs/protocol/broker.md 6.2, 6.5, 6.6).
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.namesrv.answers import OK, Answer, failed
from mqproto.engine.namesrv.kv import ORDER_NAMESPACE
from mqproto.engine.namesrv.registry import RegistrationRefusedError
from mqproto.engine.namesrv.state import Handler, Request, State
from mqproto.engine.remarks import FAQ
from mqproto.engine.slices import Steps
from mqproto.wire.bodies import TopicList, TopicRoute
from mqproto.wire.codes import VERSION_STANDARD_JSON, RequestCode, ResponseCode
from mqproto.wire.headers import (
    DeleteTopicFromNamesrvRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
    RegisterTopicRequest,
)


def _route(state: State, request: Request) -> Answer:
    header = GetRouteInfoRequest.decode(request.command.fields)
    route = state.registry.route(header.topic)
    if route is None:
        return failed(
            f"No topic route info in name server for the topic: {header.topic}{FAQ}", ResponseCode.TOPIC_NOT_EXIST
        )
    if state.settings.order_message_enable:
        route.order_conf = state.kv.get(ORDER_NAMESPACE, header.topic)
    standard = header.accept_standard_json_only is True or request.command.version >= VERSION_STANDARD_JSON
    return Answer(body=route.to_json(standard))


def _all_topics(state: State, request: Request) -> Answer:
    return Answer(body=TopicList(state.registry.all_topics()))


def _topics_of_cluster(state: State, request: Request) -> Steps[Answer]:
    header = GetTopicsByClusterRequest.decode(request.command.fields)
    return Answer(body=TopicList((yield from state.registry.topics_of_cluster(header.cluster))))


def _system_topics(state: State, request: Request) -> Answer:
    """Clusters and brokers have topics by their names; the others are asked of the broker whose address is given."""
    registry = state.registry
    names = dict.fromkeys([*sorted(registry.clusters), *sorted(registry.brokers)])
    first = registry.brokers[min(registry.brokers)] if registry.brokers else None
    address = None if first is None else first.addresses[min(first.addresses)]
    return Answer(body=TopicList(list(names), address))


def _unit_topics(state: State, request: Request) -> Steps[Answer]:
    return Answer(body=TopicList((yield from state.registry.unit_topics(unit=True))))


def _unit_sub_topics(state: State, request: Request) -> Steps[Answer]:
    return Answer(body=TopicList((yield from state.registry.unit_topics(unit_sub=True))))


def _unit_sub_only_topics(state: State, request: Request) -> Steps[Answer]:
    return Answer(body=TopicList((yield from state.registry.unit_topics(unit=False, unit_sub=True))))


def _delete_topic(state: State, request: Request) -> Answer:
    header = DeleteTopicFromNamesrvRequest.decode(request.command.fields)
    state.registry.delete_topic(header.topic, header.cluster_name or None)
    return OK


def _register_topic(state: State, request: Request) -> Answer:
    """5.x: queues of a topic that brokers tell of one by one."""
    header = RegisterTopicRequest.decode(request.command.fields)
    try:
        state.registry.register_topic(header.topic, TopicRoute.from_json(request.command.body).queues)
    except RegistrationRefusedError as failure:
        return failed(str(failure))
    return OK


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _all_topics,
    RequestCode.GET_TOPICS_BY_CLUSTER: _topics_of_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: _unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _unit_sub_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _unit_sub_only_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _register_topic,
}
