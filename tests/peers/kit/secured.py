"""Apache's servers with access control, and with TLS in each of its modes: started with the certificates of the adapter
tests.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import mqproto.adapters.threaded
from mqproto import Message, SessionCredentials
from mqproto.acl import sign
from mqproto.errors import MQError
from tests.adapters.tls_peers import certificate
from tests.peers.kit import peers, wire
from tests.peers.kit.peers import PeerFailedError
from tests.peers.kit.servers import (
    CALM,
    COMMON,
    PATIENT,
    SMALL,
    Server,
    apache_broker_command,
    apache_names_command,
    free_port,
    spawn,
    stop,
    wait_port,
)

ADMIN: Final = SessionCredentials("GoldenAdmin", "golden-admin-secret")
USER: Final = SessionCredentials("GoldenUser", "golden-secret")
#: What clients need to believe the servers.
TRUSTING: Final[Mapping[str, Any]] = {"tls": True, "tls_client_trust_cert_path": certificate("authority")}

TRACES: Final = "RMQ_SYS_TRACE_TOPIC"
#: The user may send to and read AclTopic, read AclReadOnly, leave traces, and consume as acl-group.
_ACCOUNTS: Final = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - AclTopic=PUB|SUB
  - AclReadOnly=SUB
  - {TRACES}=PUB
  groupPerms:
  - acl-group=SUB
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  whiteRemoteAddress:
  admin: true
  topicPerms:
  - AclTopic=PUB|SUB
  - AclReadOnly=PUB|SUB
  - {TRACES}=PUB|SUB
  groupPerms:
  - acl-group=SUB
  - TOOLS_CONSUMER=SUB
"""
_AUTH: Final = "org.apache.rocketmq.auth"


def _access_control(version: str, home: Path) -> dict[str, str]:
    """The broker's settings, and its file where it has one."""
    if not version.startswith("5"):
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
        return {"aclEnable": "true"}
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationEnabled": "true",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
        ),
        "authConfigPath": f"{home}/auth.json",
    }


def _tls_flags(home: Path, mode: str) -> list[str]:
    """A mode of Apache's servers: disabled, permissive or enforcing.

    The broker's own links to the name server follow it.
    """
    file = home / "tls.properties"
    pem = certificate("server")
    file.write_text(
        f"tls.test.mode.enable=false\ntls.server.keyPath={pem}\ntls.server.certPath={pem}\ntls.server.authClient=false\n"
    )
    flags = [f"-Dtls.server.mode={mode}", f"-Dtls.config.file={file}"]
    return flags if mode == "disabled" else [*flags, "-Dtls.enable=true"]


@contextlib.contextmanager
def secured(home: Path, version: str, mode: str, *, accounts: bool = False) -> Iterator[Server]:
    """Apache's name server and broker with TLS in a mode and, with `accounts`, access control (TLS must not be disabled
    then).

    When it is ready, the topics AclTopic and AclReadOnly hold a message each.
    """
    home.mkdir(parents=True)
    names_port, port = free_port(), free_port()
    names = f"127.0.0.1:{names_port}"
    server = Server(f"apache:{version}", names, f"127.0.0.1:{port}", home)
    flags = _tls_flags(home, mode)
    values = {**SMALL, **PATIENT, **CALM, **COMMON, **(_access_control(version, home) if accounts else {})}
    try:
        command = apache_names_command(version, home, names_port)
        server.processes.append(spawn([command[0], *flags, *command[1:]], home, "namesrv"))
        wait_port(names_port, server.processes[-1], home / "namesrv.out")
        command = apache_broker_command(version, home, port, names, values, ["-Xmx512m", *peers.SHORT_LIVED, *flags])
        server.processes.append(spawn(command, home, "broker"))
        wait_port(port, server.processes[-1], home / "broker.out")
        _wait_ready(server, {} if mode == "disabled" else TRUSTING, ADMIN if accounts else None)
        if accounts and version.startswith("5"):
            _make_user(server)
        yield server
    finally:
        for process in server.processes[1:]:
            stop(process)
        for process in server.processes[:1]:
            process.kill()
            process.wait()


def _make_user(server: Server) -> None:
    """The user of `_ACCOUNTS` where accounts are kept by requests (5.3)."""
    user = {"username": USER.access_key, "password": USER.secret_key, "userType": "Normal"}
    rights = [
        ("Topic:AclTopic", ["Pub", "Sub"]),
        ("Topic:AclReadOnly", ["Sub"]),
        (f"Topic:{TRACES}", ["Pub"]),
        ("Group:acl-group", ["Sub"]),
    ]
    entries = [{"resource": resource, "actions": actions, "decision": "Allow"} for resource, actions in rights]
    subject = f"User:{USER.access_key}"
    policies = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    host, _, port = server.broker.rpartition(":")
    context = ssl.create_default_context(cafile=certificate("authority"))
    for code, fields, body in ((3001, {"username": USER.access_key}, user), (3006, {"subject": subject}, policies)):
        data = json.dumps(body).encode()
        with (
            socket.create_connection((host, int(port)), 5) as plain,
            context.wrap_socket(plain, server_hostname=host) as link,
        ):
            header, _ = wire.ask_on(link, code, sign(ADMIN, fields, data)[0], data)
        if header["code"] != 0:
            raise PeerFailedError(f"request {code}: {header}")


def _wait_ready(
    server: Server, options: Mapping[str, Any], account: SessionCredentials | None, seconds: float = 120
) -> None:
    """Return when the broker has registered and takes messages of the administrator."""
    if account is not None:
        options = {**options, "credentials": account}
    until = time.monotonic() + seconds
    with mqproto.adapters.threaded.Producer("waits-for-it", server.names, **options) as producer:
        while True:
            try:
                for topic in ("AclTopic", "AclReadOnly"):
                    producer.send(Message(topic, b"first"))
                return
            except MQError as error:
                if time.monotonic() > until:
                    raise PeerFailedError(f"the broker takes nothing: {error}") from error
                time.sleep(0.2)
