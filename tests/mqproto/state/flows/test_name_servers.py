"""Which name server is asked."""

from __future__ import annotations

from mqproto.state.flows.name_servers import NameServerList


def test_the_chosen_one_is_kept_while_it_is_linked() -> None:
    servers = NameServerList(("a:1", "b:1", "a:1"), seed=1)
    assert servers.choose({"a:1", "b:1"}.__contains__) == "b:1", "the seed says where to begin"
    assert servers.choose({"b:1"}.__contains__) == "b:1"
    assert servers.choose({"a:1"}.__contains__) == "a:1"
    assert str(servers) == "a:1;b:1"
    assert NameServerList((), 3).choose(set().__contains__) is None


def test_those_that_were_tried_are_left_for_others() -> None:
    servers = NameServerList(("a:1", "b:1"), seed=0)
    assert servers.choose(set().__contains__) == "a:1"
    assert servers.choose({"a:1"}.__contains__, {"a:1"}) == "b:1"
    assert servers.choose({"a:1", "b:1"}.__contains__) == "b:1", "and that one is kept"
    assert servers.choose(set().__contains__, {"a:1"}) == "b:1", "also when it is the turn of the other"
    assert servers.choose({"a:1"}.__contains__, {"a:1", "b:1"}) is None


def test_another_list() -> None:
    servers = NameServerList(("a:1", "b:1"), seed=0)
    servers.choose(set().__contains__)
    assert servers.replace(("b:1", "c:1")) == {"a:1"}
    assert servers.choose({"a:1"}.__contains__) in ("b:1", "c:1"), (
        "a link to one that is not in the list does not count"
    )
    assert servers.replace(("c:1", "b:1")) == set()
