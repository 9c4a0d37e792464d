"""Many nodes in one process under virtual time, with a network and disks that fail by seed."""

from __future__ import annotations

from adapters.simulated.clients import Client, Consumer, Producer
from adapters.simulated.cluster import Cluster, Machine
from adapters.simulated.records import Delivery, Records, Sent
from adapters.simulated.story import Story
from adapters.simulated.world import Host, Weather, World

__all__ = ["Client", "Cluster", "Consumer", "Delivery", "Host", "Machine", "Producer", "Records", "Sent", "Story", "Weather", "World"]
