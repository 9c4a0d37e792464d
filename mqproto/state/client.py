"""The client node: everything that one client id shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from mqproto.bodies import ConsumerData
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.flows import Flow
from mqproto.state.node import Job, Link, NodeBase, Ticket
from mqproto.state.settings import ClientIdentity, ClientSettings

R = TypeVar("R")


class ConsumerPort(Protocol):
    """What the node asks of the consumer of one group. Everything is called inside the node; nothing may block or raise."""

    @property
    def group(self) -> str: ...

    def heartbeat_data(self) -> ConsumerData:
        """What the group's part of a heartbeat says (client.md 1.7)."""

    def topics(self) -> Iterable[str]:
        """The topics whose routes the node keeps fresh for this consumer."""

    def queues_changed(self, topic: str, queues: tuple[MessageQueue, ...], now: int) -> None:
        """The readable queues of a topic are now these, in queue order. Called for every topic; others than its own are ignored."""

    def consumer_ids_changed(self, now: int) -> None:
        """Members came or went (request 40): rebalance soon."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int], now: int) -> None:
        """An operator moved the group (request 220, client.md 6)."""

    def offsets(self) -> Mapping[MessageQueue, int]:
        """The offsets in memory, of all topics (request 221)."""

    def running_info(self, now: int) -> bytes:
        """The JSON body that answers request 307."""

    def consume_directly(self, message: MessageExt, broker_name: str, answer: Callable[[bytes, int], None], now: int) -> None:
        """Consume one message for an operator (request 309); `answer` takes the JSON body and the time, at once or later."""

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """The application is done with a task that went out by a `Deliver` action."""

    def stop(self, now: int) -> Flow[None]:
        """What goes before the group is unregistered when the node closes: end consumption, persist offsets."""


class ClientNode(NodeBase):
    """See the module."""

    def __init__(self, settings: ClientSettings, identity: ClientIdentity) -> None:
        super().__init__()
        self.settings = settings
        self.identity = identity
        self.client_id = ""

    # --- for the application ---

    def start(self, flow: Flow[R], now: int) -> Ticket[R]:
        """Run a flow of the application. Settled by `Finished`, at once if it fails at once; never raises."""
        raise NotImplementedError

    def cancel(self, ticket: Ticket[Any], now: int) -> None:
        """Give an operation up: its ticket fails with StateError unless it is settled already; a late answer is dropped."""

    def consumed(self, task: Any, result: Any, now: int) -> None:
        """The application is done with a task of a `Deliver` action; `task.group` names the consumer."""

    # --- for producers and consumers of this node ---

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]:
        """Run a flow of the node's own (a loop of a consumer, say): no `Finished`, no limit, cancelled when the node ends."""
        raise NotImplementedError

    def wake(self, ticket: Ticket[Any], now: int) -> None:
        """Settle a ticket that no flow stands behind, with None, and resume the flows that `Wait` for it."""

    def heartbeat(self, now: int) -> Ticket[None]:
        """Send heartbeats to the brokers now; settled when all of them have answered or failed."""
        raise NotImplementedError

    def add_consumer(self, consumer: ConsumerPort) -> None:
        """Register the consumer of a group. Raises StateError when the node has one of this group, or is over."""

    def remove_consumer(self, consumer: ConsumerPort, now: int) -> Flow[None]:
        """Take the consumer out and unregister its group at the brokers (client.md 1.2)."""
        raise NotImplementedError

    # --- Node ---

    @property
    def ended(self) -> bool:
        return False

    def begin(self, now: int) -> None: ...

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        return None

    def opened(self, link: Link, now: int) -> None: ...

    def received(self, link: Link, data: bytes, now: int) -> None: ...

    def closed(self, link: Link, reason: str, now: int) -> None: ...

    def timer(self, now: int) -> None: ...

    def done(self, job: Job, failure: Exception | None, now: int) -> None: ...

    def next_deadline(self) -> int | None:
        return None

    def close(self, now: int) -> None: ...
