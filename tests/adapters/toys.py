"""Small nodes that show one thing each of what drivers do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from mqproto.state.node.contract import Deliver, Dial, Job, Link, NodeBase, Run, Ticket


class Echo(NodeBase):
    """Sends back what comes; counts what happened in a way that tests can wait for."""

    def __init__(self, unsent_limit: int | None = None) -> None:
        super().__init__()
        self.unsent_limit = unsent_limit
        self.changed = threading.Condition()
        self.log: list[str] = []
        self.links: set[Link] = set()
        self.received_bytes = 0
        self.most_unsent = 0
        self.deadline: int | None = None
        self.closing = False
        self.refusing = False
        self.times: list[int] = []

    def note(self, what: str) -> None:
        with self.changed:
            self.log.append(what)
            self.changed.notify_all()

    @property
    def ended(self) -> bool:
        return self.closing and not self.links

    def begin(self, now: int) -> None:
        self.note("begin")

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        if self.refusing or self.closing:
            return None
        self.times.append(now)
        link = Link(address, listener, self.unsent_limit)
        self.links.add(link)
        self.note(f"accept {listener}")
        return link

    def opened(self, link: Link, now: int) -> None:
        self.note("opened")

    def received(self, link: Link, data: bytes, now: int) -> None:
        self.received_bytes += len(data)
        if data == b"bye":
            self.write(link, b"see you")
            self.forget(link, "bye")
        elif data == b"fault":
            raise RuntimeError("a fault of the node")
        else:
            self.write(link, data)
        self.most_unsent = max(self.most_unsent, link.unsent)

    def forget(self, link: Link, reason: str) -> None:
        self.links.discard(link)
        self.hang_up(link, reason)

    def closed(self, link: Link, reason: str, now: int) -> None:
        link.ended = True
        self.links.discard(link)
        self.note(f"closed {reason}")

    def timer(self, now: int) -> None:
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self.note("timer")

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        self.note(f"done {failure}")

    def next_deadline(self) -> int | None:
        return self.deadline

    def close(self, now: int) -> None:
        self.closing = True
        for link in list(self.links):
            self.forget(link, "closing")

    # What tests ask for.

    def note_time(self, now: int) -> None:
        self.times.append(now)

    def set_deadline(self, delay: int, now: int) -> None:
        self.deadline = now + delay

    def write_all(self, data: bytes, now: int) -> None:
        for link in self.links:
            self.write(link, data)

    def run(self, work: Callable[[], None], now: int) -> None:
        self.actions.append(Run(Work(work)))

    def deliver(self, task: object, now: int) -> None:
        self.actions.append(Deliver(task))


class Work:
    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


class Caller(Echo):
    """Dials, and settles a ticket for each message that comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets: list[Ticket[bytes]] = []
        self.cancelled: list[Ticket[Any]] = []
        self.arrived = bytearray()

    def dial(self, address: str, timeout: int, now: int) -> Link:
        link = Link(address)
        self.links.add(link)
        self.actions.append(Dial(link, timeout))
        return link

    def ask(self, link: Link, data: bytes, now: int) -> Ticket[bytes]:
        self.times.append(now)
        ticket: Ticket[bytes] = Ticket()
        self.tickets.append(ticket)
        self.write(link, data)
        return ticket

    def answer_at_once(self, failure: Exception, now: int) -> Ticket[bytes]:
        ticket: Ticket[bytes] = Ticket()
        ticket.fail(failure)
        self.actions.append(ticket)
        return ticket

    def cancel(self, ticket: Ticket[Any], now: int) -> None:
        self.cancelled.append(ticket)
        self.tickets.remove(ticket)
        self.note("cancelled")

    def received(self, link: Link, data: bytes, now: int) -> None:
        self.times.append(now)
        self.arrived += data
        while self.tickets and len(self.arrived) >= 8:
            ticket = self.tickets.pop(0)
            ticket.settle(bytes(self.arrived[:8]))
            del self.arrived[:8]
            self.actions.append(ticket)


def record(queue: SimpleQueue[Any]) -> Callable[[object], None]:
    """A `deliver` that puts what it gets where a test waits for it."""
    return queue.put
