"""docs/admin.md names every operation of admin clients, and none besides; its example runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from mqproto import Message
from mqproto.adapters.base import admin as faces
from mqproto.adapters.base.families import Family, Operation
from mqproto.adapters.threaded import Admin, Producer, Standalone
from mqproto.state.admin import AdminCore
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientIdentity, ClientSettings

TEXT = (Path(__file__).parent.parent / "docs" / "admin.md").read_text(encoding="utf-8")
CORE = AdminCore(ClientNode(ClientSettings(), ClientIdentity("10.0.0.1", 1, "1")))
#: The families of an admin client, by attribute.
FAMILIES = {name: type(getattr(Admin(""), name)) for name in AdminCore.__slots__}


def test_every_operation_of_the_core_has_a_method() -> None:
    for name, face in FAMILIES.items():
        family = type(getattr(CORE, name))
        flows = {key: one for key, one in vars(family).items() if inspect.isfunction(one) and not key.startswith("_")}
        methods: dict[str, Any] = {key: one for key, one in vars(face).items() if isinstance(one, Operation)}
        assert methods.keys() == flows.keys(), name
        assert all(methods[key]._flow is flows[key] for key in flows)
    assert {one for one in vars(faces).values() if inspect.isclass(one) and issubclass(one, Family)} - {Family} == set(
        FAMILIES.values()
    )


def test_every_operation_is_in_the_tables() -> None:
    named = set(re.findall(r"`(\w+\.\w+)`", TEXT))
    operations = {
        f"{name}.{key}"
        for name, face in FAMILIES.items()
        for key, one in vars(face).items()
        if isinstance(one, Operation)
    }
    assert {one for one in named if one.partition(".")[0] in FAMILIES} == operations


def test_the_example() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    with Standalone(settings={"brokerClusterName": "DefaultCluster"}) as server:
        exec(compile(example.replace("127.0.0.1:9876", server.namesrv_address), "docs/admin.md", "exec"), {})
        with Producer("p", server.namesrv_address) as producer, Admin(server.namesrv_address) as admin:
            producer.send(Message("Orders", b"x"))
            assert sum(ends.max_offset for ends in admin.topics.stats("Orders").values()) == 1
