"""The command line of the floors. It takes a database and the number of connections, and runs a server on the loopback
interface.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from typing import Any

import uvloop
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.log import enable_pretty_logging
from tornado.netutil import bind_sockets
from tornado.routing import Router
from tornado.web import Application

from bench.floor.connections import Connections, Pooled, open_connections, open_pool
from bench.floor.handling import BareHandler, Handler
from bench.floor.reading import ComputersHandler, GroupUsersHandler
from bench.floor.writing import LinkageHandler, OperationsHandler, UserHandler, UsersAndCreateHandler

HANDLERS: dict[str, type[Handler]] = {
    "users": UsersAndCreateHandler,
    "users/{id}": UserHandler,
    "users/{id}/relationships/computers": LinkageHandler,
    "computers": ComputersHandler,
    "groups/{id}/users": GroupUsersHandler,
    "operations": OperationsHandler,
    "bare": BareHandler,
}


class Paths(Router):
    """Looks a path up in a table, which is faster than trying one pattern after another."""

    def __init__(self, connections: Connections) -> None:
        self._application = Application(log_function=lambda _: None)
        self._context = {"connections": connections}

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Return the delegate of the handler for this path, or None."""
        path, ids = request.path[1:], list[bytes]()
        if "/" in path:
            collection, own_id, *rest = path.split("/")
            path, ids = "/".join((collection, "{id}", *rest)), [own_id.encode()]
        handler = HANDLERS.get(path)
        if handler is None:
            return None
        return self._application.get_handler_delegate(request, handler, self._context, path_args=ids)


def plain_application(connections: Pooled) -> Application:
    """Return an application as Tornado's documentation shows it: patterns, tried one after another, and its own access
    log."""
    context = {"connections": connections}
    patterns = {path.replace("{id}", r"(?P<own_id>\d+)"): handler for path, handler in HANDLERS.items()}
    return Application([(f"/{pattern}", handler, context) for pattern, handler in patterns.items()])


async def opened(database_url: str, pool_size: int, *, is_plain: bool) -> tuple[Connections | Pooled, HTTPServer]:
    """Return the connections and the server on them, which does not listen yet."""
    if is_plain:
        pooled = await open_pool(database_url, pool_size)
        return pooled, HTTPServer(plain_application(pooled))
    connections = await open_connections(database_url, pool_size)
    return connections, HTTPServer(Paths(connections))


async def serve(database_url: str, pool_size: int, *, is_plain: bool) -> None:
    """Answer until SIGTERM, and then stops at once."""
    connections, server = await opened(database_url, pool_size, is_plain=is_plain)
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    if is_plain:
        # Enables Tornado's access log on standard error: a line for each request.
        enable_pretty_logging()
    else:
        # The present objects are never freed: the garbage collector need not check them.
        gc.collect()
        gc.freeze()
    print(f"the floor is ready on http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.stop()
    await connections.close()


def main() -> None:
    """Parse the command line and run a floor."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description="A server written by hand.")
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--pool-size", type=int, default=10)
    parser.add_argument("--plain", action="store_true", help="Tornado's routes and log, asyncpg's pool, as they come.")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.database_url, arguments.pool_size, is_plain=arguments.plain))


if __name__ == "__main__":
    main()
