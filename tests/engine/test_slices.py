"""Work in slices: turns, limits, owners that leave."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from mqproto.engine import slices
from mqproto.engine.slices import AT_A_TIME, OF_AN_OWNER_MAX, SLICE_SIZE, Slices, Steps, joined


def counting(slices: int, name: str, log: list[str]) -> Steps[str]:
    for number in range(slices):
        log.append(f"{name}{number}")
        yield
    return name


def test_what_is_short_is_done_at_once() -> None:
    work = Slices()
    done: list[str] = []
    assert work.begin("owner", counting(0, "a", []), done.append)
    assert (done, len(work)) == (["a"], 0)
    work.step()  # harmless


def test_owners_take_turns_and_the_work_of_one_is_done_in_order() -> None:
    work = Slices()
    log: list[str] = []
    for owner, name in (("one", "a"), ("two", "b"), ("one", "c")):
        assert work.begin(owner, counting(2, name, log), log.append)
    assert log == ["a0", "b0"]  # the first slice of each is made at once, but not of what is behind another
    while work:
        work.step()
    assert log == ["a0", "b0", "a1", "b1", "a", "b", "c0", "c1", "c"]


def test_only_so_many_are_under_way() -> None:
    work = Slices()
    log: list[str] = []
    for owner in range(AT_A_TIME + 2):
        assert work.begin(owner, counting(3, f"{owner}-", log), log.append)
    assert len(log) == AT_A_TIME
    for _ in range(AT_A_TIME * 3):
        work.step()
    assert len(log) == AT_A_TIME * 4  # three slices and the end of each
    while work:
        work.step()
    assert len(log) == (AT_A_TIME + 2) * 4


def test_who_may_not_begin_waits_without_holding_others() -> None:
    blocked: set[Hashable] = {"slow"}
    work = Slices(lambda owner: owner not in blocked)
    log: list[str] = []
    assert work.begin("slow", counting(1, "s", log), log.append)
    stalled = [work.stalled]
    assert work.begin("quick", counting(1, "q", log), log.append)
    stalled.append(work.stalled)
    assert stalled == [True, False]
    work.step()
    assert log == ["q0", "q"]
    blocked.clear()
    work.step()
    work.step()
    assert log == ["q0", "q", "s0", "s"]
    assert not work.stalled


def test_an_owner_that_leaves_takes_its_work_along() -> None:
    work = Slices()
    log: list[str] = []
    for owner, name in (("one", "a"), ("two", "b"), ("one", "c")):
        assert work.begin(owner, counting(2, name, log), log.append)
    work.drop("one")
    work.drop("one")
    work.drop("nobody")
    assert len(work) == 1
    while work:
        work.step()
    assert log == ["a0", "b0", "b1", "b"]


def test_limits() -> None:
    work = Slices()
    ignore: Callable[[str], None] = lambda _: None  # noqa: E731
    for _ in range(OF_AN_OWNER_MAX):
        assert work.begin("greedy", counting(1, "", []), ignore)
    assert not work.begin("greedy", counting(1, "", []), ignore)
    for owner in range(slices.WORKS_MAX - OF_AN_OWNER_MAX):
        assert work.begin(owner, counting(1, "", []), ignore)
    assert not work.begin("late", counting(1, "", []), ignore)
    assert len(work) == slices.WORKS_MAX


def test_joined_text_is_whole_and_made_in_slices() -> None:
    pieces = ["ü" * 1000] * 50
    steps = joined(iter(pieces))
    whole: list[bytes] = []

    def outcome() -> Steps[None]:
        whole.append((yield from steps))

    assert len(list(outcome())) == 50_000 // (SLICE_SIZE // 1000 + 1) // 1000
    assert whole == ["".join(pieces).encode()]
