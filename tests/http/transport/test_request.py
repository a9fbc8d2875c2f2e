"""`server/http/request.py`: the attributes of a request for custom code, hosts as tornado reads them, and requests
without a body, which run in one turn of the event loop."""

from __future__ import annotations

import pytest

from server.handlers import CustomHandler
from server.resources import built_in
from tests.http.conftest import Start
from tests.http.wire import connected


class Asked(CustomHandler):
    async def get(self) -> None:
        request = self.request
        self.finish(
            {
                "one": self.get_query_arguments("one"),
                "all": sorted(request.arguments),
                "query": request.query,
                "host": [request.host, request.host_name],
                "url": request.full_url(),
                "client": [request.remote_ip, request.protocol, request.version],
            }
        )


async def test_custom_code_can_read_every_attribute_of_a_request(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), [("/-/asked", Asked)])
    answer = await api.get("/-/asked?one=1&one=%C3%9F&two=&" + "&".join(f"a{number}=" for number in range(2000)))
    assert answer.status == 200
    assert answer.document["one"] == ["1", "ß"]
    assert len(answer.document["all"]) == 2002
    assert answer.document["query"].startswith("one=1&one=%C3%9F&two=&a0=")
    assert answer.document["host"] == [f"127.0.0.1:{api.port}", "127.0.0.1"]
    assert answer.document["url"].startswith(f"http://127.0.0.1:{api.port}/-/asked?one=1&")
    assert answer.document["client"] == ["127.0.0.1", "http", "HTTP/1.1"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("Host: Example.ORG:8080\r\n", ["Example.ORG:8080", "example.org"]),
        ("Host: [::1]:80\r\n", ["[::1]:80", "[::1]"]),
        ("", ["127.0.0.1", "127.0.0.1"]),
    ],
)
async def test_hosts(start: Start, database_url: str, headers: str, expected: list[str]) -> None:
    api = await start(database_url, built_in(), [("/-/asked", Asked)], allowed_hosts="*")
    async with connected(api.port) as wire:
        await wire.send_bytes(f"GET /-/asked HTTP/1.0\r\n{headers}\r\n".encode())
        assert (await wire.answer()).document["host"] == expected


async def test_an_invalid_host(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in())
    async with connected(api.port) as wire:
        await wire.send_bytes(b"GET /-/live HTTP/1.1\r\nHost: " + b"x" * 301 + b"\r\n\r\n")
        assert (await wire.answer()).status == 400


async def test_a_request_without_a_body_runs_in_the_same_turn(start: Start, database_url: str) -> None:
    """Pipelined requests are answered in their order."""
    api = await start(database_url, built_in())
    async with connected(api.port) as wire:
        head = "GET /-/live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
        await wire.send_bytes(head.encode() + b"POST /groups HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert [(await wire.answer()).status for _ in range(3)] == [200, 404, 400]
