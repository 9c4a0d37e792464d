"""TLS of a client, by the settings that Java's clients know (docs/protocol/client.md 7.1).

Java's clients trust every server unless they are told not to (`tls.test.mode.enable` is true there). Ours believe a
certificate only if an authority that they trust vouches for it and it names the server, unless they are told otherwise.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mqproto.adapters.base.settings.client_settings import TLS_OPTIONS
from mqproto.adapters.io.config_file import SettingsUnreadable, read_settings
from mqproto.adapters.io.tls import TlsClient
from mqproto.errors import InvalidSetting

#: The keys of Java's file that stand for them. Those of servers are passed by.
_KEYS: Final[Mapping[str, str]] = {
    "tls.test.mode.enable": "tls_test_mode_enable",
    "tls.client.authServer": "tls_client_auth_server",
    "tls.client.trustCertPath": "tls_client_trust_cert_path",
    "tls.client.certPath": "tls_client_cert_path",
    "tls.client.keyPath": "tls_client_key_path",
    "tls.client.keyPassword": "tls_client_key_password",
}


def tls_client(values: Mapping[str, Any]) -> TlsClient:
    """The TLS that values of `client_settings.tls_options` describe. Raises InvalidSetting; passwords are not shown.

    The file, when one is named, has the last word, as with Java; it is not looked for anywhere else.
    """
    context = values["ssl_context"]
    if context is not None:
        if not isinstance(context, ssl.SSLContext):
            raise InvalidSetting("ssl_context", context, "an ssl.SSLContext expected")
        return TlsClient(context)
    if values["tls_config_file"]:
        values = {**values, **_read(Path(values["tls_config_file"]))}
    return TlsClient(_context(values))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = read_settings(path)
    except SettingsUnreadable as error:
        raise InvalidSetting("tls_config_file", path, str(error)) from error
    values: dict[str, Any] = {}
    for key, name in _KEYS.items():
        if key in found:
            text = found[key].strip()
            values[name] = text.lower() == "true" if isinstance(TLS_OPTIONS[name], bool) else text
    return values


def _context(values: Mapping[str, Any]) -> ssl.SSLContext:
    test_mode = values["tls_test_mode_enable"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION  # to send could mean to wait for the server then
    if test_mode or not values["tls_client_auth_server"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = values["tls_check_hostname"]
        _trust(context, values["tls_client_trust_cert_path"])
    certificate = values["tls_client_cert_path"]
    if values["tls_client_key_path"] and not certificate:
        raise InvalidSetting(
            "tls_client_key_path", values["tls_client_key_path"], "it has no effect without tls_client_cert_path"
        )
    if certificate and not test_mode:
        key = values["tls_client_key_path"] or None
        try:
            # A password is always given: OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, values["tls_client_key_password"])
        except ssl.SSLError as error:
            why = f"certificate and key cannot be used, or the password is wrong: {error.reason or error}"
            raise InvalidSetting("tls_client_cert_path", certificate, why) from error
        except OSError as error:
            raise InvalidSetting(
                "tls_client_cert_path", certificate, f"certificate or key cannot be read: {error.strerror}"
            ) from error
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    """Trust the authorities of a file; without one, those that the system trusts."""
    if not path:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise InvalidSetting("tls_client_trust_cert_path", path, f"no certificate: {error.reason or error}") from error
    except OSError as error:
        raise InvalidSetting("tls_client_trust_cert_path", path, f"cannot be read: {error.strerror}") from error
