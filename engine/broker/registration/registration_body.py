"""Bodies of registrations, which name this broker's topics (docs/protocol/broker.md 1.6).

Owns: the body that names all topics. It is made in slices, and kept until a topic changes: with many topics it is
long, and every name server gets it every period.
Leaves to others: when it is sent to whom (`name_server_link`), the topics (`tables.topics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mqproto.engine.broker.interfaces.answers import LongAnswers
from mqproto.engine.broker.interfaces.clock import Timers
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps, joined
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicTable
from mqproto.wire.flags import PERM_READ_WRITE
from mqproto.wire.ids import body_crc

#: Topics that are taken over in one slice.
_SLICE_TOPICS: Final = 500
#: Pieces of the compressed form, of about 100 bytes each, in one slice.
_SLICE_PIECES: Final = 500
#: Pause before another try where too much other work waits.
_RETRY_MS: Final = 100


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """Body of a registration, and the version of the topics in it."""

    version: DataVersion
    data: bytes
    compressed: bool
    crc: int


class RegistrationBodies:
    """Bodies of one broker's registrations."""

    def __init__(self, timers: Timers, settings: BrokerSettings, topics: TopicConfigs, answers: LongAnswers) -> None:
        self.timers = timers
        self.settings = settings
        self.topics = topics
        self.answers = answers
        self._kept: RegistrationBody | None = None
        #: Settings that `_kept` was made under.
        self._kept_for: tuple[int, bool] | None = None
        #: Who gets the body that is being made.
        self._waiting: list[Callable[[RegistrationBody], None]] = []

    def whole(self, then: Callable[[RegistrationBody], None]) -> None:
        """Call `then` with the body that names all topics: at once when they are few or nothing has changed."""
        kept = self._kept
        if kept is not None and kept.version == self.topics.version and self._kept_for == self._settings():
            then(kept)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._begin()

    def _begin(self) -> None:
        if not self.answers.run(self, self._make(self._settings()), self._made):
            self.timers.after(_RETRY_MS, self._begin)

    def _settings(self) -> tuple[int, bool]:
        return self.settings.broker_permission, self.settings.compressed_register

    def _made(self, told: RegistrationBody) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(told)

    def _make(self, settings: tuple[int, bool]) -> Steps[RegistrationBody]:
        self._kept = None
        version = self._version()
        configs = list(self.topics.table.values())
        topics: dict[str, TopicConfig] = {}
        for at in range(0, len(configs), _SLICE_TOPICS):
            topics |= self._shown(configs[at : at + _SLICE_TOPICS])
            if len(configs) > _SLICE_TOPICS:
                yield
        body = RegisterBrokerBody(TopicTable(version, topics))
        data = yield from (_compressed(body.compressed_pieces()) if settings[1] else joined(body.json_pieces()))
        told = RegistrationBody(version, data, settings[1], body_crc(data))
        if settings == self._settings():
            self._kept, self._kept_for = told, settings
        return told

    def part(self, topics: Iterable[TopicConfig]) -> RegistrationBody:
        """The body that names these topics alone, under the version of all."""
        body = RegisterBrokerBody(TopicTable(self._version(), self._shown(topics)))
        compressed = self.settings.compressed_register
        data = body.to_compressed() if compressed else body.to_json()
        return RegistrationBody(body.topic_table.data_version, data, compressed, body_crc(data))

    def _version(self) -> DataVersion:
        version = self.topics.version
        return DataVersion(version.timestamp, version.counter, version.state_version)

    def _shown(self, topics: Iterable[TopicConfig]) -> dict[str, TopicConfig]:
        """Topics as name servers get them: a broker that is not fully open says so of each."""
        perm = self.settings.broker_permission
        if perm & PERM_READ_WRITE != PERM_READ_WRITE:
            topics = [TopicConfig(one.name, one.read_queues, one.write_queues, perm, one.filter_type) for one in topics]
        return {one.name: one for one in topics}


def _compressed(pieces: Iterator[bytes]) -> Steps[bytes]:
    done: list[bytes] = []
    for number, piece in enumerate(pieces, 1):
        done.append(piece)
        if number % _SLICE_PIECES == 0:
            yield
    return b"".join(done)
