"""Simulator of whole clusters: many nodes under virtual time, on a network and disks that fail by seed."""

from __future__ import annotations

from mqproto.adapters.simulated.clients import Client, SimulatedConsumer, SimulatedProducer
from mqproto.adapters.simulated.cluster import Cluster, Machine
from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.adapters.simulated.host import Host
from mqproto.adapters.simulated.records import Delivery, Records, Sent
from mqproto.adapters.simulated.scenario import Scenario
from mqproto.adapters.simulated.simulator import Simulator

__all__ = [
    "Client",
    "Cluster",
    "Delivery",
    "Host",
    "Machine",
    "Records",
    "Scenario",
    "Sent",
    "SimulatedConditions",
    "SimulatedConsumer",
    "SimulatedProducer",
    "Simulator",
]
