"""Driver for threads: one thread turns the loop, any thread may enter the node, a few threads run jobs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from socket import socket
from typing import Any, Final, TypeVar, TypeVarTuple

from mqproto.adapters.io.lifecycle import JOBS_AT_A_TIME, log
from mqproto.adapters.io.loop import LoopDriver
from mqproto.adapters.io.pollers import Poller, make_poller
from mqproto.adapters.threaded.workers import Workers
from mqproto.adapters.threaded.yielding_lock import YieldingLock
from mqproto.state.node.contract import Node, Ticket

_FORCED_END_S: Final = 5.0  # how long the loop may need to end once it is told to; it waits for nothing then
_FORCED_JOBS_S: Final = 0.5  # the same for the threads of jobs, of which one may block
#: So many operations under way, of a caller that does not wait for each, are a burst.
_BURST: Final = 64
#: How long the loop pauses between two turns of a burst, for each operation under way (500,000 a second is no limit),
#: and at most.
_PAUSE_EACH_S: Final = 2e-6
_PAUSE_MAX_S: Final = 1e-3
#: How long the loop lets a delivery begin before it goes on at once, with the next pull most likely: a thread that has
#: just been woken gets the interpreter's lock when somebody lets go of it for longer than a moment. The system makes of
#: it what it can, some 60 microseconds.
_HANDOVER_S: Final = 1e-6
#: So many turns of a client in a row that were for nobody, none so long after the one before, and the loop waits a
#: moment before the next one: a broker ends a thousand pulls that found nothing one after the other.
_TURNS_FOR_NOBODY: Final = 16
_IN_A_ROW_MS: Final = 3
_GATHER_S: Final = 1e-3
#: How long a wait goes on without a look at signals: one that comes just before the wait begins is not seen while it
#: lasts.
_HEARS_EVERY_S: Final = 1.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Driver(LoopDriver):
    """Driver of one node in a thread of its own. See `LoopDriver` for the arguments.

    `start`, then `enter` (ask the node something) and `wait` (start an operation and wait for its end) from any thread,
    then `stop`.
    """

    def __init__(
        self,
        node: Node,
        listeners: Mapping[str, socket] | None = None,
        deliver: Callable[[object], None] | None = None,
        cancel: Callable[[Ticket[Any], int], None] | None = None,
        notices: deque[str] | None = None,
        *,
        name: str = "mqproto",
        poller: Poller | None = None,
    ) -> None:
        lock = threading.Lock()
        super().__init__(
            node, listeners or {}, deliver, cancel, notices, name=name, lock=lock, poller=poller or make_poller()
        )
        self._patience = YieldingLock(lock)
        self._jobs = Workers(f"{name}-jobs", JOBS_AT_A_TIME)
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._local = threading.local()
        self._serves = bool(listeners)
        self._turned_at = 0
        self._for_nobody = 0

    def start(self) -> None:
        """Begin. The node's listeners take connections from now on."""
        self.enter(self.node.begin)
        try:
            self._thread.start()
        except BaseException as failure:  # nobody knows whether the thread runs: if so, it ends at once
            self._cut_short(failure)
            raise

    def stop(self, timeout: float = 10.0) -> bool:
        """Close the node and wait up to `timeout` seconds for its clean end; whether it came.

        Twice, or before the start, is harmless. At the time-out everything is closed as it is. After the return no
        thread of the driver is left (but for a job that still blocks).
        """
        if self._thread.ident is None:
            if not self._shut_down:
                self._shut()
            return True
        try:
            self._begin_end()
            if threading.current_thread() is self._thread:
                return False  # from inside the loop: it ends when it gets there
            self._thread.join(timeout)
        except BaseException:  # an interrupt: the loop ends by itself
            self._jobs.close(0.0)
            raise
        orderly = not self._thread.is_alive() and self.failure is None
        if self._thread.is_alive():
            log.warning("%s: not ended within %s s, closing what is left", self.name, timeout)
            self._quit = True
            self._rouse()
            self._thread.join(_FORCED_END_S)
        self._jobs.close(timeout if orderly else min(timeout, _FORCED_JOBS_S))
        return orderly

    def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T:
        """Start an operation of the node and wait until it has ended: its value, or raises its failure."""
        gate = self._gate()
        ticket: Ticket[T] | None = None
        try:
            ticket = self.launch(gate.release, verb, arguments)
            while not gate.acquire(timeout=_HEARS_EVERY_S):
                pass
        except BaseException:
            # an interrupt, or a refusal: the gate may be open or be opened, so nobody may wait at it again
            del self._local.gate
            if ticket is not None:
                self.give_up(ticket)
            raise
        return self.outcome(ticket)

    def _gate(self) -> threading.Lock:
        """A lock that this thread waits at; it is held whenever nobody has just opened it."""
        try:
            gate: threading.Lock = self._local.gate
        except AttributeError:
            gate = threading.Lock()
            gate.acquire()
            self._local.gate = gate
        return gate

    def _turn(self, events: list[tuple[int, int]]) -> float | None:
        """In a burst each answer would have the two threads pass the interpreter's lock to and fro, and send what there
        is for lack of more. So the loop leaves it to the caller for a moment, who writes when there is enough, and need
        not wake it: it turns by itself.
        """
        written_soon, handed = self._written_soon, self._handed
        timeout = super()._turn(events)
        if self._is_row(handed) and (timeout is None or timeout > 0):
            time.sleep(_GATHER_S)
        under_way = len(self._pending)
        self._bursts = written_soon and under_way >= _BURST
        if not self._bursts or self._woken or (timeout is not None and timeout < 0):
            return timeout
        self._woken = True
        time.sleep(min(under_way * _PAUSE_EACH_S, _PAUSE_MAX_S))
        self._woken = False  # who found it set has been inside by now, and the turn that follows serves him
        return 0.0

    def _is_row(self, handed: int) -> bool:
        """Whether a client has turned so often for nobody that what comes next is better gathered; `handed` is from
        before the turn.
        """
        in_a_row = self._seen - self._turned_at <= _IN_A_ROW_MS and self._handed == handed
        self._turned_at = self._seen
        self._for_nobody = self._for_nobody + 1 if in_a_row and not self._serves else 0
        return self._for_nobody >= _TURNS_FOR_NOBODY

    def enter_from_pool(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T:
        """`enter` for a thread of a pool, of which many come at once: see `YieldingLock`, which is not for a thread
        that signals interrupt.
        """
        main = threading.current_thread() is threading.main_thread()
        return self.launch(None, verb, arguments, lock=None if main else self._patience)

    def let_begin(self) -> None:
        time.sleep(_HANDOVER_S)

    def run_beside(self, work: Callable[[], None]) -> None:
        self._jobs.submit(work)
