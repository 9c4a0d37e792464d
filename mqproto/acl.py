"""Credentials of a client, and the signature by which brokers with access control know it (docs/protocol/client.md
3.15).

Owns: credentials, what is signed and how, which refusals mean "you may not".
Leaves to others: files with keys (adapters), the moment of signing (`mqproto.state`).

The signature covers the values of all fields in the order of their names, then the body; there is no time in it.
Brokers work it out over the fields as they came, so every field is signed, in whatever way it got into the header
(ACL-01). One field is special: `_UNIQUE_KEY_QUERY` is left out by brokers from 4.6 to 4.9 always, by those of 5.x for
requests that say they come from 4.9.3 or older, and never by 4.4. So it is left out and such a request says that it is
of 4.9.3, unless the peer is known to be older than 4.6.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqproto.errors import AclError
from mqproto.wire.codes import VERSION

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

#: The youngest release whose requests 5.x reads as 4.6 to 4.9 do: 4.9.3.
VERSION_FLAG_UNSIGNED: Final = 399
#: From this release on brokers leave `_UNIQUE_KEY_QUERY` out: 4.6.0.
VERSION_FLAG_SKIPPED: Final = 333


class Credentials(Protocol):
    """Keys that requests are signed with. The attributes are read for every request, while the client's lock is held:
    they may change at any time (a new token), but must be there at once. What is renewed over a network is renewed
    elsewhere.
    """

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def security_token(self) -> str | None: ...


@dataclass(slots=True)
class SessionCredentials:
    """Keys of an account, and the token of a session where there is one.

    The secret and the token do not show in `repr`.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __hash__(self) -> int:
        return hash(self.access_key)


def check_credentials(credentials: Credentials) -> tuple[str, str, str | None]:
    """Access key, secret key and token of an object.

    Raises AclError when it has none that can be used; the text shows no value.
    """
    try:
        access_key, secret_key, token = credentials.access_key, credentials.secret_key, credentials.security_token
    except Exception as error:
        raise AclError(f"the credentials cannot be read: {type(error).__name__}") from error
    for name, value in (("access_key", access_key), ("secret_key", secret_key)):
        if not isinstance(value, str) or not value:
            raise AclError(f"the credentials' {name} must be a text that is not empty")
    if token is not None and not isinstance(token, str):
        raise AclError("the credentials' security_token must be a text or None")
    return access_key, secret_key, token


def canonical_text(fields: Mapping[str, str]) -> bytes:
    """The values of all fields but the signature in Java's order of their names, as UTF-8."""
    names = sorted(fields) if all(map(str.isascii, fields)) else sorted(fields, key=_java_order)
    return "".join([fields[name] for name in names if name != SIGNATURE]).encode("utf-8", "replace")


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """HMAC-SHA1 over the fields, which hold the access key already, and the body, in Base64."""
    mac = hmac.new(secret_key.encode("utf-8", "replace"), canonical_text(fields), "sha1")
    if body:
        mac.update(body)
    return binascii.b2a_base64(mac.digest(), newline=False).decode()


def sign(
    credentials: Credentials, fields: Mapping[str, str], body: bytes | memoryview = b"", peer_version: int = VERSION
) -> tuple[dict[str, str], int]:
    """The fields of a request with account and signature, and the release that the request must say it is of. Raises
    AclError.

    `peer_version` is the release of the receiver, as far as known.
    """
    access_key, secret_key, token = check_credentials(credentials)
    signed = {**fields, ACCESS_KEY: access_key}
    if token:
        signed[SECURITY_TOKEN] = token
    version = VERSION
    flag = signed.pop(UNIQUE_KEY_QUERY, None) if peer_version >= VERSION_FLAG_SKIPPED else None
    signed[SIGNATURE] = signature(signed, body, secret_key)
    if flag is not None:
        signed[UNIQUE_KEY_QUERY] = flag
        version = VERSION_FLAG_UNSIGNED
    return signed, version
