"""Clients behind proxies: which address custom code and the log show."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.netutil import bind_unix_socket

from server.app import make_app, make_server
from server.postgres.opening import open_database
from server.resources import built_in
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.http.conftest import Start
from tests.http.wire import Wire, connected
from tests.waiting import until
from waterspout import CustomHandler

CLIENT = "192.0.2.1"
FORWARDED = (f"X-Forwarded-For: 6.6.6.6, {CLIENT}", "X-Forwarded-Proto: https", "X-Forwarded-Host: api.example.org")


class Who(CustomHandler):
    async def get(self) -> None:
        request = self.request
        self.finish({"remote_ip": request.remote_ip, "url": request.full_url()})


NAMES = "localhost,api.example.org"
WHO = [("/who", Who)]
DIRECT = {"remote_ip": "127.0.0.1", "url": "http://localhost/who"}
BELIEVED = {"remote_ip": CLIENT, "url": "https://api.example.org/who"}


async def asked(wire: Wire, *headers: str) -> Any:
    await wire.send("GET /who HTTP/1.1", *headers)
    return (await wire.answer()).document


@pytest.mark.parametrize(
    ("trusted_proxies", "who"),
    [
        (None, DIRECT),
        ("10.0.0.0/8,unix", DIRECT),
        ("127.0.0.1/32", BELIEVED),
        ("10.0.0.0/8,127.0.0.0/8", BELIEVED),
    ],
)
async def test_only_trusted_proxies_are_believed(
    start: Start, rows_url: str, trusted_proxies: str | None, who: dict[str, str]
) -> None:
    api = await start(rows_url, built_in(), WHO, trusted_proxies=trusted_proxies, allowed_hosts=NAMES)
    async with connected(api.port) as wire:
        assert await asked(wire, *FORWARDED) == who


async def test_each_request_of_a_proxy_connection_has_its_own_client(start: Start, rows_url: str) -> None:
    """A proxy sends requests of many clients on one connection."""
    api = await start(rows_url, built_in(), WHO, trusted_proxies="127.0.0.1/32", allowed_hosts=NAMES)
    async with connected(api.port) as wire:
        assert await asked(wire, *FORWARDED) == BELIEVED
        assert await asked(wire) == DIRECT
        assert await asked(wire, 'Forwarded: for="[2001:db8::1]:80";proto=https') == {
            "remote_ip": "2001:db8::1",
            "url": "https://localhost/who",
        }
        assert await asked(wire, "X-Forwarded-For: <script>", "X-Forwarded-Proto: \t,", 'Forwarded: "') == DIRECT


async def logged(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the first line of the log, once it exists."""
    return json.loads(await until(lambda: capsys.readouterr().err))


async def test_links_are_paths_without_public_url(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), trusted_proxies="127.0.0.1/32", allowed_hosts=NAMES)
    async with connected(api.port) as wire:
        await wire.send("GET /groups/1 HTTP/1.1", *FORWARDED)
        answer = await wire.answer()
    assert answer.document["links"] == {"self": "/groups/1"}


@pytest.mark.parametrize(("trusted_proxies", "remote"), [(None, "127.0.0.1"), ("127.0.0.1/32", CLIENT)])
async def test_the_log_shows_the_client(
    start: Start,
    rows_url: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    trusted_proxies: str | None,
    remote: str,
) -> None:
    caplog.set_level(logging.INFO, "server.access")
    api = await start(rows_url, built_in(), trusted_proxies=trusted_proxies, allowed_hosts=NAMES, log_format="json")
    async with connected(api.port) as wire:
        await wire.send("GET /groups/1 HTTP/1.1", *FORWARDED)
        await wire.answer()
    assert (await logged(capsys))["remote"] == remote


# on a Unix socket


@asynccontextmanager
async def at_unix_socket(url: str, path: Path, **options: Any) -> AsyncIterator[Wire]:
    settings = Settings(pool_size=1, **options)
    database = await open_database(url, settings, 1)
    server = make_server(make_app(settings, built_in(), LiveSchema(), database), settings)
    server.add_sockets([bind_unix_socket(str(path))])
    try:
        reader, writer = await asyncio.open_unix_connection(path)
        yield Wire(reader, writer)
        writer.close()
    finally:
        server.stop()
        await server.close_all_connections()
        await database.close()


@pytest.mark.parametrize(
    ("trusted_proxies", "remote"),
    [(None, "unix"), ("0.0.0.0/0,::/0", "unix"), ("unix", CLIENT), ("unix,10.0.0.0/8", CLIENT)],
)
async def test_a_unix_socket(
    rows_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    trusted_proxies: str | None,
    remote: str,
) -> None:
    caplog.set_level(logging.INFO, "server.access")
    options = {"trusted_proxies": trusted_proxies, "log_format": "json"}
    async with at_unix_socket(rows_url, tmp_path / "s", **options) as wire:
        await wire.send("GET /groups/1 HTTP/1.1", *FORWARDED)
        answer = await wire.answer()
        assert (answer.status, answer.document["data"]["id"]) == (200, "1")
        assert (await logged(capsys))["remote"] == remote
