"""Conditions of a simulated network and its disks: how slow they are, and how often something fails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulatedConditions:
    """Delays and chances of failure. All times in milliseconds, all chances from 0 to 1."""

    delay_min: int = 0
    delay_max: int = 3
    #: Chance that a run of bytes arrives in several pieces.
    split: float = 0.2
    #: Chance, for each run of bytes sent, that the stream breaks and only a part of the bytes arrives before that.
    cut: float = 0.0
    #: Chances of an answer to come once more and to be overtaken by others, both by up to `late_max`.
    twice: float = 0.0
    late: float = 0.0
    late_max: int = 10_000
    job_min: int = 0
    job_max: int = 5
    #: Chance that a job fails with OSError instead of running.
    job_failure: float = 0.0
