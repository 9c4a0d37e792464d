"""Messages in transactions, as a broker sees them: halves, ends, and the questions in between."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command, encode_response
from mqproto.errors import BrokerError, InvalidMessage, InvalidName, InvalidSetting, SendFailed, StateError
from mqproto.message import Message, MessageExt, SendStatus
from mqproto.replies import ReplyMessage
from mqproto.state.flows.calls import UNSENT_MAX
from mqproto.state.node.contract import Deliver
from mqproto.state.producer.settings import TransactionSettings
from mqproto.state.producer.transactions import CheckTask, Half, TransactionCore
from mqproto.transactions import LocalTransactionState, TransactionSendResult
from mqproto.wire import properties
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.compression import Compression, deflate, inflate
from mqproto.wire.headers import EndTransactionRequest
from mqproto.wire.ids import offset_msg_id
from mqproto.wire.record import encode_record
from tests.golden.golden import VERSIONS, Golden
from tests.mqproto.state.stage import NS, Peer, Stage, broker, name_server, refused, route, success

SEND, END, CHECK = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE
COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


def taking(offset: int = 7, physical: int = 4711, code: int = 0, **fields: str) -> Any:
    """How a broker answers a send."""

    def answer(request: Command) -> bytes:
        given = {
            "msgId": offset_msg_id(HOST, physical),
            "queueId": request.fields["e"],
            "queueOffset": str(offset),
            **fields,
        }
        return encode_response(request.opaque, code, given)

    return answer


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.peers[NS] = name_server({"orders": route("a=a:1"), "TBW102": route("a=a:1")})
    stage.peers["a:1"] = broker()
    stage.peers["a:1"].answers[SEND] = taking()
    return stage.begin()


def core_of(stage: Stage, group: str = "pg", **settings: Any) -> TransactionCore:
    return stage.node.add_transaction_producer(TransactionSettings(group=group, **settings), group, stage.now)


def prepare(stage: Stage, core: TransactionCore, body: bytes = b"paid", **attributes: Any) -> Half:
    return stage.run(core.send_half(Message("orders", body, **attributes), stage.now))


def finish(
    stage: Stage, core: TransactionCore, half: Half, verdict: object = COMMIT, raised: BaseException | None = None
) -> Any:
    return stage.run(core.end(half, core.judged(half, verdict, raised), stage.now))


def ends(peer: Peer) -> list[EndTransactionRequest]:
    return [EndTransactionRequest.decode(command.fields) for command in peer.of(END)]


# --- a message and its local transaction


def test_a_half_and_its_end(stage: Stage) -> None:
    """docs/protocol/client.md 3.11: what the broker gets before and after the local transaction."""
    core = core_of(stage)
    message = Message("orders", b"paid", tags="T", keys="k", properties={"shop": "7"})
    half = stage.run(core.send_half(message, stage.now))
    (sent,) = stage.peers["a:1"].of(SEND)
    props = properties.decode(sent.fields["i"])
    assert (sent.fields["f"], props["TRAN_MSG"], props["PGROUP"], props["shop"]) == ("4", "true", "pg", "7")
    assert half.accepted
    assert (half.message.msg_id, half.message.body, half.message.tags) == (props["UNIQ_KEY"], b"paid", "T")
    assert half.message.properties == message.properties == {"shop": "7"}, "neither copy shows what is the protocol's"
    assert half.message.properties is not message.properties

    result = finish(stage, core, half)
    assert isinstance(result, TransactionSendResult)
    assert (result.status, result.local_transaction_state, result.local_failure) == (SendStatus.SEND_OK, COMMIT, None)
    assert (result.msg_id, result.queue, result.queue_offset) == (half.result.msg_id, half.result.queue, 7)
    (end,) = stage.peers["a:1"].of(END)
    assert end.is_oneway
    assert end.fields == {
        "producerGroup": "pg",
        "tranStateTableOffset": "7",
        "commitLogOffset": "4711",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": half.result.msg_id,
        "bname": "a",
    }


@pytest.mark.parametrize(
    ("verdict", "raised", "wire", "state"),
    [
        (COMMIT, None, 8, COMMIT),
        (ROLLBACK, None, 12, ROLLBACK),
        (UNKNOW, None, 0, UNKNOW),
        (LocalTransactionState.UNKNOWN, None, 0, UNKNOW),
        (None, None, 0, UNKNOW),
        (True, None, 0, UNKNOW),
        ("COMMIT_MESSAGE", None, 0, UNKNOW),
        (None, ValueError("no such account"), 0, UNKNOW),
        (COMMIT, ValueError("after all"), 0, UNKNOW),
    ],
)
def test_verdicts(
    stage: Stage, verdict: object, raised: BaseException | None, wire: int, state: LocalTransactionState
) -> None:
    core = core_of(stage)
    result = finish(stage, core, prepare(stage, core), verdict, raised)
    assert (result.local_transaction_state, result.local_failure) == (state, raised)
    assert [end.commit_or_rollback for end in ends(stage.peers["a:1"])] == [wire]
    odd = verdict in (True, "COMMIT_MESSAGE")
    assert [notice for notice in stage.node.notices if "counts as UNKNOW" in notice] == (
        [f"the listener of transaction group pg said {verdict!r}, which counts as UNKNOW"] if odd else []
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_a_half_that_is_not_safe_is_rolled_back(stage: Stage, code: int, status: SendStatus) -> None:
    """docs/protocol/client.md 3.11: the local transaction is not run then, so a verdict that is given all the same does
    not count.
    """
    stage.peers["a:1"].answers[SEND] = taking(code=code)
    core = core_of(stage)
    half = prepare(stage, core)
    assert not half.accepted
    result = finish(stage, core, half, COMMIT, ValueError("never looked at"))
    assert (result.status, result.local_transaction_state, result.local_failure) == (status, ROLLBACK, None)
    assert [end.commit_or_rollback for end in ends(stage.peers["a:1"])] == [12]


def test_what_the_broker_calls_the_transaction_goes_back_to_it(stage: Stage) -> None:
    stage.peers["a:1"].answers[SEND] = taking(transactionId="tx-9")
    core = core_of(stage)
    assert finish(stage, core, prepare(stage, core)).transaction_id == "tx-9"
    assert [end.transaction_id for end in ends(stage.peers["a:1"])] == ["tx-9"]


def test_a_message_in_a_transaction_cannot_be_delayed(stage: Stage) -> None:
    """TXN-05: refused by the client."""
    core = core_of(stage)
    for message in (
        Message("orders", b"x", delay_level=3),
        Message("orders", b""),
        ReplyMessage("c_REPLY_TOPIC", b"x"),
    ):
        with pytest.raises(InvalidMessage):
            stage.run(core.send_half(message, stage.now))
    with pytest.raises(InvalidMessage, match="used by the system"):
        stage.run(core.send_half(Message("orders", b"x", properties={"TRAN_MSG": "true"}), stage.now))
    assert stage.peers["a:1"].of(SEND) == []


def test_a_half_is_tried_again_elsewhere_and_ended_where_it_lies(stage: Stage) -> None:
    """MSG-09: the second attempt carries the very same body, compressed once."""
    stage.peers["b:1"] = broker()
    stage.peers["b:1"].answers[SEND] = taking(9, 99)
    stage.peers[NS].answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: success(
        request, body=route("a=a:1", "b=b:1").to_json()
    )
    stage.peers["a:1"].answers[SEND] = lambda request: refused(request, ResponseCode.SYSTEM_ERROR)
    core = core_of(stage)
    body = b"the same again " * 1000
    half = prepare(stage, core, body)
    assert half.message.body == body
    finish(stage, core, half)
    first, second = stage.peers["a:1"].of(SEND)[0], stage.peers["b:1"].of(SEND)[0]
    assert bytes(first.body) == bytes(second.body) != body
    assert inflate(bytes(second.body), int(second.fields["f"])) == body
    assert int(second.fields["f"]) & 0xC == 4
    assert ends(stage.peers["a:1"]) == []
    (end,) = ends(stage.peers["b:1"])
    assert (end.tran_state_table_offset, end.commit_log_offset) == (9, 99)


def test_a_half_that_cannot_be_sent_ends_nothing(stage: Stage) -> None:
    core = core_of(stage)
    stage.peers["a:1"].answers[SEND] = lambda request: refused(request, ResponseCode.MESSAGE_ILLEGAL, "no")
    with pytest.raises(BrokerError):
        prepare(stage, core)
    stage.cut("a:1")
    del stage.peers["a:1"]
    with pytest.raises(SendFailed):
        prepare(stage, core)


def test_an_end_that_cannot_be_sent_is_a_notice(stage: Stage) -> None:
    """The caller has run its local transaction: it is told of that, and the broker will ask."""
    core = core_of(stage)
    half = prepare(stage, core)
    stage.cut("a:1")
    peer = stage.peers.pop("a:1")
    assert finish(stage, core, half).local_transaction_state is COMMIT
    stage.node.routes.keep([])
    assert finish(stage, core, half).local_transaction_state is COMMIT
    assert ends(peer) == []
    assert [notice.partition(": ")[2] for notice in stage.node.notices if "will ask" in notice] == [
        "cannot connect to a:1: connection refused",
        "no master of broker a is known",
    ]


def test_an_end_that_finds_the_broker_deaf_is_a_notice(stage: Stage) -> None:
    core = core_of(stage)
    half = prepare(stage, core)
    stage.node.links["a:1"].unsent = UNSENT_MAX + 1
    assert finish(stage, core, half).local_transaction_state is COMMIT
    assert ends(stage.peers["a:1"]) == []
    assert "will ask: a:1 has left" in stage.node.notices[-1]


def test_an_unreadable_place_of_the_half_is_a_notice(stage: Stage) -> None:
    stage.peers["a:1"].answers[SEND] = lambda request: success(
        request, {"msgId": "zz", "queueId": "0", "queueOffset": "1"}
    )
    core = core_of(stage)
    assert finish(stage, core, prepare(stage, core)).local_transaction_state is COMMIT
    assert ends(stage.peers["a:1"]) == []
    assert any("is no message id" in notice for notice in stage.node.notices)


# --- questions


def record_of(
    group: str | None = "pg", body: bytes = b"paid", unique: str = "AB" * 16, sys_flag: int = 4, topic: str = "orders"
) -> bytes:
    props = {"UNIQ_KEY": unique, "TRAN_MSG": "true", "REAL_TOPIC": topic} | (
        {"PGROUP": group} if group is not None else {}
    )
    props = {name: value for name, value in props.items() if value}
    return encode_record(MessageExt(topic, body, props, sys_flag=sys_flag, queue_offset=5, physical_offset=77))


def ask(stage: Stage, body: bytes | None = None, **fields: str) -> None:
    given = {
        "tranStateTableOffset": "5",
        "commitLogOffset": "77",
        "msgId": "m",
        "transactionId": "t",
        "offsetMsgId": "o",
        **fields,
    }
    stage.request("a:1", CHECK, given, record_of() if body is None else body, oneway=True)


def checks(stage: Stage) -> list[CheckTask]:
    found = []
    for action in stage.delivered:
        assert isinstance(action, Deliver)
        assert isinstance(action.task, CheckTask)
        found.append(action.task)
    return found


def answer_check(stage: Stage, task: CheckTask, result: object) -> None:
    stage.node.producers.checked(task, result, stage.now)
    stage.settle()


@pytest.fixture
def asked(stage: Stage) -> Stage:
    """A stage whose broker knows the producer of group pg."""
    core = core_of(stage)
    stage.run(core.producer.send(Message("orders", b"first"), stage.now))
    return stage


def test_a_question_is_answered_by_the_listener_of_its_group(asked: Stage) -> None:
    """TXN-06: two groups in one process; ids and offsets go back as they came."""
    core_of(asked, "other")
    ask(asked, bname="broker-x")
    ask(
        asked,
        record_of("other", b"elsewhere", "CD" * 16),
        tranStateTableOffset="6",
        commitLogOffset="88",
        transactionId="u",
    )
    first, second = checks(asked)
    assert (first.group, first.message.body, second.group, second.message.body) == (
        "pg",
        b"paid",
        "other",
        b"elsewhere",
    )
    assert (first.listener, second.listener) == ("pg", "other"), "what the core was given"
    assert (first.message.msg_id, first.message.queue_offset, first.message.broker_name) == ("AB" * 16, 5, "broker-x")
    answer_check(asked, second, ROLLBACK)
    answer_check(asked, first, COMMIT)
    other, ours = asked.peers["a:1"].of(END)
    assert ours.is_oneway
    assert ours.fields == {
        "producerGroup": "pg",
        "tranStateTableOffset": "5",
        "commitLogOffset": "77",
        "commitOrRollback": "8",
        "fromTransactionCheck": "true",
        "msgId": "AB" * 16,
        "transactionId": "t",
        "bname": "broker-x",
    }
    assert (other.fields["producerGroup"], other.fields["commitLogOffset"], other.fields["transactionId"]) == (
        "other",
        "88",
        "u",
    )
    assert (other.fields["commitOrRollback"], "bname" in other.fields) == ("12", False)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["transact-check", "transact-check-rollback", "binary-both-transact"])
def test_questions_of_every_release(golden: Golden, stage: Stage, version: str, name: str) -> None:
    """Recorded questions, some in the binary form: all are understood, and the answers repeat what Apache's client of
    the release did.
    """
    recorded = golden.capture(version, name)
    questions = [entry for entry in recorded if entry.is_request and entry.code == CHECK]
    answers = {
        entry.fields["commitLogOffset"]: entry.fields
        for entry in recorded
        if entry.is_request and entry.code == END and entry.fields["fromTransactionCheck"] == "true"
    }
    assert questions
    core = core_of(stage, "probe-transactions")
    stage.run(core.producer.send(Message("orders", b"first"), stage.now))
    for question in questions:
        stage.receive("a:1", question.frame)
    for task in checks(stage):
        assert task.message.body == b"message-0"
        theirs = answers.pop(str(task.header.commit_log_offset))
        answer_check(stage, task, {"8": COMMIT, "12": ROLLBACK}[theirs["commitOrRollback"]])
        ours = stage.peers["a:1"].of(END)[-1].fields
        assert ours == {key: value for key, value in theirs.items() if key != "topic"}, "5.3.3 adds the topic"
    assert not answers


def test_a_message_without_an_id_of_its_producer_is_known_by_its_place(asked: Stage) -> None:
    ask(asked, record_of(unique=""))
    (task,) = checks(asked)
    answer_check(asked, task, COMMIT)
    assert asked.peers["a:1"].of(END)[0].fields["msgId"] == task.message.offset_msg_id


def test_a_compressed_message_is_asked_about_in_plain(asked: Stage) -> None:
    """MSG-09: a question that comes before the commit."""
    body = b"the same again " * 1000
    packed, flag = deflate(body, Compression.ZLIB, 5)
    ask(asked, record_of(body=packed, sys_flag=flag | 4))
    assert checks(asked)[0].message.body == body


@pytest.mark.parametrize("result", [None, UNKNOW, ValueError("database is away"), "yes"])
def test_a_listener_that_does_not_know(asked: Stage, result: object) -> None:
    ask(asked)
    answer_check(asked, checks(asked)[0], result)
    assert [(end.commit_or_rollback, end.from_transaction_check) for end in ends(asked.peers["a:1"])] == [(0, True)]


def test_an_answer_counts_once(asked: Stage) -> None:
    ask(asked)
    (task,) = checks(asked)
    answer_check(asked, task, COMMIT)
    answer_check(asked, task, ROLLBACK)
    assert [end.commit_or_rollback for end in ends(asked.peers["a:1"])] == [8]


def test_the_answer_goes_to_who_asked_by_a_new_link_if_need_be(asked: Stage) -> None:
    ask(asked)
    asked.cut("a:1")
    answer_check(asked, checks(asked)[0], COMMIT)
    assert [end.commit_or_rollback for end in ends(asked.peers["a:1"])] == [8]
    ask(asked)
    asked.cut("a:1")
    peer = asked.peers.pop("a:1")
    answer_check(asked, checks(asked)[1], COMMIT)
    assert len(ends(peer)) == 1
    assert any("will ask: cannot connect to a:1" in notice for notice in asked.node.notices)


@pytest.mark.parametrize(
    ("body", "notice"),
    [
        (record_of("nobody"), "of group 'nobody', which has no transaction producer here"),
        (record_of(None), "of group '', which has no transaction producer here"),
        (record_of("plain"), "of group 'plain', which has no transaction producer here"),
        (b"rubbish", "cannot be read: record at byte 0"),
        (record_of(body=b"no zlib", sys_flag=5), "cannot be read: record at byte 0"),
    ],
)
def test_a_question_that_nobody_can_answer(asked: Stage, body: bytes, notice: str) -> None:
    asked.node.add_producer(TransactionSettings(group="plain"), asked.now)
    ask(asked, body)
    assert checks(asked) == []
    assert [notice in one for one in asked.node.notices] == [True]
    ask(asked)
    assert len(checks(asked)) == 1, "the link goes on"


def test_a_question_without_its_offsets(asked: Stage) -> None:
    asked.request("a:1", CHECK, {"commitLogOffset": "1"}, record_of(), oneway=True)
    assert checks(asked) == []
    assert "tranStateTableOffset: is missing" in asked.node.notices[-1]


def test_questions_that_wait_are_bounded() -> None:
    stage = Stage()
    stage.peers[NS] = name_server({"orders": route("a=a:1")})
    stage.peers["a:1"] = broker()
    core = core_of(stage.begin(), check_request_hold_max=2)
    stage.run(core.producer.send(Message("orders", b"first"), stage.now))
    for _ in range(3):
        ask(stage)
    assert len(checks(stage)) == 2
    assert stage.node.notices[-1] == "group pg: 2 questions about transactions wait already: one of a:1 is dropped"
    answer_check(stage, checks(stage)[0], COMMIT)
    ask(stage)
    assert len(checks(stage)) == 3


def test_the_application_sees_plain_names_in_a_namespace() -> None:
    """docs/protocol/client.md 1.8: group and topic are wrapped on the wire; the group of a question is that of the
    wire.
    """
    stage = Stage(namespace="ns")
    stage.peers[NS] = name_server({"ns%orders": route("a=a:1")})
    stage.peers["a:1"] = broker()
    stage.peers["a:1"].answers[SEND] = taking()
    core = core_of(stage.begin())
    half = prepare(stage, core)
    assert (half.message.topic, half.result.queue.topic) == ("orders", "orders")
    assert finish(stage, core, half).queue.topic == "orders"
    (sent,) = stage.peers["a:1"].of(SEND)
    assert (sent.fields["b"], properties.decode(sent.fields["i"])["PGROUP"]) == ("ns%orders", "ns%pg")
    ask(stage, record_of("ns%pg", topic="ns%orders"))
    (task,) = checks(stage)
    assert task.message.topic == "orders"
    answer_check(stage, task, COMMIT)
    assert [end.producer_group for end in ends(stage.peers["a:1"])] == ["ns%pg"] * 2


def test_after_the_end_nothing_is_asked_or_answered(asked: Stage) -> None:
    ask(asked)
    (task,) = checks(asked)
    core = asked.node.producers.transactions["pg"]
    asked.run(asked.node.remove_producer(core.producer, asked.now))
    ask(asked)
    core.check(None, task.message, "a:1", None)  # type: ignore[arg-type]  # not looked at
    assert checks(asked) == [task]
    answer_check(asked, task, COMMIT)
    core.checked(task, COMMIT, asked.now)
    asked.settle()
    assert asked.node.producers.transactions == {}
    assert ends(asked.peers["a:1"]) == []
    with pytest.raises(StateError):
        prepare(asked, core)
    assert core_of(asked).group == "pg", "the group is free again"


def test_groups_and_settings_are_checked(stage: Stage) -> None:
    with pytest.raises(InvalidName):
        core_of(stage, "DEFAULT_PRODUCER")
    settings: list[dict[str, Any]] = [
        {"check_request_hold_max": 0},
        {"check_thread_pool_max_size": 0},
        {"retry_times": -1},
    ]
    for wrong in settings:
        with pytest.raises(InvalidSetting):
            core_of(stage, **wrong)
    core_of(stage)
    with pytest.raises(StateError):
        core_of(stage)
