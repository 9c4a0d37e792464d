"""Deadlines against the simplest model there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqproto.state.node.deadlines import SWEEP_SLACK, Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_behaves_like_a_dict_that_is_searched(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, int] = {}
    for verb, key, when in steps:
        if verb == "set":
            deadlines.set(key, when)
            model[key] = when
        elif verb == "cancel":
            assert deadlines.cancel(key) == (model.pop(key, None) is not None)
        else:
            keys = deadlines.due(when)
            assert sorted(keys) == sorted(key for key, due in model.items() if due <= when)
            assert [model[key] for key in keys] == sorted(model[key] for key in keys)
            for key in keys:
                del model[key]
        assert deadlines.earliest() == min(model.values(), default=None)
        assert len(deadlines) == len(model)
        assert {key: deadlines.when(key) for key in range(6)} == {key: model.get(key) for key in range(6)}
        assert all((key in deadlines) == (key in model) for key in range(6))


def test_equal_times_expire_in_the_order_they_were_set() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key in "cab":
        deadlines.set(key, 7)
    deadlines.set("c", 7)
    assert deadlines.due(6) == []
    assert deadlines.due(7) == ["a", "b", "c"]
    assert deadlines.due(7) == []


def test_memory_follows_what_is_live() -> None:
    """Answered calls with 30 s to go must not pile up."""
    deadlines: Deadlines[int] = Deadlines()
    for key in range(10_000):
        deadlines.set(key, 30_000)
        deadlines.cancel(key - 10)
    assert len(deadlines) == 10
    assert len(deadlines._heap) <= 2 * 11 + SWEEP_SLACK + 1


def test_keys_are_never_compared() -> None:
    deadlines: Deadlines[object] = Deadlines()
    one, other = object(), object()
    deadlines.set(one, 1)
    deadlines.set(other, 1)
    assert deadlines.due(1) == [one, other]
