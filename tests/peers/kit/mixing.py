"""A group of members of several libraries that come and go while messages are sent, and the checks of what each was
given.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from mqproto import Message, MessageQueue
from mqproto.adapters.threaded import Admin, Producer
from mqproto.errors import MQError
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Line, ProcessStep, Running
from tests.peers.kit.steps import FORGOTTEN_S, open_group

#: How long a change of members may take: an orderly Java member keeps the lock of a queue in work for 20 s
#: (docs/protocol/client.md 3.6).
PATIENCE: Final = 90.0
#: The same where one has died: a broker that takes in its last heartbeat behind the end of its connection counts it for
#: two minutes more.
PATIENCE_WITH_THE_DEAD: Final = PATIENCE + FORGOTTEN_S


@dataclass(frozen=True)
class Delivery:
    """A message as one member was handed it."""

    member: str
    queue_id: int
    offset: int
    body: str
    at: int  #: wall milliseconds at the member; all of them are on this machine
    moving: bool  #: whether members had changed and queues were not yet known to stay


class Mixed:
    """One group on one topic of a server, sent to by a producer of ours, watched by an admin client of ours.

    While members change, each queue gets a message every `pace` seconds. `options` are the members'.
    """

    def __init__(
        self, pair: Pair, producer: Producer, admin: Admin, *, queues: int = 8, pace: float = 0.05, **options: Any
    ) -> None:
        self._pair, self._producer, self._admin = pair, producer, admin
        self._topic, self.group = pair.topic("Mixed", queues), pair.name("mixed")
        open_group(pair, self._topic, self.group)
        self._pace = pace
        self._work = int(options.get("work", 0))
        self._options = {"topic": self._topic, "group": self.group, "expect": 1_000_000, "seconds": 1000, **options}
        self._patience = PATIENCE
        self._running: dict[str, Running] = {}
        self._leaving: dict[str, Running] = {}
        self._started: set[str] = set()
        self._abrupt: set[str] = set()  #: who has gone without waiting for its own listener
        self._moving = True
        self.places: dict[str, tuple[int, int]] = {}  #: body of each message sent: its queue and offset
        self.deliveries: list[Delivery] = []
        self._times: dict[str, int] = {}
        self._queues = [MessageQueue(self._topic, "broker-a", number) for number in range(queues)]

    # --- members

    def join(self, **kinds: str) -> list[str]:
        """Members of these kinds start at the same time; their names.

        Queues are shared out in the order of the letters.
        """
        self._moving = True
        names = [self._pair.name(f"{letter}-{kind}") for letter, kind in kinds.items()]
        for name, kind in zip(names, kinds.values(), strict=True):
            self._running[name] = self._pair.other(kind).start("consume", instance=name, **self._options)
        until = time.monotonic() + self._patience
        while not self._started.issuperset(names):
            self._go_on()
            assert time.monotonic() < until, f"not started: {names}"
        return names

    def leave(self, *names: str) -> None:
        """These members leave in order; what they print until they have left counts.

        Java's gives its locks back and then lets its listener end.
        """
        self._moving = True
        self._abrupt.update(name for name in names if "-java-" in name)
        for name in names:
            self._leaving[name] = self._running.pop(name)
            self._leaving[name].stop()

    def kill(self, name: str) -> None:
        """One whose process is its own ends without a word."""
        self._moving = True
        self._patience = PATIENCE_WITH_THE_DEAD
        self._abrupt.add(name)
        step = self._leaving[name] = self._running.pop(name)
        assert isinstance(step, ProcessStep)
        step.kill()

    # --- messages

    def send(self, count: int = 1) -> set[str]:
        """So many messages to each queue; their bodies."""
        bodies = set()
        for queue in self._queues * count:
            body = f"{len(self.places)}"
            result = self._producer.send(Message(self._topic, body.encode()), queue=queue)
            self.places[body] = (queue.queue_id, result.queue_offset)
            self._times[body] = 0
            bodies.add(body)
        return bodies

    def _go_on(self) -> None:
        """While members change: a few messages more."""
        self.send()
        self.collect()
        time.sleep(self._pace)

    def collect(self) -> None:
        """Take what the members have printed."""
        for name, running in [*self._running.items(), *self._leaving.items()]:
            while running.waiting():
                line = running.next_line(1)
                if line is None:
                    assert self._leaving.pop(name, None), (
                        f"{name} ended on its own: {running.outcome.lines[-1:]} {running.outcome.errors}"
                    )
                    break
                if "started" in line:
                    self._started.add(name)
                elif "body" in line:
                    self._take(name, line)

    def _take(self, name: str, line: Line) -> None:
        queue_id, offset, body = line["queueId"], line["queueOffset"], line["body"]
        assert self.places[body] == (queue_id, offset), line
        self.deliveries.append(Delivery(name, queue_id, offset, body, line["shownAt"], self._moving))
        self._times[body] += 1

    def handed_out(self) -> None:
        """Return when every message has been handed to a member at least once, and those that leave have left."""
        until = time.monotonic() + self._patience
        while self._leaving or not all(self._times.values()):
            self.collect()
            assert time.monotonic() < until, self._missing()
            time.sleep(0.002)

    def _missing(self) -> str:
        lost = [(body, self.places[body]) for body, times in self._times.items() if not times]
        return f"never handed out: {lost[:20]}; still leaving: {list(self._leaving)}; {self._shares()}"

    # --- queues

    def settle(self) -> None:
        """Return when every queue has one owner, as the members themselves say, and each has its fair share; messages
        go on meanwhile.
        """
        until = time.monotonic() + self._patience
        while not self._fair(shares := self._shares()):
            self._go_on()
            assert time.monotonic() < until, f"queues stayed with {shares}"
        self.send()
        self.handed_out()
        self._moving = False

    def _shares(self) -> dict[str, list[int]]:
        """Queues by the name of the member that holds them."""
        try:
            members = self._admin.groups.check(self.group).members
        except MQError:  # nobody is there yet, or somebody has just left
            return {}
        return {
            client_id.partition("@")[2]: sorted(
                queue.queue_id
                for queue, state in info.queues.items()
                if queue.topic == self._topic and not state.dropped
            )
            for client_id, info in members.items()
        }

    def _fair(self, shares: dict[str, list[int]]) -> bool:
        held = sorted(number for share in shares.values() for number in share)
        sizes = {len(share) for share in shares.values()}
        return (
            shares.keys() == self._running.keys()
            and held == [*range(len(self._queues))]
            and max(sizes) - min(sizes) <= 1
        )

    def calm(self, count: int = 5) -> None:
        """While nobody comes or goes each message is handed to one member, once."""
        bodies = self.send(count)
        self.handed_out()
        self.collect()
        times = {body: self._times[body] for body in bodies if self._times[body] != 1}
        assert not times, f"more than once: {times}"

    def end(self) -> None:
        """Everybody leaves; each message was handed to somebody."""
        self.leave(*self._running)
        self.handed_out()

    # --- what came of it

    @property
    def repeated(self) -> int:
        """Deliveries besides the first of each message."""
        return sum(self._times.values()) - len(self._times)

    def assert_order(self) -> None:
        """In each queue the next message is the one behind the last, or, when the queue moved, where its new owner
        found the group.

        So nothing is skipped, whoever owned the queue, and nothing goes back while members stay. Java's members unlock
        a queue before its last offset is stored: the next owner may begin before that, and the one after it behind what
        the two have consumed. Behind ours no message comes again but the one that was in work. And no member begins
        before the one before it has ended, which took it as long as `work=` says.
        """
        for queue in self._queues:
            last, end, owner, busy = -1, 0, "", 0
            for one in sorted(
                (one for one in self.deliveries if one.queue_id == queue.queue_id), key=lambda one: one.at
            ):
                took_over = one.member != owner
                waits = took_over and owner not in self._abrupt
                again = one.moving and one.offset <= (end if took_over else last)
                first = last if waits and "-ours-" in owner else 0
                assert one.offset == last + 1 or (again and one.offset >= first), (
                    f"queue {queue.queue_id}: {one} after {last} at {owner}"
                )
                assert not waits or one.at >= busy, f"queue {queue.queue_id}: {one} while {owner} was at {last}"
                last, end, owner, busy = one.offset, max(end, one.offset + 1), one.member, one.at + self._work
