"""Reads the parameters of a database URL that the driver does not know. They are those of libpq, PostgreSQL's own
library ("34.1.2. Parameter Key Words"), which providers write into their URLs. The driver would send them to PostgreSQL
as settings.

What goes out: the URL for the driver, and how long a connection may take. It must not know: connections.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

_KEEPALIVE = "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"

IGNORED: Mapping[str, tuple[str, ...] | None] = {
    # The setting network_timeout_seconds says this for all connections.
    **dict.fromkeys(_KEEPALIVE),
    "fallback_application_name": None,
    "sslcompression": None,
    "sslsni": None,
    "gssencmode": ("disable", "prefer"),
    "gssdelegation": ("0",),
    "channel_binding": ("disable", "prefer"),
    "sslnegotiation": ("postgres",),
    "sslcertmode": ("disable", "allow"),
    "load_balance_hosts": ("disable",),
    "client_encoding": ("utf8", "utf-8", "auto"),
    "replication": ("false", "off", "no", "0"),
}
"""Parameter -> the values that change nothing here; None for all. Others of these parameters are refused."""

REFUSED = frozenset({"require_auth", "requirepeer", "passcommand", "oauth_issuer", "oauth_client_id"})
"""Parameters that demand what the driver cannot do."""

_ADVICE = {"channel_binding": "; sslmode=verify-full protects the connection as well"}

TIMEOUT, ROOT, MODE = "connect_timeout", "sslrootcert", "sslmode"
SYSTEM, SAFE_MODE = "system", "verify-full"
_NAME = "application_name"

_USUAL = "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"
"""Where Debian, Fedora and Alpine have them."""


class DriverUrl(msgspec.Struct, frozen=True):
    """A URL for the driver. timeout_seconds: how long a connection may take, if the URL says so. has_name: whether it
    names the application."""

    url: str
    timeout_seconds: float | None
    has_name: bool


def check_parameters(url: str) -> None:
    """Raise ValueError for a parameter that the server does not support."""
    given = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    for name, value in given.items():
        if name in REFUSED or not _is_harmless(name, value):
            advice = _ADVICE.get(name, "")
            raise ValueError(f"has {name}={value}, which is not supported: leave it out{advice}")
    if not given.get(TIMEOUT, "0").isdecimal():
        raise ValueError(f"has a {TIMEOUT} that is no whole number of seconds")
    if given.get(ROOT) == SYSTEM and given.get(MODE, SAFE_MODE) != SAFE_MODE:
        raise ValueError(f"has {ROOT}={SYSTEM}, which needs {MODE}={SAFE_MODE}")


def _is_harmless(name: str, value: str) -> bool:
    values = IGNORED.get(name)
    return values is None or value.lower() in values


def driver_url(url: str) -> DriverUrl:
    """Return the URL without the parameters that the driver does not know, and with the file of the system's
    authorities instead of `system`. Raises FileNotFoundError if there is no such file."""
    head, _, query = url.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    is_system = given.get(ROOT) == SYSTEM
    left_out = {TIMEOUT, *IGNORED} | ({ROOT, MODE} if is_system else set())
    kept = [parameter for parameter in query.split("&") if parameter and parameter.partition("=")[0] not in left_out]
    if is_system:
        kept += [f"{MODE}={SAFE_MODE}", f"{ROOT}={quote(_system_authorities(), safe='')}"]
    timeout_seconds = float(given.get(TIMEOUT) or 0)
    return DriverUrl("?".join([head, "&".join(kept)] if kept else [head]), timeout_seconds or None, _NAME in given)


def _system_authorities() -> str:
    """Return the file with the certificates of the system's authorities."""
    paths = ssl.get_default_verify_paths()
    for file in (paths.cafile, paths.openssl_cafile, *_USUAL):
        if file is not None and Path(file).is_file():
            return file
    raise FileNotFoundError(f"no certificates of the system's authorities: install ca-certificates, or name a {ROOT}")
