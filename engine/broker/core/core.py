"""Core of the broker, which all families of requests share: links, time, the store, tables, waiting answers.

Owns: `now` and `wall` of the entry that runs, alarms, calls to peers, queues that something arrived in.
Leaves to others: what requests mean (the rooms above this one), answers that wait (`pending_acks`), bytes on disk
(`mqproto.engine.store`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.parked_pulls import ParkedPulls
from mqproto.engine.broker.core.pending_acks import PendingAcks
from mqproto.engine.broker.filters.consumer_filters import FilterTable
from mqproto.engine.broker.interfaces.clock import Alarm
from mqproto.engine.broker.interfaces.requests import Waiter
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.delay_progress import DelayProgress
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.configuration import Changes, Configuration
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps
from mqproto.engine.store import Queue, Store
from mqproto.engine.store.disk.files import Files
from mqproto.state.node.connection import Calls, Connection
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT, Buffer, Job, Link, NodeBase, Run
from mqproto.state.node.deadlines import Deadlines
from mqproto.wire.hosts import HostError, encode_host, encode_ip, join_address

if TYPE_CHECKING:
    from mqproto.engine.broker.core.admission import Admission
    from mqproto.engine.broker.core.header_templates import HeaderTemplate
    from mqproto.engine.broker.core.sliced_answers import SlicedAnswers
    from mqproto.engine.broker.core.waiting_reads import WaitingReads

#: Answers up to this size are joined for one write; views of the log leave as they are from here on.
JOIN_MAX: Final = 16_384
#: Requests of a peer are refused while so much is unsent to it: one read may bring hundreds that each ask for a lot.
UNSENT_MAX: Final = 16 * SERVER_UNSENT_LIMIT
#: Notes for the operator that are kept while nobody takes them.
NOTICES_MAX: Final = 1000

_UNKNOWN_HOST: Final = bytes(8)


class ClientLink(Connection[Waiter]):
    """Link to a client: a stream that came in by one of our listeners."""

    __slots__ = ("born_host", "core", "header_template", "header_templates", "last_active", "need", "rest", "strangers")

    def __init__(self, core: Core, address: str, listener: str) -> None:
        super().__init__(
            core, core.calls, address, listener, core.settings.write_buffer_high_water_mark or SERVER_UNSENT_LIMIT
        )
        self.core = core
        #: The peer's address as records hold it; a peer without one (a pipe of a test) counts as 0.0.0.0:0.
        try:
            self.born_host = encode_host(address)
        except HostError:
            self.born_host = _UNKNOWN_HOST
        #: An unfinished frame: what came of it, and how many bytes there must be until there is something to do.
        self.rest = bytearray()
        self.need = 0
        self.last_active = core.now
        #: Headers that this peer repeats (see `header_templates`): the one seen last, and all.
        self.header_template: HeaderTemplate | None = None
        self.header_templates: list[HeaderTemplate] = []
        #: Requests that would have had a template of their own, had there been a place.
        self.strangers = 0

    def check_idle(self) -> None:
        """Alarm: close the link if nothing was read or written for the idle time, else look again later."""
        due = self.last_active + self.core.idle_ms
        if due <= self.core.now:
            self.core.end_link(self, "idle")
        else:
            self.core.alarms.set(self.check_idle, due)


#: Takes one request; answers by the link.
Handler: TypeAlias = Callable[[ClientLink, Command], None]
#: Who takes which request code.
Handlers: TypeAlias = dict[int, Handler]


class Core(NodeBase):
    """State of a broker. `BrokerNode` adds the handlers and the interface that drivers use.

    Hot modules take all of it; the others are given what they need (`handlers`).
    """

    #: Reads that wait for the disk.
    waiting_reads: WaitingReads
    #: Answers that are built in slices.
    sliced_answers: SlicedAnswers
    #: What is refused for now.
    admission: Admission

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        files: Files | None,
        host: str,
        port: int,
        seed: int,
        utc_offset_ms: int,
        save_settings: Callable[[Changes], Job] | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.store = store
        #: What an operator should know, the latest last; given to `on_notice` instead once that is set.
        self.notices: deque[str] = deque(maxlen=NOTICES_MAX)
        self.on_notice: Callable[[str], None] | None = None
        for found in store.recovery.notes:
            self.notice(found)
        self.address = join_address(host, port)
        self.host = host
        self.port = port
        #: Our address as records and message ids hold it.
        self.store_host = encode_ip(host) + port.to_bytes(4, "big")
        #: Monotonic and wall time of the entry that runs.
        self.now = 0
        self.wall = 0
        self.idle_ms = settings.server_channel_max_idle_time_seconds * 1000
        self.configuration = Configuration(
            (settings, store.settings), save_settings, effective=self._found_out, notice=self.notice
        )
        self.configuration.hooks.append(self._settings_changed)
        self.alarms: Deadlines[Alarm] = Deadlines()
        self.calls: Calls[Waiter] = Calls()
        self.client_registry = ClientRegistry()
        self.parked_pulls = ParkedPulls(settings.pull_thread_pool_queue_capacity)
        #: Milliseconds of each delay level, the first one for level 1.
        self.delays = store.settings.delay_levels
        config_manager = self.config_manager = ConfigManager(
            f"{store.settings.store_path_root_dir}/config", files, self.after, self.notice, self._in_slices
        )
        self.topics = TopicConfigs(settings, config_manager, len(self.delays))
        self.subscription_groups = SubscriptionGroups(settings, config_manager)
        self.offsets = ConsumerOffsets(settings, config_manager)
        #: Expressions of consumer groups.
        self.filters = FilterTable(self, self, settings, store, config_manager)
        self.delay_progress = DelayProgress(config_manager, store.settings.flush_delay_offset_interval)
        if store.end > store.min_physical:
            config_manager.tell_missing(("topics.json", "consumerOffset.json"))
        #: Queues with somebody waiting in which something became visible during this entry, in that order.
        self.arrived: dict[Queue, None] = {}
        #: Something was stored that must become durable before it is acknowledged or visible.
        self.flush_wanted = False
        self.pending_acks = PendingAcks(self)
        #: Left by a handler whose request may be recognised the next time: gets the link and the JSON header (see
        #: `header_templates`).
        self.lesson: Callable[[ClientLink, bytes], None] | None = None
        #: Bytes of requests that have not come whole, of all links.
        self.unfinished = 0
        #: Messages that clients have sent, and that they were given.
        self.messages_in = 0
        self.messages_out = 0
        #: Reads that gave messages, and that gave none.
        self.reads_found = 0
        self.reads_missed = 0
        self.statistics = Statistics(self, self, settings, store, utc_offset_ms)
        self._turn = seed

    def notice(self, text: str) -> None:
        """Report something to the operator, in one line."""
        if self.on_notice is not None:
            self.on_notice(text)
        else:
            self.notices.append(text)

    # --- settings ---

    def _found_out(self) -> dict[str, str]:
        """Texts of keys that need not be set."""
        return {
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "brokerIP1": self.host,
            "brokerIP2": self.host,
            "storePathCommitLog": self.store.settings.commit_log_folder,
        }

    def _settings_changed(self, keys: frozenset[str]) -> None:
        self.idle_ms = self.settings.server_channel_max_idle_time_seconds * 1000
        self.parked_pulls.limit = self.settings.pull_thread_pool_queue_capacity
        self.store.configure()
        self.topics.settings_changed(self.wall)

    def after(self, delay_ms: int, alarm: Alarm) -> None:
        """Call a function once, at the latest so long from now."""
        when = self.now + delay_ms
        known = self.alarms.when(alarm)
        if known is None or when < known:
            self.alarms.set(alarm, when)

    def _in_slices(self, owner: object, steps: Steps[str], then: Callable[[str], None]) -> None:
        self.sliced_answers.run(owner, steps, then, own=True)

    # --- links ---

    def end_link(self, link: ClientLink, reason: str) -> None:
        """Close a client's link from our side and forget what hung on it."""
        if not link.ended:
            if link.out:
                self.touched.add(link)
            self.hang_up(link, reason)
            self.link_over(link)

    def link_over(self, link: ClientLink) -> None:
        """A client's link is over, whoever closed it."""
        self.unfinished -= len(link.rest)
        link.rest.clear()
        self.alarms.cancel(link.check_idle)
        for waiter in link.end():
            waiter(None)

    def write(self, link: Link, data: Buffer) -> None:
        super().write(link, data)
        if type(link) is ClientLink:
            link.last_active = self.now

    # --- choosing ---

    def turn(self, count: int) -> int:
        """A number in 0 .. count - 1, each in its turn: for a queue where the peer leaves the choice to us."""
        self._turn += 1
        return self._turn % count

    # --- arrivals ---

    def stored(self, queue: Queue) -> None:
        """A message was appended to a queue: wake who waits there, see that it becomes durable."""
        if self.store.sync:
            self.flush_wanted = True
        elif queue.parked is not None:
            self.arrived[queue] = None

    def release(self) -> None:
        """After a flush or a save: send what is on the disk now, and wake the readers of what became visible."""
        self.pending_acks.release()
        self.arrive(self.store.take_visible())

    def arrive(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            if queue.parked is not None:
                self.arrived[queue] = None

    # --- jobs ---

    def run_jobs(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.actions.append(Run(job))

    def data_to_send(self, link: Link) -> list[Buffer]:
        """The buffers to write now.

        Small ones are joined, because one write of many buffers costs more than the copy.
        """
        out = link.out
        link.out = []
        if len(out) > 1:
            joined: list[Buffer] = []
            run: list[Buffer] = []
            for buffer in out:
                if len(buffer) > JOIN_MAX:
                    if run:
                        joined.append(b"".join(run))
                        run = []
                    joined.append(buffer)
                else:
                    run.append(buffer)
            if run:
                joined.append(b"".join(run))
            return joined
        return out
