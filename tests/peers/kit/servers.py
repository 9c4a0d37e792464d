"""Name servers and brokers as processes on loopback: Apache's, of any release of the kit, and ours, over any
adapter.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mqproto.adapters.threaded import NameServer
from tests.peers.kit import peers, wire
from tests.peers.kit.peers import PeerFailedError

ROOT = Path(__file__).resolve().parents[3]
ADAPTERS = ("threaded", "gevent", "asyncio", "trio")

#: Small files and few threads, so that Apache's broker costs megabytes and starts in about a second.
SMALL = {
    "mapedFileSizeCommitLog": str(16 << 20),  # release 4.4 reads this spelling, 4.6 and newer the other
    "mappedFileSizeCommitLog": str(16 << 20),
    "mapedFileSizeConsumeQueue": str(20 * 30_000),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxIndexNum": "20000",
    "maxHashSlotNum": "5000",
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "99",
}
#: Brokers drop what they could not begin within 200 ms, and what comes while their disk is slow; a busy test machine is
#: slower than that.
PATIENT = {"waitTimeMillsInSendQueue": "30000", "osPageCacheBusyTimeOutMills": "30000"}
#: Release 5 spends a sixth of a core on writing its timers every second, and a whole one until the first interval of
#: these metrics is over. Name servers forget a broker of which they have not heard for two minutes, as little as four
#: registrations: there are twelve here.
CALM = {"timerFlushIntervalMs": "60000", "transactionMetricFlushInterval": "200", "registerNameServerPeriod": "10000"}
#: What tests want of either broker. Every level of delay is short: a refused message comes back at once and not after
#: ten seconds.
COMMON = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "messageDelayLevel": " ".join(["1s"] * 18),
}


#: Ports that this process has given away. Their servers may be away for a while, and come back.
_given: set[int] = set()


def free_port() -> int:
    """A port that is free now on loopback, and so are its neighbours that a broker takes: port - 2 (fast remoting),
    port + 1 (replication).

    It lies below the range from which the system takes ports of outgoing connections, so that none of them takes it
    meanwhile, and in a part of it that no other process of these tests chooses from.
    """
    part = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
    for _ in range(1000):
        port = random.randrange(10_100 + 2_700 * part, 10_100 + 2_700 * (part + 1), 4)
        if port not in _given and all(_is_free(near) for near in (port - 2, port, port + 1)):
            _given.add(port)
            return port
    raise PeerFailedError("no three free ports in reach of each other")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:] if log.exists() else ""


def wait_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 300) -> None:
    """Return when something listens on `port`; raise PeerFailedError if `process` ends first or the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise PeerFailedError(f"nothing listens on port {port} (exit status {process.poll()}):\n{_tail(log)}")


def stop(process: subprocess.Popen[bytes], seconds: float = 120) -> int:
    """End a process as an operator would, by SIGTERM; returns its exit status."""
    process.terminate()
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise PeerFailedError(f"process {process.args!r} did not end within {seconds} s of SIGTERM") from None


@dataclass
class Server:
    """A running name server and broker."""

    kind: str  #: "apache:4.9.7", "ours:threaded" ...
    names: str  #: address of the name server
    broker: str  #: address of the broker
    home: Path  #: what belongs to it: logs, configuration, `store`
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        """Whether it is ours and not Apache's."""
        return self.kind.startswith("ours:")

    @property
    def store(self) -> Path:
        """The data directory."""
        return self.home / "store"

    def crash(self) -> None:
        """End it without notice, broker first."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


# --- Apache's ---------------------------------------------------------------------------------------------------------


def apache_names_command(version: str, home: Path, port: int) -> list[str]:
    """Apache's name server: writes its configuration below `home`; run it with ROCKETMQ_HOME=home."""
    home.mkdir(parents=True, exist_ok=True)
    peers.write_logging(home, "namesrv")
    (home / "namesrv.conf").write_text(
        f"listenPort={port}\nkvConfigPath={home}/kvConfig.json\nserverChannelMaxIdleTimeSeconds=600\n"
    )
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    flags = ["-Xmx256m", *peers.SHORT_LIVED, f"-Duser.home={home}"]
    return peers.java_command(version, main, "-c", str(home / "namesrv.conf"), flags=flags)


def apache_broker_command(
    version: str, home: Path, port: int, names: str, settings: Mapping[str, str], flags: list[str]
) -> list[str]:
    """Apache's broker with its store under home/store; run it with ROCKETMQ_HOME=home.

    `settings` are lines of its configuration.
    """
    home.mkdir(parents=True, exist_ok=True)
    peers.write_logging(home, "broker")
    values = {
        "listenPort": str(port), "haListenPort": str(port + 1), "namesrvAddr": names,
        "storePathRootDir": f"{home}/store", "storePathCommitLog": f"{home}/store/commitlog", **settings,
    }  # fmt: skip
    (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    main = "org.apache.rocketmq.broker.BrokerStartup"
    flags = ["-XX:MaxDirectMemorySize=2g", f"-Duser.home={home}", *flags]
    return peers.java_command(version, main, "-c", str(home / "broker.conf"), flags=flags)


def spawn(command: list[str], home: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a server; what it prints goes to home/NAME.out."""
    with (home / f"{name}.out").open("wb") as out:
        environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
        return subprocess.Popen(command, cwd=home, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)


@contextlib.contextmanager
def apache(home: Path, version: str, port: int = 0, **settings: str) -> Iterator[Server]:
    """Apache's name server and a broker that it knows. `settings` override SMALL, PATIENT, CALM and COMMON.

    A `port` is given to a broker over the directory of another one. Its name server is ours, which costs nothing to
    start: it has no say in what is in a directory.
    """
    with _own_names() if port else apache_names(home, version) as names:
        port = port or free_port()
        server = Server(f"apache:{version}", names.address, f"127.0.0.1:{port}", home, [*names.processes])
        values = {**SMALL, **PATIENT, **CALM, **COMMON, **settings}
        command = apache_broker_command(version, home, port, names.address, values, ["-Xmx512m", *peers.SHORT_LIVED])
        process = spawn(command, home, "broker")
        server.processes.append(process)
        try:
            wait_port(port, process, home / "broker.out")
            # the broker has registered; release 5 says "boot success" earlier
            wire.wait_route(names.address, "TBW102", 60)
            yield server
        finally:
            stop(process)  # in order: it saves its tables


@dataclass
class Names:
    """A running name server."""

    address: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)


@contextlib.contextmanager
def apache_names(home: Path, version: str) -> Iterator[Names]:
    """Apache's name server alone."""
    port = free_port()
    process = spawn(apache_names_command(version, home, port), home, "namesrv")
    try:
        wait_port(port, process, home / "namesrv.out")
        yield Names(f"127.0.0.1:{port}", [process])
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _own_names() -> Iterator[Names]:
    """Our name server, in this process."""
    with NameServer(port=0) as server:
        yield Names(server.address)


# --- ours -------------------------------------------------------------------------------------------------------------


def our_command(
    adapter: str, store: Path, settings: Mapping[str, str], *, names_port: int = 0, port: int = 0
) -> list[str]:
    """Our name server and broker in one process; it prints one line when both are ready."""
    pairs = [f"--set={key}={value}" for key, value in settings.items()]
    ports = [f"--namesrv-port={names_port}", f"--port={port}"]
    return [sys.executable, "-m", "adapters", "standalone", f"--adapter={adapter}", *ports, f"--store={store}", *pairs]


def ready_addresses(line: str) -> tuple[str, str]:
    """The name server's and the broker's address in the line that ours prints when it is ready."""
    found = re.findall(r"\b127\.0\.0\.1:\d+", line)
    if len(found) < 2:
        raise PeerFailedError(f"not a line that says where name server and broker listen: {line!r}")
    return found[0], found[1]


@contextlib.contextmanager
def ours(home: Path, adapter: str, port: int = 0, **settings: str) -> Iterator[Server]:
    """Our name server and broker over an adapter, the broker on a given port or any.

    `settings` override SMALL, PATIENT and COMMON.
    """
    home.mkdir(parents=True, exist_ok=True)
    command = our_command(adapter, home / "store", {**SMALL, **PATIENT, **COMMON, **settings}, port=port)
    log = home / "ours.err"
    with log.open("ab") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if not line:
            raise PeerFailedError(f"our server ended with {process.wait(10)} before it was ready:\n{_tail(log)}")
        yield Server(f"ours:{adapter}", *ready_addresses(line), home, [process])
    finally:
        crashed = process.poll() == -signal.SIGKILL
        status = stop(process)
        if process.stdout is not None:
            process.stdout.close()
        said = _tail(log)
    if not crashed and (status != 0 or "Traceback" in said):
        raise PeerFailedError(f"our server ended with {status} and said:\n{said}")


def serve(kind: str, home: Path, port: int = 0, **settings: str) -> contextlib.AbstractContextManager[Server]:
    """A server by its kind: "apache:VERSION" or "ours:ADAPTER"."""
    maker, _, which = kind.partition(":")
    return apache(home, which, port, **settings) if maker == "apache" else ours(home, which, port, **settings)
