"""Many nodes in one process under virtual time, with a network and disks that fail by seed."""

from __future__ import annotations

from adapters.simulated.world import Host, Weather, World

__all__ = ["Host", "Weather", "World"]
