"""Flag words against Apache's own functions."""

from __future__ import annotations

from mqproto.wire import flags
from tests.golden.golden import GOLDEN


def test_pull_flags() -> None:
    for vector in GOLDEN.vectors("pull-sys-flag"):
        given = vector.input
        made = flags.pull_flag(
            commit_offset=given["commitOffset"],
            suspend=given["suspend"],
            subscription=given["subscription"],
            class_filter=given["classFilter"],
        )
        assert made == vector.output()
    assert flags.pull_flag(commit_offset=False, suspend=False, subscription=False, lite=True) == flags.PULL_LITE == 16


def test_permissions() -> None:
    for vector in GOLDEN.vectors("permission"):
        perm, expected = vector.input, vector.output()
        assert flags.permission_text(perm) == expected["text"]
        assert bool(perm & flags.PERM_READ) == expected["readable"]
        assert bool(perm & flags.PERM_WRITE) == expected["writeable"]
        assert bool(perm & flags.PERM_INHERIT) == expected["inherited"]
