"""Admission control: what an overloaded broker refuses, before anything is done for a request (docs/protocol/broker.md
0.3, 3.5; docs/protection.md).

Owns: how old a request may be, whether the disk of the log keeps up, how much answers all peers together leave untaken.
Leaves to others: limits of what waits (`pending_acks`, `waiting_reads`, `parked_pulls`), disk space
(`mqproto.engine.store`).

There is no queue of requests here: what has come is served at once, and what has not been read yet stays with the
system, which holds the peer back. So a request is as old as the driver knows it to be (`NodeBase.behind`): the time
since it saw that there is something to read. Only a loop that is held up, by a disk or by much to do, makes it old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqproto.engine.broker.core.core import UNSENT_MAX, ClientLink
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Refused
from mqproto.engine.store import AllocateLog, CreateLog, FlushLog
from mqproto.state.node.contract import Job
from mqproto.wire.codes import (
    LITE_PULL_MESSAGE,
    PULL_MESSAGE,
    SEND_BATCH_MESSAGE,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    RequestCode,
    ResponseCode,
)

if TYPE_CHECKING:
    from mqproto.engine.broker.core.core import Core

REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"

_SENDS: Final = frozenset((SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, int(RequestCode.CONSUMER_SEND_MSG_BACK)))
_PULLS: Final = frozenset((PULL_MESSAGE, LITE_PULL_MESSAGE))
_HEARTBEAT: Final = int(RequestCode.HEART_BEAT)
_END_TRANSACTION: Final = int(RequestCode.END_TRANSACTION)

#: Bytes that may lie in the log and not be flushed while a flush takes long: beyond them the system is about to hold
#: writers up.
UNFLUSHED_MAX: Final = 256 << 20
#: A peer that has left so little untaken is not slow: one full answer to a pull, 256 KiB, is less.
FAIR: Final = 512 << 10
#: Pause between two exact counts of what is untaken.
_COUNT_MS: Final = 50
_FOREVER: Final = 1 << 62


class Admission:
    """Admission of requests. All settings are read when they are needed, so that a change counts at once."""

    __slots__ = ("_counted", "_known", "_log_jobs", "_untaken", "core", "quiet_until")

    def __init__(self, core: Core) -> None:
        self.core = core
        #: Until then nobody needs to ask `calm`, unless the driver is behind.
        self.quiet_until = _FOREVER
        #: Jobs on the log, with the time when each began.
        self._log_jobs: dict[Job, int] = {}
        #: Peers that were slow when they were last looked at, with what was untaken then; the sum, and when it was
        #: exact.
        self._known: dict[ClientLink, int] = {}
        self._untaken = 0
        self._counted = 0
        core.configuration.hooks.append(self._settings_changed)

    def _settings_changed(self, keys: frozenset[str]) -> None:
        self._look_ahead()

    # --- before a request ---

    def calm(self, link: ClientLink) -> bool:
        """Whether nothing speaks against serving all requests of a link."""
        settings = self.core.settings
        behind = self.core.behind
        if settings.broker_fast_failure_enable and behind > min(
            settings.wait_time_mills_in_send_queue, settings.wait_time_mills_in_pull_queue
        ):
            return False
        return not self._disk_busy() and not self.overloaded(link)

    def check(self, link: ClientLink, code: int) -> None:
        """Raises Refused for a request that is not served now."""
        if self.overloaded(link):
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        if code in _SENDS and self._disk_busy():
            raise Refused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if self.core.behind:
            limit = self.patience(code)
            if limit is not None and self.core.behind > limit:
                size = self.core.pending_acks.count if code in _SENDS else len(self.core.waiting_reads)
                raise too_old(self.core.behind, size)

    def patience(self, code: int) -> int | None:
        """How old a request may become, None for any age."""
        settings = self.core.settings
        if not settings.broker_fast_failure_enable:
            return None
        if code in _SENDS:
            return settings.wait_time_mills_in_send_queue
        if code in _PULLS:
            return settings.wait_time_mills_in_pull_queue
        if code == _HEARTBEAT:
            return settings.wait_time_mills_in_heartbeat_queue
        return settings.wait_time_mills_in_transaction_queue if code == _END_TRANSACTION else None

    # --- the disk ---

    def job_begins(self, job: Job) -> None:
        """The store has a job to run."""
        if isinstance(job, (AllocateLog, CreateLog, FlushLog)):
            self._log_jobs[job] = self.core.now
            self._look_ahead()

    def job_ended(self, job: Job) -> None:
        if self._log_jobs.pop(job, None) is not None:
            self._look_ahead()

    def _busy_from(self, begun: int) -> int:
        return begun + self.core.store.settings.os_page_cache_busy_time_out_mills

    def _disk_busy(self) -> bool:
        """Whether the log's disk takes so long that messages would have to wait for it: no blocks are ready, or too
        much is unflushed.
        """
        core = self.core
        for job, begun in self._log_jobs.items():
            if core.now >= self._busy_from(begun):
                store = core.store
                if store.end - store.flushed > UNFLUSHED_MAX if isinstance(job, FlushLog) else store.writer.needs_room:
                    return True
        return False

    # --- memory ---

    def overloaded(self, link: ClientLink) -> bool:
        """Whether so much is untaken, by this peer or by slow ones together, that it gets nothing more."""
        unsent = link.unsent
        if unsent <= FAIR:
            return False
        return unsent > UNSENT_MAX or self._all_hold_much()

    def _all_hold_much(self) -> bool:
        limit = self.core.settings.max_untaken_bytes
        if self._untaken > limit and self._counted + _COUNT_MS <= self.core.now:
            self._counted = self.core.now
            self._known = {link: link.unsent for link in self._known if link.unsent > FAIR and not link.ended}
            self._untaken = sum(self._known.values())
            self._look_ahead()
        return self._untaken > limit

    def wrote(self, link: ClientLink) -> None:
        """A peer that has more than FAIR untaken was given something."""
        before = self._known.get(link, 0)
        self._known[link] = link.unsent
        self._untaken += link.unsent - before
        self._look_ahead()

    def link_over(self, link: ClientLink) -> None:
        self._untaken -= self._known.pop(link, 0)

    def _look_ahead(self) -> None:
        """Settle until when nobody needs to ask."""
        if self._untaken > self.core.settings.max_untaken_bytes:
            self.quiet_until = 0
        else:
            self.quiet_until = min((self._busy_from(begun) for begun in self._log_jobs.values()), default=_FOREVER)


def too_old(age: int, size: int) -> Refused:
    """A request that has waited for too long to be worth serving."""
    text = f"broker busy, start flow control for a while, period in queue: {age}ms, size of queue: {size}"
    return Refused(ResponseCode.SYSTEM_BUSY, f"[TIMEOUT_CLEAN_QUEUE]{text}")
