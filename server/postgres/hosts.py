"""Where PostgreSQL is. What comes in: a URL, which may name several hosts. What goes out: connections to the one of
them that takes writes, or while there is none, to one that answers reads.

asyncpg asks the hosts in the order of the URL, with one timeout for all of them: a first one that is silent would keep
the second from ever being asked. Nothing here knows the pool, or a statement.
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

from server.postgres.connection import Connection
from server.settings import Settings

FALLBACK = {None: ("read-write", "any"), "prefer-standby": ("standby", "any")}
"""target_session_attrs as the URL has it, as every host is asked for it, and as any will do where none has it."""


class Host(msgspec.Struct, frozen=True):
    """An address or a folder of sockets; None for what the driver takes when the URL names none."""

    name: str | None = None
    port: int | None = None


class Hosts:
    """The hosts of one URL; one that failed is asked after the others."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        found = hosts_of(url)
        given = parse_qs(urlsplit(url).query).get("target_session_attrs", [None])[-1]
        self._silence_seconds = settings.network_timeout_seconds
        self._timeout_seconds = settings.connect_timeout_seconds
        if len(found) == 1:
            # As the driver reads it, which knows more places where a host may be named.
            self._hosts, self._wanted, self._fallback = [Host()], given, None
        else:
            self._hosts, (self._wanted, self._fallback) = found, FALLBACK.get(given, (given, None))
            # All of them have to be asked while a request waits for it.
            share = settings.acquire_timeout_seconds / (len(found) + 1)
            self._timeout_seconds = min(self._timeout_seconds, share)

    async def connect(self, *_: object, **options: Any) -> Connection:
        """options: asyncpg's own. Raises what asyncpg raises of the last host."""
        unfit: list[Host] = []
        last: Exception | None = None
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

    async def _connect(self, host: Host, wanted: str | None, options: Mapping[str, Any]) -> Connection:
        chosen: dict[str, Any] = {"host": host.name, "port": host.port, "target_session_attrs": wanted}
        try:
            made = await asyncpg.connect(self._url, **options, **chosen, timeout=self._timeout_seconds)
        except BaseException:
            # Also where nobody waits for it any more: whoever comes next begins with another one.
            self._hosts.remove(host)
            self._hosts.append(host)
            raise
        connection = cast(Connection, made)
        notice_silence(connection, self._silence_seconds)
        return connection


def hosts_of(url: str) -> list[Host]:
    """The hosts of a URL in their order (PostgreSQL, "34.1.1.3. Specifying Multiple Hosts").

    >>> hosts_of("postgresql://me@a,[::1]:6000/shop?port=5433")
    [Host(name='a', port=5433), Host(name='::1', port=6000)]
    >>> hosts_of("postgresql:///shop?host=/run/a,/run/b&port=1,2")
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


def place_of(url: str) -> str:
    """The hosts of a URL for a person, and nothing that is secret in it.

    >>> place_of("postgresql://me:secret@a,[::1]:6000/shop?port=5433")
    'a:5433, [::1]:6000'
    """
    return ", ".join([_shown(host) for host in hosts_of(url)])


def _shown(host: Host) -> str:
    """With what the driver takes from the environment where the URL says nothing."""
    name = host.name or os.environ.get("PGHOST") or "the default host"
    port = host.port or os.environ.get("PGPORT") or 5432
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _host(spec: str, default_port: str) -> Host:
    if spec.startswith("/"):
        name, port = spec, ""
    else:
        found = re.fullmatch(r"(?:\[(.*)\]|([^:]*))(?::([0-9]*))?", spec)
        name, port = (found[1] or found[2] or "", found[3] or "") if found else (spec, "")
    return Host(name or None, int(port or default_port) if port or default_port else None)


def notice_silence(connection: Connection, seconds: float) -> None:
    """Has the system break a TCP connection whose other end is silent for so long, in the middle of a statement or
    between two (tcp(7); what a system has not is left out)."""
    own = connection.socket
    if own is None or own.family not in (socket.AF_INET, socket.AF_INET6):
        return
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle, interval, count, silence = _probes(seconds)
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


def silence_of_clients(seconds: float) -> dict[str, str]:
    """The same for the other end, as settings of a session: what a client that is gone has locked is let go."""
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    return {name: str(value) for name, value in zip(names, _probes(seconds), strict=True)}


def _probes(seconds: float) -> tuple[int, int, int, int]:
    """Seconds until the first probe and between two, their number, and milliseconds in all."""
    return max(1, ceil(seconds / 2)), max(1, ceil(seconds / 4)), 2, max(1, round(seconds * 1000))
