"""Servers with custom code, started from within a test: the hooks of a test are its own, and so is its catalogue. And
the writes that such tests try.

In: a database, a Catalog, routes, settings. Out: an Api; answers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from querybuild.catalog import Catalog
from server.app import make_app, make_server
from server.database import Database, open_database
from server.live_schema import read_live_schema
from server.resources import built_in
from server.settings import Settings
from tests.http.conftest import MEDIA_TYPE, Answer, Api
from tests.http.people import document
from waterspout import CustomHandler, Hooks

Start = Callable[..., Awaitable[Api]]
ATOMIC = f'{MEDIA_TYPE}; ext="https://jsonapi.org/ext/atomic"'


def hooked(catalog: Catalog | None = None, **hooks: Hooks) -> Catalog:
    """The built-in resources, or others, with hooks by type."""
    return Catalog([replace(known, hooks=hooks.get(known.type, Hooks())) for known in catalog or built_in()])


class Servers:
    """Those of one test."""

    def __init__(self) -> None:
        self._running: list[tuple[HTTPServer, Database, Api]] = []

    async def start(
        self, url: str, catalog: Catalog, routes: Sequence[tuple[str, type[CustomHandler]]] = (), **settings: Any
    ) -> Api:
        """Keywords are settings."""
        chosen = Settings(**({"acquire_timeout_seconds": 30.0} | settings))
        database = await open_database(url, chosen, chosen.pool_size)
        async with database.connection() as connection:
            schema = await read_live_schema(connection, catalog)
        assert not schema.faults, schema.faults
        patterns = [(re.compile(pattern), handler) for pattern, handler in routes]
        server = make_server(make_app(chosen, catalog, schema.constraints, database, patterns), chosen)
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        api = Api(sockets[0].getsockname()[1], url)
        self._running.append((server, database, api))
        return api

    async def stop(self) -> None:
        for server, database, api in self._running:
            api.close()
            server.stop()
            await server.close_all_connections()
            await database.close()


def add(type_name: str, attributes: Any, **members: Any) -> dict[str, Any]:
    return {"op": "add", "data": {"type": type_name, "attributes": attributes, **members}}


def update(type_name: str, id_text: str, attributes: Any) -> dict[str, Any]:
    return {"op": "update", "data": {"type": type_name, "id": id_text, "attributes": attributes}}


def remove(type_name: str, id_text: str) -> dict[str, Any]:
    return {"op": "remove", "ref": {"type": type_name, "id": id_text}}


async def operate(api: Api, *operations: Any, media_type: str = MEDIA_TYPE) -> Answer:
    return await api.request(
        "POST", "/operations", {"atomic:operations": operations}, headers={"Content-Type": media_type}
    )


async def written_with(api: Api, kind: str) -> Answer:
    """Person 1 is written, or a new one."""
    if kind == "create":
        return await api.post("/persons", document("person", {"name": "new"}))
    if kind == "update":
        return await api.patch("/persons/1", document("person", {"name": "new"}, id="1"))
    return await api.delete("/persons/1")
