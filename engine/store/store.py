"""The store: what a broker appends to and reads from.

A small machine: memory operations are done at once, everything that may block is a job. The owner hands `jobs` to its driver,
brings their ends back by `done`, and asks `next_deadline`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.store.queue import Queue
from engine.store.results import BatchEntry, GetResult, QueryResult
from engine.store.settings import SYNC_FLUSH, StoreSettings
from mqproto.state.node import Job


class Store:
    """One data directory, open."""

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        #: SYNC_FLUSH: messages become visible by `done`, not by `append`.
        self.sync = settings.flush_disk_type == SYNC_FLUSH
        #: Jobs to run; the owner empties the list and answers each by `done`.
        self.jobs: list[Job] = []

    @classmethod
    def open(cls, settings: StoreSettings, files: object = None, *, wall: int, utc_offset_ms: int = 0, cut: bool = False) -> Store:
        """Open a data directory, or make one. Blocks.

        Raises StoreLocked, StoreDamaged (unless `cut`), StoreUnwritable. What was found is in `recovery`.
        """
        raise NotImplementedError

    # --- queues ---

    def queue(self, topic: str, queue_id: int) -> Queue:
        """The queue, made in memory when there is none; files follow with its first message."""
        raise NotImplementedError

    def find_queue(self, topic: str, queue_id: int) -> Queue | None:
        raise NotImplementedError

    def queues(self) -> Iterator[Queue]:
        raise NotImplementedError

    def delete_queues(self, unwanted: Callable[[Queue], bool]) -> list[Queue]:
        """Forget queues and remove their files (in a job). Their next message has offset 0."""
        raise NotImplementedError

    # --- writing ---

    def append(
        self,
        queue: Queue,
        body: bytes | memoryview,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_time: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        tags_code: int,
        uniq_key: str | None,
        keys: str | None,
        wall: int,
    ) -> int:
        """Store a message; gives its physical offset. Its queue offset is `queue.next_offset - 1` afterwards.

        Hosts are 8 or 20 bytes (address and port); the IPv6 bits of the sysFlag are set from their lengths. `tags_code` is the
        hash of the tag, for the schedule topic the deliver time. Raises PutRefused; then nothing was stored.
        """
        raise NotImplementedError

    def append_batch(
        self,
        queue: Queue,
        entries: Sequence[BatchEntry],
        sys_flag: int,
        born_time: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        wall: int,
    ) -> list[int]:
        """Store messages with consecutive offsets in one file, all or none; gives their physical offsets. Raises PutRefused."""
        raise NotImplementedError

    @property
    def writable(self) -> bool:
        """Whether `append` takes messages: no write has failed for good."""
        raise NotImplementedError

    @property
    def end(self) -> int:
        """Where the next record goes (physical offset)."""
        raise NotImplementedError

    @property
    def flushed(self) -> int:
        """Everything below is durable."""
        raise NotImplementedError

    @property
    def min_physical(self) -> int:
        """Where the log begins."""
        raise NotImplementedError

    # --- the machine ---

    def want_flush(self) -> None:
        """Ask for everything appended so far to become durable; `flushed` tells when it is."""
        raise NotImplementedError

    def take_visible(self) -> list[Queue]:
        """Queues in which messages became visible since the last call (SYNC_FLUSH only)."""
        raise NotImplementedError

    def done(self, job: Job, failure: Exception | None, now: int, wall: int) -> bool:
        """A job ended. False: it is none of the store's."""
        raise NotImplementedError

    def timer(self, now: int, wall: int) -> None:
        raise NotImplementedError

    def next_deadline(self) -> int | None:
        raise NotImplementedError

    def close(self, wall: int) -> None:
        """Make everything durable and mark the end as orderly. Blocks. The store is of no use afterwards."""
        raise NotImplementedError

    # --- reading ---

    def get(
        self,
        queue: Queue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        matches: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
        """Read messages from a queue (store.md 14). `codes`: wanted tag hashes, None for all; `matches` judges whole records."""
        raise NotImplementedError

    def record(self, physical_offset: int) -> memoryview | None:
        """The visible record that begins at a physical offset."""
        raise NotImplementedError

    def entry(self, queue: Queue, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a visible message."""
        raise NotImplementedError

    def offset_by_time(self, queue: Queue, timestamp: int) -> int:
        """The first offset whose message was stored at or after `timestamp`; the queue's maximum if there is none."""
        raise NotImplementedError

    def store_time(self, queue: Queue, offset: int) -> int:
        """When a message was stored; -1 if it cannot be read."""
        raise NotImplementedError

    def earliest_store_time(self, queue: Queue | None = None) -> int:
        """Store time of the oldest message of a queue, or of the log; -1 if there is none."""
        raise NotImplementedError

    def on_disk(self, physical_offset: int) -> bool:
        """Whether a record lies further behind the end of the log than memory is taken to reach (store.md 13.6)."""
        raise NotImplementedError

    def query(self, topic: str, key: str, max_count: int, begin: int, end: int) -> QueryResult:
        """Messages with a key (or unique id), stored between two wall times, both included (store.md 5.4)."""
        raise NotImplementedError

    def disk_ratios(self) -> tuple[float, float]:
        """Used part of the disks of the log and of the queues, 0 to 1; -1 where unknown."""
        raise NotImplementedError

    @property
    def dispatch_behind(self) -> int:
        """Bytes of the log that queues and index do not know yet: always 0, both are written with the message."""
        return 0
