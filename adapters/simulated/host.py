"""Host of a simulated network: it runs one node as a driver does, and may be frozen for a while.

Owns: entering a node, carrying out its actions, its timer, what waits while it does not run.
Leaves to others: time, and everything between hosts (`simulator`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.state.node.contract import Deliver, Dial, HangUp, Node, Run, Ticket

if TYPE_CHECKING:
    from mqproto.adapters.simulated.simulator import Simulator


class Host:
    """Place where one node runs, until it ends or crashes; a new host may then take its addresses."""

    def __init__(self, simulator: Simulator, name: str, node: Node, addresses: Mapping[str, str]) -> None:
        self.simulator = simulator
        self.name = name
        self.node = node
        #: Listener name to `host:port`.
        self.addresses = dict(addresses)
        self.alive = True
        #: When it ended or crashed.
        self.died_at: int | None = None
        #: Its own conditions, where they differ from the simulator's: for its disk and for what it sends.
        self.conditions: SimulatedConditions | None = None
        #: How far its wall clock is ahead of the simulator's.
        self.wall_offset = 0
        #: Takes work for the application; set by the client of this host.
        self.on_deliver: Callable[[Deliver], None] | None = None
        self._due: int | None = None
        #: While the host does not run: what it would have done meanwhile.
        self._backlog: list[Callable[[], None]] | None = None

    @property
    def asleep(self) -> bool:
        """Whether the host does not run for a while (`Simulator.freeze`)."""
        return self._backlog is not None

    def enter(self, call: Callable[[int], None]) -> None:
        """Enter the node from outside (an application's call) and carry out what it wants.

        A host that is asleep does so when it wakes.
        """
        self.when_awake(lambda: self._enter(call))

    def when_awake(self, call: Callable[[], None]) -> None:
        """Call a function now, or when the host runs again; never if it is dead by then."""
        if self._backlog is not None:
            self._backlog.append(call)
        elif self.alive:
            call()

    def _enter(self, call: Callable[[int], None]) -> None:
        self.node.wall_ahead = self.simulator.wall_ahead + self.wall_offset
        call(self.simulator.now)
        self.settle()

    def settle(self) -> None:
        """Empty what the node produced, as a driver does after each entry."""
        node = self.node
        while (node.touched or node.actions) and self.alive:
            while node.touched:
                # By number, not by the set's own order: that depends on where objects lie in memory.
                link = min(node.touched, key=self.simulator.number)
                node.touched.discard(link)
                data = b"".join(node.data_to_send(link))
                if data:
                    self.simulator.send(link, data)
            actions, node.actions[:] = list(node.actions), []
            for action in actions:
                self._act(action)
        if node.ended:  # the driver's loop is over, and with it the process
            self.simulator.crash(self)
        else:
            self._schedule()

    def _act(self, action: object) -> None:
        simulator = self.simulator
        match action:
            case Dial(link=link, timeout_ms=timeout_ms):
                simulator.dial(self, link, timeout_ms)
            case HangUp(link=link):
                simulator.end(link, "hung up by the peer")
            case Run(job=job):
                simulator.run_job(self, job)
            case Ticket():
                if action.wake is not None:
                    action.wake()
            case Deliver():
                assert self.on_deliver is not None, f"{self.name}: nobody takes deliveries"
                self.on_deliver(action)
            case _:
                raise AssertionError(f"unknown action {action!r}")

    def _schedule(self) -> None:
        """Have `timer` called at the node's next deadline; a deadline that moved is asked for again then."""
        due = self.node.next_deadline()
        if due is not None and (self._due is None or due < self._due):
            self._due = due
            self.simulator.at(max(due, self.simulator.now), self._timer)

    def _timer(self) -> None:
        if not self.alive or self._due is None or self._due > self.simulator.now:
            return
        self._due = None
        self.enter(self.node.timer)

    def sleep(self) -> None:
        """For `Simulator.freeze`."""
        if self._backlog is None:
            self._backlog = []

    def wake(self, *, timers_first: bool) -> None:
        """For `Simulator.thaw`: do what was left undone, in order."""
        backlog, self._backlog = self._backlog or [], None
        if timers_first:
            self.enter(self.node.timer)
        for call in backlog:
            self.when_awake(call)
