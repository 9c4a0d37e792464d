"""Push consumers as users see them: what is independent of waiting."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Unpack

from adapters.faces.client import ClientFace
from adapters.files import LocalOffsetFile
from adapters.identity import utc_offset_ms
from adapters.settings import ConsumerOptions, consumer_settings, storage_option, strategy_option, text_option
from mqproto.bodies import MessageModel
from mqproto.errors import InvalidSetting, StateError
from mqproto.names import wrap_namespace
from mqproto.state.client import ClientNode
from mqproto.state.consumer import ConsumerCore, check_subscription
from mqproto.state.consumption import ConsumeTask
from mqproto.state.flows import Flow
from mqproto.state.node import Ticket

log: Final = logging.getLogger("mqproto.client")

#: Offset files of broadcasting consumers lie here, below the home directory (client.md 5.4).
_OFFSET_FOLDER: Final = ".rocketmq_offsets"

#: The consumer whose listener runs here and now.
_consuming: Final[ContextVar[object]] = ContextVar("mqproto_consuming", default=None)


class PushConsumerFace(ClientFace):
    """Receives messages for a consumer group and hands them to a listener.

    The listener is called with a list of `MessageExt` and, if it takes a second argument, a `ConsumeContext`. It returns
    `ConsumeStatus.SUCCESS`; RECONSUME_LATER, an exception of any kind, None or anything else mean that the messages come again later.
    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR. Further settings are
    Apache's in snake_case (`ConsumerOptions`). Raises InvalidName and InvalidSetting.
    """

    def __init__(
        self,
        group: str,
        listener: Callable[..., Any],
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings = self._consumer_settings = consumer_settings(group, options)
        settings.check()
        broadcasts = settings.message_model is MessageModel.BROADCASTING
        super().__init__("consumer", namesrv, options, keep_default_name=broadcasts)
        self._listener = listener
        self._takes_context = takes_context(listener)
        self._awaits_as_set = "await_termination_millis_when_shutdown" in options
        self._strategy = strategy_option(options)
        self._storage = storage_option(options)
        self._offset_file: LocalOffsetFile | None = None
        #: What was subscribed before the start: expression and kind by topic.
        self._wanted: dict[str, tuple[str, str]] = {}
        if broadcasts and self._storage is None:
            folder = Path(text_option(options, "local_offset_store_dir") or Path.home() / _OFFSET_FOLDER)
            try:
                self._offset_file = LocalOffsetFile(folder, self.client_id, wrap_namespace(self._settings.namespace, group))
            except OSError as error:
                raise InvalidSetting("local_offset_store_dir", folder, f"the offset file cannot be read: {error}") from error

    def _joined(self, node: ClientNode) -> None:
        super()._joined(node)
        self._core = ConsumerCore(
            node,
            self._consumer_settings,
            self,
            strategy=self._strategy,
            offset_file=self._offset_file,
            offset_storage=self._storage,
            utc_offset_ms=utc_offset_ms(),
        )

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._consumer_settings.group

    def _name(self) -> str:
        return f"mqproto-consumer-{self.group}"

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Around each call of the listener."""
        token = _consuming.set(self)
        try:
            yield
        finally:
            _consuming.reset(token)

    @property
    def _is_listening(self) -> bool:
        """Whether the caller is the listener, or something that it has called."""
        return _consuming.get() is self

    def _arguments(self, task: ConsumeTask) -> tuple[Any, ...]:
        return (task.messages, task.context) if self._takes_context else (task.messages,)

    def _failed(self, error: BaseException) -> None:
        """The listener raised: the core decides what follows; a program is easier to mend with the place where it happened."""
        log.warning("the listener of group %s failed", self.group, exc_info=error)

    def _close_within(self, timeout_ms: int) -> float:
        """Running deliveries get half of the time, so that enough is left to store what they achieved; but a listener that closes its
        own consumer is not waited for."""
        if not self._awaits_as_set:
            self._consumer_settings.await_termination_millis_when_shutdown = 0 if self._is_listening else timeout_ms // 2
        return super()._close_within(timeout_ms)

    # Subscriptions before the start.

    def _want(self, topic: str, expression: str, kind: str) -> None:
        if self._life.closed:
            raise StateError(f"consumer {self.group} is closed")
        check_subscription(wrap_namespace(self._settings.namespace, topic), expression, kind)
        self._wanted[topic] = expression, kind

    # Verbs for the driver.

    def _begin_start(self, now: int) -> Ticket[None]:
        for topic, (expression, kind) in self._wanted.items():
            self._core.subscribe(topic, expression, kind, now=now)
        return self._node.start(self._core.start(now), now)

    def _closing(self, now: int) -> Flow[None]:
        return self._core.shutdown(now)

    def _subscribe(self, topic: str, expression: str, kind: str, now: int) -> None:
        self._core.subscribe(topic, expression, kind, now=now)

    def _unsubscribe(self, topic: str, now: int) -> None:
        self._core.unsubscribe(topic, now=now)


def takes_context(listener: Callable[..., Any]) -> bool:
    """Whether a listener takes a second argument. Raises InvalidSetting when it can be called with neither one nor two."""
    try:
        signature = inspect.signature(listener)
    except ValueError:
        return False  # some built-in functions tell nothing: they get the messages alone
    except TypeError:
        raise InvalidSetting("listener", listener, "it must be callable") from None
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 2
    raise InvalidSetting("listener", listener, "it must take a list of messages, and a context if it likes")
