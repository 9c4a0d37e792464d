"""Address servers: HTTP servers that give clients the list of name servers (docs/protocol/client.md 1.4).

Imported by clients that are told of such a server, by an option or in the environment.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from mqproto.adapters.base.settings.client_settings import ADDRESS_SERVER_PORT
from mqproto.wire.codes import VERSION, version_name

#: Of connecting and of reading.
TIMEOUT_S: Final = 3.0
#: More than this is no list of name servers.
ANSWER_MAX: Final = 64 << 10


class HttpQuestion:
    """Job that sends one GET request. Redirections are not followed."""

    __slots__ = ("_url", "text")

    def __init__(self, url: str) -> None:
        self._url = url
        self.text = ""

    def run(self) -> None:
        """Raises OSError and HTTPException, the latter also for any status but 200 and for a long answer."""
        parts = urlsplit(self._url)
        connection = HTTPConnection(parts.hostname or "", parts.port or ADDRESS_SERVER_PORT, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=_headers())
            answer = connection.getresponse()
            if answer.status != 200:
                raise HTTPException(f"status {answer.status} {answer.reason}")
            data = answer.read(ANSWER_MAX + 1)
        finally:
            connection.close()
        if len(data) > ANSWER_MAX:
            raise HTTPException(f"more than {ANSWER_MAX} bytes")
        self.text = data.decode("utf-8", "replace")


def _headers() -> dict[str, str]:
    return {
        "Client-Version": version_name(VERSION),
        "Content-Type": "application/x-www-form-urlencoded;charset=UTF-8",
        "Metaq-Client-RequestTS": str(time.time_ns() // 1_000_000),
    }


class AddressServer:
    """Address server that a client node asks."""

    __slots__ = ("url",)

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self) -> HttpQuestion:
        return HttpQuestion(self.url)
