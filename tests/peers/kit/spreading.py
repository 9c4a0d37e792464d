"""Groups of the tests of this folder that run in one process, and their order, when pytest-xdist spreads them.

What tests share costs seconds of processor time to make: servers, programs, directories that were filled. So tests that
share something stay together as long as that keeps everybody busy, and what takes long begins early. All of it follows
from a test's name: the process that spreads the tests knows nothing else of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from xdist.scheduler.loadscope import LoadScopeScheduling

#: Folder, module with function, parameters.
_NAME: Final = re.compile(r"(?:.*/)?(?P<place>test_\w+\.py::\w+)(?:\[(?P<params>.*)\])?")
#: What tests look like that share something: the name of their group, and what it shares with others.
_SHARED: Final = (
    (re.compile(r"test_mixed_groups\.py::(\w+)\[(.*)@(.*)\]"), r"\1 \2 @ \3"),  # minutes each: every one by itself
    (re.compile(r".*[\[-]([a-z0-9.]+)@([a-z]+:[a-z0-9.]+)"), r"\1 @ \2"),  # a client and a server: see `pairs`
    (re.compile(r"test_mqadmin\."), r"mqadmin"),
    (re.compile(r"test_transactions\..*\b(ASYNC|SYNC)_FLUSH"), r"transactions @ \1"),
    (re.compile(r"test_our_security\.py::(?!test_modes).*?(\d\.\d\.\d)"), r"guarded @ \1"),
    (re.compile(r"test_store_handover\.py::(test_apache\w+)\[(.*)(stopped|killed)(.*)\]"), r"\1 \2\4 @ \3"),
    (re.compile(r"test_store_handover\.py::(test_what\w+)\[(.*)\]"), r"\1 \2 @ stopped"),
    (re.compile(r"test_store_handover\.py::(test_a_directory\w+)"), r"\1 @ killed"),
    (re.compile(r"test_doctor\.py::(\w+)\[(.*)\]"), r"\1 \2 @ stopped"),
    (re.compile(r"test_store_operations\.py::(test_damage\w+)\[(.*)\]"), r"\1 \2 @ killed"),
    (re.compile(r"test_store_operations\.py::(\w+)"), r"\1 @ stopped"),
)
#: Seconds that tests take on two busy cores, by module or by module and function, where that is far from SHORT.
_LONG: Final[Mapping[str, float]] = {
    "test_mqadmin.py": 0.4,
    "test_mixed_groups.py": 50.0,
    "test_store_handover.py": 30.0,
    "test_store_handover.py::test_a_directory_goes_through_many_hands": 80.0,
    "test_store_operations.py": 25.0,
    "test_doctor.py": 25.0,
    "test_data_directory.py": 5.0,
    "test_data_directory.py::test_brokers_take_over_each_others_directories": 25.0,
    "test_our_security.py::test_modes_of_servers": 20.0,
    "test_finding.py": 8.0,
}
SHORT: Final = 2.0


def group_of(name: str) -> str:
    """The group of a test, whose tests follow each other in one process: "GROUP @ WHAT IT SHARES", or a name alone."""
    found = _NAME.match(name)
    if found is None:
        return name
    place = f"{found['place']}[{found['params'] or ''}]"
    for pattern, group in _SHARED:
        if shared := pattern.match(place):
            return shared.expand(group)
    return place


def shared_by(group: str) -> str:
    """What a group shares with others; its own name when that is nothing."""
    return group.partition(" @ ")[2] or group


def seconds_of(name: str) -> float:
    """About how long a test takes."""
    found = _NAME.match(name)
    place = found["place"] if found else ""
    return _LONG.get(place) or _LONG.get(place.partition("::")[0], SHORT)


def choose(left: Iterable[str], seconds: Mapping[str, float], made: Iterable[str], busy: Mapping[str, int]) -> str:
    """The group that a process takes next: one that shares what it has made, else one of what most is left to do with
    for each process.

    `left` are the groups that nobody has taken, `seconds` what each takes, `made` what the process has made for groups
    before, and `busy` how many processes have made a thing.
    """
    groups = list(left)
    total: dict[str, float] = {}
    for group in groups:
        total[shared_by(group)] = total.get(shared_by(group), 0.0) + seconds[group]
    share = {thing: whole / (1 + busy.get(thing, 0)) for thing, whole in total.items()}
    return max(groups, key=lambda group: (shared_by(group) in made, share[shared_by(group)], seconds[group]))


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Scheduler that gives each process one group of tests after the other."""

    def __init__(self, config: object, log: object) -> None:
        super().__init__(config, log)
        self._seconds: dict[str, float] = {}
        self._made: dict[object, set[str]] = {}

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if not self._seconds:
            self._seconds = {group: sum(map(seconds_of, names)) for group, names in self.workqueue.items()}
        made = self._made.setdefault(node, set())
        busy = Counter(thing for things in self._made.values() for thing in things)
        group = choose(self.workqueue, self._seconds, made, busy)
        made.add(shared_by(group))
        self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)
