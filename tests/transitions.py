"""Transitions that a test has seen a machine make, compared with the machine's table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Observed(Generic[S, E]):
    """Fails at a transition that is not in the table; knows which of the table were not seen."""

    def __init__(self, table: Mapping[S, Mapping[E, tuple[S, ...]]]) -> None:
        self.table = table
        self.seen: set[tuple[S, E, S]] = set()

    def step(self, before: S, event: E, after: S) -> S:
        """The new state."""
        listed = self.table[before].get(event, ())
        assert after in listed, f"{before.name}: {event.name} leads to {after.name}, which is not listed"
        self.seen.add((before, event, after))
        return after

    @property
    def unseen(self) -> list[str]:
        """What is listed and never happened."""
        return [
            f"{before.name}: {event.name} leads to {after.name}"
            for before, events in self.table.items()
            for event, states in events.items()
            for after in states
            if (before, event, after) not in self.seen
        ]
