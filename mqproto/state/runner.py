"""A node that runs flows over links that it dials.

Owns: the flows under way and what each of them waits for, their tickets, the links by address, calls that wait for a link to be
connected, and the timers of all that.
Leaves to others: which name server a call without an address goes to, what a request of a peer means, what is due when besides flows
(`client`), and the sequence of operations (flows).

Nothing is sent for a call whose deadline has passed: a call for a link that is still being dialled waits beside it, not in its buffer.
A call that expires while its peer says nothing at all ends the link, as Apache's clients do since 4.9.1 (client.md 7): the next call dials
anew. A peer that answers others meanwhile keeps its link, because ending it would take the others down too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

from mqproto.acl import Credentials
from mqproto.codec import RESPONSE_FLAG, Command
from mqproto.codes import VERSION, ResponseCode
from mqproto.errors import CallExpired, MQError, StateError, TooManyRequests
from mqproto.hosts import HostError
from mqproto.state.connection import Calls, Connection
from mqproto.state.deadlines import Deadlines
from mqproto.state.flows import Call, Effect, Expired, Flow, Lost, Oneway, Refresh, Sleep, Wait, Work
from mqproto.state.node import Dial, Finished, Job, Link, NodeBase, Run, Ticket

R = TypeVar("R")

#: Calls that the node makes on its own behalf beyond the limit of the application's operations.
OWN_CALLS: Final = 4_096
#: On a link whose peer has left this many bytes unread the application's operations are refused: nothing else bounds one-way sends.
UNSENT_MAX: Final = 64 << 20
#: How many remarks on oddities are kept for the adapter to log.
NOTICES_MAX: Final = 100

_GO_AWAY: Final = int(ResponseCode.GO_AWAY)
_NAME_SERVER: Final = "name server"


class Task(Generic[R]):
    """A flow under way, or a call that was made without one: its flow is made by `unfold` when anything unusual happens."""

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
        self.flow: Flow[R] | None = flow
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

    def unfold(self) -> Flow[R]:
        """The flow of a task that has none yet. Its first effect is the call that the task waits for already."""
        raise NotImplementedError

    def close(self) -> None:
        """The task is given up."""
        assert self.flow is not None
        self.flow.close()


class DialledLink(Connection["Task[Any]"]):
    """A link that the node made, with the tasks that wait for it to be connected."""

    __slots__ = ("leaving", "used", "waiting")

    def __init__(self, node: NodeBase, calls: Calls[Task[Any]], address: str, now: int) -> None:
        super().__init__(node, calls, address, connected=False)
        self.waiting: dict[Task[Any], None] = {}
        #: When something was last sent or received.
        self.used = now
        #: True once the peer asked us to go away: no new calls, ended when the last one has its answer.
        self.leaving = False


class FlowNode(NodeBase, ABC):
    """See the module. `limit` bounds the application's operations in flight; `credentials` sign every request."""

    def __init__(self, *, limit: int, tls: bool, credentials: Credentials | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.tls = tls
        self.credentials = credentials
        #: The release of whoever answered last: a guess for those that have not answered yet.
        self.peer_version = VERSION
        #: Fields that every request carries besides its own.
        self.marks: Mapping[str, str] = {}
        self.links: dict[str, DialledLink] = {}
        self.calls: Calls[Task[Any]] = Calls(limit + OWN_CALLS)
        #: Tasks that sleep, wait with a limit or wait for a link, and whatever else a node wants to be told of by `tick`.
        self.timers: Deadlines[Hashable] = Deadlines()
        #: Oddities worth a line in a log, oldest first; the adapter may empty it.
        self.notices: deque[str] = deque(maxlen=NOTICES_MAX)
        self._tasks: dict[Ticket[Any], Task[Any]] = {}
        self._waiting: dict[Ticket[Any], list[Task[Any]]] = {}
        self._jobs: dict[int, tuple[Job, Task[Any]]] = {}
        self._ready: deque[tuple[Task[Any], tuple[Any, int] | Exception | None]] = deque()
        #: Tickets whose waiting flows go on with the next step.
        self._woken: deque[Ticket[None]] = deque()
        self._draining = False
        self._open = 0
        #: Where a call goes instead of the address that it names; None where all go to theirs. Raises HostError.
        self.reroute: Callable[[Call | Oneway], str] | None = None
        #: Why the application can start nothing any more; None while it can.
        self.refusal: str | None = None
        #: Nothing runs any more and no link is open.
        self.over = False
        self._leaving: set[DialledLink] = set()
        self._perform: Final[dict[type[Any], Callable[[Task[Any], Any, int], None]]] = {
            Call: self._request,
            Oneway: self._request,
            Sleep: self._sleep,
            Wait: self._wait,
            Refresh: self._refresh,
            Work: self._work,
        }

    # --- what a node of a kind decides

    @abstractmethod
    def name_server(self, tried: Collection[str]) -> str | None:
        """Where a call without an address goes that has tried these; None when it has tried every name server, or none is known."""

    @abstractmethod
    def share_ms(self, tried: Collection[str], left_ms: int) -> int:
        """How much of the time that is left to such a call the last of those that it has tried may take."""

    @abstractmethod
    def search(self, now: int) -> Ticket[None] | None:
        """Find name servers where none are known; None where there is no way to. A call without an address waits for it, once."""

    @abstractmethod
    def dial_timeout_ms(self, address: str) -> int:
        """How long connecting to `address` may take."""

    @abstractmethod
    def refresh(self, topic: str, now: int) -> Ticket[MQError | None]:
        """Bring the route of a topic up to date; the ticket may be one that others wait for already."""

    @abstractmethod
    def requested(self, link: DialledLink, request: Command, now: int) -> None:
        """A peer sent a request."""

    def shortcut(self, link: DialledLink, frame: bytes, now: int) -> bool:
        """Whether a frame was the plain answer to a call without a flow, and is dealt with."""
        return False

    @abstractmethod
    def linked(self, link: DialledLink, now: int) -> None:
        """A link was connected; the calls that waited for it follow."""

    @abstractmethod
    def tick(self, key: Hashable, now: int) -> None:
        """A timer of the node's own is due."""

    # --- flows

    def start(self, flow: Flow[R], now: int, *, limited: bool = True) -> Ticket[R]:
        """Run a flow of the application. Never raises: whatever goes wrong is in the ticket, which `Finished` announces.

        `limited` False is for what must be possible however many sends are in flight: shutting something down, say.
        """
        task = Task(flow, Ticket(), True)
        self._open += 1
        if self.refusal is not None:
            return self._refuse(task, StateError(self.refusal), now)
        if limited and self._open > self.limit:
            return self._refuse(task, TooManyRequests(f"{self.limit} operations are in flight"), now)
        return self._begin(task, now)

    def ready_link(self, address: str) -> DialledLink | None:
        """A link on which the application may make a call at once; None where that takes more, or is refused."""
        link = self.links.get(address)
        if link is None or not link.connected or link.unsent > UNSENT_MAX:
            return None
        if self.refusal is not None or self._open >= self.limit or len(self.calls) >= self.calls.limit:
            return None
        return link

    def launch(self, task: Task[Any], frame: bytes, deadline: int) -> None:
        """A call of the application's without a flow: `task` names the link, of `ready_link`, and the opaque that the frame bears."""
        link = task.link
        assert link is not None
        self._open += 1
        self._tasks[task.ticket] = task
        link.used = task.since
        link.call_by(task, task.opaque, frame, deadline)

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]:
        """Run a flow of the node's own (a heartbeat, a loop of a consumer): no `Finished`, no limit. A failure becomes a notice."""
        task = Task(flow, Ticket(), False)
        if self.over:
            return self._refuse(task, StateError("the node is closed"), now)
        return self._begin(task, now)

    def cancel(self, ticket: Ticket[Any], now: int, reason: str = "the operation was cancelled") -> None:
        """Give an operation up: its ticket fails with StateError, a late answer is dropped. Nothing happens to a settled one."""
        task = self._tasks.get(ticket)
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
        """The same for whoever knows no time: a flow that gives something up, perhaps because it is being closed. Never raises."""
        if not ticket.settled:
            ticket.settle(None)
            self._woken.append(ticket)

    def application_tickets(self) -> list[Ticket[Any]]:
        """The application's operations that are not done yet."""
        return [ticket for ticket, task in self._tasks.items() if task.of_application]

    def finish(self, reason: str, now: int) -> None:
        """End everything now: what is under way fails with StateError, every link is hung up."""
        self.over = True
        for task in list(self._tasks.values()):
            if not task.ticket.settled:  # one that ended may have ended another
                self._give_up(task, reason, now)
        for link in self.all_links():
            self.drop(link, reason, now)

    def _refuse(self, task: Task[R], failure: Exception, now: int) -> Ticket[R]:
        task.close()
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
        assert flow is not None
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
        except BaseException as interrupt:  # the thread that is inside was told to stop: its affair, but the ticket must not stay open
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
            self.actions.append(Finished(ticket))
        elif failure is not None and ticket not in self._waiting and not isinstance(failure, StateError):
            self.notices.append(f"{getattr(task.flow, '__name__', 'flow')}: {failure!r}")
        self._release(ticket, now)

    def _unfold(self, task: Task[Any]) -> None:
        """Give a task its flow, which goes on from the call that was made."""
        task.flow = task.unfold()
        task.effect = next(task.flow)

    def _release(self, ticket: Ticket[Any], now: int) -> None:
        for task in self._waiting.pop(ticket, ()):
            task.awaited = None
            self.timers.cancel(task)
            effect = task.effect
            if isinstance(effect, Call | Oneway):  # it waited for name servers
                self._request(task, effect, now)
            else:
                self._ready.append((task, (self._seen(task, ticket), now)))

    def _seen(self, task: Task[Any], ticket: Ticket[Any]) -> Exception | None:
        """What a flow that waited for `ticket` is told: nothing by `Wait`, why it failed by `Refresh`."""
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
        task.close()
        self._end(task, StateError(reason), now)

    # --- effects

    def _sleep(self, task: Task[Any], effect: Sleep, now: int) -> None:
        if effect.until <= now:
            self._ready.append((task, (None, now)))
        else:
            self.timers.set(task, effect.until)

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

    def _request(self, task: Task[Any], effect: Call | Oneway, now: int) -> None:
        if now >= effect.deadline:
            self._ready.append((task, (Expired(effect.address or _NAME_SERVER, max(0, effect.deadline - task.since)), now)))
            return
        address = effect.address
        if address is None:
            address = self._untried(task)
            if address is None:
                search = None if task.searched or task.tried else self.search(now)
                if search is None or search.settled:
                    self._ready.append((task, (Lost(_NAME_SERVER, "no address is set"), now)))
                else:
                    task.searched = True
                    self._await(task, search, effect.deadline, now)
                return
        elif self.reroute is not None:
            try:
                address = self.reroute(effect)
            except HostError as error:
                self._ready.append((task, (Lost(address, str(error)), now)))
                return
        self._request_at(address, task, effect, now)

    def _untried(self, task: Task[Any]) -> str | None:
        """The next name server for the present call of a task; each is asked once."""
        if task.tried is None:
            task.tried = set()
        address = self.name_server(task.tried)
        if address is not None:
            task.tried.add(address)
        return address

    def _request_at(self, address: str, task: Task[Any], effect: Call | Oneway, now: int) -> None:
        link = self.links.get(address)
        if link is None:
            link = self.dial(address, now)
        task.link = link
        if link.connected:
            self._send(task, link, effect, now)
        else:
            link.waiting[task] = None
            self.timers.set(task, effect.deadline)

    def _send(self, task: Task[Any], link: DialledLink, effect: Call | Oneway, now: int) -> None:
        link.used = now
        try:
            if link.unsent > UNSENT_MAX and task.of_application:
                raise TooManyRequests(f"{link.address} has left {link.unsent} bytes unread")
            fields = {**effect.fields, **self.marks} if self.marks else effect.fields
            if type(effect) is Call:
                task.reads = link.reads
                deadline = effect.deadline
                if effect.address is None:
                    deadline = now + self.share_ms(task.tried or (), deadline - now)
                task.opaque = link.call(task, effect.code, fields, effect.body, deadline=deadline)
                return
            link.oneway(effect.code, fields, effect.body)
        except MQError as failure:  # too many calls, or fields that no frame can carry: the flow's own affair
            task.link = None
            self._ready.append((task, failure))
            return
        task.link = None
        self._ready.append((task, (None, now)))

    def _lost(self, task: Task[Any], link: DialledLink, reason: str, now: int) -> None:
        """The link of a task's call is over. A call to the name servers moves on to the next of them."""
        if task.flow is None:
            self._unfold(task)
        effect = task.effect
        assert isinstance(effect, Call | Oneway)
        task.link = None
        other = self._untried(task) if effect.address is None and now < effect.deadline else None
        if other is not None:
            self._request_at(other, task, effect, now)
        else:
            self._ready.append((task, (Lost(link.address, reason, link.connected), now)))

    # --- links

    def dial(self, address: str, now: int) -> DialledLink:
        """A new link to `address`, in place of any that was there."""
        link = DialledLink(self, self.calls, address, now)
        link.credentials = self.credentials
        link.peer_version = self.peer_version
        self.links[address] = link
        self.actions.append(Dial(link, self.dial_timeout_ms(address), self.tls))
        return link

    def drop(self, link: DialledLink, reason: str, now: int) -> None:
        """End a link from our side."""
        self.hang_up(link, reason)
        self._link_over(link, reason, now)

    def _link_over(self, link: DialledLink, reason: str, now: int) -> None:
        self._unlist(link)
        self._leaving.discard(link)
        tasks = link.end() + list(link.waiting)
        for task in link.waiting:
            self.timers.cancel(task)
        for task in tasks:
            self._lost(task, link, reason, now)

    def _unlist(self, link: DialledLink) -> None:
        """No call goes out on this link any more; the next one to its address dials."""
        if self.links.get(link.address) is link:
            del self.links[link.address]

    def all_links(self) -> list[DialledLink]:
        """Every link that is not over yet."""
        return [*self.links.values(), *self._leaving]

    # --- inputs of the driver

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        """A client has no listeners."""
        return None

    def opened(self, link: Link, now: int) -> None:
        assert isinstance(link, DialledLink)
        if link.ended:
            return
        link.connect()
        link.used = now
        self.linked(link, now)
        waiting = list(link.waiting)
        link.waiting.clear()
        for task in waiting:
            self.timers.cancel(task)
            effect = task.effect
            assert isinstance(effect, Call | Oneway)
            self._send(task, link, effect, now)
        self._drain(now)

    def received(self, link: Link, data: bytes, now: int) -> None:
        assert isinstance(link, DialledLink)
        link.used = now
        for frame in link.frames(data):
            if self.shortcut(link, frame, now):
                continue
            command = link.command(frame)
            if command is None:
                break
            if command.flag & RESPONSE_FLAG:
                task = link.answered(command)
                if task is not None:
                    self._answered(task, link, command, now)
            else:
                self.requested(link, command, now)
        if link.broken is not None and not link.ended:
            self.notices.append(f"link to {link.address} ended: {link.broken}")
            self.drop(link, str(link.broken), now)
        elif link.leaving and not link.calls and not link.ended:
            self.drop(link, "the peer asked us to go away", now)
        self._drain(now)

    def _answered(self, task: Task[Any], link: DialledLink, command: Command, now: int) -> None:
        if task.flow is None:
            self._unfold(task)
        task.link = None
        self.peer_version = link.peer_version = command.version
        if command.code == _GO_AWAY and not task.sent_away:
            # The peer is about to stop (5.3.2 and later): one new try by a new link (client.md 7.5). Calls that it has still taken stay.
            if not link.leaving:
                link.leaving = True
                self._leaving.add(link)
                self._unlist(link)
            task.sent_away = True
            if task.tried is not None:
                task.tried.discard(link.address)
            effect = task.effect
            assert isinstance(effect, Call)
            self._request(task, effect, now)
            return
        self._ready.append((task, (command, now)))

    def closed(self, link: Link, reason: str, now: int) -> None:
        assert isinstance(link, DialledLink)
        if not link.ended:
            self._link_over(link, reason, now)
            self._drain(now)

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        entry = self._jobs.pop(id(job), None)
        if entry is not None and not entry[1].ticket.settled:
            self._ready.append((entry[1], (failure, now)))
            self._drain(now)

    def timer(self, now: int) -> None:
        expired = self.calls.expire(now)
        for link, task in expired:
            if task.flow is None:
                self._unfold(task)
            task.link = None
            if link.reads == task.reads and not link.ended:
                assert isinstance(link, DialledLink)
                self.drop(link, "no answer in time", now)
        for link, task in expired:
            self._expired(task, link.address, now)
        for key in self.timers.due(now):
            if not isinstance(key, Task):
                self.tick(key, now)
            elif not key.ticket.settled:  # a tick may have ended it
                self._timed(key, now)
        self._drain(now)

    def _expired(self, task: Task[Any], address: str, now: int) -> None:
        """A call was not answered in time; one to the name servers, if it has any left, goes on to another of them."""
        effect = task.effect
        assert isinstance(effect, Call)
        if effect.address is None and now < effect.deadline:
            other = self._untried(task)
            if other is not None:
                self._request_at(other, task, effect, now)
                return
        self._ready.append((task, (Expired(address, now - task.since), now)))

    def _timed(self, task: Task[Any], now: int) -> None:
        """The time of a task's effect has come: the end of a sleep, or the limit of something else."""
        effect = task.effect
        outcome: Expired | CallExpired | None = None
        self._stop_waiting(task)
        if isinstance(effect, Refresh):
            outcome = CallExpired(_NAME_SERVER, now - task.since)
        elif isinstance(effect, Call | Oneway):
            link = task.link
            outcome = Expired(_NAME_SERVER if link is None else link.address, now - task.since)
            if link is not None:
                link.waiting.pop(task, None)
                task.link = None
        self._ready.append((task, (outcome, now)))

    def next_deadline(self) -> int | None:
        call = self.calls.earliest()
        other = self.timers.earliest()
        if call is None or (other is not None and other < call):
            return other
        return call
