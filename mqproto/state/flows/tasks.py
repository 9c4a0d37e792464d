"""Flows under way: what each of them waits for, and how it goes on.

Owns: the tasks and their tickets, sleeping, waiting for tickets, jobs, and the order in which what is ready goes on.
Leaves to others: calls, one-way requests and the links that they need (`calls`), the sequence of operations (flows).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from mqproto.errors import CallExpired, MQError, StateError, TooManyRequests
from mqproto.state.flows.effects import Call, Effect, Expired, Flow, Later, Oneway, Refresh, Sleep, Wait, Work
from mqproto.state.node.connection import Calls, Connection
from mqproto.state.node.contract import Job, NodeBase, Run, Ticket
from mqproto.state.node.deadlines import Deadlines

R = TypeVar("R")

#: How many remarks on oddities are kept for the adapter to log.
NOTICES_MAX: Final = 100

NAME_SERVER: Final = "name server"


class FastCall(Ticket[R]):
    """Call of the application without a flow, and its ticket; a `Task` takes its place if anything unusual happens."""

    __slots__ = ("link", "opaque", "reads", "since")

    #: Where the call is.
    link: DialledLink
    opaque: int
    #: When it was made, and the link's `reads` at that time.
    since: int
    reads: int

    def unfold(self) -> Flow[R]:
        """The flow that goes on from here. Its first effect is the call that was made already."""
        raise NotImplementedError


class Task(Generic[R]):
    """Flow under way."""

    __slots__ = (
        "awaited",
        "effect",
        "flow",
        "link",
        "of_application",
        "opaque",
        "reads",
        "searched",
        "sent_away",
        "since",
        "ticket",
        "tried",
    )

    def __init__(self, flow: Flow[R], ticket: Ticket[R], of_application: bool) -> None:
        self.flow = flow
        self.ticket = ticket
        self.of_application = of_application
        #: What it waits for.
        self.effect: Effect | None = None
        #: Where its call is, or waits to be connected.
        self.link: DialledLink | None = None
        self.opaque = -1
        #: The ticket whose end it waits for.
        self.awaited: Ticket[Any] | None = None
        #: When the effect was asked for, and the link's `reads` when its call was sent.
        self.since = 0
        self.reads = 0
        #: Name servers that the present call has asked, and whether a peer has asked to take it elsewhere.
        self.tried: set[str] | None = None
        self.sent_away = False
        #: Whether the present call has waited for somebody to find name servers.
        self.searched = False


#: Who waits for an answer.
Caller: TypeAlias = Task[Any] | FastCall[Any]


class DialledLink(Connection["Caller"]):
    """Link that the node made, with the tasks that wait for it to be connected."""

    __slots__ = ("greeted", "leaving", "usable", "used", "waiting")

    def __init__(self, node: NodeBase, calls: Calls[Caller], address: str, now: int) -> None:
        super().__init__(node, calls, address, connected=False)
        self.waiting: dict[Task[Any], None] = {}
        #: When something was last sent or received.
        self.used = now
        #: Whether calls to its address go out on it, and at once: it is connected, and the one of its address. Kept by
        #: whoever dials.
        self.usable = False
        #: True once the peer asked us to go away: no new calls, ended when the last one has its answer.
        self.leaving = False
        #: Whether the peer is a broker that knows us by a heartbeat on this link.
        self.greeted = False


class TaskNode(NodeBase, ABC):
    """Node that runs flows. `limit` bounds the application's operations in flight."""

    __slots__ = (
        "_draining",
        "_fast_open",
        "_jobs",
        "_open",
        "_perform",
        "_ready",
        "_soon",
        "_soon_at",
        "_tasks",
        "_waiting",
        "_woken",
        "limit",
        "notices",
        "over",
        "refusal",
        "timers",
    )

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        #: Tasks that sleep, wait with a limit or wait for a link, and whatever else a node wants to hear of by
        #: `tick`.
        self.timers: Deadlines[Hashable] = Deadlines()
        #: Oddities worth a line in a log, oldest first; the adapter may empty it.
        self.notices: deque[str] = deque(maxlen=NOTICES_MAX)
        self._tasks: dict[Ticket[Any], Task[Any]] = {}
        self._waiting: dict[Ticket[Any], list[Task[Any]]] = {}
        self._jobs: dict[int, tuple[Job, Task[Any]]] = {}
        self._ready: deque[tuple[Task[Any], tuple[Any, int] | Exception | None]] = deque()
        #: Those that go on when the driver comes back, which shall be at once, and when the last of them said so.
        self._soon: list[Task[Any]] = []
        self._soon_at = 0
        #: Tickets whose waiting flows go on with the next step.
        self._woken: deque[Ticket[None]] = deque()
        self._draining = False
        #: The application's operations in flight: flows, and calls without one.
        self._open = 0
        self._fast_open = 0
        #: Why the application can start nothing any more; None while it can.
        self.refusal: str | None = None
        #: Nothing runs any more and no link is open.
        self.over = False
        self._perform: Final[dict[type[Any], Callable[[Task[Any], Any, int], None]]] = {
            Call: self.request,
            Oneway: self.request,
            Sleep: self._sleep,
            Later: self._later,
            Wait: self._wait,
            Refresh: self._refresh,
            Work: self._work,
        }

    # --- what a node of a kind decides

    @abstractmethod
    def request(self, task: Task[Any], effect: Call | Oneway, now: int) -> None:
        """Bring a request on its way; its outcome makes the task ready."""

    @abstractmethod
    def refresh(self, topic: str, now: int) -> Ticket[MQError | None]:
        """Bring the route of a topic up to date; the ticket may be one that others wait for already."""

    @abstractmethod
    def any_name_server(self) -> str:
        """What did not answer, where it was any of the name servers and not one at a link."""

    @abstractmethod
    def tick(self, key: Hashable, now: int) -> None:
        """A timer of the node's own is due."""

    # --- for others

    def start(self, flow: Flow[R], now: int, *, limited: bool = True) -> Ticket[R]:
        """Run a flow of the application. Never raises: whatever goes wrong is in the ticket, which is an action then.

        `limited` False is for what must be possible however many sends are in flight: shutting something down, say.
        """
        task = Task(flow, Ticket(), True)
        self._open += 1
        if self.refusal is not None:
            return self._refuse(task, StateError(self.refusal), now)
        if limited and self._open + self._fast_open > self.limit:
            return self._refuse(task, TooManyRequests(f"{self.limit} operations are in flight"), now)
        return self._begin(task, now)

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]:
        """Run a flow of the node's own (a heartbeat, a loop of a consumer): no action, no limit.

        A failure becomes a notice.
        """
        task = Task(flow, Ticket(), False)
        if self.over:
            return self._refuse(task, StateError("the node is closed"), now)
        return self._begin(task, now)

    def cancel(self, ticket: Ticket[Any], now: int, reason: str = "the operation was cancelled") -> None:
        """Give an operation up: its ticket fails with StateError, a late answer is dropped.

        Nothing happens to a settled one.
        """
        task = self._tasks.get(ticket)
        if task is None and isinstance(ticket, FastCall) and not ticket.settled:
            task = self.unfolded(ticket)
        if task is not None:
            self._give_up(task, reason, now)
            self._drain(now)

    def wake(self, ticket: Ticket[Any], now: int) -> None:
        """Settle a ticket that no flow stands behind, with None, and resume the flows that `Wait` for it."""
        if not ticket.settled:
            ticket.settle(None)
            self._release(ticket, now)
            self._drain(now)

    def wake_soon(self, ticket: Ticket[None]) -> None:
        """The same for whoever knows no time: a flow that gives something up, perhaps because it is being closed.

        Never raises.
        """
        if not ticket.settled:
            ticket.settle(None)
            self._woken.append(ticket)

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        entry = self._jobs.pop(id(job), None)
        if entry is not None and not entry[1].ticket.settled:
            self._ready.append((entry[1], (failure, now)))
            self._drain(now)

    # --- steps

    def _refuse(self, task: Task[R], failure: Exception, now: int) -> Ticket[R]:
        task.flow.close()
        self._tasks[task.ticket] = task
        self._end(task, failure, now)
        return task.ticket

    def _begin(self, task: Task[R], now: int) -> Ticket[R]:
        self._tasks[task.ticket] = task
        self._ready.append((task, None))
        self._drain(now)
        return task.ticket

    def _drain(self, now: int) -> None:
        """Run what is ready. Flows may spawn others and wake tickets: those wait here for their turn."""
        if self._draining:
            return
        self._draining = True
        ready = self._ready
        woken = self._woken
        try:
            while ready or woken:
                while woken:
                    self._release(woken.popleft(), now)
                if ready:
                    task, given = ready.popleft()
                    if not task.ticket.settled:
                        self._step(task, given, now)
        finally:
            self._draining = False

    def _step(self, task: Task[Any], given: tuple[Any, int] | Exception | None, now: int) -> None:
        flow = task.flow
        try:
            if isinstance(given, Exception):
                effect = flow.throw(given)
            else:
                effect = flow.send(given)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            task.ticket.settle(stop.value)
            self._end(task, None, now)
        except Exception as failure:  # a flow's failure belongs to whoever holds its ticket
            self._end(task, failure, now)
        except BaseException as interrupt:
            # the thread that is inside was told to stop: its affair, but the ticket must not stay open
            self._end(task, interrupt, now)
            raise
        else:
            task.effect = effect
            task.since = now
            task.tried = None
            task.sent_away = False
            task.searched = False
            self._perform[type(effect)](task, effect, now)

    def _end(self, task: Task[Any], failure: BaseException | None, now: int) -> None:
        ticket = task.ticket
        if failure is not None:
            ticket.fail(failure)
        del self._tasks[ticket]
        if task.of_application:
            self._open -= 1
            self.actions.append(ticket)
        elif failure is not None and ticket not in self._waiting and not isinstance(failure, StateError):
            self.notices.append(f"{getattr(task.flow, '__name__', 'flow')}: {failure!r}")
        if self._waiting:
            self._release(ticket, now)

    def end_fast(self, call: FastCall[Any], now: int) -> None:
        """A call without a flow was settled."""
        self._fast_open -= 1
        self.actions.append(call)
        if self._waiting:
            self._release(call, now)

    def unfolded(self, caller: Caller) -> Task[Any]:
        """The task itself, or the one that goes on in the place of a call that was made without a flow."""
        if not isinstance(caller, FastCall):
            return caller
        task = Task(caller.unfold(), caller, True)
        task.effect = next(task.flow)
        self._fast_open -= 1
        self._open += 1
        task.link, task.opaque, task.since, task.reads = caller.link, caller.opaque, caller.since, caller.reads
        self._tasks[caller] = task
        return task

    def _release(self, ticket: Ticket[Any], now: int) -> None:
        for task in self._waiting.pop(ticket, ()):
            task.awaited = None
            self.timers.cancel(task)
            effect = task.effect
            if isinstance(effect, Call | Oneway):  # it waited for name servers
                self.request(task, effect, now)
            else:
                self._ready.append((task, (self._seen(task, ticket), now)))

    def _seen(self, task: Task[Any], ticket: Ticket[Any]) -> Exception | None:
        """The outcome for a flow that waited for `ticket`: nothing of `Wait`, why it failed of `Refresh`."""
        if type(task.effect) is not Refresh:
            return None
        failure: Exception | None = ticket.result() if ticket.failure is None else MQError(str(ticket.failure))
        return failure

    def _give_up(self, task: Task[Any], reason: str, now: int) -> None:
        """End a task from outside; nothing resumes it any more."""
        link = task.link
        if link is not None:
            link.forget(task.opaque)
            link.waiting.pop(task, None)
            task.link = None
        self.timers.cancel(task)
        self._stop_waiting(task)
        task.flow.close()
        self._end(task, StateError(reason), now)

    # --- effects

    def _sleep(self, task: Task[Any], effect: Sleep, now: int) -> None:
        if effect.until <= now:
            self._ready.append((task, (None, now)))
        else:
            self.timers.set(task, effect.until)

    def _later(self, task: Task[Any], effect: Later, now: int) -> None:
        self._soon.append(task)
        self._soon_at = now

    def _wait(self, task: Task[Any], effect: Wait, now: int) -> None:
        self._await(task, effect.ticket, effect.deadline, now)

    def _await(self, task: Task[Any], ticket: Ticket[Any], deadline: int | None, now: int) -> None:
        if ticket.settled:
            self._ready.append((task, (self._seen(task, ticket), now)))
            return
        task.awaited = ticket
        self._waiting.setdefault(ticket, []).append(task)
        if deadline is not None:
            self.timers.set(task, deadline)

    def _stop_waiting(self, task: Task[Any]) -> None:
        ticket = task.awaited
        if ticket is None:
            return
        task.awaited = None
        waiting = self._waiting[ticket]
        waiting.remove(task)
        if not waiting:
            del self._waiting[ticket]

    def _refresh(self, task: Task[Any], effect: Refresh, now: int) -> None:
        self._await(task, self.refresh(effect.topic, now), effect.deadline, now)

    def _work(self, task: Task[Any], effect: Work, now: int) -> None:
        self._jobs[id(effect.job)] = (effect.job, task)
        self.actions.append(Run(effect.job))

    def timed(self, task: Task[Any], now: int) -> None:
        """The time of a task's effect has come: the end of a sleep, or the limit of something else."""
        effect = task.effect
        outcome: Expired | CallExpired | None = None
        self._stop_waiting(task)
        if isinstance(effect, Refresh):
            outcome = CallExpired(self.any_name_server(), now - task.since)
        elif isinstance(effect, Call | Oneway):
            link = task.link
            outcome = Expired(self.any_name_server() if link is None else link.address, now - task.since)
            if link is not None:
                link.waiting.pop(task, None)
                task.link = None
        self._ready.append((task, (outcome, now)))
