"""Node of the broker, which drivers run.

Owns: the contract with drivers, frames in, the order of what happens at the end of an entry.
Leaves to others: which family takes which request code (`handlers`), what requests mean (the rooms below), bytes on
disk (`mqproto.engine.store`), sockets and clocks (drivers).

Listeners: "main" (`listenPort`) and "fast" (`listenPort` - 2: everything but pulls; docs/protocol/broker.md 1.2).

An entry runs in three steps: take the input; settle (wake parked pulls, register new topics, begin jobs); leave.
Answers lie in the links' buffers then, and the driver writes once for each link, however many requests the input held.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from mqproto.codec import JSON, MAX_TOTAL, MIN_TOTAL, RESPONSE_FLAG, Command, decode
from mqproto.engine.broker.core.admission import FAIR, Admission
from mqproto.engine.broker.core.core import ClientLink, Core
from mqproto.engine.broker.core.header_templates import take_other
from mqproto.engine.broker.core.last_save import LastSave
from mqproto.engine.broker.core.sliced_answers import SlicedAnswers
from mqproto.engine.broker.core.waiting_reads import WaitingReads
from mqproto.engine.broker.handlers import (
    all_handlers,
    client_requests_of,
    slow_groups_of,
    transaction_check_of,
    transactions_of,
)
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.operators.configuration import ConfigurationRequests
from mqproto.engine.broker.pulls.pull import HeldPull, PullRequests
from mqproto.engine.broker.registration.name_servers import Registration
from mqproto.engine.broker.sends.delayed import DelayLevels
from mqproto.engine.broker.sends.fast_send import FastSendHandler
from mqproto.engine.broker.sends.message_writer import MessageWriter
from mqproto.engine.broker.sends.send import SendRequests
from mqproto.engine.configuration import Changes
from mqproto.engine.remarks import code_not_supported
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store
from mqproto.engine.store.disk.files import Files
from mqproto.errors import HeaderError, RemoteProtocolError
from mqproto.state.node.contract import Job, Link, Ticket
from mqproto.wire.codes import LITE_PULL_MESSAGE, PULL_MESSAGE, REQUEST_CODE_NOT_SUPPORTED, SYSTEM_ERROR
from mqproto.wire.fastjson import JsonError

#: Listeners.
MAIN: Final = "main"
FAST: Final = "fast"

#: How much one call of `timer` does of what is due: links come and pull in crowds, so their times are up together.
ALARMS_MAX: Final = 500
EXPIRED_MAX: Final = 200

_WORDS: Final = Struct(">ii")
_WORD: Final = Struct(">i")
#: Of these there is no service on the fast listener.
_PULL_CODES: Final = (PULL_MESSAGE, LITE_PULL_MESSAGE)


class BrokerNode(Core):
    """Broker over one store.

    `host` and `port` are the numeric address that clients are given (brokerIP1 and the port that the "main" listener is
    really bound to; part of every message id). `seed` feeds the choice of queues. The store is open already; the broker
    closes it. `files` are those that it was opened with (the disk's, unless a test has others): the tables lie in
    `config/` below its root. `utc_offset_ms` (local time minus UTC) says when the days begin whose totals are kept.
    `save_settings` makes the job that writes changed settings into their file; without it changes end with the process.

    Raises ConfigDamaged when the topic or group table cannot be read, OSError.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        *,
        host: str,
        port: int,
        seed: int = 0,
        files: Files | None = None,
        utc_offset_ms: int = 0,
        save_settings: Callable[[Changes], Job] | None = None,
    ) -> None:
        super().__init__(settings, store, files, host, port, seed, utc_offset_ms, save_settings)
        self.links: dict[ClientLink, None] = {}
        self.admission = Admission(self)
        self.waiting_reads = WaitingReads(self, self, settings, store, self.statistics.store_stats, self.run_jobs)
        self.sliced_answers = SlicedAnswers(self)
        message_writer = MessageWriter(self)
        self.transactions = transactions_of(self, message_writer)
        self.transaction_check = transaction_check_of(self, message_writer, self.transactions)
        self.send_requests = SendRequests(
            self, message_writer, self.transactions.prepare, FastSendHandler(self, message_writer.scanner)
        )
        self.pull_requests = PullRequests(self)
        self.client_requests = client_requests_of(self)
        self.slow_groups = slow_groups_of(self)
        self.delay_levels = DelayLevels(
            self, self, self, store, self.delay_progress, self.statistics, self.waiting_reads, message_writer
        )
        self.registration = Registration(
            self, self.calls, self, self, settings, self.topics, self.sliced_answers, host, port
        )
        self.configuration_requests = ConfigurationRequests(
            self, self, self.configuration, self.run_jobs, self.registration
        )
        self.configuration.hooks.append(self._forget_templates)
        self.handlers = all_handlers(
            self,
            message_writer,
            self.send_requests,
            self.pull_requests,
            self.registration,
            (self.transactions, self.transaction_check, self.client_requests, self.configuration_requests),
        )
        #: Jobs of the store that have not ended.
        self._running: set[Job] = set()
        self._closing = False
        self._unregistered = False
        #: Makes everything durable; from then on nothing else happens.
        self._last_job: Job | None = None
        self._ended = False

    # --- inputs ---

    @property
    def ended(self) -> bool:
        return self._ended

    def begin(self, now: int) -> None:
        self._enter(now)
        for version in (self.topics.version, self.subscription_groups.version, self.configuration.version):
            version.timestamp = version.timestamp or self.wall
        self.statistics.begin()
        self.filters.begin()
        self.delay_levels.begin()
        self.slow_groups.begin()
        self.transaction_check.begin()
        self.registration.begin()
        self._settle()

    def registered(self, now: int) -> Ticket[None]:
        """Settled once every name server knows this broker, or is out of reach: clients can find it from then on."""
        self._enter(now)
        ticket: Ticket[None] = Ticket()

        def settle() -> None:
            ticket.settle(None)
            self.actions.append(ticket)

        self.registration.when_tried(settle)
        return ticket

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        self._enter(now)
        if self._closing:
            return None
        if len(self.links) >= self.settings.max_connections:
            self.notice(f"{address}: refused, there are {len(self.links)} connections already (maxConnections)")
            return None
        link = ClientLink(self, address, listener)
        self.links[link] = None
        self.alarms.set(link.check_idle, now + self.idle_ms)
        return link

    def opened(self, link: Link, now: int) -> None:
        self._enter(now)
        server = self.registration.server_of(link)
        if server is not None:
            server.opened()
        self._settle()

    def received(self, link: Link, data: bytes, now: int) -> None:
        if self._last_job is not None:
            return
        self._enter(now)
        if type(link) is ClientLink:
            if not link.ended:
                self._from_client(link, data)
        else:
            server = self.registration.server_of(link)
            if server is not None:
                self.registration.received(server, data)
        self._settle()

    def closed(self, link: Link, reason: str, now: int) -> None:
        self._enter(now)
        if isinstance(link, ClientLink):
            self.link_over(link)
        else:
            server = self.registration.server_of(link)
            if server is not None:
                server.closed(reason)
        self._settle()

    def timer(self, now: int) -> None:
        if self._last_job is not None:
            return
        self._enter(now)
        for alarm in self.alarms.due(now, ALARMS_MAX):
            alarm()
        for pull in self.parked_pulls.expired(now, EXPIRED_MAX):
            assert isinstance(pull, HeldPull)
            self.pull_requests.expire(pull)
        for _, waiter in self.calls.expire(now):
            waiter(None)
        due = self.store.next_deadline()
        if due is not None and due <= now:
            self.store.timer(now, self.wall)
        self._settle()

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        if self._ended:
            return
        self._enter(now)
        if job is self._last_job:
            self._end(failure)
            return
        if not (
            self.waiting_reads.done(job, failure)
            or self.config_manager.done(job, failure)
            or self.configuration_requests.done(job, failure)
        ):
            self._running.discard(job)
            self.admission.job_ended(job)
            if failure is not None:
                self.notice(f"{type(job).__name__} of the store failed: {failure}")
            self.store.done(job, failure, now, self.wall)
            self.delay_levels.flushed()
            self.transaction_check.flushed()
        if self.store.sync or self.pending_acks.wait_for_tables:
            self.release()
        self._settle()

    def next_deadline(self) -> int | None:
        if self._last_job is not None:
            return None
        due = self.alarms.earliest()
        for other in (self.parked_pulls.next_deadline(), self.calls.earliest(), self.store.next_deadline()):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def close(self, now: int) -> None:
        self._enter(now)
        if not self._closing:
            self._closing = True
            self.registration.finish(self._on_unregistered)
        self._settle()

    # --- the course of an entry ---

    def _enter(self, now: int) -> None:
        self.now = now
        self.wall = now + self.wall_ahead

    def _settle(self) -> None:
        """What an entry leaves for its end."""
        if self.arrived:
            self.pull_requests.wake()
        if self.topics.fresh:
            self.registration.announce()
        if self.flush_wanted:
            self.flush_wanted = False
            self.pending_acks.entry_over()
            self.store.want_flush()
        if self.store.notices:
            for text in self.store.notices:
                self.notice(text)
            self.store.notices.clear()
        store_jobs = self.store.jobs
        if store_jobs:
            self._running.update(store_jobs)
            for job in store_jobs:
                self.admission.job_begins(job)
            self.run_jobs(store_jobs)
            store_jobs.clear()
        if self.config_manager.jobs:
            self.run_jobs(self.config_manager.jobs)
            self.config_manager.jobs.clear()
        if self._unregistered and self._last_job is None:
            self._finish()

    def _on_unregistered(self) -> None:
        self._unregistered = True
        self.waiting_reads.stop()

    def _finish(self) -> None:
        """Everything to disk, once no job runs any more."""
        if self._running or self.config_manager.busy or self.waiting_reads.busy or self.configuration_requests.busy:
            return
        self.delay_levels.end()
        self.transaction_check.end()
        self._last_job = LastSave(self.config_manager, self.store.begin_closing(self.wall))
        self.run_jobs((self._last_job,))

    def _end(self, failure: Exception | None) -> None:
        """The end: answer who waited for the disk, close the links.

        Without the job having run the directory is still ours.
        """
        self._ended = True
        if failure is not None:
            self.notice(f"not everything could be saved at the end: {failure}")
        self.store.release()
        self.release()
        for link in list(self.links):
            self.end_link(link, "the broker ends")

    def abandon(self) -> None:
        """The driver has stopped without `ended`: give the data directory back.

        Harmless after an orderly end. From any thread.
        """
        self.store.release()

    def link_over(self, link: ClientLink) -> None:
        self.links.pop(link, None)
        super().link_over(link)
        self.parked_pulls.gone(link)
        self.waiting_reads.link_over(link)
        self.sliced_answers.link_over(link)
        self.admission.link_over(link)
        self.client_requests.link_over(link)

    def _forget_templates(self, keys: frozenset[str]) -> None:
        """Settings have changed: what is known of headers may not be true any more."""
        for link in self.links:
            link.header_templates.clear()
            link.header_template = None

    # --- frames ---

    def _from_client(self, link: ClientLink, data: bytes) -> None:
        """Handle every frame that is complete now; what is left of the data waits for more."""
        link.last_active = self.now
        if link.need:
            link.rest += data
            self.unfinished += len(data)
            if len(link.rest) < link.need:
                if self.unfinished > self.settings.max_unfinished_bytes:
                    self._relieve()
                return
            data = bytes(link.rest)
            self.unfinished -= len(data)
            link.rest.clear()
            link.need = 0
        calm = (not self.behind and self.now < self.admission.quiet_until) or self.admission.calm(link)
        size = len(data)
        at = 0
        while size - at >= 8:
            total, word = _WORDS.unpack_from(data, at)
            if total < MIN_TOTAL or total > MAX_TOTAL:
                self._broken(link, data, at)
                return
            end = at + 4 + total
            if end > size:
                break
            start = at + 8
            stop = start + word
            header_template = link.header_template
            if (
                header_template is not None
                and calm
                and stop <= end
                and (
                    (
                        data.startswith(header_template.head, start)
                        and header_template.fast.take(link, header_template, data, start, stop, end)
                    )
                    or (len(link.header_templates) > 1 and take_other(link, data, start, stop, end))
                )
            ):
                at = end
                continue
            try:
                request = decode(data[at + 4 : end])
            except RemoteProtocolError as error:
                self.notice(f"{link.address}: {error}")
                self.end_link(link, str(error))
                return
            self._handle(link, request)
            lesson = self.lesson
            if lesson is not None:
                self.lesson = None
                if request.serialize_type == JSON:
                    lesson(link, data[start:stop])
            if link.ended:
                return
            at = end
        if link.out:
            self.touched.add(link)
            if link.unsent > FAIR:
                self.admission.wrote(link)
        if at < size:
            self._keep_rest(link, data, at)

    def _keep_rest(self, link: ClientLink, data: bytes, at: int) -> None:
        """An unfinished frame.

        A length that no frame can have is refused now, without waiting for what it claims (COD-03).
        """
        need = 4
        if len(data) - at >= 4:
            total: int = _WORD.unpack_from(data, at)[0]
            if total < MIN_TOTAL or total > MAX_TOTAL:
                self._broken(link, data, at)
                return
            need = 4 + total
        link.rest += data[at:]
        link.need = need
        self.unfinished += len(data) - at
        if self.unfinished > self.settings.max_unfinished_bytes:
            self._relieve()

    def _relieve(self) -> None:
        """Too much is kept of requests that have not come whole: whoever has most of it goes."""
        link = max(self.links, key=lambda link: len(link.rest))
        reason = (
            f"requests of {self.unfinished} bytes have not come whole, this link has most of them: {len(link.rest)}"
        )
        self.notice(f"{link.address}: {reason}")
        self.end_link(link, reason)

    def _broken(self, link: ClientLink, data: bytes, at: int) -> None:
        reason = f"not a remoting frame: {data[at : at + 16]!r}"
        self.notice(f"{link.address}: {reason}")
        self.end_link(link, reason)

    def _handle(self, link: ClientLink, request: Command) -> None:
        """One request, or the answer to one of ours."""
        if request.flag & RESPONSE_FLAG:
            waiter = link.answered(request)
            if waiter is not None:
                waiter(request)
            return
        code = request.code
        handler = self.handlers.get(code)
        if handler is None or (code in _PULL_CODES and link.listener == FAST):
            link.reply(request, REQUEST_CODE_NOT_SUPPORTED, remark=code_not_supported(code))
            return
        try:
            self.admission.check(link, code)
            handler(link, request)
        except Refused as refused:
            link.reply(request, refused.code, remark=refused.remark)
        except (HeaderError, JsonError) as error:
            link.reply(request, SYSTEM_ERROR, remark=str(error))
