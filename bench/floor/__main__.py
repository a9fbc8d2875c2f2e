"""The command line of the floor. In: a database and how many connections to it. Out: a server on the loopback."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from typing import Any

import uvloop
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.netutil import bind_sockets
from tornado.routing import Router
from tornado.web import Application

from bench.floor.connections import Connections, open_connections
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
    """Looks a path up, which takes less than trying one pattern after another."""

    def __init__(self, connections: Connections) -> None:
        self._application = Application(log_function=lambda _: None)
        self._context = {"connections": connections}

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        path, ids = request.path[1:], list[bytes]()
        if "/" in path:
            collection, own_id, *rest = path.split("/")
            path, ids = "/".join((collection, "{id}", *rest)), [own_id.encode()]
        handler = HANDLERS.get(path)
        if handler is None:
            return None
        return self._application.get_handler_delegate(request, handler, self._context, path_args=ids)


async def serve(database_url: str, pool_size: int) -> None:
    """Answers until SIGTERM, and then at once no more."""
    connections = await open_connections(database_url, pool_size)
    sockets = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Paths(connections))
    server.add_sockets(sockets)
    # What is there now stays: a collection need not look at it.
    gc.collect()
    gc.freeze()
    print(f"the floor is ready on http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.stop()
    await connections.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description="A server written by hand.")
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--pool-size", type=int, default=10)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.database_url, arguments.pool_size))


if __name__ == "__main__":
    main()
