"""Calls to clients that operators ask for: 223, 307, 309 (docs/protocol/broker.md 2.12, 2.19, 2.20).

Owns: whom a request is for, how long a client may take, what is answered when it is silent, too old, or gone.
Leaves to others: who is online (`mqproto.engine.broker.core.client_registry`), what clients answer.

Only the operator who asked waits for a client: the request is a call on the client's link, and its end is the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import ClientRegistry, Member
from mqproto.engine.broker.core.core import ClientLink, Handlers
from mqproto.engine.broker.interfaces.answers import DiskReads, LongAnswers
from mqproto.engine.broker.interfaces.clock import Clock, Notices
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Refused, Waiter
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Store
from mqproto.errors import TooManyRequests
from mqproto.message import MessageQueue
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT, Buffer
from mqproto.wire.bodies import ConsumerStatus
from mqproto.wire.codes import RequestCode, ResponseCode, version_name
from mqproto.wire.fastjson import JsonError
from mqproto.wire.headers import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest, GetConsumerStatusRequest
from mqproto.wire.ids import IdError, parse_offset_msg_id

#: Oldest clients that understand 220 and 221, and 307 and 309 (docs/protocol/broker.md 0.1).
V3_0_7_SNAPSHOT: Final = 28
V3_1_8_SNAPSHOT: Final = 62

#: How long a client may take for 307 and 309, and for 221.
_CALL_MS: Final = 10_000
_STATUS_MS: Final = 5000
#: Requests of one asker that may be under way; one more is refused, the broker is busy.
_OF_A_LINK_MAX: Final = 256
#: Clients of a group that are asked at the same time.
_AT_A_TIME: Final = 64
#: Bytes of answers of clients that one answer is made of.
_ANSWERS_MAX: Final = 8 << 20


class ClientCallRequests:
    """Requests of operators that consumers answer, through the broker."""

    def __init__(
        self,
        clock: Clock,
        notices: Notices,
        settings: BrokerSettings,
        store: Store,
        client_registry: ClientRegistry,
        reads: DiskReads,
        answers: LongAnswers,
    ) -> None:
        self.clock = clock
        self.notices = notices
        self.settings = settings
        self.store = store
        self.client_registry = client_registry
        self.reads = reads
        self.answers = answers
        #: How many requests each link has under way.
        self._under_way: dict[ClientLink, int] = {}

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.on_statuses,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.on_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.on_consume_directly,
        }

    # --- one client ---

    def on_running_info(self, link: ClientLink, request: Command) -> None:
        header = GetConsumerRunningInfoRequest.decode(request.fields)
        self._forward(link, request, header.consumer_group, header.client_id, request.fields, request.body)

    def on_consume_directly(self, link: ClientLink, request: Command) -> None:
        """Have a client consume a message that is stored here."""
        header = ConsumeMessageDirectlyRequest.decode(request.fields)
        try:
            _, offset = parse_offset_msg_id(header.msg_id or "")
        except IdError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        fields = {**request.fields, "brokerName": self.settings.broker_name}

        def then(record: memoryview | None) -> None:
            if record is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
            self._forward(link, request, header.consumer_group, header.client_id, fields, record)

        self.reads.answer(link, request, self.store.reads.record(offset), then)

    def _forward(
        self,
        link: ClientLink,
        request: Command,
        group: str,
        client_id: str | None,
        fields: Mapping[str, str],
        body: Buffer,
    ) -> None:
        """Ask one member of a group what its asker asks. Raises Refused."""
        consumers = self.client_registry.consumers.get(group)
        member = None if consumers is None or client_id is None else consumers.member_of(client_id)
        target = None if member is None else member.link
        if member is None or not isinstance(target, ClientLink) or target.ended:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < V3_1_8_SNAPSHOT:
            version = version_name(member.version)
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        self._begin(link)

        def answered(answer: Command | None) -> None:
            self._end(link)
            if answer is not None:
                link.reply(request, answer.code, body=answer.body, remark=answer.remark)
            elif target.ended:
                link.reply(
                    request,
                    ResponseCode.SYSTEM_ERROR,
                    remark=f"invoke consumer <{group}> <{client_id}> Exception: its connection is closed",
                )
            else:
                remark = f"consumer <{group}> <{client_id}> Timeout: no answer within {_CALL_MS} ms"
                link.reply(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)

        if not self.call(target, answered, request.code, fields, body, _CALL_MS):
            self._end(link)
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)

    def call(
        self, target: ClientLink, waiter: Waiter, code: int, fields: Mapping[str, str], body: Buffer, timeout_ms: int
    ) -> bool:
        """Ask a client; False when it takes nothing any more or too many calls are in flight; `waiter` is not called
        then.
        """
        if target.ended or target.unsent > SERVER_UNSENT_LIMIT:
            return False
        try:
            target.call(waiter, code, fields, body, deadline=self.clock.now + timeout_ms)
        except TooManyRequests:
            return False
        return True

    def _begin(self, link: ClientLink) -> None:
        count = self._under_way.get(link, 0)
        if count >= _OF_A_LINK_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        self._under_way[link] = count + 1

    def _end(self, link: ClientLink) -> None:
        count = self._under_way[link] - 1
        if count:
            self._under_way[link] = count
        else:
            del self._under_way[link]

    # --- all clients of a group ---

    def on_statuses(self, link: ClientLink, request: Command) -> None:
        """Where the clients of a group stand, as they see it themselves; those that do not answer are left out."""
        header = GetConsumerStatusRequest.decode(request.fields)
        group = self.client_registry.consumers.get(header.group)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        wanted = header.client_addr
        members = [member for member in group.members.values() if not wanted or member.client_id == wanted]
        refuse_old(members)
        self._begin(link)
        _Statuses(self, link, request, header, members).go_on()

    def all_answered(self, link: ClientLink, request: Command, found: dict[str, dict[MessageQueue, int]]) -> None:
        """All clients have answered, or will not."""
        self._end(link)
        try:
            self.answers.reply(link, request, ConsumerStatus(by_client=found))
        except Refused as refused:
            link.reply(request, refused.code, remark=refused.remark)


class _Statuses:
    """Request 223 under way: clients that are asked for their offsets, and what they have answered."""

    def __init__(
        self,
        calls: ClientCallRequests,
        link: ClientLink,
        request: Command,
        header: GetConsumerStatusRequest,
        members: Iterable[Member],
    ) -> None:
        self.calls = calls
        self.link = link
        self.request = request
        self.fields = GetConsumerStatusRequest(header.topic, header.group).encode()
        self.waiting = deque(members)
        self.asked = 0
        self.size = 0
        self.found: dict[str, dict[MessageQueue, int]] = {}
        self.ended = False

    def go_on(self) -> None:
        """Ask the next clients, as many as may be asked at the same time; end when there is none left."""
        while self.waiting and self.asked < _AT_A_TIME and self.size < _ANSWERS_MAX and not self.link.ended:
            self._ask(self.waiting.popleft())
        if not self.asked and not self.ended:
            self.ended = True
            self.calls.all_answered(self.link, self.request, self.found)

    def _ask(self, member: Member) -> None:
        target = member.link

        def answered(answer: Command | None) -> None:
            self.asked -= 1
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._take(member.client_id, answer.body)
            self.go_on()

        if isinstance(target, ClientLink) and self.calls.call(
            target, answered, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self.fields, b"", _STATUS_MS
        ):
            self.asked += 1

    def _take(self, client_id: str, body: bytes | memoryview) -> None:
        self.size += len(body)
        try:
            self.found[client_id] = ConsumerStatus.from_json(body).offsets
        except JsonError as error:
            self.calls.notices.notice(f"{client_id} told its offsets in no way that can be read: {error}")


def refuse_old(members: Iterable[Member]) -> None:
    """Raises Refused if one of these clients knows neither 220 nor 221."""
    for member in members:
        if member.version < V3_0_7_SNAPSHOT:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={version_name(member.version)}",
            )
