"""Calls of flows, over links that their node dials.

Owns: the links by address, the calls on them, calls that wait for a link to be connected, the name servers that a call
without an address is moved over.
Leaves to others: flows and what else they wait for (`tasks`), the meaning of a peer's request, what is due besides
flows (`mqproto.state.client.node`).

Nothing is sent for a call whose deadline has passed: a call for a link that is still being dialled waits beside it, not
in its buffer. A call that expires while its peer says nothing at all ends the link, as Apache's clients do since 4.9.1
(docs/protocol/client.md 7): the next call dials anew. A peer that answers others meanwhile keeps its link, because
ending it would take the others down too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from mqproto.acl import Credentials
from mqproto.codec import RESPONSE_FLAG, Command
from mqproto.errors import MQError, TooManyRequests
from mqproto.state.flows.effects import Call, Expired, Lost, Oneway, ReadAnswer
from mqproto.state.flows.name_servers import NameServerList
from mqproto.state.flows.tasks import NAME_SERVER, Caller, DialledLink, FastCall, Task, TaskNode
from mqproto.state.node.connection import Calls
from mqproto.state.node.contract import Dial, Link, Ticket
from mqproto.wire.codes import GO_AWAY, VERSION
from mqproto.wire.hosts import HostError

#: Calls that the node makes on its own behalf beyond the limit of the application's operations.
OWN_CALLS: Final = 4_096
#: On a link whose peer has left this many bytes unread the application's operations are refused: nothing else bounds
#: one-way sends.
UNSENT_MAX: Final = 64 << 20


class FlowNode(TaskNode):
    """Node that makes calls. `limit` bounds the application's operations in flight; `credentials` sign requests."""

    __slots__ = (
        "_connect_timeout_ms",
        "_leaving",
        "_readers",
        "calls",
        "common_fields",
        "credentials",
        "links",
        "name_servers",
        "peer_version",
        "reroute",
        "tls",
    )

    def __init__(
        self,
        *,
        limit: int,
        name_servers: NameServerList,
        connect_timeout_ms: int,
        tls: bool,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(limit)
        #: Where calls without an address go.
        self.name_servers = name_servers
        self._connect_timeout_ms = connect_timeout_ms
        self.tls = tls
        self.credentials = credentials
        #: The release of whoever answered last: a guess for those that have not answered yet.
        self.peer_version = VERSION
        #: Fields that every request carries besides its own.
        self.common_fields: Mapping[str, str] = {}
        self.links: dict[str, DialledLink] = {}
        self.calls: Calls[Caller] = Calls(limit + OWN_CALLS)
        #: Where a call goes instead of the address that it names; None where all go to theirs. Raises HostError.
        self.reroute: Callable[[Call | Oneway], str] | None = None
        self._leaving: set[DialledLink] = set()
        #: What calls so far have brought along to read their usual answers.
        self._readers: list[ReadAnswer] = []

    # --- what a node of a kind decides

    @abstractmethod
    def search(self, now: int) -> Ticket[None] | None:
        """Find name servers where none are known; None where there is no way to.

        A call without an address waits for it, once.
        """

    @abstractmethod
    def requested(self, link: DialledLink, request: Command, now: int) -> None:
        """A peer sent a request."""

    def fast_answered(self, link: DialledLink, frame: bytes, now: int) -> bool:
        """Whether a frame was the usual answer to a call without a flow, which is over then."""
        return False

    @abstractmethod
    def linked(self, link: DialledLink, now: int) -> None:
        """A link was connected; the calls that waited for it follow."""

    # --- flows

    def may_call(self, link: DialledLink) -> bool:
        """Whether the application may make a call on a usable link at once: not where that is refused."""
        if link.unsent > UNSENT_MAX or self.refusal is not None:
            return False
        return self._open + self._fast_open < self.limit and self.calls.open < self.calls.limit

    def launch(self, call: FastCall[Any], head: bytes, body: bytes, deadline: int) -> None:
        """Make a call without a flow on its usable link, if `may_call`; `head` bears an opaque of `free_opaque`."""
        self._fast_open += 1
        link = call.link
        link.used = call.since
        link.calls[call.opaque] = call
        self.calls.add(link, call.opaque, deadline)
        link.out += (head, body)
        link.unsent += len(head) + len(body)
        self.touched.add(link)

    def application_tickets(self) -> list[Ticket[Any]]:
        """The application's operations that are not done yet."""
        return [*self._fast_calls(), *(ticket for ticket, task in self._tasks.items() if task.of_application)]

    def _fast_calls(self) -> list[FastCall[Any]]:
        """The calls without a flow that are under way."""
        return [caller for link in self.all_links() for caller in link.calls.values() if isinstance(caller, FastCall)]

    def finish(self, reason: str, now: int) -> None:
        """End everything now: what is under way fails with StateError, every link is hung up."""
        self.over = True
        for task in [*self._tasks.values(), *map(self.unfolded, self._fast_calls())]:
            if not task.ticket.settled:  # one that ended may have ended another
                self._give_up(task, reason, now)
        for link in self.all_links():
            self.drop(link, reason, now)

    # --- effects

    def request(self, task: Task[Any], effect: Call | Oneway, now: int) -> None:
        if now >= effect.deadline:
            self._ready.append(
                (task, (Expired(effect.address or self.any_name_server(), max(0, effect.deadline - task.since)), now))
            )
            return
        address = effect.address
        if address is None:
            address = self._untried(task)
            if address is None:
                search = None if task.searched or task.tried else self.search(now)
                if search is None or search.settled:
                    self._ready.append((task, (Lost(NAME_SERVER, "no address is set"), now)))
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
        address = self.name_servers.choose(self.links.__contains__, task.tried)
        if address is not None:
            task.tried.add(address)
        return address

    def _share_ms(self, tried: Collection[str], left_ms: int) -> int:
        """How much of the time that is left to a call the last of the name servers that it has tried may take.

        With several name servers one that says nothing must not use up the time of the others.
        """
        others = sum(address not in tried for address in self.name_servers.addresses)
        return max(1, left_ms // (1 + others))

    def any_name_server(self) -> str:
        return f"name server ({self.name_servers})"

    def replace_name_servers(self, addresses: Sequence[str], now: int) -> None:
        """Use another list. Links to servers that are not in it end, and what they were asked is asked of the new ones
        (NSV-01).
        """
        for address in self.name_servers.replace(addresses):
            link = self.links.get(address)
            if link is not None:
                for task in (*link.calls.values(), *link.waiting):
                    if isinstance(task, Task):
                        task.tried = None  # the new list is all before them
                self.drop(link, "no name server of ours any more", now)

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
            fields = {**effect.fields, **self.common_fields} if self.common_fields else effect.fields
            if type(effect) is Call:
                task.reads = link.reads
                read = effect.read_answer
                if read is not None and read not in self._readers:
                    self._readers.append(read)
                deadline = effect.deadline
                if effect.address is None:
                    deadline = now + self._share_ms(task.tried or (), deadline - now)
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
        replaced = self.links.get(address)
        if replaced is not None:
            replaced.usable = False
        self.links[address] = link
        self.actions.append(Dial(link, self._dial_timeout_ms(address), self.tls))
        return link

    def _dial_timeout_ms(self, address: str) -> int:
        """With several name servers a dead one must not use up the time of the request that finds it dead."""
        if address in self.name_servers.addresses:
            return max(1, self._connect_timeout_ms // len(self.name_servers.addresses))
        return self._connect_timeout_ms

    def unsent(self, address: str) -> int:
        """How many bytes the peer at an address has left unread."""
        link = self.links.get(address)
        return 0 if link is None else link.unsent

    def drop(self, link: DialledLink, reason: str, now: int) -> None:
        """End a link from our side."""
        self.hang_up(link, reason)
        self._link_over(link, reason, now)

    def _link_over(self, link: DialledLink, reason: str, now: int) -> None:
        self._unlist(link)
        self._leaving.discard(link)
        callers = [*link.end(), *link.waiting]
        for task in link.waiting:
            self.timers.cancel(task)
        for caller in callers:
            self._lost(self.unfolded(caller), link, reason, now)

    def _unlist(self, link: DialledLink) -> None:
        """No call goes out on this link any more; the next one to its address dials."""
        link.usable = False
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
        link.usable = self.links.get(link.address) is link
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
            if self._fast_open and self.fast_answered(link, frame, now):
                continue
            if self._readers and self._answered_by_reader(link, frame, now):
                continue
            command = link.command(frame)
            if command is None:
                break
            if command.flag & RESPONSE_FLAG:
                caller = link.answered(command)
                if caller is not None:
                    self._answered(self.unfolded(caller), link, command, now)
            else:
                self.requested(link, command, now)
        if link.broken is not None and not link.ended:
            self.notices.append(f"link to {link.address} ended: {link.broken}")
            self.drop(link, str(link.broken), now)
        elif link.leaving and not link.calls and not link.ended:
            self.drop(link, "the peer asked us to go away", now)
        self._drain(now)

    def _answered_by_reader(self, link: DialledLink, frame: bytes, now: int) -> bool:
        """Whether a frame was the usual answer to a call that reads it by itself, whose flow goes on then."""
        for read in self._readers:
            found = read(frame)
            if found is None:
                continue
            task = link.calls.get(found.opaque)
            if type(task) is not Task:
                return False
            effect = task.effect
            if type(effect) is not Call or effect.read_answer is not read:
                return False
            link.take(found.opaque)
            task.link = None
            self.peer_version = link.peer_version = found.version
            self._ready.append((task, (found, now)))
            return True
        return False

    def _answered(self, task: Task[Any], link: DialledLink, command: Command, now: int) -> None:
        task.link = None
        self.peer_version = link.peer_version = command.version
        if command.code == GO_AWAY and not task.sent_away:
            # The peer is about to stop (5.3.2 and later): one new try by a new link (docs/protocol/client.md 7.5).
            # Calls that it has still taken stay.
            if not link.leaving:
                link.leaving = True
                self._leaving.add(link)
                self._unlist(link)
            task.sent_away = True
            if task.tried is not None:
                task.tried.discard(link.address)
            effect = task.effect
            assert isinstance(effect, Call)
            self.request(task, effect, now)
            return
        self._ready.append((task, (command, now)))

    def closed(self, link: Link, reason: str, now: int) -> None:
        assert isinstance(link, DialledLink)
        if not link.ended:
            self._link_over(link, reason, now)
            self._drain(now)

    def timer(self, now: int) -> None:
        expired = [(link, self.unfolded(caller)) for link, caller in self.calls.expire(now)]
        for link, task in expired:
            task.link = None
            if link.reads == task.reads and not link.ended:
                assert isinstance(link, DialledLink)
                self.drop(link, "no answer in time", now)
        for link, task in expired:
            self._expired(task, link.address, now)
        if self._soon:
            self._ready += [(task, (None, now)) for task in self._soon]
            self._soon = []
        for key in self.timers.due(now):
            if not isinstance(key, Task):
                self.tick(key, now)
            elif not key.ticket.settled:  # a tick may have ended it
                self.timed(key, now)
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

    def next_deadline(self) -> int | None:
        if self._soon:
            return self._soon_at
        call = self.calls.earliest()
        other = self.timers.earliest()
        if call is None or (other is not None and other < call):
            return other
        return call
