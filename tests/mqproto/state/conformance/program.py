"""Our counterpart of the program whose requests were recorded: it takes the same command lines
(`tests/peers/kit/java/Probe.java`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any, Final

from mqproto.acl import SessionCredentials
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue, PullStatus, SendResult
from mqproto.replies import reply_to
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.state.consumer.pull.settings import LitePullSettings, PullConsumerSettings
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings, TransactionSettings
from mqproto.state.producer.transactions import CheckTask
from mqproto.transactions import LocalTransactionState
from mqproto.wire import properties
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from mqproto.wire.compression import Compression
from tests.golden.golden import GOLDEN
from tests.mqproto.state.conformance.replay import BROKER, Replay, encoded
from tests.mqproto.state.consumers import File

VERDICTS: Final = {
    "commit": LocalTransactionState.COMMIT_MESSAGE,
    "rollback": LocalTransactionState.ROLLBACK_MESSAGE,
    "unknown": LocalTransactionState.UNKNOW,
}
#: Which kind of client a command makes, and the group that it has unless the command names one.
ROLES: Final = {
    "produce": ("producer", "probe-producer"),
    "transact": ("producer", "probe-transactions"),
    "request": ("producer", "probe-producer"),
    "answer": ("producer", ""),
    "consume": ("consumer", ""),
    "reply": ("consumer", ""),
    "pull": ("consumer", ""),
    "litepull": ("consumer", ""),
    "offsets": ("consumer", ""),
}
LITE_PULLS: Final = ("pull", "litepull", "offsets")


#: The program that traced a producer and a consumer had no options; these are what it was written to do.
TRACED: Final = (
    "$ probe produce topic=Traced count=2 tag=TagT keys=trace-key body=traced group=trace-producer trace=true",
    "$ probe consume topic=Traced group=trace-consumer expect=2 trace=true",
)


class Line:
    """One recorded command line, and what the program printed."""

    def __init__(self, text: str) -> None:
        words = [one for one in shlex.split(text.partition(" (")[0]) if one not in ("$", "probe")]
        switches = [one for one in words if one.startswith("-D")]
        words = [one for one in words if not one.startswith("-D")]
        self.text = text
        self.command = words[0]
        self.options = dict(one.split("=", 1) for one in words[1:])
        self.compression = next((one.rpartition("=")[2] for one in switches if "compressType" in one), "ZLIB")
        self.printed: list[dict[str, Any]] = []

    def text_of(self, name: str, default: str = "") -> str:
        return self.options.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        return int(self.options.get(name, default))

    @property
    def role(self) -> tuple[str, str]:
        role, group = ROLES[self.command]
        return role, self.options.get("group", group)

    @property
    def refused(self) -> list[str]:
        """Ids of the messages that the listener let fail, in order."""
        return [one["refused"] for one in self.printed if "refused" in one]


def lines(version: str, name: str) -> list[Line]:
    """The commands of a capture that we have a counterpart for.

    Whoever answers requests has a line for each of its two clients.
    """
    if not (GOLDEN.root / "captures" / version / f"{name}.txt").exists():
        return []
    found: list[Line] = []
    for one in GOLDEN.printed(version, name).splitlines():
        if one.startswith("$ probe "):
            found.append(Line(one))
            if found[-1].command == "reply":
                found.append(Line(one.replace(" reply ", " answer ")))
        elif one.startswith("$ traced "):
            found += [Line(text) for text in TRACED]
        elif one.startswith('{"') and found:
            found[-1].printed.append(json.loads(one))
    return [one for one in found if one.command in ROLES]


class Program:
    """One command, run on the stage of its capture."""

    def __init__(self, version: str, name: str, line: Line, member: int = 0, namespace: str = "") -> None:
        self.line = line
        settings: dict[str, Any] = {"namespace": namespace}
        if "ak" in line.options:
            settings["credentials"] = SessionCredentials(line.options["ak"], line.options["sk"])
        if line.command in LITE_PULLS and version != "4.4.0":
            settings["stream"] = True
        if "vip" in line.options or version == "4.4.0":
            settings["vip_channel"] = True
        self.version, self.name = version, name
        self.replay = Replay(version, name, *line.role, member, **settings)
        self.replay.begin()
        #: What the application got, in the order in which it came.
        self.results: list[SendResult] = []
        self.messages: list[MessageExt] = []
        #: What the broker should have refused, or what went wrong.
        self.failure: MQError | None = None

    def run(self) -> Replay:
        """The whole life of the program, to the end of its client."""
        try:
            COMMANDS[self.line.command](self)
        except MQError as error:
            self.failure = error
        self.replay.advance(2_000)  # past the first heartbeat
        self.replay.node.close(self.replay.now)
        self.replay.settle()
        self.replay.advance(10_000)
        assert self.replay.node.ended
        return self.replay

    # --- producers

    def _messages(self) -> list[Message]:
        return [self._message(index) for index in range(self.line.number("count", 1))]

    def _message(self, index: int) -> Message:
        line = self.line
        own = dict(one.split(":") for one in line.text_of("props").split(",") if one)
        size = line.number("size")
        body = f"{line.text_of('body', 'message')}-{index}".encode()
        if size:
            body = bytes(ord("a") + (place + index) % 26 for place in range(size))
        return Message(
            line.options["topic"],
            body,
            line.text_of("tag") or None,
            f"{line.options['keys']}-{index}" if "keys" in line.options else "",
            {name: text.replace("#", str(index)) for name, text in own.items()},
            delay_level=line.number("delay"),
        )

    def _producer(self) -> ProducerCore:
        settings = ProducerSettings(
            self.line.role[1],
            send_timeout_ms=10_000,
            compress_type=Compression[self.line.compression],
            enable_msg_trace="trace" in self.line.options,
        )
        return self.replay.node.add_producer(settings, self.replay.now)

    def _do(self, flow: Flow[Any], patience_ms: int = 30_000) -> Any:
        return self._settled(self.replay.start(flow), patience_ms)

    def _settled(self, ticket: Ticket[Any], patience_ms: int = 30_000) -> Any:
        self.replay.settle()
        while not ticket.settled and patience_ms > 0:
            self.replay.advance(100)
            patience_ms -= 100
        assert ticket.settled, "it still waits"
        return ticket.result()

    def _produce(self) -> None:
        core, replay, line = self._producer(), self.replay, self.line
        mode = line.text_of("mode", "sync")
        if mode == "batch":
            self.results.append(self._do(core.send_batch(self._messages(), replay.now)))
            return
        for index, message in enumerate(self._messages()):
            queue = None
            if "shard" in line.options:
                queues = self._do(core.publish_queues(message.topic, replay.now))
                queue = queues[index % line.number("shard") % len(queues)]
            if mode == "oneway":
                self._do(core.send_oneway(message, replay.now, queue=queue))
            else:
                ticket = replay.node.send(core, message, replay.now, queue=queue, for_callback=mode == "async")
                self.results.append(self._settled(ticket))

    def _transact(self) -> None:
        line, replay = self.line, self.replay
        core = replay.node.add_transaction_producer(
            TransactionSettings(line.role[1], send_timeout_ms=10_000), "listener", replay.now
        )
        half = self._do(core.send_half(self._message(0), replay.now))
        self.results.append(half.result)
        self._do(core.end(half, core.judged(half, VERDICTS[line.text_of("outcome", "commit")], None), replay.now))
        for question in replay.pushed(39):
            replay.receive(BROKER, encoded(39, question.fields, question.body, 2))
        for action in replay.delivered:
            assert isinstance(action, Deliver)
            assert isinstance(action.task, CheckTask)
            replay.node.producers.checked(action.task, VERDICTS[line.text_of("check", "commit")], replay.now)
            replay.settle()

    def _request(self) -> None:
        core, replay = self._producer(), self.replay
        for message, recorded in zip(self._messages(), replay.pushed(326), strict=False):
            ticket = replay.start(replay.node.requests.ask(core, message, replay.now, timeout_ms=10_000))
            told = properties.decode(recorded.fields["properties"])
            told["CORRELATION_ID"] = properties.decode(replay.peers[BROKER].got[-1].fields["i"])["CORRELATION_ID"]
            replay.receive(
                BROKER, encoded(326, {**recorded.fields, "properties": properties.encode(told)}, recorded.body)
            )
            self.messages.append(ticket.result())

    def _answer_requests(self) -> None:
        """What the listener of `reply` sends, by a producer of its own."""
        reading = Program(self.version, self.name, Line(self.line.text.replace(" answer ", " reply ")))
        reading.run()
        core = self._producer()
        for message in reading.messages[: len(self.replay.recorded_of(325))]:
            self._do(core.send(reply_to(message, b"reply to " + message.body), self.replay.now))

    # --- consumers

    def _consume(self) -> None:
        line, replay = self.line, self.replay
        consumer = self._push_consumer()
        self._do(consumer.start(replay.now))
        refused, done, succeeded = list(line.refused), 0, 0
        until = replay.now + 1_000 * line.number("seconds", 30)
        while True:
            while done < len(replay.delivered):
                messages = self._task(done).messages
                fails = messages[0].msg_id in refused
                if fails:
                    refused.remove(messages[0].msg_id)
                else:
                    self.messages += messages
                    succeeded += len(messages)
                self._answer(done, ConsumeStatus.RECONSUME_LATER if fails else ConsumeStatus.SUCCESS)
                done += 1
            if succeeded >= line.number("expect", 1000) or replay.now >= until:
                break
            replay.advance(100)
        replay.advance(max(1_000, line.number("settle")))
        replay.advance(2_000)
        self._do(consumer.shutdown(replay.now))

    def _task(self, index: int) -> ConsumeTask:
        action = self.replay.delivered[index]
        assert isinstance(action, Deliver)
        assert isinstance(action.task, ConsumeTask)
        return action.task

    def _answer(self, index: int, result: object) -> None:
        self.replay.node.consumed(self._task(index), result, self.replay.now)
        self.replay.settle()

    def _push_consumer(self) -> PushConsumerCore:
        line = self.line
        settings = ConsumerSettings(
            line.role[1],
            message_model=MessageModel[line.text_of("model", "CLUSTERING")],
            consume_from_where=ConsumeFromWhere[f"CONSUME_FROM_{line.text_of('from', 'first').upper()}_OFFSET"],
            orderly=line.text_of("orderly") == "true",
            max_reconsume_times=line.number("max", -1),
            consume_thread_min=line.number("threads", 4),
            enable_msg_trace="trace" in line.options,
        )
        consumer = PushConsumerCore(self.replay.node, settings, "listener", offset_file=File())
        kind = "SQL92" if "sql" in line.options else "TAG"
        consumer.subscribe(
            line.options["topic"], line.text_of("sql") or line.text_of("tag", "*"), kind, now=self.replay.now
        )
        return consumer

    def _reply(self) -> None:
        self.line.options.setdefault("seconds", "10")
        self._consume()

    def _pull(self) -> None:
        line, replay = self.line, self.replay
        consumer = self._puller()
        for queue in self._do(consumer.queries.fetch_queues(line.options["topic"], replay.now)):
            offset = self._do(consumer.queries.min_offset(queue, replay.now))
            while True:
                pulled = self._do(
                    consumer.pull(queue, line.text_of("tag", "*"), offset, 32, "TAG", False, None, replay.now)
                )
                self.messages += pulled.messages
                if (
                    pulled.status in (PullStatus.NO_NEW_MSG, PullStatus.OFFSET_ILLEGAL)
                    or pulled.next_begin_offset == offset
                ):
                    break
                offset = pulled.next_begin_offset
        replay.advance(2_000)
        self._do(consumer.shutdown(replay.now))

    def _puller(self) -> PullConsumerCore:
        consumer = PullConsumerCore(self.replay.node, PullConsumerSettings(self.line.role[1]), "face")
        self._do(consumer.start(self.replay.now))
        return consumer

    def _offsets(self) -> None:
        replay = self.replay
        consumer = self._puller()
        queue: MessageQueue
        for queue in self._do(consumer.queries.fetch_queues(self.line.options["topic"], replay.now)):
            self._do(consumer.queries.min_offset(queue, replay.now))
            self._do(consumer.queries.max_offset(queue, replay.now))
            self._do(consumer.fetch_consume_offset(queue, True, replay.now))
            self._do(consumer.queries.search_offset(queue, self.line.number("time"), replay.now))
        replay.advance(2_000)
        self._do(consumer.shutdown(replay.now))

    def _litepull(self) -> None:
        replay = self.replay
        settings = LitePullSettings(self.line.role[1], consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = LitePullConsumerCore(replay.node, settings, "face")
        consumer.subscribe(self.line.options["topic"], "*", "TAG", None, replay.now)
        self._do(consumer.start(replay.now))
        while found := self._do(consumer.poll(Claim(), 0, None, replay.now)):
            self.messages += found
        replay.advance(2_000)
        self._do(consumer.shutdown(replay.now))


COMMANDS: Final[dict[str, Callable[[Program], None]]] = {
    "produce": Program._produce,
    "transact": Program._transact,
    "request": Program._request,
    "answer": Program._answer_requests,
    "consume": Program._consume,
    "reply": Program._reply,
    "pull": Program._pull,
    "litepull": Program._litepull,
    "offsets": Program._offsets,
}
