"""What `server/exchange.py` makes of tornado's requests: arguments for those who ask, one turn for a request without a
body, and connections that wait too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.netutil import bind_sockets
from tornado.routing import Router
from tornado.web import Application, RequestHandler

from server.exchange import Server
from server.handlers import CustomHandler
from server.resources import built_in
from tests.http.conftest import Start
from tests.http.wire import connected

SECONDS = 10.0


class Arguments(CustomHandler):
    async def get(self) -> None:
        request = self.request
        self.finish({"one": self.get_query_arguments("one"), "all": sorted(request.arguments), "query": request.query})


async def test_custom_code_has_arguments(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), [("/-/arguments", Arguments)])
    answer = await api.get("/-/arguments?one=1&one=%C3%9F&two=&" + "&".join(f"a{number}=" for number in range(2000)))
    assert answer.status == 200
    assert answer.document["one"] == ["1", "ß"]
    assert len(answer.document["all"]) == 2002
    assert answer.document["query"].startswith("one=1&one=%C3%9F&two=&a0=")


class Slow(RequestHandler):
    def initialize(self, gate: asyncio.Event) -> None:
        self.gate = gate

    async def get(self) -> None:
        await self.gate.wait()
        self.finish(b"done")


class OneHandler(Router):
    def __init__(self, **context: Any) -> None:
        self.application = Application()
        self.context = context

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate:
        return self.application.get_handler_delegate(request, Slow, self.context)


@asynccontextmanager
async def swept(gate: asyncio.Event, limit_seconds: float) -> AsyncIterator[tuple[int, Server]]:
    server = Server(OneHandler(gate=gate))
    [listening] = bind_sockets(0, "127.0.0.1")
    server.add_sockets([listening])
    sweep = asyncio.create_task(server.idle.sweep(limit_seconds))
    try:
        yield listening.getsockname()[1], server
    finally:
        sweep.cancel()
        server.stop()
        await server.close_all_connections()


async def test_a_connection_that_waits_too_long_is_closed() -> None:
    """One that never sent anything, one with half a head, and one that was answered; one in the middle of a request is
    left alone."""
    gate = asyncio.Event()
    async with (
        swept(gate, 0.05) as (port, _),
        connected(port) as silent,
        connected(port) as half,
        connected(port) as busy,
    ):
        await busy.send("GET / HTTP/1.1")
        await half.send_bytes(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert await silent.rest() == b""
        assert await half.rest() == b""
        gate.set()
        assert (await busy.answer()).body == b"done"
        assert await busy.rest() == b""


async def test_no_connection_is_remembered_that_is_gone() -> None:
    async with swept(asyncio.Event(), 3600) as (port, server), asyncio.timeout(SECONDS):
        async with connected(port):
            while not server.idle._since:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        while server.idle._since:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)


async def test_a_request_without_a_body_runs_at_once(start: Start, database_url: str) -> None:
    """And pipelined ones are answered in their order."""
    api = await start(database_url, built_in())
    async with connected(api.port) as wire:
        head = "GET /-/live HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
        await wire.send_bytes(head.encode() + b"POST /groups HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert [(await wire.answer()).status for _ in range(3)] == [200, 404, 400]
