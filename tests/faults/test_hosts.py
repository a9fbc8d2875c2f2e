"""The choice of a host in `server/postgres/hosts.py`, without a PostgreSQL."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import asyncpg
import pytest
from asyncpg import exceptions as pg

from server.postgres.hosts import Host, Hosts, describe_hosts, parse_hosts
from server.settings import Settings

SETTINGS = Settings(acquire_timeout_seconds=6.0, connect_timeout_seconds=10.0)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://a/shop", [("a", None)]),
        ("postgresql://me:secret@a:6000/shop", [("a", 6000)]),
        ("postgresql://me@a,b:6001,c/shop", [("a", None), ("b", 6001), ("c", None)]),
        ("postgresql://me@a,b:6001/shop?port=7000", [("a", 7000), ("b", 6001)]),
        ("postgresql://me@a,b/shop?port=7000,7001", [("a", 7000), ("b", 7001)]),
        ("postgresql://me@[::1]:6000,[fe80::2]/shop", [("::1", 6000), ("fe80::2", None)]),
        ("postgresql://%2Frun%2Fpg,b/shop", [("/run/pg", None), ("b", None)]),
        ("postgresql:///shop?host=/run/a,/run/b&port=1,2", [("/run/a", 1), ("/run/b", 2)]),
        ("postgresql:///shop", [(None, None)]),
    ],
)
def test_parse_hosts(url: str, hosts: list[tuple[str | None, int | None]]) -> None:
    assert parse_hosts(url) == [Host(*host) for host in hosts]


@pytest.mark.parametrize(
    ("url", "environ", "place"),
    [
        ("postgresql://me:secret@a/shop?sslpassword=secret", {}, "a:5432"),
        ("postgresql://me@a,b:6001,[::1]/shop?port=7000", {}, "a:7000, b:6001, [::1]:7000"),
        ("postgresql:///shop?host=/run/a,/run/b&port=1,2", {}, "/run/a:1, /run/b:2"),
        ("postgresql:///shop", {}, "the default host:5432"),
        ("postgresql:///shop", {"PGHOST": "c", "PGPORT": "6002"}, "c:6002"),
        ("postgresql://a:1/shop", {"PGHOST": "c", "PGPORT": "6002"}, "a:1"),
    ],
)
def test_describe_hosts(url: str, environ: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert describe_hosts(url) == place


class Machines:
    """Replaces asyncpg. `roles` says what each host is."""

    def __init__(self, **roles: str) -> None:
        self.roles = roles
        self.asked: list[tuple[str, str]] = []
        self.timeouts: set[float] = set()

    async def connect(self, _: str, *, host: str, target_session_attrs: str, **options: Any) -> Any:
        self.asked.append((host, target_session_attrs))
        self.timeouts.add(options["timeout"])
        match self.roles[host]:
            case "down":
                raise ConnectionRefusedError
            case "nameless":
                raise socket.gaierror
            case "silent":
                await asyncio.Event().wait()
            case "starting":
                raise pg.CannotConnectNowError
            case "full":
                raise pg.TooManyConnectionsError
            case role if target_session_attrs not in ("any", role):
                raise pg.TargetServerAttributeNotMatched
        return Made(host)


class Made:
    socket = None

    def __init__(self, host: str) -> None:
        self.host = host


def hosts_at(monkeypatch: pytest.MonkeyPatch, machines: Machines, query: str = "") -> Hosts:
    monkeypatch.setattr(asyncpg, "connect", machines.connect)
    return Hosts(f"postgresql://{','.join(machines.roles)}/shop{query}", SETTINGS)


async def connected(hosts: Hosts) -> Any:
    made: Any = await hosts.connect()
    return made.host


RW, SB = "read-write", "standby"


@pytest.mark.parametrize(
    ("roles", "query", "asked", "found"),
    [
        ({"a": RW, "b": SB}, "", [("a", RW)], "a"),
        ({"a": SB, "b": RW}, "", [("a", RW), ("b", RW)], "b"),
        ({"a": "down", "b": RW}, "", [("a", RW), ("b", RW)], "b"),
        ({"a": "nameless", "b": "starting", "c": RW}, "", [("a", RW), ("b", RW), ("c", RW)], "c"),
        ({"a": "down", "b": SB}, "", [("a", RW), ("b", RW), ("b", "any")], "b"),
        ({"a": RW, "b": SB}, "?target_session_attrs=standby", [("a", SB), ("b", SB)], "b"),
        ({"a": RW, "b": "down"}, "?target_session_attrs=prefer-standby", [("a", SB), ("b", SB), ("a", "any")], "a"),
        ({"a": SB, "b": RW}, "?target_session_attrs=any", [("a", "any")], "a"),
    ],
)
async def test_the_order_of_hosts(
    monkeypatch: pytest.MonkeyPatch, roles: dict[str, str], query: str, asked: list[tuple[str, str]], found: str
) -> None:
    machines = Machines(**roles)
    assert await connected(hosts_at(monkeypatch, machines, query)) == found
    assert machines.asked == asked


@pytest.mark.parametrize(
    ("roles", "query", "error"),
    [
        ({"a": "down", "b": "down"}, "", ConnectionRefusedError),
        ({"a": "down", "b": "nameless"}, "", socket.gaierror),
        ({"a": "full", "b": RW}, "", pg.TooManyConnectionsError),
        ({"a": SB, "b": SB}, "?target_session_attrs=read-write", pg.TargetServerAttributeNotMatched),
    ],
)
async def test_no_host_answers(
    monkeypatch: pytest.MonkeyPatch, roles: dict[str, str], query: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await connected(hosts_at(monkeypatch, Machines(**roles), query))


async def test_a_host_that_failed_is_tried_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried first again when the other one fails."""
    machines = Machines(a="down", b=RW)
    hosts = hosts_at(monkeypatch, machines)
    assert [await connected(hosts), await connected(hosts)] == ["b", "b"]
    assert machines.asked == [("a", RW), ("b", RW), ("b", RW)]
    machines.roles.update(a=RW, b="down")
    assert [await connected(hosts), await connected(hosts)] == ["a", "a"]


async def test_a_host_whose_attempt_was_cancelled_is_tried_last(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(a="silent", b=RW)
    hosts = hosts_at(monkeypatch, machines)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await connected(hosts)
    assert await connected(hosts) == "b"


async def test_all_hosts_are_tried_within_the_acquire_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(a=RW, b=SB)
    await connected(hosts_at(monkeypatch, machines))
    assert machines.timeouts == {2.0}


async def test_a_single_host_is_left_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines()
    machines.roles = {None: RW}  # type: ignore[dict-item]
    monkeypatch.setattr(asyncpg, "connect", machines.connect)
    assert await connected(Hosts("postgresql://a:6000/shop?target_session_attrs=any", SETTINGS)) is None
    assert machines.asked == [(None, "any")]
    assert machines.timeouts == {10.0}
