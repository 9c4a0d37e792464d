"""Spreading of the tests of this folder over processes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tests.peers.kit.spreading import Spreading, choose, group_of, seconds_of, shared_by

OURS = "tests/peers/our_clients/test_our_clients.py::test_compressed_bodies_both_ways"


@pytest.mark.parametrize(
    ("name", "group"),
    [
        (f"{OURS}[ours-gevent@apache:4.9.7]", "gevent @ apache:4.9.7"),
        (f"{OURS}[True-ours-threaded@apache:5.3.3]", "threaded @ apache:5.3.3"),
        (f"{OURS}[ours-threaded@apache:5.3.3]@somewhere", "threaded @ apache:5.3.3"),
        ("test_our_admin.py::test_topics[trio@apache:4.9.7]", "trio @ apache:4.9.7"),
        ("test_our_runtimes.py::test_order[java-4.9.7@apache:4.4.0-trio]", "4.9.7 @ apache:4.4.0"),
        ("test_our_transactions.py::test_asked[commit-ours-trio@curious:4.9.7]", "trio @ curious:4.9.7"),
        ("test_store_handover.py::test_apache_serves[killed-5.3.3]", "test_apache_serves -5.3.3 @ killed"),
        ("test_doctor.py::test_repaired[4.4.0]", "test_repaired 4.4.0 @ stopped"),
        ("test_our_security.py::test_the_query[4.4.0-threaded]", "guarded @ 4.4.0"),
        (
            "test_our_security.py::test_modes_of_servers[4.9.7-disabled]",
            "test_our_security.py::test_modes_of_servers[4.9.7-disabled]",
        ),
        ("elsewhere", "elsewhere"),
    ],
)
def test_the_name_of_a_test_tells_its_group(name: str, group: str) -> None:
    assert group_of(name) == group


def test_tests_that_share_something_have_a_group_of_it(request: pytest.FixtureRequest) -> None:
    """Whoever starts something for a whole session or module has to be found by the table of groups."""
    things = {"session": "mqadmin", "guarded": "", "ours": "", "pair": "", "operator": "", "hands": ""}
    for item in request.session.items:
        if "tests/peers/" not in item.nodeid:
            continue
        assert isinstance(item, pytest.Function)
        named = [thing for name, thing in things.items() if name in item.fixturenames]
        if named:
            assert shared_by(group_of(item.nodeid)) == (named[0] or group_of(item.nodeid).partition(" @ ")[2]), (
                item.nodeid
            )


def test_what_a_process_has_made_is_used_before_anything_else() -> None:
    left = {"a @ x": 5.0, "b @ x": 7.0, "c @ y": 50.0}
    assert choose(left, left, {"x"}, {"x": 1}) == "b @ x"
    assert choose(left, left, {"z"}, {"x": 1, "z": 1}) == "c @ y"


def test_processes_begin_with_different_things() -> None:
    left = {"a @ x": 30.0, "b @ x": 30.0, "c @ y": 40.0}
    assert choose(left, left, (), {}) == "a @ x"
    assert choose({"b @ x": 30.0, "c @ y": 40.0}, left, (), {"x": 1}) == "c @ y"


class Node:
    def __init__(self) -> None:
        self.given: list[int] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.given += indices

    def shutdown(self) -> None: ...


def test_every_test_runs_once_and_groups_stay_together(pytestconfig: pytest.Config) -> None:
    names = [f"{OURS}[ours-{runtime}@apache:4.9.7]{number}" for number in range(3) for runtime in ("gevent", "trio")]
    names += [f"test_store_handover.py::test_apache[killed-{number}]" for number in range(4)]
    config = SimpleNamespace(
        getvalue=lambda name: ["popen", "popen"], option=SimpleNamespace(loadscopereorder=True, tx=["popen", "popen"])
    )
    spreading = Spreading(config, None)
    spreading.numnodes = 2
    nodes = [Node(), Node()]
    for node in nodes:
        spreading.add_node(node)
        spreading.add_node_collection(node, names)
    spreading.schedule()
    done = 0
    while spreading.has_pending:
        for node in nodes:
            for index in node.given[done : done + 1]:
                spreading.mark_test_complete(node, index)
        done += 1
    assert sorted(index for node in nodes for index in node.given) == list(range(len(names)))
    for node in nodes:
        groups = [group_of(names[index]) for index in node.given]
        assert len(set(groups)) == sum(one != before for one, before in zip(groups, ["", *groups], strict=False))


def test_what_is_long_is_known() -> None:
    assert seconds_of("tests/peers/test_store_handover.py::test_x[a]") > seconds_of(f"{OURS}[x]")
