"""Numbers of the name server for a collector of metrics. Apache's exporter has none: these names are ours."""

from __future__ import annotations

from mqproto.engine.metrics import Collected, MetricFamily
from mqproto.engine.namesrv.registry import Registry
from mqproto.engine.slices import Steps


def collect(registry: Registry) -> Steps[Collected]:
    """How much is registered."""
    yield
    clusters = registry.cluster_info().clusters
    brokers = MetricFamily("rocketmq_namesrv_brokers", "brokers that are registered", ("cluster",))
    for cluster, names in clusters.items():
        brokers.add(len(names), cluster)
    live = MetricFamily("rocketmq_namesrv_live_brokers", "brokers, masters and slaves, that have registered lately")
    live.add(len(registry.live))
    topics = MetricFamily("rocketmq_namesrv_topics", "topics that are registered")
    topics.add(len(registry.all_topics()))
    return Collected([brokers, live, topics])
