"""Page of metrics in the text format of Prometheus, by the package prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from socket import socket

from mqproto.adapters.io.sockets import listen, port_of
from mqproto.adapters.servers.server_setup import LOOPBACK, Opened
from mqproto.engine.metrics import METRICS, PATH, MetricFamily, Render, WithMetrics
from mqproto.errors import MQError
from mqproto.wire.hosts import join_address


class MetricsUnavailable(MQError):  # noqa: N818 - as the other errors of servers
    """Failure to serve the page: the package that writes it is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "metrics need the package prometheus-client: install mqproto[metrics], or leave --metrics-port out"
        )


def make_render() -> Render:
    """What writes the page. Raises MetricsUnavailable."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.core import GaugeMetricFamily, Metric
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
        from prometheus_client.registry import Collector
    except ModuleNotFoundError as error:
        raise MetricsUnavailable from error

    class Families(Collector):
        def __init__(self, families: Sequence[MetricFamily]) -> None:
            self.families = families

        def collect(self) -> Iterator[Metric]:
            for family in self.families:
                gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
                for labels, value in family.samples:
                    gauge.add_metric(labels, value)
                yield gauge

    def render(families: Sequence[MetricFamily]) -> tuple[str, bytes]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Families(families))
        text: Callable[[CollectorRegistry], bytes] = generate_latest
        return CONTENT_TYPE_PLAIN_0_0_4, text(registry)

    return render


def open_with_page(plan: Callable[[], Sequence[Opened]], host: str | None, port: int) -> Sequence[Opened]:
    """Open what `plan` opens, with a page of metrics for the last of it on a port of its own (0: a free one), on
    loopback without `host`.

    Raises MetricsUnavailable, PortTaken, ListenFailed, and what the plan raises.
    """
    render = make_render()
    listener = listen(host or LOOPBACK, port, METRICS)
    try:
        *others, last = plan()
    except BaseException:
        listener.close()
        raise
    return (*others, _with_page(last, listener, render))


def _with_page(opened: Opened, listener: socket, render: Render) -> Opened:
    address = join_address(listener.getsockname()[0], port_of(listener))
    return replace(
        opened,
        node=WithMetrics(opened.node, opened.collect, render),
        listeners={**opened.listeners, METRICS: listener},
        metrics=f"http://{address}{PATH}",
    )
