"""Texts that mqadmin printed, made comparable with those of another run of the same session (mqadmin_session.py).

Two runs differ in addresses, folders, times, ids (whose length is the host's), the places and sizes in the log that
follow from these, and rates. A mask stands for each of them; what is left has to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_EVERYWHERE = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b7F000001[0-9A-F]{24}(?![0-9A-F])", "STORED-ID"),
        (r"\b([0-9A-F]{32}|[0-9A-F]{56})\b", "ID"),
        (r"\b127\.0\.0\.1:\d+", "CLIENT"),
        (r"\b[\w.:]+@(admin-consumer|idle)\b", r"HOST@\1"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "TIME"),
        (r"\b1[78]\d{11}\b", "MILLISECONDS"),
        (r"\b20\d{12}(\d{3})?\b", "TIME"),
        (r"@[0-9a-f]{5,8}\b", "@HASH"),
        (r"Probe\$\$Lambda\S+", "LAMBDA"),
        (r"\b\d+ms\b", "Nms"),
        (r"(CommitLog Offset: +|commitLogOffset=|storeSize=|physicOffset=|physicSize=)\d+", r"\1N"),
    )
]


def masked(text: str, names: str, broker: str, home: str) -> str:
    """A text without what differs in any two runs; blanks that fill a column count as two."""
    text = text.replace(names, "NAMES").replace(broker, "BROKER").replace(home, "HOME")
    for pattern, name in _EVERYWHERE:
        text = pattern.sub(name, text)
    # A tool that takes longer than a second tells the broker of its group, which is a group then.
    lines = [line for line in text.splitlines() if not line.startswith(("TOOLS_CONSUMER", "%RETRY%TOOLS_CONSUMER"))]
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in lines)


def _replacing(*pairs: tuple[str, str]) -> Callable[[str], str]:
    def change(text: str) -> str:
        for pattern, name in pairs:
            text = re.sub(pattern, name, text, flags=re.MULTILINE)
        return text

    return change


def _sorted(text: str) -> str:
    """Lines in an order of their own: the tool prints them in that of the answer, and the answer is a set."""
    return "\n".join(sorted(text.splitlines()))


def _statistics(text: str) -> str:
    """Rows without rates and counts, which depend on when the sampling was."""
    return _sorted(re.sub(r"  \d+\.\d\d\b.*?(NO_CONSUMER)?$", r"  RATES \1", text, flags=re.MULTILINE))


#: Values of the runtime information that are the same in each run; of the others there is only the form.
_EXACT = (
    "brokerVersion",
    "brokerVersionDesc",
    "msgPutTotal",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "dispatch",
    "startAccept",
    "commitLogMinOffset",
    "msgGetTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
    "sendThreadPool",
    "pullThreadPool",
    "queryThreadPool",
    "EndTransaction",
    "pageCacheLockTimeMills",
)


def _runtime(text: str) -> str:
    """The keys with the values that are the same in each run."""
    lines = []
    for line in text.splitlines():
        key, _, value = line.partition(": ")
        form = re.sub(r"-?\d+(\.\d+)?(E-?\d+)?", "N", value)
        if "DistributeTime" in key and (value == "null" or re.fullmatch(r"(\[[^\]]+\]:N ?){13}", form)):
            # none in the first minute
            form = "13 NUMBERS"
        form = form.replace("MILLISECONDS", "N")
        form = re.sub(r"^N( N)*$", "N", form) if "Tps" in key else form
        lines.append(f"{key.strip()}: {value if key.split()[-1].startswith(_EXACT) else form}")
    return "\n".join(lines)


_RATES = (r"\d+\.\d+(E-?\d+)?", "N")
_PROGRESS = _replacing(
    (r"^Consume TPS: .*", "Consume TPS: N"), (r"(CLUSTERING)  \d+ ", r"\1  N "), (r"  \d+(\.\d+){3}  ", "  IP  ")
)
_RUNNING = _replacing(
    _RATES, (r"(?s)(#Consumer jstack#).*", r"\1"), (r"(\[commitOffset|ConsumeFailedMsgsInHour).*", r"\1")
)

#: What else differs in single steps. A name stands for those that begin with it.
_CHANGES: dict[str, Callable[[str], str]] = {
    "checkMsgSendRT": _replacing((r"(true|false)  \d+$", r"\1  N"), (r"Avg RT: .*", "Avg RT: N")),
    "clusterList-m": _replacing((r"\d+$", "N")),
    "clusterList": _replacing(_RATES, (r" +", " ")),
    "clusterRT": _replacing((r"  \d+\.\d\d  ", "  N  ")),
    "brokerStatus": _runtime,
    "statsAll": _statistics,
    "topicList": _sorted,
    "producer": _sorted,
    "consumerProgress": _PROGRESS,
    "consumerStatus-i": _RUNNING,
    "consumerStatus-s": _RUNNING,
    "queryMsgById-resend": _replacing((r"queueId=\d+(.*)queueOffset=\d+", r"queueId=N\1queueOffset=N")),
    # where the consumer was when it left
    "resetOffsetByTime-offline": _replacing((r"^(broker-a  \d  \d)  \d", r"\1  N")),
    "wipeWritePerm": _replacing((r"OK, [1-9]\d*", "OK, N")),
    "addWritePerm": _replacing((r"OK, [1-9]\d*", "OK, N")),
    "queryMsgById-push": _replacing((r"spentTimeMills=\d+", "spentTimeMills=N")),
    "export-groups": _replacing((r'"counter":\d+', '"counter":N')),
    "export-topic": _replacing((r'"counter":\d+', '"counter":N')),
    "export-metrics": _replacing(_RATES),
    "export": _replacing((r"^export \S+/", "export FOLDER/")),
}


def comparable(name: str, text: str, names: str, broker: str, home: str) -> str:
    """The text of a step as it is compared."""
    text = masked(text, names, broker, home)
    change = next((change for prefix, change in _CHANGES.items() if name.startswith(prefix)), None)
    return (change(text) if change else text).strip()


#: Keys whose values are of the machine, or given by the kit to be fast on it.
OWN_VALUES = {
    *(
        "rocketmqHome",
        "storePathRootDir",
        "storePathCommitLog",
        "configStorePath",
        "kvConfigPath",
        "listenPort",
        "haListenPort",
    ),
    *("waitTimeMillsInSendQueue", "osPageCacheBusyTimeOutMills", "brokerIP2", "namesrvAddr"),
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"),
}
#: Keys that the release does not know, from a file for several releases.
UNKNOWN_KEYS = {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}


def configuration(text: str) -> dict[str, str]:
    """Keys and values of what `getBrokerConfig` and `getNamesrvConfig` print."""
    return {
        key.strip(): value.strip() for key, sign, value in (line.partition("  =") for line in text.splitlines()) if sign
    }
