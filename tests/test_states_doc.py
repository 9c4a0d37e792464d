"""docs/states.md is what the tables of the code give, and the tables are whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.broker.pulls import pull_states
from mqproto.state.consumer import pull_states as queue_states
from mqproto.state.flows import link_states
from mqproto.state.producer import send_states

ROOT = Path(__file__).parent.parent
MACHINES: list[tuple[Mapping[Any, Mapping[Any, tuple[Any, ...]]], tuple[Enum, ...]]] = [
    (link_states.TRANSITIONS, link_states.FIRST),
    (send_states.TRANSITIONS, send_states.FIRST),
    (queue_states.TRANSITIONS, queue_states.FIRST),
    (pull_states.TRANSITIONS, pull_states.FIRST),
]
NAMES = ["link", "send", "queue", "pull"]


def test_the_page_is_drawn_from_the_tables() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/state_diagrams.py"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert (ROOT / "docs" / "states.md").read_text(encoding="utf-8") == done.stdout, (
        "draw it anew: python scripts/state_diagrams.py > docs/states.md"
    )


@pytest.mark.parametrize(("table", "first"), MACHINES, ids=NAMES)
def test_every_state_and_event_is_in_its_table(
    table: Mapping[Enum, Mapping[Enum, tuple[Enum, ...]]], first: tuple[Enum, ...]
) -> None:
    assert list(table) == list(type(first[0])), "all states, in their order"
    events = {event for followed in table.values() for event in followed}
    assert events == set(type(next(iter(events))))


@pytest.mark.parametrize(("table", "first"), MACHINES, ids=NAMES)
def test_every_state_is_reached_and_has_an_end(
    table: Mapping[Enum, Mapping[Enum, tuple[Enum, ...]]], first: tuple[Enum, ...]
) -> None:
    def reached(state: Enum) -> set[Enum]:
        seen, ahead = {state}, [state]
        while ahead:
            for states in table[ahead.pop()].values():
                ahead += [one for one in states if one not in seen]
                seen.update(states)
        return seen

    assert set[Enum]().union(*map(reached, first)) == set(table)
    final = {state for state, events in table.items() if not events}
    assert final
    assert all(reached(state) & final for state in table)
