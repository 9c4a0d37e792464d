"""Options with which clients reach a cluster: an account, TLS, a namespace."""

from __future__ import annotations

import argparse
from typing import TypedDict

from mqproto.acl import Credentials
from mqproto.adapters.base.settings.credentials import credentials_from_file


class ClientAccess(TypedDict, total=False):
    """Options of every client (`mqproto.adapters.base.settings.options.ClientOptions`)."""

    namespace: str
    credentials: Credentials
    tls: bool
    tls_config_file: str


def add_access(parser: argparse.ArgumentParser) -> None:
    """The options `--key-file`, `--tls`, `--tls-config`, `--namespace`."""
    group = parser.add_argument_group("access")
    group.add_argument(
        "--key-file", metavar="FILE", help="the account: AccessKey= and SecretKey= lines, or mqadmin's tools.yml"
    )
    group.add_argument(
        "--tls", action="store_true", help="encrypt; servers must show a certificate that this system trusts"
    )
    group.add_argument("--tls-config", metavar="FILE", help="encrypt as a tls.properties file of Apache's says")
    group.add_argument("--namespace", metavar="NAME", help="the namespace that topic and group belong to")


def access(options: argparse.Namespace) -> ClientAccess:
    """What the options say. Raises InvalidSetting for a file of keys that cannot be read."""
    found = ClientAccess()
    if options.namespace:
        found["namespace"] = options.namespace
    if options.key_file:
        found["credentials"] = credentials_from_file(options.key_file)
    if options.tls or options.tls_config:
        found["tls"] = True
    if options.tls_config:
        found["tls_config_file"] = options.tls_config
    return found
