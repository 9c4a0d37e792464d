"""Lite pull consumers as users see them: what is independent of waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, Unpack

from mqproto.adapters.base.budget import check_timeout
from mqproto.adapters.base.pull_base import BasePullingConsumer, QueueListener, TopicListener
from mqproto.adapters.base.settings.client_settings import lite_pull_settings
from mqproto.adapters.base.settings.options import LitePullOptions
from mqproto.adapters.io.identity import utc_offset_ms
from mqproto.errors import ClientError, StateError
from mqproto.message import MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.consumer.pull.queue_selection import Mode
from mqproto.state.consumer.subscriptions import check_subscription
from mqproto.validation import check_topic
from mqproto.wire.filters.tags import parse_tags

#: What a commit is told: offsets by queue, or queues whose positions are meant; None means all queues.
Offsets: TypeAlias = Mapping[MessageQueue, int] | Iterable[MessageQueue] | None


class BaseLitePullConsumer(BasePullingConsumer):
    """Consumer that polls messages for a group: fetched ahead, in the order of each queue, with the offsets kept.

    The queues are a share of subscribed topics (`subscribe`), or those that the application names (`assign`). With
    `auto_commit` (the default) a poll says that everything handed out before is done with, so that its offset is stored
    within a few seconds; without, only `commit` moves offsets. What the last poll handed out counts as not done: it
    comes again after a crash, after `close`, and at another member when its queue moves there (here it changes nothing
    any more from then on). So one thread or task polls; with several, turn `auto_commit` off and commit offsets that
    you name. Iterating over the consumer polls message by message and ends with `close`.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR.
    Further settings are Apache's in snake_case (`LitePullOptions`). Raises InvalidName and InvalidSetting.
    """

    _made: LitePullConsumerCore | None = None

    def __init__(
        self, group: str, namesrv: str | Sequence[str] | None = None, **options: Unpack[LitePullOptions]
    ) -> None:
        self._lite_settings = lite_pull_settings(group, options)
        super().__init__("lite pull consumer", self._lite_settings, namesrv, options)
        # What was said before the start.
        self._mode: Mode | None = None
        self._wanted: dict[str, tuple[str, str, QueueListener | None]] = {}
        self._assigned: tuple[MessageQueue, ...] = ()
        self._tags: dict[str, str] = {}
        self._watched: dict[str, TopicListener] = {}

    @property
    def _core(self) -> LitePullConsumerCore:
        return self._running(self._made)

    def _joined(self, node: ClientNode) -> None:
        super()._joined(node)
        self._made = LitePullConsumerCore(
            node,
            self._lite_settings,
            self,
            strategy=self._strategy,
            offset_file=self._offset_file,
            offset_storage=self._storage,
            utc_offset_ms=utc_offset_ms(),
        )

    def subscribe(
        self, topic: str, expression: str = "*", kind: str = "TAG", listener: QueueListener | None = None
    ) -> None:
        """Have a share of a topic's queues, filtered by tags (`a || b`), or by properties with kind "SQL92". Before or
        after the start.

        `listener(topic, all_queues, own_queues)` is called when the share changes. Replaces what was said of the topic
        before. Raises InvalidName, InvalidExpressionError, and StateError when queues were assigned.
        """
        if self._lifecycle.running:
            self._enter(self._core.subscribe, topic, expression, kind, listener)
        else:
            self._want(topic, expression, kind, listener)

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic: its share, or its assigned queues. An unknown one is no error."""
        if self._lifecycle.running:
            self._enter(self._core.unsubscribe, topic)
        else:
            self._want_no_more(topic)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues and no others, before or after the start; those that stay go on untouched.

        Raises InvalidName, and StateError when topics were subscribed.
        """
        if self._lifecycle.running:
            self._enter(self._core.assign, tuple(queues))
        else:
            self._want_queues(queues)

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that it has now, in queue order. Does not wait."""
        self._lifecycle.check()
        return self._enter(self._assignment)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these queues no more; what is fetched already is still polled.

        Raises StateError when one is not ours.
        """
        self._lifecycle.check()
        self._enter(self._pause, tuple(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull from these queues again. Raises StateError when one is not ours."""
        self._lifecycle.check()
        self._enter(self._core.resume, tuple(queues))

    def commit(self, offsets: Offsets = None, *, persist: bool = True) -> None:
        """Commit without waiting: the given offsets, or how far the given queues, or all, have been polled. With
        `persist` the offsets are sent at once, and nobody hears whether they arrived; without they are sent within a
        few seconds, as Apache's client does.

        Raises StateError when a queue is not ours, and ClientError for what is no offset; nothing is committed then.
        """
        self._lifecycle.check()
        self._enter(self._core.commit, offsets, persist)

    def register_topic_message_queue_change_listener(self, topic: str, listener: TopicListener) -> None:
        """Have `listener(topic, queues)` called when the queues of a topic change, before or after the start. They are
        compared every `topic_metadata_check_interval_millis`. One listener for each topic; the last one counts. Raises
        InvalidName or StateError.
        """
        if self._lifecycle.running:
            self._enter(self._watch, topic, listener)
        else:
            self._watch_from_start(topic, listener)

    # Before the start.

    def _want(self, topic: str, expression: str, kind: str, listener: QueueListener | None) -> None:
        self._check_open()
        check_subscription(topic, expression, kind)
        self._decide(Mode.SUBSCRIBE)
        self._wanted[topic] = expression, kind, listener

    def _want_queues(self, queues: Iterable[MessageQueue]) -> None:
        self._check_open()
        wanted = tuple(queues)
        for queue in wanted:
            check_topic(queue.topic)
        self._decide(Mode.ASSIGN)
        self._assigned = wanted

    def _decide(self, mode: Mode) -> None:
        if self._mode not in (None, mode):
            raise StateError(f"consumer {self.group} either subscribes topics or is assigned queues, not both")
        self._mode = mode

    def _want_no_more(self, topic: str) -> None:
        self._wanted.pop(topic, None)
        self._assigned = tuple(queue for queue in self._assigned if queue.topic != topic)

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """Want only these tags (`a || b`) of assigned queues of a topic. Only before the start: raises StateError after
        that, and InvalidName or InvalidExpressionError.
        """
        if self._lifecycle.running or self._lifecycle.closed:
            raise StateError(f"consumer {self.group} was started: what assigned queues bring is said before")
        check_topic(topic)
        parse_tags(expression)
        self._tags[topic] = expression

    def _watch_from_start(self, topic: str, listener: TopicListener) -> None:
        self._check_open()
        check_topic(topic)
        self._watched[topic] = listener

    # Verbs for the driver.

    def _prepare_core(self, now: int) -> None:
        core = self._core
        for topic, expression in self._tags.items():
            core.filter_assigned(topic, expression)
        for topic, listener in self._watched.items():
            core.watch(topic, listener)
        for topic, (expression, kind, changed) in self._wanted.items():
            core.subscribe(topic, expression, kind, changed, now)
        if self._mode is Mode.ASSIGN:
            core.assign(self._assigned, now)

    def _watch(self, topic: str, listener: TopicListener, now: int) -> None:
        self._core.watch(topic, listener)

    def _pause(self, queues: Iterable[MessageQueue], now: int) -> None:
        self._core.pause(queues)

    def _assignment(self, now: int) -> tuple[MessageQueue, ...]:
        return self._core.assignment()

    def _put_back(self, claim: Claim, now: int) -> None:
        self._core.put_back(claim, now)

    def _poll_timeout(self, timeout_ms: int | None) -> int:
        timeout = self._lite_settings.poll_timeout_millis if timeout_ms is None else timeout_ms
        check_timeout(timeout)
        if timeout < 0:
            raise ClientError(f"a poll that waits for {timeout} ms makes no sense")
        return timeout
