"""Page of numbers for a collector of metrics, which any node can show beside its own work.

Owns: the HTTP of that page, one listener of its own, when numbers are collected and who waits for them.
Leaves to others: which numbers there are (`mqproto.engine.broker.operators.metrics`,
`mqproto.engine.namesrv.metrics`), their text (`Render`: drivers bring it).

Numbers are collected in slices between other inputs and made into text by a job, so that a look at ten thousand topics
holds nobody up. Every driver serves the page, because to it there is only one more listener. A node without a page is
not touched by any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mqproto.engine.slices import Steps
from mqproto.state.node.contract import Action, Buffer, HangUp, Job, Link, Node, Run
from mqproto.state.node.deadlines import Deadlines

#: The listener.
METRICS: Final = "metrics"
PATH: Final = "/metrics"
#: Links to the page, bytes of a request, and how long it may take to come.
LINKS_MAX: Final = 64
REQUEST_MAX: Final = 8192
REQUEST_MS: Final = 10_000


@dataclass(slots=True)
class MetricFamily:
    """Metric: its name, what it says, names of its labels, and samples with the values of these."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    samples: list[tuple[tuple[str, ...], float]] = field(default_factory=list)

    def add(self, value: float, *labels: str) -> None:
        self.samples.append((labels, value))


@dataclass(slots=True)
class Collected:
    """Numbers of a node. `later` is done by the job: it may block."""

    families: list[MetricFamily]
    later: list[Callable[[], None]] = field(default_factory=list)


Render: TypeAlias = Callable[[Sequence[MetricFamily]], tuple[str, bytes]]
"""Makes the page: its content type, and its text."""


class RenderPage:
    """Job that makes the text of a page."""

    __slots__ = ("collected", "page", "render")

    def __init__(self, collected: Collected, render: Render) -> None:
        self.collected = collected
        self.render = render
        self.page = ("", b"")

    def run(self) -> None:
        for work in self.collected.later:
            work()
        self.page = self.render(self.collected.families)


class _PageLink(Link):
    """Link that came in by the page's listener."""

    __slots__ = ("request",)

    def __init__(self, address: str) -> None:
        super().__init__(address, METRICS)
        self.request = b""


class WithMetrics:
    """Node with its page, which drivers see as one node. `collect` gives the numbers in slices.

    GET of `/metrics` is answered with the page, all else with an error, and each link is closed after its answer.
    """

    def __init__(self, node: Node, collect: Callable[[], Steps[Collected]], render: Render) -> None:
        self.node = node
        self._collect = collect
        self._render = render
        self._links: Deadlines[_PageLink] = Deadlines()
        #: Who waits for the page that is made, and who came later and gets the next one.
        self._served: list[_PageLink] = []
        self._waiting: list[_PageLink] = []
        self._steps: Steps[Collected] | None = None
        self._job: RenderPage | None = None
        self._now = 0

    # --- what is the node's ---

    @property
    def wall_ahead(self) -> int:
        return self.node.wall_ahead

    @wall_ahead.setter
    def wall_ahead(self, ms: int) -> None:
        self.node.wall_ahead = ms

    @property
    def behind(self) -> int:
        return self.node.behind

    @behind.setter
    def behind(self, ms: int) -> None:
        self.node.behind = ms

    @property
    def touched(self) -> set[Link]:
        return self.node.touched

    @touched.setter
    def touched(self, links: set[Link]) -> None:
        self.node.touched = links

    @property
    def actions(self) -> list[Action]:
        return self.node.actions

    @actions.setter
    def actions(self, actions: list[Action]) -> None:
        self.node.actions = actions

    @property
    def ended(self) -> bool:
        return self.node.ended

    def begin(self, now: int) -> None:
        self.node.begin(now)

    def opened(self, link: Link, now: int) -> None:
        self.node.opened(link, now)

    def data_to_send(self, link: Link) -> list[Buffer]:
        if not isinstance(link, _PageLink):
            return self.node.data_to_send(link)
        out = link.out
        link.out = []
        return out

    # --- what both have a part in ---

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        if listener != METRICS:
            return self.node.accept(listener, address, local_address, now)
        if len(self._links) >= LINKS_MAX or self.node.ended:
            return None
        link = _PageLink(address)
        self._links.set(link, now + REQUEST_MS)
        return link

    def received(self, link: Link, data: bytes, now: int) -> None:
        if isinstance(link, _PageLink):
            self._now = now
            self._read(link, data)
        else:
            self.node.received(link, data, now)

    def closed(self, link: Link, reason: str, now: int) -> None:
        if isinstance(link, _PageLink):
            self._forget(link)
        else:
            self.node.closed(link, reason, now)

    def timer(self, now: int) -> None:
        self._now = now
        self.node.timer(now)
        for link in self._links.due(now):
            if link not in self._served and link not in self._waiting:
                self._end(link, "no request came")
        if self._steps is not None:
            self._step()

    def next_deadline(self) -> int | None:
        times = [when for when in (self.node.next_deadline(), self._links.earliest()) if when is not None]
        if self._steps is not None:
            times.append(self._now)
        return min(times, default=None)

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        made = self._job
        if made is None or job is not made:
            self.node.done(job, failure, now)
            return
        self._job = None
        self._now = now
        for link in self._served:
            if failure is not None:
                self._answer(
                    link, "500 Internal Server Error", "text/plain", f"the page could not be made: {failure}\n".encode()
                )
            else:
                self._answer(link, "200 OK", *made.page)
        self._served = []
        self._begin()

    def close(self, now: int) -> None:
        for link in [*self._served, *self._waiting, *self._links.due(1 << 62)]:
            self._end(link, "the server ends")
        self._steps = None
        self.node.close(now)

    # --- the page ---

    def _read(self, link: _PageLink, data: bytes) -> None:
        """More of a request."""
        if link.ended or link in self._served or link in self._waiting:
            return
        link.request += data
        head, end, _ = link.request.partition(b"\r\n\r\n")
        if len(head) > REQUEST_MAX:
            self._answer(link, "431 Request Header Fields Too Large", "text/plain", b"")
        elif end:
            self._asked(link, head.partition(b"\r\n")[0].decode("latin-1"))

    def _asked(self, link: _PageLink, line: str) -> None:
        method, _, rest = line.partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            self._answer(link, "400 Bad Request", "text/plain", b"")
        elif method != "GET":
            self._answer(link, "405 Method Not Allowed", "text/plain", b"")
        elif target.partition("?")[0] != PATH:
            self._answer(link, "404 Not Found", "text/plain", f"the page is {PATH}\n".encode())
        else:
            self._waiting.append(link)
            self._begin()

    def _begin(self) -> None:
        """Collect for all who wait, unless that is done for others just now."""
        if self._waiting and self._steps is None and self._job is None:
            self._served, self._waiting = self._waiting, []
            self._steps = self._collect()
            self._step()

    def _step(self) -> None:
        """One slice, for which the node is told the time: nothing else may have happened for long."""
        assert self._steps is not None
        self.node.timer(self._now)
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps = None
            self._job = RenderPage(end.value, self._render)
            self.node.actions.append(Run(self._job))

    def _answer(self, link: _PageLink, status: str, content_type: str, text: bytes) -> None:
        """Answer and close."""
        if link.ended:
            return
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        data = head.encode() + text
        link.out.append(data)
        link.unsent += len(data)
        self.node.touched.add(link)
        self._end(link, "answered")

    def _end(self, link: _PageLink, reason: str) -> None:
        if not link.ended:
            self.node.actions.append(HangUp(link, reason))
            self._forget(link)

    def _forget(self, link: _PageLink) -> None:
        link.ended = True
        self._links.cancel(link)
        if link in self._waiting:
            self._waiting.remove(link)
