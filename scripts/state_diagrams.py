"""Print docs/states.md: diagrams of the machines, drawn from the tables that stand beside them in the code.

python scripts/state_diagrams.py > docs/states.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from textwrap import wrap
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mqproto.engine.broker.pulls import pull_states  # noqa: E402 # the checkout's, installed or not
from mqproto.state.consumer import pull_states as queue_states  # noqa: E402
from mqproto.state.flows import link_states  # noqa: E402
from mqproto.state.producer import send_states  # noqa: E402

HEAD = """\
# States

Four machines whose states matter outside of them. Each has a table of its states, its events and what follows, in a
module beside it; this page is drawn from these tables by `scripts/state_diagrams.py`, and a test of each machine fails
when it does what its table does not list, or never does what the table lists. An event without an arrow changes
nothing."""

MACHINES: tuple[tuple[str, ModuleType, str, str], ...] = (
    (
        "A link",
        link_states,
        "mqproto/state/flows/link_states.py",
        "One connection. A client's begins with dialling, a server's is open from the first.",
    ),
    (
        "A send",
        send_states,
        "mqproto/state/producer/send_states.py",
        "One message or batch, with all its attempts. Most begin with their first call, without a flow.",
    ),
    (
        "An assigned queue",
        queue_states,
        "mqproto/state/consumer/pull_states.py",
        "One queue of a push or pull consumer, from its assignment to its end.",
    ),
    (
        "A pull at the broker",
        pull_states,
        "engine/broker/pulls/pull_states.py",
        "One request of a consumer. One-way pulls, which no client sends, are left out.",
    ),
)


def arrows(table: Mapping[Enum, Mapping[Enum, tuple[Enum, ...]]]) -> Iterator[str]:
    """One arrow from state to state, with all events that it stands for."""
    for before, events in table.items():
        between: dict[Enum, list[str]] = {}
        for event, states in events.items():
            for after in states:
                between.setdefault(after, []).append(event.name)
        for after, names in between.items():
            yield f"    {before.name} --> {after.name}: {', '.join(names)}"
        if not events:
            yield f"    {before.name} --> [*]"


def listed(title: str, members: Any) -> Iterator[str]:
    yield f"| {title} | Meaning |"
    yield "|---|---|"
    for member in members:
        yield f"| {member.name} | {member.value} |"


def lines() -> Iterator[str]:
    yield HEAD
    for title, module, path, text in MACHINES:
        table = module.TRANSITIONS
        states = list(table)
        events = {event: None for followed in table.values() for event in followed}
        yield from ("", f"## {title}", "", *wrap(f"{text} Table: `{path}`.", 120), "")
        yield from ("```mermaid", "stateDiagram-v2")
        yield from (f"    [*] --> {state.name}" for state in module.FIRST)
        yield from arrows(table)
        yield from ("```", "")
        yield from listed("State", states)
        yield ""
        yield from listed("Event", sorted(events, key=list(type(next(iter(events)))).index))


if __name__ == "__main__":
    print("\n".join(lines()))
