"""Real RocketMQ programs: where they come from, and the command line of each.

Needs a JDK 17 with Maven for Apache's servers and Java client, npm and Go for theirs, and Linux on x86-64 for the C++
client. Everything is installed once below PEERS_HOME (default: ~/.cache/mqproto-peers) from the public package
registries, by name and version. The probes under java/, node/, go/ and cpp/ are small programs of ours that drive a
client library from the command line and print one JSON object a line. What is built from sources of ours is named by
their content, so two checkouts share a PEERS_HOME without disturbing each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = Path(os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "mqproto-peers")
JAVA_VERSIONS = ("4.4.0", "4.9.7", "5.3.3")
CPP_PACKAGE = "rocketmq==0.4.4"
NODE_PACKAGE = "ali-ons@3.12.0"
GO_MODULE = "github.com/apache/rocketmq-client-go/v2@v2.1.3-0.20251226070945-2173d070fd1b"

#: Apache 4.4 and 4.9 unmap files through JDK internals; a current JDK must be told to let them.
OPEN_JDK = [
    f"--add-{kind}={package}=ALL-UNNAMED"
    for package in (
        "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang", "java.base/jdk.internal.ref",
        "java.base/jdk.internal.misc", "java.base/java.util", "java.base/java.util.concurrent",
    )
    for kind in ("opens", "exports")
]  # fmt: skip

#: A JVM that lives for seconds: no second compiler, no parallel collector, classes taken for what they are.
SHORT_LIVED = [
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
]  # fmt: skip


class PeerMissingError(Exception):
    """A program that the peer needs is not on this machine; the text names it."""


class PeerFailedError(Exception):
    """A peer did not start or its probe ended with an error; the text has the end of its output."""


def need(*programs: str) -> None:
    """Raise PeerMissingError unless every program is on the PATH."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise PeerMissingError(f"not on the PATH: {', '.join(missing)}")


def _run(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PeerFailedError(f"{' '.join(command[:4])} ... ended with {done.returncode}:\n{done.stdout[-3000:]}")


# --- installing -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _install_lock(name: str) -> Iterator[None]:
    """One process installs a thing, the others wait and find it."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(*files: Path, also: str = "") -> str:
    """A short name for the content of these files."""
    value = hashlib.sha256(also.encode())
    for file in files:
        value.update(file.read_bytes())
    return value.hexdigest()[:12]


def install_java(version: str) -> tuple[Path, Path]:
    """Apache's jars of one release and our probe compiled against them; returns the folders of both."""
    need("java")
    source = HERE / "java"
    sources = [source / "Probe.java", source / "Survey.java"]
    if version != "4.4.0":
        sources.append(source / "Probe46.java")  # lite pull and request-reply came with 4.6
        sources.append(source / "Admin.java")  # and so is the tool's start, in the form that it has since
    target = HOME / f"java-{version}"
    lib, classes = target / "lib", target / f"classes-{_digest(*sources)}"
    if lib.exists() and classes.exists():
        return lib, classes
    with _install_lock(f"java-{version}"):
        target.mkdir(exist_ok=True)
        if not lib.exists():
            need("mvn")
            shutil.copy(source / "pom.xml", target / "pom.xml")
            _run(
                [
                    "mvn",
                    "-q",
                    "-B",
                    f"-Drocketmq.version={version}",
                    "dependency:copy-dependencies",
                    "-DoutputDirectory=lib.new",
                ],
                target,
            )
            (target / "lib.new").rename(lib)
        if not classes.exists():
            need("javac")
            new = target / f"classes.new-{os.getpid()}"
            new.mkdir()
            _run(
                [
                    "javac",
                    "-nowarn",
                    "-encoding",
                    "UTF-8",
                    "-proc:none",
                    "-cp",
                    f"{lib}/*",
                    "-d",
                    str(new),
                    *map(str, sources),
                ]
            )
            new.rename(classes)
    return lib, classes


def install_cpp() -> Path:
    """A virtual environment with the C++ client's Python wrapper; returns its interpreter."""
    python, stamp = HOME / "cpp" / "bin" / "python", HOME / "cpp" / "stamp"
    if os.uname().machine != "x86_64":
        raise PeerMissingError("the C++ client's wheel is for x86-64 only")
    with _install_lock("cpp"):
        if not stamp.exists() or stamp.read_text() != CPP_PACKAGE:
            _run([sys.executable, "-m", "venv", "--clear", str(HOME / "cpp")])
            _run([str(python), "-m", "pip", "-q", "install", CPP_PACKAGE])
            stamp.write_text(CPP_PACKAGE)
    return python


def install_node() -> Path:
    """The Node client with our probe beside it; returns the probe."""
    need("node")
    target, source = HOME / "node", HERE / "node" / "probe.js"
    stamp, probe = target / "stamp", target / f"probe-{_digest(source)}.js"
    with _install_lock("node"):
        target.mkdir(exist_ok=True)
        if not stamp.exists() or stamp.read_text() != NODE_PACKAGE:
            need("npm")
            (target / "package.json").write_text('{"name": "peers", "private": true}\n')
            _run(
                ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", NODE_PACKAGE],
                target,
            )
            stamp.write_text(NODE_PACKAGE)
        if not probe.exists():
            shutil.copy(source, probe)
    return probe


def install_go() -> Path:
    """The Go probe, built; returns the program."""
    source = HERE / "go" / "probe.go"
    digest = _digest(source, also=GO_MODULE)
    program = HOME / "go" / f"probe-{digest}"
    with _install_lock("go"):
        if not program.exists():
            need("go")
            build = HOME / "go" / f"build-{digest}"
            build.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, build / "probe.go")
            (build / "go.mod").write_text(f"module peers\n\ngo 1.19\n\nrequire {GO_MODULE.replace('@', ' ')}\n")
            _run(["go", "mod", "tidy"], build)
            _run(["go", "build", "-o", "probe", "."], build)
            (build / "probe").rename(program)
    return program


#: What `install` knows, by the name that the command line and the tests use.
INSTALLERS: dict[str, Callable[[], object]] = {
    **{f"java-{version}": partial(install_java, version) for version in JAVA_VERSIONS},
    "cpp": install_cpp,
    "node": install_node,
    "go": install_go,
}


# --- command lines ----------------------------------------------------------------------------------------------------


def java_command(version: str, main: str, *arguments: str, flags: list[str]) -> list[str]:
    """The command line of one Java program of a release; `flags` are the JVM's own."""
    lib, classes = install_java(version)
    return ["java", "-Dfile.encoding=UTF-8", *flags, *OPEN_JDK, "-cp", f"{classes}:{lib}/*", main, *arguments]


def java_probe_command(version: str, *arguments: str, offsets: Path, binary: bool = False) -> list[str]:
    """The Java probe; `offsets` is the folder of broadcasting consumers' offsets, `binary` sends headers in the
    ROCKETMQ form.
    """
    silent = HOME / "silent.xml"  # logback's own default prints to stdout, where the probe's lines go
    if not silent.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        silent.write_text("<configuration/>\n")
    flags = [
        "-Xmx256m", *SHORT_LIVED, "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={HOME}/logs",
        "-Drocketmq.client.logLevel=WARN", "-Drocketmq.client.rebalance.waitInterval=1000",
        f"-Drocketmq.client.localOffsetStoreDir={offsets}",
        f"-Dlogback.configurationFile={silent}", f"-Drmq.logback.configurationFile={silent}",
    ]  # fmt: skip
    if binary:
        flags.append("-Drocketmq.serialize.type=ROCKETMQ")
    return java_command(version, "Probe", *arguments, flags=flags)


def cpp_probe_command(*arguments: str) -> list[str]:
    """The C++ probe."""
    return [str(install_cpp()), str(HERE / "cpp" / "probe.py"), *arguments]


def node_probe_command(*arguments: str) -> list[str]:
    """The Node probe."""
    return ["node", str(install_node()), *arguments]


def go_probe_command(*arguments: str, offsets: Path) -> list[str]:
    """The Go probe; `offsets` as for Java."""
    return ["env", f"rocketmq.client.localOffsetStoreDir={offsets}", str(install_go()), *arguments]


def admin_command(version: str, *arguments: str) -> list[str]:
    """Apache's mqadmin; run it with `admin_environment()`."""
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    return java_command(version, main, *arguments, flags=["-Xmx256m", *SHORT_LIVED])


def admin_service_command(version: str) -> list[str]:
    """mqadmin for many commands (java/Admin.java); release 4.9 or newer. Times are printed in UTC."""
    return java_command(version, "Admin", flags=["-Xmx256m", *SHORT_LIVED, "-Duser.timezone=UTC"])


def admin_environment() -> dict[str, str]:
    """What mqadmin needs around it: a home with a configuration folder (release 4.4 does not start without a tools.yml
    there).
    """
    conf = HOME / "admin" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    write_logging(conf.parent, "tools")
    tools = conf / "tools.yml"
    if not tools.exists():
        tools.write_text("accessKey:\nsecretKey:\n")
    return {**os.environ, "ROCKETMQ_HOME": str(HOME / "admin")}


_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file><encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def write_logging(home: Path, name: str) -> None:
    """Logging configuration for a program of Apache's, under the names that its releases look for."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    text = _LOGBACK.format(log=home / f"{name}.log")
    for file in (f"logback_{name}.xml", f"rmq.{name}.logback.xml"):
        (conf / file).write_text(text)
