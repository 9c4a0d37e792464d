"""Apache's mqadmin prints against our servers what it prints against Apache's: a session of 129 steps, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.golden.golden import GOLDEN
from tests.peers.conftest import need
from tests.peers.kit.mqadmin.mqadmin import VERSION, Mqadmin, Tool
from tests.peers.kit.mqadmin.mqadmin_session import SETTINGS, MqadminSession, recorded
from tests.peers.kit.mqadmin.printed import OWN_VALUES, UNKNOWN_KEYS, comparable, configuration
from tests.peers.kit.probes import Clients
from tests.peers.kit.servers import Server, serve

RECORDED = recorded(GOLDEN.root)
CONFIGURATIONS = ("getBrokerConfig", "getBrokerConfig-c", "getNamesrvConfig")

#: What ours prints instead (docs/decisions.md D124, D149, D166).
INSTEAD = {
    # No message is at or after a time that is to come (REB-08).
    "printMsgByQueue-future": "",
    # Apache's answer has no body, and the tool a null pointer.
    "queryCq-beyond": "Queue data:\nmax: 3, min: 0\n======================================",
    # Apache drops what it does not know and says that all is well.
    "updateBrokerConfig-unknown": (
        "(standard error)\norg.apache.rocketmq.tools.command.SubCommandException: "
        "UpdateBrokerConfigSubCommand command failed\n"
        "Caused by: org.apache.rocketmq.client.exception.MQBrokerException: CODE: 1  DESC: "
        "setting noSuchKey=1: there is no such setting BROKER: BROKER\nFor more information, please visit the url, http://rocketmq.apache.org/docs/faq/"
    ),
}
#: Exists from the start with ours, as in 5.x; 4.9 has no configuration of it.
FROM_THE_START = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@dataclass
class Texts:
    """Texts of the session with one server."""

    server: Server
    texts: dict[str, str]

    def comparable(self, name: str) -> str:
        text = comparable(name, self.texts[name], self.server.names, self.server.broker, str(self.server.home))
        if name.startswith(("topicList", "statsAll")) and self.server.ours:
            text = "\n".join(line for line in text.splitlines() if FROM_THE_START not in line)
        return text


@pytest.fixture(scope="session")  # other modules may come in between, and the session takes its time
def session(request: pytest.FixtureRequest, clients: Clients, tmp_path_factory: pytest.TempPathFactory) -> Texts:
    need(f"java-{VERSION}")
    kind = request.config.getoption("--peer-server", None) or "ours:threaded"
    need(kind)
    home: Path = tmp_path_factory.mktemp("mqadmin")
    with serve(kind, home, 0, **SETTINGS) as server, Tool() as tool:
        return Texts(server, MqadminSession(Mqadmin(tool, server), clients).run())


def test_every_recorded_step_is_told(session: Texts) -> None:
    assert session.texts.keys() == RECORDED.keys()


@pytest.mark.parametrize("step", sorted(RECORDED.keys() - set(CONFIGURATIONS)))
def test_it_prints_the_same(session: Texts, step: str) -> None:
    expected = INSTEAD.get(step, RECORDED[step]) if session.server.ours else RECORDED[step]
    assert session.comparable(step) == expected


@pytest.mark.parametrize("step", CONFIGURATIONS)
def test_it_shows_the_same_configuration(session: Texts, step: str) -> None:
    theirs, ours = configuration(RECORDED[step]), configuration(session.comparable(step))
    assert theirs.keys() - UNKNOWN_KEYS <= ours.keys()
    compared = theirs.keys() - OWN_VALUES - UNKNOWN_KEYS
    assert {key: ours[key] for key in compared} == {key: theirs[key] for key in compared}
