"""`--metrics-port`: the page as Prometheus gets it, from whole programs and from each adapter."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqproto.adapters.servers.metrics import MetricsUnavailable, make_render
from mqproto.engine.metrics import MetricFamily
from tests.adapters.cli.test_cli import ADAPTERS, LIMIT, run, server


def get(url: str) -> tuple[str, str]:
    """Type and text of a page."""
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        found[family.name] = [(sample.labels, sample.value) for sample in family.samples]
    return found


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_broker_shows_its_numbers(tmp_path: Path, adapter: str) -> None:
    arguments = (
        "--adapter",
        adapter,
        "--namesrv-port",
        "0",
        "--port",
        "0",
        "--store",
        str(tmp_path / "store"),
        "--metrics-port",
        "0",
    )
    with server(tmp_path, "standalone", *arguments, "--json") as (process, line):
        ready = json.loads(line)
        assert run(tmp_path, "send", "-n", ready["namesrv"], "Orders", "one", "two", "three").returncode == 0
        kind, text = get(ready["metrics"])
        assert kind.startswith("text/plain")
        found = samples(text)
        ends = {labels["topic"]: value for labels, value in found["rocketmq_producer_offset"]}
        assert ends["Orders"] == 3
        ((labels, total),) = found["rocketmq_brokeruntime_putmessage_times_total"]
        assert (labels["brokerIP"], total) == (ready["broker"], 3)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(ready["metrics"] + "/other")
        assert samples(get(ready["metrics"])[1]).keys() == found.keys()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
        assert (process.returncode, errors) == (0, "")


def test_a_name_server_shows_its_numbers(tmp_path: Path) -> None:
    with server(tmp_path, "namesrv", "--port", "0", "--metrics-port", "0") as (_, line):
        _, metrics = line.strip().split(", metrics at ")
        assert samples(get(metrics)[1])["rocketmq_namesrv_topics"] == [({}, 0.0)]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(tmp_path, "namesrv", "--port", "0", "--metrics-port", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert port in done.stderr


def test_an_error_of_the_server_itself_gives_the_port_back(tmp_path: Path) -> None:
    done = run(tmp_path, "namesrv", "--port", "99999", "--metrics-port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, "and no warning of a socket that was left open"


def test_without_the_package(tmp_path: Path) -> None:
    """One line that says what to install."""
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError('hidden', name='prometheus_client')\n")
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        done = run(tmp_path, "broker", "--port", "0", "--store", str(tmp_path / "s"), "--metrics-port", "0")
    finally:
        if kept is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = kept
    assert (done.returncode, done.stdout) == (2, "")
    wanted = "metrics need the package prometheus-client: install mqproto[metrics], or leave --metrics-port out"
    assert done.stderr == f"mqproto: {wanted}\n"
    assert not (tmp_path / "s").exists()


def test_without_the_package_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MetricsUnavailable):
        make_render()


def test_odd_labels_are_written_so_that_they_can_be_read() -> None:
    family = MetricFamily("m", 'a "quoted"\nhelp', ("topic",))
    family.add(1.5, 'x"\\\n')
    family.add(-1, "")
    _, text = make_render()([family])
    assert samples(text.decode()) == {"m": [({"topic": 'x"\\\n'}, 1.5), ({"topic": ""}, -1.0)]}
