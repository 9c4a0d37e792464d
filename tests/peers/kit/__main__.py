"""The kit by hand, from the top of the checkout:

python -m tests.peers.kit install [java-4.9.7 java-4.4.0 java-5.3.3 cpp node go]
python -m tests.peers.kit up [apache:4.9.7 | ours:threaded ...] [--home DIR] [--set key=value ...]     until Ctrl-C
python -m tests.peers.kit java|cpp|node|go COMMAND key=value ...    a probe (no command: its help); java:5.3.3 for a
                                                                    release
python -m tests.peers.kit admin COMMAND ...                         Apache's own mqadmin; admin:5.3.3 for a release
python -m tests.peers.kit record-mqadmin                            tests/golden/mqadmin anew, from Apache's 4.9.7
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.peers.kit import peers, probes, servers
from tests.peers.kit.mqadmin import mqadmin, mqadmin_session


def _probe(kind: str, version: str, rest: list[str]) -> int:
    offsets = Path(tempfile.mkdtemp(prefix="peers-offsets-"))
    if kind == "admin":
        return subprocess.call(peers.admin_command(version, *rest), env=peers.admin_environment())
    if kind == "java":
        return subprocess.call(peers.java_probe_command(version, *rest, offsets=offsets))
    if kind == "go":
        return subprocess.call(peers.go_probe_command(*rest, offsets=offsets))
    return subprocess.call(peers.cpp_probe_command(*rest) if kind == "cpp" else peers.node_probe_command(*rest))


def _up(kind: str, home: Path, settings: dict[str, str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    with servers.serve(kind, home, 0, **settings) as server:
        print(f"name server {server.names}, broker {server.broker}, home {home}; Ctrl-C stops both", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def _record_mqadmin() -> None:
    home = Path(tempfile.mkdtemp(prefix="peers-"))
    root = servers.ROOT / "tests" / "golden"
    (root / "mqadmin").mkdir(exist_ok=True)
    kind = f"apache:{mqadmin.VERSION}"
    with (
        probes.all_clients() as clients,
        servers.serve(kind, home, 0, **mqadmin_session.SETTINGS) as server,
        mqadmin.Tool() as tool,
    ):
        texts = mqadmin_session.MqadminSession(mqadmin.Mqadmin(tool, server), clients).run()
        print(*mqadmin_session.record(texts, server, root), sep="\n")


def main(arguments: list[str]) -> int:
    """The command line; see the top of the file."""
    name, _, version = arguments[0].partition(":") if arguments else ("", "", "")
    try:
        if name in ("java", "cpp", "node", "go", "admin"):
            return _probe(name, version or "4.9.7", arguments[1:])
        parser = argparse.ArgumentParser(prog="python -m tests.peers.kit", usage=__doc__)
        commands = parser.add_subparsers(dest="command", required=True)
        commands.add_parser("install").add_argument("what", nargs="*", default=list(peers.INSTALLERS))
        commands.add_parser("record-mqadmin")
        up = commands.add_parser("up")
        up.add_argument("kind", nargs="?", default="apache:4.9.7")
        up.add_argument("--home", type=Path)
        up.add_argument("--set", nargs="*", default=[])
        options = parser.parse_args(arguments)
        if options.command == "install":
            for what in options.what:
                began = time.monotonic()
                peers.INSTALLERS[what]()
                print(f"{what}: ready after {time.monotonic() - began:.1f} s", flush=True)
        elif options.command == "record-mqadmin":
            _record_mqadmin()
        else:
            home = options.home or Path(tempfile.mkdtemp(prefix="peers-"))
            _up(options.kind, home, dict(pair.split("=", 1) for pair in options.set))
    except (peers.PeerFailedError, peers.PeerMissingError) as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
