"""Many nodes in one process under virtual time, with a network and disks that fail by seed."""

from __future__ import annotations

from mqproto.adapters.simulated.clients import Client, Consumer, Producer
from mqproto.adapters.simulated.cluster import Cluster, Machine
from mqproto.adapters.simulated.records import Delivery, Records, Sent
from mqproto.adapters.simulated.scenario import Story
from mqproto.adapters.simulated.simulator import Host, Weather, World

__all__ = ["Client", "Cluster", "Consumer", "Delivery", "Host", "Machine", "Producer", "Records", "Sent", "Story", "Weather", "World"]
