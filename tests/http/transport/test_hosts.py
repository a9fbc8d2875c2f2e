"""The checks of Host and Origin (`allowed_hosts`), which keep foreign web pages from using a server that their browser
can reach."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.netutil import bind_sockets, bind_unix_socket

from server.app import make_admin_server, make_app, make_server
from server.postgres.opening import open_database
from server.resources import built_in
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.wire import Wire, connected
from waterspout import CustomHandler


class Report(CustomHandler):
    def get(self) -> None:
        self.finish({"host": [self.request.host, self.request.host_name]})


ROUTES = [("/report", Report)]


async def asked(
    api: Api, host: str | None, target: str = "/groups/1", method: str = "GET", *lines: str, body: bytes = b""
) -> Answer:
    given = [] if host is None else [f"Host: {host}"]
    head = "\r\n".join([f"{method} {target} HTTP/{'1.0' if host is None else '1.1'}", *given, *lines, "", ""])
    async with connected(api.port) as wire:
        await wire.send_bytes(head.encode() + body)
        return await wire.answer()


def outcome(answer: Answer) -> int | tuple[int, str]:
    return answer.status if answer.status < 400 else (answer.status, answer.errors[0]["code"])


UNKNOWN = (421, "unknown_host")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((name, 200) for name in ("localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:9", "127.9.8.7", "[::1]")),
        *((name, 200) for name in ("[0:0::1]:80", "[::ffff:127.0.0.1]", "localhost:", None)),
        *((name, UNKNOWN) for name in ("evil.example", "evil.example:8080", "10.0.0.5", "[2001:db8::1]", "0.0.0.0")),
        *(
            (name, UNKNOWN)
            for name in ("localhost.evil.example", "localhost1", "127.0.0.1.nip.io", "127.1", "2130706433")
        ),
        *((name, UNKNOWN) for name in ("a!b", "%6cocalhost", "128.0.0.1", "[::]")),
    ],
)
async def test_names_of_a_server_on_the_loopback(reader: Api, host: str | None, expected: Any) -> None:
    assert outcome(await asked(reader, host)) == expected


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        "a b",
        "a/b",
        "u@localhost",
        "localhost:99999",
        "localhost:x",
        "[::1",
        "::1",
        "[zz]",
        "[]",
        ".",
        "a,b",
        "é",
    ],
)
async def test_an_invalid_host(reader: Api, host: str) -> None:
    answer = await asked(reader, host)
    assert (answer.status, answer.body, answer.headers["Connection"]) == (400, b"", "close")


async def test_the_answer_to_an_unknown_host(reader: Api) -> None:
    answer = await asked(reader, "evil.example:80")
    assert (answer.status, answer.errors) == (
        421,
        [
            {
                "status": "421",
                "code": "unknown_host",
                "title": "Unknown Host",
                "detail": "“evil.example” is not a name of this server. Add it to the setting allowed_hosts if it "
                "should be one.",
                "source": {"header": "Host"},
            }
        ],
    )


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        *(("GET", target, UNKNOWN) for target in ("/", "/groups", "/nothing", "/report", "/-/metrics", "/-/live/x")),
        *(("POST", "/groups", UNKNOWN), ("PATCH", "/groups/1", UNKNOWN), ("OPTIONS", "/groups", UNKNOWN)),
        *(("GET", "/-/live", 200), ("GET", "/-/ready/", 200), ("OPTIONS", "*", UNKNOWN), ("PURGE", "/", UNKNOWN)),
    ],
)
async def test_every_route_except_the_probes_checks_the_host(
    start: Start, rows_url: str, method: str, target: str, expected: Any
) -> None:
    api = await start(rows_url, built_in(), ROUTES, cors_origins="*")
    assert outcome(await asked(api, "evil.example", target, method)) == expected


@pytest.mark.parametrize(
    ("settings", "known", "unknown"),
    [
        ({"allowed_hosts": "api.example.org"}, ["API.example.org:80", None], ["localhost", "127.0.0.1", "example.org"]),
        ({"allowed_hosts": "a,[::1],10.0.0.5"}, ["a.", "[0::1]:1", "10.0.0.5"], ["localhost", "b"]),
        ({"allowed_hosts": "*"}, ["evil.example", "10.0.0.5"], []),
        ({"public_url": "https://API.example.org:8443/v1"}, ["api.example.org", "localhost"], ["example.org"]),
        ({"public_url": "/api"}, ["localhost"], ["api"]),
        ({"public_url": "https://b", "allowed_hosts": "a"}, ["a"], ["b", "localhost"]),
    ],
)
async def test_the_settings(
    start: Start, rows_url: str, settings: dict[str, str], known: list[str | None], unknown: list[str]
) -> None:
    api = await start(rows_url, built_in(), **settings)
    assert [outcome(await asked(api, host)) for host in known] == [200] * len(known)
    assert [outcome(await asked(api, host)) for host in unknown] == [UNKNOWN] * len(unknown)


@asynccontextmanager
async def listening(url: str, where: str | Path, *, is_admin: bool = False, **options: Any) -> AsyncIterator[Wire]:
    """Yield a connection to a server on that address or socket path."""
    settings = Settings(pool_size=1, **options)
    database = await open_database(url, settings, 1)
    app = make_app(settings, built_in(), LiveSchema(), database)
    server = make_admin_server(app, settings) if is_admin else make_server(app, settings)
    sockets = [bind_unix_socket(str(where))] if isinstance(where, Path) else bind_sockets(0, where)
    server.add_sockets(sockets)
    try:
        if isinstance(where, Path):
            reader, writer = await asyncio.open_unix_connection(where)
            yield Wire(reader, writer)
            writer.close()
        else:
            async with connected(sockets[0].getsockname()[1]) as wire:
                yield wire
    finally:
        server.stop()
        await server.close_all_connections()
        await database.close()


async def outcomes(wire: Wire, target: str, hosts: list[str]) -> list[int]:
    statuses = []
    for host in hosts:
        await wire.send_bytes(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        statuses.append((await wire.answer()).status)
    return statuses


NAMES = ["localhost", "127.0.0.2", "10.0.0.5", "[2001:db8::1]", "api.example.org"]


@pytest.mark.parametrize(
    ("where", "statuses"),
    [
        ("127.0.0.1", [200, 200, 421, 421, 421]),
        # A server on all addresses allows each address; names must be configured.
        ("0.0.0.0", [200, 200, 200, 200, 421]),
    ],
)
async def test_the_address_of_the_server_is_allowed(rows_url: str, where: str, statuses: list[int]) -> None:
    async with listening(rows_url, where) as wire:
        assert await outcomes(wire, "/groups/1", NAMES) == statuses


@pytest.mark.parametrize(
    ("where", "settings", "is_told"),
    [
        ("127.0.0.1", {}, True),
        ("127.0.0.1", {"server_timing": False}, False),
        ("0.0.0.0", {}, False),
        ("0.0.0.0", {"server_timing": True}, True),
        ("unix", {}, False),
        ("unix", {"server_timing": True}, True),
    ],
)
async def test_server_timing_is_only_sent_on_loopback(
    rows_url: str, tmp_path: Path, where: str, settings: Any, is_told: bool
) -> None:
    async with listening(rows_url, tmp_path / "s" if where == "unix" else where, **settings) as wire:
        await wire.send("GET /groups/1 HTTP/1.1")
        assert ("Server-Timing" in (await wire.answer()).headers) == is_told


@pytest.mark.parametrize("header", ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 me"])
async def test_server_timing_is_not_sent_through_a_proxy(rows_url: str, header: str) -> None:
    for settings, is_told in (({}, False), ({"server_timing": True}, True)):
        async with listening(rows_url, "127.0.0.1", **settings) as wire:
            await wire.send("GET /groups/1 HTTP/1.1", header)
            assert ("Server-Timing" in (await wire.answer()).headers) == is_told


async def test_a_name_in_the_setting_host_is_allowed(rows_url: str) -> None:
    async with listening(rows_url, "127.0.0.1", host="API.example.org") as wire:
        assert await outcomes(wire, "/groups/1", NAMES) == [200, 200, 421, 421, 200]


async def test_a_unix_socket_allows_any_name(rows_url: str, tmp_path: Path) -> None:
    async with listening(rows_url, tmp_path / "s") as wire:
        assert await outcomes(wire, "/groups/1", NAMES) == [200] * 5
    async with listening(rows_url, tmp_path / "t", allowed_hosts="localhost") as wire:
        assert await outcomes(wire, "/groups/1", NAMES) == [200, 421, 421, 421, 421]


async def test_the_admin_port_has_its_own_names_too(rows_url: str) -> None:
    async with listening(rows_url, "127.0.0.1", is_admin=True, allowed_hosts="api.example.org") as wire:
        assert await outcomes(wire, "/-/metrics", NAMES) == [200, 200, 421, 421, 200]
        assert await outcomes(wire, "/-/ready", NAMES) == [200] * 5


@pytest.mark.parametrize(
    ("host", "lines", "expected"),
    [
        ("localhost", ["X-Forwarded-Host: api.example.org"], 200),
        ("waterspout", ["X-Forwarded-Host: api.example.org"], 200),
        ("waterspout", ["Forwarded: for=192.0.2.1;host=api.example.org"], 200),
        ("waterspout", [], UNKNOWN),
        ("localhost", ["X-Forwarded-Host: evil.example"], UNKNOWN),
        ("localhost", ["Forwarded: host=evil.example"], UNKNOWN),
        ("localhost", ["X-Forwarded-Host: a/b"], 200),
    ],
)
async def test_the_host_from_a_trusted_proxy(
    start: Start, rows_url: str, host: str, lines: list[str], expected: Any
) -> None:
    settings = {"trusted_proxies": "127.0.0.1/32", "public_url": "https://api.example.org"}
    api = await start(rows_url, built_in(), **settings)
    assert outcome(await asked(api, host, "/groups/1", "GET", *lines)) == expected
    alone = await start(rows_url, built_in(), public_url="https://api.example.org")
    assert outcome(await asked(alone, host, "/groups/1", "GET", *lines)) == (200 if host == "localhost" else UNKNOWN)


@pytest.mark.parametrize(
    ("target", "host", "expected"),
    [
        ("http://localhost/groups/1", "evil.example", 200),
        ("http://evil.example/groups/1", "localhost", UNKNOWN),
        ("https://[::1]:8080/groups/1", "evil.example", 200),
        ("http://localhost/groups/1", "a b", 400),
        ("http://a%zz/groups/1", "localhost", 400),
        ("ftp://localhost/groups/1", "localhost", 400),
        ("http://u:p@localhost/groups/1", "localhost", 400),
        ("http://u@localhost/groups/1", "localhost", 400),
        ("http:///groups/1", "localhost", 400),
    ],
)
async def test_the_absolute_form_replaces_the_host(reader: Api, target: str, host: str, expected: Any) -> None:
    answer = await asked(reader, host, target)
    assert (answer.status if expected == 400 else outcome(answer)) == expected


async def test_custom_code_has_the_host_of_the_absolute_form(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), ROUTES)
    answer = await asked(api, "evil.example", "http://LOCALHOST:80/report")
    assert answer.document == {"host": ["LOCALHOST:80", "localhost"]}


# origins


FOREIGN = (403, "foreign_origin")
GROUP = json.dumps({"data": {"type": "group", "id": "1"}}).encode()


async def written(api: Api, origin: str | None, host: str = "localhost:8080", *lines: str) -> Answer:
    given = () if origin is None else (f"Origin: {origin}",)
    length = (f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(GROUP)}")
    return await asked(api, host, "/groups/1", "PATCH", *given, *length, *lines, body=GROUP)


@pytest.mark.parametrize(
    ("settings", "own", "foreign"),
    [
        (
            {},
            [None, "http://localhost:8080", "HTTP://LOCALHOST:8080"],
            [
                *("http://localhost", "https://localhost:8080", "http://127.0.0.1:8080", "http://evil.example", "null"),
                *("http://localhost:8080.evil.example", "", "localhost:8080", "http://localhost:8080, http://a", "*"),
            ],
        ),
        ({"public_url": "https://a.org:443/v1"}, ["https://a.org", "http://localhost:8080"], ["http://a.org", "null"]),
        ({"public_url": "/v1"}, ["http://localhost:8080"], ["http://v1", "://"]),
        ({"cors_origins": "https://b.org,http://c:3000"}, ["https://b.org", "http://c:3000"], ["http://b.org", "null"]),
        ({"cors_origins": "*"}, ["https://evil.example", "null", ""], []),
    ],
)
async def test_a_write_of_another_origin(
    start: Start, database_url: str, settings: dict[str, str], own: list[str | None], foreign: list[str]
) -> None:
    api = await start(database_url, built_in(), **settings)
    await api.sql("INSERT INTO groups (id, name) VALUES (1, 'a')")
    assert [outcome(await written(api, origin)) for origin in own] == [200] * len(own)
    assert [outcome(await written(api, origin)) for origin in foreign] == [FOREIGN] * len(foreign)


@pytest.mark.parametrize(("host", "origin"), [("localhost", "http://localhost"), ("[::1]:80", "http://[::1]")])
async def test_an_origin_has_no_default_port(start: Start, database_url: str, host: str, origin: str) -> None:
    api = await start(database_url, built_in())
    assert (await written(api, origin, host)).status == 404


async def test_the_origin_behind_a_trusted_proxy(start: Start, database_url: str) -> None:
    settings = {"trusted_proxies": "127.0.0.1/32", "allowed_hosts": "api.example.org"}
    api = await start(database_url, built_in(), **settings)
    lines = ("X-Forwarded-Host: api.example.org", "X-Forwarded-Proto: https")
    assert (await written(api, "https://api.example.org", "x", *lines)).status == 404
    assert outcome(await written(api, "http://api.example.org", "x", *lines)) == FOREIGN


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        *(("GET", 200), ("HEAD", 200), ("OPTIONS", 204)),
        *((method, FOREIGN) for method in ("POST", "PUT", "PATCH", "DELETE", "PURGE")),
    ],
)
async def test_only_writes_check_the_origin(reader: Api, method: str, expected: Any) -> None:
    head = f"{method} /users HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n"
    async with connected(reader.port) as wire:
        await wire.send_bytes(head.encode())
        answer = await wire.answer(has_body=method != "HEAD")
    assert (answer.status if method == "HEAD" else outcome(answer)) == expected


async def test_the_answer_to_a_foreign_origin(reader: Api) -> None:
    answer = await written(reader, "http://evil.example")
    assert answer.errors == [
        {
            "status": "403",
            "code": "foreign_origin",
            "title": "Foreign Origin",
            "detail": "Pages of “http://evil.example” may not write here. Add it to the setting cors_origins if they "
            "should; if it is this server's own origin, set public_url.",
            "source": {"header": "Origin"},
        }
    ]


async def test_the_answer_to_a_page_without_an_origin(reader: Api) -> None:
    """`null` is not an origin that cors_origins could list."""
    answer = await written(reader, "null")
    assert [one["detail"] for one in answer.errors] == [
        "Pages without an origin, such as files, may not write here, unless the setting cors_origins is *."
    ]
