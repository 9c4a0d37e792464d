"""Replay of what real clients asked Apache's brokers: ours answers the same (replaying.py tells how)."""

from __future__ import annotations

import pytest

from tests.engine.broker.replaying import Difference, Excuse, Replay
from tests.golden.golden import GOLDEN

#: Suites, each with a broker of its own, and their scenarios in the order in which they were recorded.
PLAIN = (
    "topics produce-sync produce-auto-create produce-unicode produce-async produce-oneway produce-batch "
    "produce-compressed produce-orderly produce-vip consume consume-tag consume-live consume-delayed consume-retry "
    "consume-dead-letter consume-orderly consume-broadcast rebalance pull offsets query view transact-commit "
    "transact-rollback transact-check transact-check-rollback transact-consume sql-not-latest sql-wrong litepull "
    "request-reply binary-client-produce binary-client-consume ipv6-ids produce-lz4 produce-zstd consume-packed"
)
BINARY = (
    "binary-server-boot binary-server-topics binary-server-json-client-produce binary-server-json-client-consume "
    "binary-both-produce binary-both-consume binary-both-transact binary-both-admin"
)
TRACE = "trace-topics trace trace-query trace-sendMessage"
ADMIN = (
    "updateTopic updateTopic-order updateTopic-bad-name updateTopicPerm updateTopicPerm-cluster topicRoute-order "
    "topicRoute topicRoute-none topicRoute-list sendMessage sendMessage-queue checkMsgSendRT sendMsgStatus produce "
    "updateSubGroup updateSubGroup-cluster topicStatus topicClusterList topicList queryMsgById queryMsgById-bad "
    "queryMsgByKey queryMsgByUniqueKey queryMsgByOffset printMsg printMsgByQueue consumeMessage consumeMessage-queue "
    "queryCq allocateMQ clients-start consumerConnection consumerConnection-none producerConnection producer "
    "getConsumerConfig topicList-c consumerProgress consumerProgress-g consumerProgress-s consumerProgress-none "
    "consumerStatus consumerStatus-i consumerStatus-s brokerConsumeStats statsAll statsAll-t queryMsgById-tracked "
    "queryMsgById-push queryMsgById-resend resetOffsetByTime resetOffsetByTime-now skipAccumulatedMessage "
    "resetOffsetByTime-offline cloneGroupOffset consumerProgress-offline clusterList clusterList-m brokerStatus "
    "brokerStatus-c getBrokerConfig getBrokerConfig-c updateBrokerConfig updateBrokerConfig-unknown cleanExpiredCQ "
    "cleanExpiredCQ-c cleanUnusedTopic deleteExpiredCommitLog exportConfigs exportMetadata exportMetrics "
    "deleteSubGroup deleteSubGroup-c deleteTopic topicRoute-wiped topicRoute-added"
)
SUITES = {
    "plain": PLAIN.split(),
    "binary": BINARY.split(),
    "trace": TRACE.split(),
    "sql": ["topics", "sql"],
    "life": ["register-again", "register-again-unforced", "register-again-compressed"],
    "admin": [f"admin-{name}" for name in ADMIN.split()],
}

#: Keys of other releases, in the files of all.
UNKNOWN_KEYS = ("mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue")
#: As the recorder's broker had them.
SETTINGS = {"transaction_check_interval": 2000, "transaction_time_out": 1000, "enable_property_filter": True}

ALL = "4.4.0 4.9.7 5.3.3"
LATE = "the consumer's subscription not latest"
UNSET = "not set any response code"
TIMING = "Apache's threads handled the pull before the heartbeat that came first; ours has no such race"
FORGOTTEN = "a remark that Apache forgets to clear"
NEWER = "only 5.x says that"
BATCH_IDS = "each message of a batch keeps its own id (MSG-08)"
LATE_OPS = (
    "5.x notes up to 3 s late what was ended, and asked again about it meanwhile: halves and commits were there twice"
)
UNLINKED = "the consumer's first heartbeat came by a link that the recorder did not see"
BUILT_IN = "the op topic and the group of the check-back are there from the start, as in 5.x"
REFUSED = "an unknown key is refused and named"
RESET = "5.x resets the offsets of groups that are offline by itself"
#: `suite=""` may be met in any suite, and need not; all others are needed in theirs.
EXCUSES = (
    *(Excuse(FORGOTTEN, ALL, code, "remark", suite="", theirs=UNSET, ours=None) for code in (17, 222, 321)),
    Excuse("5.x has an empty remark", "5.3.3", 31, "remark", suite="", theirs="", ours=None),
    Excuse(NEWER, "5.3.3", 310, "fields", suite="", theirs=("transactionId",), ours=()),
    Excuse(NEWER, "5.3.3", 320, "fields", suite="", theirs=("transactionId",), ours=()),
    Excuse(NEWER, "5.3.3", 34, "fields", suite="", theirs=("IS_SUB_CHANGE", "IS_SUPPORT_HEART_BEAT_V2"), ours=()),
    Excuse(NEWER, "5.3.3", 11, "fields", suite="", theirs=("groupSysFlag", "topicSysFlag"), ours=()),
    Excuse(NEWER, "5.3.3", 361, "fields", suite="", theirs=("groupSysFlag", "topicSysFlag"), ours=()),
    Excuse("5.x has no offset 0 for a queue without messages", "5.3.3", 14, "code", suite="", ours=(0, None)),
    Excuse(BATCH_IDS, "5.3.3", 11, "ids", suite=""),
    Excuse(BATCH_IDS, "5.3.3", 361, "ids", suite=""),
    Excuse(TIMING, "4.4.0 4.9.7", 11, "no answer", suite="", theirs=LATE),
    Excuse(TIMING, "4.4.0 4.9.7", 11, "code", suite="", theirs=(25, LATE), ours=(0, "FOUND")),
    # --- plain ---
    Excuse("the first at or after the time, and the end for a later one (REB-08)", "4.4.0 4.9.7", 29, "offset"),
    Excuse(
        "Apache lost an offset that was committed at the same time as another",
        "4.9.7",
        14,
        "offset",
        "offsets",
        theirs="0",
        ours="4",
    ),
    Excuse(
        "Apache ends a hold up to 5 s late", "4.4.0", 11, "extra answer", "rebalance", ours=(19, "NO_MESSAGE_IN_QUEUE")
    ),
    Excuse("the capture ends before Apache's answer", "5.3.3", 34, "extra answer", "view", ours=(0, None)),
    Excuse("the capture ends before Apache's answer", "5.3.3", 34, "extra answer", "sql-wrong", ours=(0, None)),
    Excuse(
        "who asked closes without a word: Apache waits out its 10 s, ours knows at once",
        "5.3.3",
        325,
        "extra answer",
        "request-reply",
    ),
    Excuse("a parser's message in its own words", ALL, 46, "remark", "sql-wrong"),
    Excuse(LATE_OPS, "5.3.3", 310, "queueOffset", "transact-rollback transact-check transact-check-rollback"),
    *(
        Excuse(LATE_OPS, "5.3.3", 11, what, "transact-consume")
        for what in ("nextBeginOffset", "maxOffset", "messages", "extra answer")
    ),
    # --- admin ---
    Excuse("4.4 takes any name", "4.4.0", 17, "code", "admin-updateTopic-bad-name", suite="admin", theirs=(0, None)),
    Excuse("code 1 as in 4.9, not 29", "5.3.3", 17, "code", "admin-updateTopic-bad-name", suite="admin"),
    Excuse("4.4 shows nothing of a queue's entries", "4.4.0", 321, "body", "admin-queryCq", suite="admin"),
    *(
        Excuse(UNLINKED, "4.4.0", code, what, "admin-clients-start admin-consumerConnection", suite="admin")
        for code, what in ((11, "extra answer"), (203, "code"), (38, "code"))
    ),
    Excuse(UNLINKED, "4.4.0", 315, "code", "admin-statsAll admin-statsAll-t", suite="admin"),
    Excuse(
        "a time beyond the last message is the end (REB-08)",
        "4.4.0",
        222,
        "body",
        "admin-resetOffsetByTime-now",
        suite="admin",
    ),
    Excuse(BUILT_IN, "4.4.0 4.9.7", 317, "body", "admin-brokerConsumeStats", suite="admin"),
    Excuse(BUILT_IN, "4.9.7", 201, "body", suite="admin"),
    Excuse(BUILT_IN, "4.9.7", 21, "body", suite="admin"),
    Excuse(REFUSED, ALL, 25, "code", "admin-updateBrokerConfig-unknown", suite="admin", theirs=(0, None)),
    Excuse("unknown keys of the recorder's file", "4.9.7", 26, "body", suite="admin", ours=dict.fromkeys(UNKNOWN_KEYS)),
    Excuse("5.x counts topics that it keeps for itself", "5.3.3", 305, "body", suite="admin"),
    Excuse(
        "5.x takes an offset of pulls for one of a topic", "5.3.3", 300, "body", suite="admin", ours={"groupList": []}
    ),
    Excuse("5.x adds offsets of pulls", "5.3.3", 317, "body", suite="admin"),
    Excuse("5.x leaves a topic ordered whose configuration is gone", "5.3.3", 21, "body", suite="admin"),
    Excuse(RESET, "5.3.3", 222, "code", "admin-resetOffsetByTime-offline", suite="admin", theirs=(0, None)),
    Excuse(RESET, "5.3.3", 208, "body", "admin-cloneGroupOffset admin-consumerProgress-offline", suite="admin"),
    Excuse(
        "5.x keeps offsets of groups only that it knows", "5.3.3", 15, "code", "admin-cloneGroupOffset", suite="admin"
    ),
)


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("version", GOLDEN.versions)
def test_answers_agree(version: str, suite: str) -> None:
    replay = Replay(version, **SETTINGS)
    recorded = set(GOLDEN.capture_names(version))
    scenarios = [name for name in SUITES[suite] if name in recorded]
    excuses = [one for one in EXCUSES if version in one.versions and one.suite in (suite, "")]
    used: set[Excuse] = set()
    unexplained: list[Difference] = []
    for difference in replay.run_all(scenarios):
        excuse = next((one for one in excuses if one.covers(version, difference)), None)
        if excuse is None:
            unexplained.append(difference)
        else:
            used.add(excuse)
    assert unexplained == []
    assert replay.untold == []
    assert replay.count >= len(scenarios)
    idle = [one.reason for one in excuses if one not in used and one.suite == suite]
    assert idle == [], "excuses that nothing needs any more"
