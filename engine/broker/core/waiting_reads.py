"""Reads that wait for the disk: requests that are parked while a job reads, and answered when it ends
(docs/protocol/store.md 13.6).

Owns: which reads wait, how many run, how much their answers may hold.
Leaves to others: what is in memory, the jobs (`mqproto.engine.store`), what an answer says (the handlers).

Bounds: few jobs at a time, so that flushes find a free worker; of one link one; and none for a link whose peer leaves
answers untaken, or while all such links together hold a lot, for what a job has read lies in memory until it is sent.
Links take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from mqproto.codec import Command
from mqproto.engine.broker.core.admission import too_old
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Peer, Receiver, Refused
from mqproto.engine.broker.statistics.store_stats import StoreStats
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import ColdRead, Queue, Read, Reader, Store
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT, Job, Link
from mqproto.wire.codes import ResponseCode

T = TypeVar("T")

#: Drivers run four jobs at a time; the store's own need two (a flush, and a file that is made ahead).
AT_A_TIME: Final = 2
#: Reads of one link that may wait. One more, as one more of all, is refused: the broker is busy.
OF_A_LINK_MAX: Final = 1000
#: Bytes that may be unsent to a link, and to all links that were given something from the disk, when the next read
#: begins.
LINK_UNSENT_MAX: Final = SERVER_UNSENT_LIMIT // 4
UNSENT_MAX: Final = 16 * SERVER_UNSENT_LIMIT
#: Queues that one job reads where many have to be read.
QUEUES_OF_A_READ: Final = 256
#: Pause before it is looked again whether peers took their answers.
_PAUSE_MS: Final = 50
#: Shortest pause between two looks for reads that have waited for too long.
_LOOK_MS: Final = 100
_FOREVER: Final = 1 << 62


class WaitingRead:
    """Read that waits: its job, what to do with the outcome, and what to do when there is none."""

    __slots__ = ("job", "link", "needed", "refuse", "since", "then", "until")

    def __init__(
        self,
        link: Receiver,
        job: ColdRead[Any],
        then: Callable[[Any], None],
        refuse: Callable[[Refused], None],
        needed: bool,
        since: int,
        until: int,
    ) -> None:
        self.link = link
        self.job = job
        self.then = then
        self.refuse = refuse
        #: Something is done with the outcome also when the link is over.
        self.needed = needed
        #: When it was asked for, and until when it may wait.
        self.since = since
        self.until = until


class WaitingReads:
    """Reads of the broker that wait."""

    def __init__(
        self,
        timers: Timers,
        notices: Notices,
        settings: BrokerSettings,
        store: Store,
        stats: StoreStats,
        run_jobs: Callable[[Iterable[Job]], None],
    ) -> None:
        self._timers = timers
        self._notices = notices
        self._settings = settings
        self._store = store
        self._stats = stats
        self._run_jobs = run_jobs
        #: Stands for the broker where it reads for itself.
        self.own: Receiver = Link("the broker itself")
        #: What each link waits for, in order. A link whose read runs is not in `_turns`.
        self._waiting: dict[Receiver, deque[WaitingRead]] = {}
        self._count = 0
        #: Links whose next read may begin, in turn; and those that have to take their answers first.
        self._turns: deque[Receiver] = deque()
        self._slow: list[Receiver] = []
        self._running: dict[Job, WaitingRead] = {}
        #: Links that may hold answers from the disk.
        self._holders: set[Receiver] = set()
        self._stopped = False

    def __len__(self) -> int:
        return self._count + len(self._running)

    @property
    def busy(self) -> bool:
        """Whether a job runs, or has to."""
        return bool(self._running) or self._count > 0

    @property
    def head_wait_ms(self) -> int:
        """How long the read that began first has run."""
        return max([self._timers.now - waiting.since for waiting in self._running.values()], default=0)

    # --- asking ---

    def answer(
        self, link: Peer, request: Command, read: Read[T], then: Callable[[T], None], needed: bool = False
    ) -> None:
        """Call `then` with what is read, now or later. It may raise Refused, as may this. See `wait`."""
        if not isinstance(read, ColdRead):
            then(read)
            return
        request.body = b""  # nobody reads it again, and it may be long
        self.wait(link, read, then, lambda refused: link.reply(request, refused.code, remark=refused.remark), needed)

    def across(
        self,
        link: Peer,
        request: Command,
        queues: Sequence[Queue],
        read: Callable[[Reader, Sequence[Queue]], list[T]],
        then: Callable[[list[T]], None],
    ) -> None:
        """Call `then` with what `read` finds of each of many queues, in their order, now or later.

        Errors are those of `answer`.
        """
        found: list[T] = []

        def go_on(part: list[T]) -> None:
            found.extend(part)
            while len(found) < len(queues):
                rest = queues[len(found) : len(found) + QUEUES_OF_A_READ]
                more = self._store.reads.across(rest, read)
                if isinstance(more, ColdRead):
                    self.answer(link, request, more, go_on)
                    return
                found.extend(more)
            then(found)

        go_on([])

    def wait(
        self,
        link: Receiver,
        job: ColdRead[T],
        then: Callable[[T], None],
        refuse: Callable[[Refused], None],
        needed: bool = False,
        patience_ms: int | None = None,
    ) -> None:
        """Have a job run, then call `then` with its result, or `refuse` if it failed, `then` raised Refused, or it did
        not begin in time.

        Neither is called once the link is over, unless the result is `needed` for more than an answer. Raises Refused
        when too many wait.
        """
        queue = self._waiting.get(link)
        limit = self._settings.query_thread_pool_queue_capacity
        if self._stopped or self._count >= limit or (queue is not None and len(queue) >= OF_A_LINK_MAX):
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        self._count += 1
        now = self._timers.now
        waiting = WaitingRead(
            link, job, then, refuse, needed, now, _FOREVER if patience_ms is None else now + patience_ms
        )
        if patience_ms is not None:
            self._timers.after(patience_ms + 1, self.lose_patience)
        if queue is not None:
            queue.append(waiting)
            return
        self._waiting[link] = deque((waiting,))
        self._turns.append(link)
        self._begin()

    # --- the course of things ---

    def _begin(self) -> None:
        """Begin what may begin."""
        turns = self._turns
        while turns and len(self._running) < AT_A_TIME:
            if self._holds_much() and not self._stopped:
                self._timers.after(_PAUSE_MS, self.look_again)
                return
            link = turns.popleft()
            if link.unsent > LINK_UNSENT_MAX and not link.ended and not self._stopped:
                self._slow.append(link)
                self._timers.after(_PAUSE_MS, self.look_again)
                continue
            waiting = self._waiting[link].popleft()
            self._count -= 1
            self._running[waiting.job] = waiting
            self._run_jobs((waiting.job,))

    def _holds_much(self) -> bool:
        self._holders = {link for link in self._holders if link.unsent and not link.ended}
        return sum([link.unsent for link in self._holders]) > UNSENT_MAX

    def look_again(self) -> None:
        """Alarm: peers may have taken their answers."""
        self._turns.extend(self._slow)
        self._slow.clear()
        self._begin()

    def done(self, job: Job, failure: Exception | None) -> bool:
        """A job ended; False if it is none of ours."""
        waiting = self._running.pop(job, None)
        if waiting is None:
            return False
        self._stats.read_waited(waiting.since)
        link = waiting.link
        if self._waiting[link]:
            self._turns.append(link)
        else:
            del self._waiting[link]
        if failure is not None:
            self._notices.notice(f"{link.address}: a read failed: {failure}")
        if waiting.needed or not link.ended:
            self._tell(waiting, failure)
            self._holders.add(link)
        self._begin()
        return True

    def _tell(self, waiting: WaitingRead, failure: Exception | None) -> None:
        if failure is not None:
            waiting.refuse(Refused(ResponseCode.SYSTEM_ERROR, f"the message store could not be read: {failure}"))
            return
        try:
            waiting.then(waiting.job.result)
        except Refused as refused:
            waiting.refuse(refused)

    def link_over(self, link: Receiver) -> None:
        """The link is over: forget what only it would have got."""
        queue = self._waiting.get(link)
        if queue is None:
            return
        kept = deque(waiting for waiting in queue if waiting.needed)
        self._count -= len(queue) - len(kept)
        self._keep(link, kept)

    def _keep(self, link: Receiver, kept: deque[WaitingRead]) -> None:
        """These are what a link still waits for."""
        self._waiting[link] = kept
        if not kept and all(waiting.link is not link for waiting in self._running.values()):
            del self._waiting[link]
            for links in (self._turns, self._slow):
                if link in links:
                    links.remove(link)

    def lose_patience(self) -> None:
        """Alarm: refuse what has waited for too long (docs/protocol/broker.md 3.5), and look again for the next."""
        now = self._timers.now
        size = self._count
        until = _FOREVER
        for link, queue in list(self._waiting.items()):
            late = [waiting for waiting in queue if waiting.until < now]
            if late:
                self._count -= len(late)
                self._keep(link, deque(waiting for waiting in queue if waiting.until >= now))
                for waiting in late:
                    waiting.refuse(too_old(now - waiting.since, size))
            until = min([until, *(waiting.until for waiting in queue if waiting.until >= now)])
        if until != _FOREVER:
            self._timers.after(max(until + 1 - now, _LOOK_MS), self.lose_patience)

    def stop(self) -> None:
        """The broker ends: begin nothing any more but what is needed for more than an answer."""
        self._stopped = True
        for link in list(self._waiting):
            self.link_over(link)
        self.look_again()
