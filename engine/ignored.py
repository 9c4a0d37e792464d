"""Keys of Apache's servers that have no meaning here, with the defaults of 4.9 and why they have none
(docs/protocol/broker.md 8).

They may stand in files and be changed by request: their texts are kept and shown, so that tools which read or set them
work as before. Nothing checks the texts and nothing acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqproto.engine.settings import BrokerSettings, NamesrvSettings, Settings

__all__ = ["BROKER_IGNORED", "NAMESRV_IGNORED", "Ignored", "ignored_keys"]


@dataclass(frozen=True, slots=True)
class Ignored:
    """Key without a meaning: what is shown for it when nobody has set it (None: nothing), and why it has none."""

    default: str | None
    why: str


def _table(groups: Mapping[str, str]) -> dict[str, Ignored]:
    found: dict[str, Ignored] = {}
    for why, text in groups.items():
        for word in text.split():
            key, separator, default = word.partition("=")
            found[key] = Ignored(default if separator else None, why)
    return found


_ALL_SERVERS: Final = _table(
    {
        "there are no thread pools": """
            serverWorkerThreads=8 serverCallbackExecutorThreads=0 serverSelectorThreads=3
        """,
        "calls to peers and unsent bytes have limits of their own": """
            serverOnewaySemaphoreValue=256 serverAsyncSemaphoreValue=64 writeBufferLowWaterMark=0
        """,
        "belongs to the network library": """
            serverSocketSndBufSize=0 serverSocketRcvBufSize=0 serverPooledByteBufAllocatorEnable=true
            useEpollNativeSelector=false serverSocketBacklog=1024
        """,
    }
)
BROKER_IGNORED: Final = _ALL_SERVERS | _table(
    {
        "there are no thread pools": """
            adminBrokerThreadPoolNums=16 clientManageThreadPoolNums=32 consumerManageThreadPoolNums=32
            endTransactionThreadPoolNums=12 heartbeatThreadPoolNums=2 processReplyMessageThreadPoolNums=20
            pullMessageThreadPoolNums=20 putMessageFutureThreadPoolNums=2 queryMessageThreadPoolNums=10
            sendMessageThreadPoolNums=2 clientWorkerThreads=4 clientCallbackExecutorThreads=2
        """,
        "requests do not wait in queues": """
            clientManagerThreadPoolQueueCapacity=1000000 consumerManagerThreadPoolQueueCapacity=1000000
            endTransactionPoolQueueCapacity=100000 heartbeatThreadPoolQueueCapacity=50000
            putThreadPoolQueueCapacity=10000 replyThreadPoolQueueCapacity=10000
        """,
        "links to name servers are kept and have limits of their own": """
            clientOnewaySemaphoreValue=65535 clientAsyncSemaphoreValue=65535 connectTimeoutMillis=3000
            channelNotActiveInterval=60000 clientChannelMaxIdleTimeSeconds=120 clientCloseSocketIfTimeout=true
        """,
        "belongs to the network library": """
            clientSocketSndBufSize=0 clientSocketRcvBufSize=0 clientPooledByteBufAllocatorEnable=false
            transferMsgByHeap=true
        """,
        "Java classes cannot be loaded": "messageStorePlugIn=",
        "unused or counted by nobody": """
            flushConsumerOffsetHistoryInterval=60000 filterServerNums=0 highSpeedMode=false commercialBaseCount=1
            commercialBigCount=1 commercialEnable=true commercialTimerCount=1 commercialTransCount=1 maxDelayTime=40
            putMsgIndexHightWater=600000 diskFallRecorded=true
        """,
        "there is no address server": "fetchNamesrvAddrByAddressServer=false",
        "one process logs to one place": "isolateLogEnable=false",
        "the file is named at the start": "brokerConfigPath",
        "always the port of the broker and 1": "haListenPort=10912",
        "the store has no locks, pools of buffers or files to warm up": """
            useReentrantLockWhenPutMessage=true flushCommitLogTimed=true commitIntervalCommitLog=200
            commitCommitLogLeastPages=4 commitCommitLogThoroughInterval=200 warmMapedFileEnable=false
            flushLeastPagesWhenWarmMapedFile=4096 debugLockEnable=false transientStorePoolEnable=false
            transientStorePoolSize=5 fastFailIfNoBufferInStorePool=false destroyMapedFileIntervalForcibly=120000
        """,
        "statistics of queues are always kept": "enableDetailStat=true",
        "statistics of deleted topics and groups always go": "autoDeleteUnusedStats=false",
        "the index is safe by itself": "messageIndexSafe=false",
        "delayed messages are always delivered in order": """
            enableScheduleAsyncDeliver=false scheduleAsyncDeliverMaxPendingLimit=2000
            scheduleAsyncDeliverMaxResendNum2Blocked=3
        """,
        "there are no light queues": "enableLmq=false enableMultiDispatch=false maxLmqConsumeQueueNum=20000",
        "there are no replicas": """
            haSendHeartbeatInterval=5000 haHousekeepingInterval=20000 haTransferBatchSize=32768 haMasterAddress
            haSlaveFallbehindMax=268435456 slaveTimeout=3000 offsetCheckInSlave=false duplicationEnable=false
            dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId isEnableBatchPush=false enableBatchPush
        """,
        "several paths of the log are not supported": "readOnlyCommitLogStorePaths",
    }
)
NAMESRV_IGNORED: Final = _ALL_SERVERS | _table(
    {"a mode for tests of Apache's": "clusterTest=false productEnvName=center"}
)


def ignored_keys(settings: Settings) -> Mapping[str, Ignored]:
    """The keys without meaning for the server that these settings are of."""
    if isinstance(settings, BrokerSettings):
        return BROKER_IGNORED
    return NAMESRV_IGNORED if isinstance(settings, NamesrvSettings) else {}
