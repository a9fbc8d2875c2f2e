"""Connects to one of the hosts in a database URL: to the one that accepts writes, or if there is none, to one that
answers reads.

asyncpg tries the hosts in the order of the URL, with one timeout for all: if the first is silent, the second is never
tried. So this module tries them one by one.

It must not know: the pool, statements.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from math import ceil
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from server.postgres.connection import PostgresConnection
from server.settings import Settings
from server.settings.url_parameters import driver_url

FALLBACK = {None: ("read-write", "any"), "prefer-standby": ("standby", "any")}
"""target_session_attrs of the URL -> the value for the first attempt with every host, and the value if no host matches
that."""


class Host(msgspec.Struct, frozen=True):
    """A host name or address, or a socket directory. None stands for the driver's default."""

    name: str | None = None
    port: int | None = None


class Hosts:
    """The hosts of one URL. A host that failed is tried after the others."""

    def __init__(self, url: str, settings: Settings) -> None:
        for_driver = driver_url(url)
        self._url, self._has_name = for_driver.url, for_driver.has_name
        hosts = parse_hosts(url)
        given = parse_qs(urlsplit(url).query).get("target_session_attrs", [None])[-1]
        self._silence_seconds = settings.network_timeout_seconds
        self._timeout_seconds = for_driver.timeout_seconds or settings.connect_timeout_seconds
        if len(hosts) == 1:
            # The driver reads the host itself, because it also knows environment variables and service files.
            self._hosts, self._wanted, self._fallback = [Host()], given, None
        else:
            self._hosts, (self._wanted, self._fallback) = hosts, FALLBACK.get(given, (given, None))
            # All of them must be tried within the time that a request waits for a connection.
            share = settings.acquire_timeout_seconds / (len(hosts) + 1)
            self._timeout_seconds = min(self._timeout_seconds, share)

    async def connect(self, *_: object, **options: Any) -> PostgresConnection:
        """Connect to the best host. options: those of asyncpg. Raises asyncpg's error for the last host."""
        unfit: list[Host] = []
        last: Exception | None = None
        if self._has_name and "server_settings" in options:
            # The driver would prefer the server's own name to that of the URL.
            own = {name: value for name, value in options["server_settings"].items() if name != "application_name"}
            options["server_settings"] = own
        for host in tuple(self._hosts):
            try:
                return await self._connect(host, self._wanted, options)
            except pg.TargetServerAttributeNotMatched as error:
                unfit.append(host)
                last = error
            except (OSError, pg.CannotConnectNowError) as error:
                last = error
        if unfit and self._fallback is not None:
            return await self._connect(unfit[0], self._fallback, options)
        assert last is not None
        raise last

    async def _connect(self, host: Host, wanted: str | None, options: Mapping[str, Any]) -> PostgresConnection:
        chosen: dict[str, Any] = {"host": host.name, "port": host.port, "target_session_attrs": wanted}
        try:
            made = await asyncpg.connect(self._url, **options, **chosen, timeout=self._timeout_seconds)
        except BaseException:
            # Also after a cancellation: the next attempt begins with another host.
            self._hosts.remove(host)
            self._hosts.append(host)
            raise
        connection = cast(PostgresConnection, made)
        set_keepalive(connection, self._silence_seconds)
        return connection


def parse_hosts(url: str) -> list[Host]:
    """Return the hosts of a URL in their order (PostgreSQL, "34.1.1.3. Specifying Multiple Hosts").

    >>> parse_hosts("postgresql://me@a,[::1]:6000/shop?port=5433")
    [Host(name='a', port=5433), Host(name='::1', port=6000)]
    >>> parse_hosts("postgresql:///shop?host=/run/a,/run/b&port=1,2")
    [Host(name='/run/a', port=1), Host(name='/run/b', port=2)]
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    listed = parts.netloc.rpartition("@")[2]
    specs = (listed or query.get("host", [""])[-1]).split(",")
    ports = query.get("port", [""])[-1].split(",")
    if len(ports) != len(specs):
        ports = ports[:1] * len(specs)
    return [_host(unquote(spec) if listed else spec, port) for spec, port in zip(specs, ports, strict=True)]


def describe_hosts(url: str) -> str:
    """Return the hosts of a URL for messages, without its secrets.

    >>> describe_hosts("postgresql://me:secret@a,[::1]:6000/shop?port=5433")
    'a:5433, [::1]:6000'
    """
    return ", ".join([_shown(host) for host in parse_hosts(url)])


def _shown(host: Host) -> str:
    """Return the host in words, with the driver's defaults from the environment."""
    name = host.name or os.environ.get("PGHOST") or "the default host"
    port = host.port or os.environ.get("PGPORT") or 5432
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _host(spec: str, default_port: str) -> Host:
    if spec.startswith("/"):
        name, port = spec, ""
    else:
        match = re.fullmatch(r"(?:\[(.*)\]|([^:]*))(?::([0-9]*))?", spec)
        name, port = (match[1] or match[2] or "", match[3] or "") if match else (spec, "")
    return Host(name or None, int(port or default_port) if port or default_port else None)


def set_keepalive(connection: PostgresConnection, seconds: float) -> None:
    """Set TCP keepalive, so that the system breaks the connection if the server is silent for `seconds`, during a
    statement or between two (tcp(7)). Options that the system does not have are left out."""
    own = connection.socket
    if own is None or own.family not in (socket.AF_INET, socket.AF_INET6):
        return
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle, interval, count, silence = _keepalive_values(seconds)
    options = {
        "TCP_KEEPIDLE": idle,
        "TCP_KEEPALIVE": idle,  # as macOS calls it
        "TCP_KEEPINTVL": interval,
        "TCP_KEEPCNT": count,
        "TCP_USER_TIMEOUT": silence,
    }
    for name, value in options.items():
        number = getattr(socket, name, None)
        if number is not None:
            own.setsockopt(socket.IPPROTO_TCP, number, value)


def keepalive_settings(seconds: float) -> dict[str, str]:
    """Return the session settings that set TCP keepalive in PostgreSQL, so that it releases the locks of a client that
    is gone."""
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    return {name: str(value) for name, value in zip(names, _keepalive_values(seconds), strict=True)}


def _keepalive_values(seconds: float) -> tuple[int, int, int, int]:
    """Return the seconds until the first probe and between two probes, their number, and the milliseconds in all."""
    return max(1, ceil(seconds / 2)), max(1, ceil(seconds / 4)), 2, max(1, round(seconds * 1000))
