"""The page of metrics beside a node: its HTTP, its slices, who waits for what (mqproto.engine.metrics)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqproto.engine.metrics import (
    LINKS_MAX,
    METRICS,
    REQUEST_MAX,
    REQUEST_MS,
    Collected,
    MetricFamily,
    RenderPage,
    WithMetrics,
)
from mqproto.engine.slices import Steps
from mqproto.state.node.contract import HangUp, Job, Link, NodeBase, Run

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"


class Inner(NodeBase):
    """A node that writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []
        self.ended = False
        self.due: int | None = None

    def begin(self, now: int) -> None:
        self.told.append(("begin", now))

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        self.told.append(("accept", listener))
        return Link(address, listener)

    def opened(self, link: Link, now: int) -> None:
        self.told.append(("opened", link))

    def received(self, link: Link, data: bytes, now: int) -> None:
        self.told.append(("received", data))

    def closed(self, link: Link, reason: str, now: int) -> None:
        self.told.append(("closed", reason))

    def timer(self, now: int) -> None:
        self.told.append(("timer", now))

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        self.told.append(("done", job))

    def next_deadline(self) -> int | None:
        return self.due

    def close(self, now: int) -> None:
        self.told.append(("close", now))


class Page:
    """A node with a page that takes `slices` of collecting."""

    def __init__(self, slices: int = 0) -> None:
        self.slices = slices
        self.collections = 0
        self.inner = Inner()
        self.node = WithMetrics(self.inner, self.collect, self.render)

    def collect(self) -> Steps[Collected]:
        self.collections += 1
        for _ in range(self.slices):
            yield
        family = MetricFamily("m", "about", ("label",))
        family.add(self.collections, "a")
        return Collected([family], [lambda: family.add(0.5, "later")])

    def render(self, families: Sequence[MetricFamily]) -> tuple[str, bytes]:
        return "text/x", repr([(one.name, one.samples) for one in families]).encode()

    def connect(self) -> Link:
        link = self.node.accept(METRICS, "192.0.2.3:1", "192.0.2.2:2", 0)
        assert link is not None
        return link

    def ask(self, data: bytes = GET) -> Link:
        link = self.connect()
        self.node.received(link, data, 0)
        return link

    def jobs(self) -> list[RenderPage]:
        found = [
            action.job for action in self.node.actions if isinstance(action, Run) and isinstance(action.job, RenderPage)
        ]
        self.node.actions = [action for action in self.node.actions if not isinstance(action, Run)]
        return found

    def finish(self) -> None:
        while (due := self.node.next_deadline()) == 0:
            self.node.timer(due)
        for job in self.jobs():
            job.run()
            self.node.done(job, None, 0)

    def text(self, link: Link) -> bytes:
        return b"".join(bytes(one) for one in self.node.data_to_send(link))


def answer(text: str, status: str = "200 OK", kind: str = "text/x") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return (head + text).encode()


def numbers(count: int) -> str:
    return f"[('m', [(('a',), {count}), (('later',), 0.5)])]"


class TestPage:
    @pytest.mark.parametrize("cut", [1, 3, 20, len(GET) - 1, len(GET)])
    def test_a_look_at_the_page(self, cut: int) -> None:
        """However the request is cut; the link is closed after its answer."""
        page = Page()
        link = page.connect()
        for at in range(0, len(GET), cut):
            page.node.received(link, GET[at : at + cut], 0)
        page.finish()
        assert link in page.node.touched
        assert page.text(link) == answer(numbers(1))
        assert page.node.actions == [HangUp(link, "answered")]
        page.node.received(link, GET, 0)
        assert page.collections == 1
        assert set(page.inner.told) == {("timer", 0)}, "the node is told the time before it is asked"

    def test_numbers_are_collected_in_slices(self) -> None:
        page = Page(slices=3)
        page.inner.due = 77
        link = page.ask()
        turns = 0
        while page.node.next_deadline() == 0:
            page.node.timer(0)
            turns += 1
        assert turns == 3
        assert page.node.next_deadline() == 77
        assert page.text(link) == b""
        page.finish()
        assert page.text(link) == answer(numbers(1))

    def test_who_comes_meanwhile_gets_the_next_page(self) -> None:
        page = Page()
        first, second, third = page.ask(), page.ask(), page.ask()
        page.finish()
        assert [page.text(link) for link in (first, second, third)] == [answer(numbers(1)), b"", b""]
        page.finish()
        assert [page.text(link) for link in (second, third)] == [answer(numbers(2))] * 2
        assert page.jobs() == []

    @pytest.mark.parametrize(
        ("request_text", "status"),
        [
            (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            (b"GET /metrics2 HTTP/1.1\r\n\r\n", "404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (b"\x00\x00\x00\x10\xff\r\n\r\n", "400 Bad Request"),
            (b"GET /metrics\r\n\r\n", "400 Bad Request"),
            (b"\r\n\r\n", "400 Bad Request"),
            (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_MAX, "431 Request Header Fields Too Large"),
        ],
    )
    def test_other_requests(self, request_text: bytes, status: str) -> None:
        page = Page()
        link = page.ask(request_text)
        text = "the page is /metrics\n" if status.startswith("404") else ""
        assert page.text(link) == answer(text, status, "text/plain")
        assert page.node.actions == [HangUp(link, "answered")]
        assert page.collections == 0

    def test_with_a_query_and_another_version_of_http(self) -> None:
        page = Page()
        link = page.ask(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")
        page.finish()
        assert page.text(link).startswith(b"HTTP/1.1 200 OK\r\n")

    def test_a_page_that_cannot_be_made(self) -> None:
        page = Page()
        link = page.ask()
        (job,) = page.jobs()
        page.node.done(job, ValueError("bad"), 0)
        assert page.text(link) == answer("the page could not be made: bad\n", "500 Internal Server Error", "text/plain")


class TestBounds:
    def test_a_request_that_does_not_come(self) -> None:
        page = Page()
        link = page.ask(GET[:10])
        assert page.node.next_deadline() == REQUEST_MS
        page.node.timer(REQUEST_MS - 1)
        assert page.node.actions == []
        page.node.timer(REQUEST_MS)
        assert page.node.actions == [HangUp(link, "no request came")]
        assert page.node.next_deadline() is None

    def test_so_many_links(self) -> None:
        page = Page()
        links = [page.connect() for _ in range(LINKS_MAX)]
        assert page.node.accept(METRICS, "192.0.2.3:1", "192.0.2.2:2", 0) is None
        page.node.closed(links[0], "closed by peer", 0)
        assert page.node.accept(METRICS, "192.0.2.3:1", "192.0.2.2:2", 0) is not None

    def test_one_that_leaves_while_its_page_is_made(self) -> None:
        page = Page(slices=1)
        gone, waits = page.ask(), page.ask()
        page.node.closed(gone, "closed by peer", 0)
        page.finish()
        page.finish()
        assert page.text(gone) == b""
        assert page.text(waits) == answer(numbers(2))

    def test_one_that_leaves_before_its_page_is_begun(self) -> None:
        page = Page()
        first, second = page.ask(), page.ask()
        page.node.closed(second, "closed by peer", 0)
        page.finish()
        assert page.text(first) == answer(numbers(1))
        page.finish()
        assert page.collections == 1

    def test_the_end(self) -> None:
        page = Page(slices=5)
        links = [page.ask(), page.ask(), page.connect()]
        page.node.close(9)
        assert {action.link for action in page.node.actions if isinstance(action, HangUp)} == set(links)
        assert page.inner.told[-1] == ("close", 9)
        assert page.node.next_deadline() is None
        page.inner.ended = True
        assert page.node.ended
        assert page.node.accept(METRICS, "192.0.2.3:1", "192.0.2.2:2", 0) is None


def test_everything_else_is_the_nodes() -> None:
    page = Page()
    node = page.node
    node.begin(1)
    link = node.accept("main", "192.0.2.3:1", "192.0.2.2:2", 2)
    assert link is not None
    node.opened(link, 3)
    node.received(link, b"x", 4)
    page.inner.write(link, b"answer")
    assert node.touched == {link}
    assert node.data_to_send(link) == [b"answer"]
    node.timer(5)
    job = RenderPage(Collected([]), page.render)
    node.done(job, None, 6)
    node.closed(link, "over", 7)
    node.wall_ahead, node.behind = 100, 5
    assert (page.inner.wall_ahead, page.inner.behind) == (100, 5)
    assert (node.wall_ahead, node.behind) == (100, 5)
    node.touched = set()
    assert page.inner.touched == set()
    expected = ["begin", "accept", "opened", "received", "timer", "done", "closed"]
    assert [one[0] for one in page.inner.told] == expected
