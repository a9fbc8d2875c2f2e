"""The floor: what a careful person writes by hand in Tornado and asyncpg for exactly the requests of `kinds`.

Fixed SQL, templates made once, one snapshot for a list and its include, the same documents byte for byte; no
validation, no features, no errors of its own. Run as `python -m bench.floor --database-url URL`. What the server
adds to these figures is the price of being general. It must not import the server.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence
from datetime import date
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import uvloop
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

COLUMNS = (
    "u.id, u.first_name, u.last_name, u.first_name || ' ' || u.last_name, u.age, u.email, u.status, u.birth_date,"
    " u.gender, u.words, u.date_create"
)
IS_WANTED = "u.age >= $2 AND EXISTS (SELECT FROM groups g WHERE g.id = u.group_id AND g.name = $1)"
DETAIL = f"SELECT {COLUMNS} FROM users u WHERE u.id = $1"
LIST = f"SELECT {COLUMNS} FROM users u ORDER BY u.id LIMIT $1"
COUNTED_LIST = f"SELECT {COLUMNS}, (SELECT count(*) FROM users) FROM users u ORDER BY u.id LIMIT $1"
FILTERED = f"SELECT {COLUMNS} FROM users u WHERE {IS_WANTED} ORDER BY u.id LIMIT $3"
COUNTED_FILTERED = (
    f"SELECT {COLUMNS}, (SELECT count(*) FROM users u WHERE {IS_WANTED})"
    f" FROM users u WHERE {IS_WANTED} ORDER BY u.id LIMIT $3"
)
COMPUTERS = "SELECT id, name, serial, owner_id FROM computers WHERE owner_id = ANY($1) ORDER BY id"
INSERT = (
    "INSERT INTO users AS u (first_name, last_name, age, email, birth_date, gender, words, group_id)"
    f" VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING {COLUMNS}"
)


class User(msgspec.Struct, gc=False):
    first_name: str
    last_name: str
    display_name: str
    age: int | None
    email: str | None
    status: str
    birth_date: date | None
    gender: str | None
    words: list[str]
    date_create: date


class Computer(msgspec.Struct, gc=False):
    name: str
    serial: str | None


class Meta(msgspec.Struct, omit_defaults=True, gc=False):
    count: int
    total: int | None = None
    totalPages: int | None = None


class NewUser(msgspec.Struct, gc=False):
    first_name: str
    last_name: str
    age: int | None
    email: str | None
    birth_date: date | None
    gender: str | None
    words: list[str]


class Identifier(msgspec.Struct, gc=False):
    type: str
    id: str


class Linkage(msgspec.Struct, gc=False):
    data: Identifier


class NewRelationships(msgspec.Struct, gc=False):
    group: Linkage


class NewResource(msgspec.Struct, gc=False):
    type: str
    attributes: NewUser
    relationships: NewRelationships


class NewDocument(msgspec.Struct, gc=False):
    data: NewResource


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NewDocument).decode


def _relationship(path: str, name: str, data: str = "") -> str:
    links = f'"links":{{"self":"{path}/%(id)b/relationships/{name}","related":"{path}/%(id)b/{name}"}}'
    return f'"{name}":{{{links}{data}}}'


def _template(type_name: str, path: str, relationships: Sequence[str]) -> bytes:
    """A resource object with one `%b` for each id, the attributes and the linkage."""
    head = f'{{"type":"{type_name}","id":"%(id)b","attributes":%b,"relationships":{{{",".join(relationships)}}}'
    return (head + f',"links":{{"self":"{path}/%(id)b"}}}}').replace("%(id)b", "%b").encode()


_OTHERS = [_relationship("/users", name) for name in ("posts", "bio")]
_GROUP, _COMPUTERS = _relationship("/users", "group"), _relationship("/users", "computers")
USER = _template("user", "/users", [_COMPUTERS, *_OTHERS, _GROUP])
USER_WITH_COMPUTERS = _template(
    "user", "/users", [_relationship("/users", "computers", ',"data":[%b]'), *_OTHERS, _GROUP]
)
USER_WITH_GROUP = _template(
    "user", "/users", [_COMPUTERS, *_OTHERS, _relationship("/users", "group", ',"data":{"type":"group","id":"%b"}')]
)
COMPUTER = _template("computer", "/computers", [_relationship("/computers", "owner")])
DOCUMENT = b'{"jsonapi":{"version":"1.0"},"data":%b,"links":{"self":"%b"}}'
COLLECTION = b'{"jsonapi":{"version":"1.0"},"data":[%b],"links":%b,"meta":%b}'
COMPOUND = b'{"jsonapi":{"version":"1.0"},"data":[%b],"included":[%b],"links":%b,"meta":%b}'


def user_object(row: Any) -> bytes:
    own = b"%d" % row[0]
    return USER % (own, _encode(User(*row[1:11])), own, own, own, own, own, own, own, own, own)


def user_with_computers(row: Any, linkage: bytes) -> bytes:
    own = b"%d" % row[0]
    return USER_WITH_COMPUTERS % (own, _encode(User(*row[1:11])), own, own, linkage, own, own, own, own, own, own, own)


def computer_object(own: bytes, row: Any) -> bytes:
    return COMPUTER % (own, _encode(Computer(row[1], row[2])), own, own, own)


def compound(users: Sequence[Any], computers: Sequence[Any]) -> tuple[bytes, bytes]:
    """Primary data and included, the latter in the order in which the former names them."""
    linkages: dict[int, list[bytes]] = {row[0]: [] for row in users}
    included: dict[int, list[bytes]] = {row[0]: [] for row in users}
    for row in computers:
        own = b"%d" % row[0]
        linkages[row[3]].append(b'{"type":"computer","id":"%b"}' % own)
        included[row[3]].append(computer_object(own, row))
    data = [user_with_computers(row, b",".join(linkages[row[0]])) for row in users]
    return b",".join(data), b",".join([b",".join(objects) for objects in included.values() if objects])


def page_links(pairs: Sequence[tuple[str, str]], size: int, total: int | None, has_more: bool) -> dict[str, str]:
    path = "/users?" + "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    links = {"self": path, "first": path + "&page%5Bnumber%5D=1"}
    if total is not None:
        links["last"] = f"{path}&page%5Bnumber%5D={-(-total // size)}"
    if has_more:
        links["next"] = path + "&page%5Bnumber%5D=2"
    return links


class Connection(asyncpg.Connection):
    """Nothing is left behind in a session, so there is nothing to reset."""

    def get_reset_query(self) -> str:
        return ""


class Handler(RequestHandler):
    def initialize(self, pool: Any) -> None:
        self.pool = pool

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "application/vnd.api+json")

    def compute_etag(self) -> None:
        """A hash of every answer would only cost time."""


class DetailHandler(Handler):
    async def get(self, own_id: str) -> None:
        async with self.pool.acquire() as connection:
            row = await connection.fetchrow(DETAIL, int(own_id))
        self.finish(DOCUMENT % (user_object(row), b"/users/" + own_id.encode()))


class CollectionHandler(Handler):
    async def get(self) -> None:
        arguments = self.request.query_arguments
        size = int(arguments["page[size]"][0])
        has_total = arguments["page[total]"][0] == b"exact"
        computers: Sequence[Any] = ()
        async with self.pool.acquire() as connection:
            if "include" in arguments:
                rows, computers = await self._compound(connection, size, has_total)
            elif "filter" in arguments:
                group, age = msgspec.json.decode(arguments["filter"][0])
                sql = COUNTED_FILTERED if has_total else FILTERED
                rows = await connection.fetch(sql, group["val"], age["val"], size + 1)
            else:
                rows = await connection.fetch(COUNTED_LIST if has_total else LIST, size + 1)
        has_more = len(rows) > size
        users = rows[:size]
        total = users[0][11] if has_total else None
        pairs = [(name, values[0].decode()) for name, values in arguments.items()]
        links = _encode(page_links(pairs, size, total, has_more))
        meta = _encode(Meta(len(users), total, None if total is None else -(-total // size)))
        if "include" in arguments:
            self.finish(COMPOUND % (*compound(users, computers), links, meta))
        else:
            self.finish(COLLECTION % (b",".join([user_object(row) for row in users]), links, meta))

    async def _compound(self, connection: Any, size: int, has_total: bool) -> tuple[Any, Any]:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            rows = await connection.fetch(COUNTED_LIST if has_total else LIST, size + 1)
            computers = await connection.fetch(COMPUTERS, [row[0] for row in rows[:size]])
        except BaseException:
            await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")
        return rows, computers

    async def post(self) -> None:
        resource = _decode(self.request.body).data
        group = resource.relationships.group.data.id
        async with self.pool.acquire() as connection:
            row = await connection.fetchrow(INSERT, *msgspec.structs.astuple(resource.attributes), int(group))
        own = b"%d" % row[0]
        body = USER_WITH_GROUP % (
            own, _encode(User(*row[1:])), own, own, own, own, own, own, own, own, group.encode(), own
        )  # fmt: skip
        self.set_status(201)
        self.set_header("Location", f"/users/{row[0]}")
        self.finish(DOCUMENT % (body, b"/users/" + own))


class BareHandler(Handler):
    """Tornado alone: a small answer without a database."""

    def get(self) -> None:
        self.finish(DOCUMENT % (b"null", b"/bare"))


async def serve(database_url: str, pool_size: int) -> None:
    pool = await asyncpg.create_pool(
        database_url, min_size=1, max_size=pool_size, connection_class=Connection, statement_cache_size=256
    )
    context = {"pool": pool}
    application = Application(
        [
            (r"/users/(\d+)", DetailHandler, context),
            (r"/users", CollectionHandler, context),
            (r"/bare", BareHandler, context),
        ]
    )
    sockets = bind_sockets(0, "127.0.0.1")
    HTTPServer(application).add_sockets(sockets)
    print(f"the floor is ready on http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--pool-size", type=int, default=10)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.database_url, arguments.pool_size))


if __name__ == "__main__":
    main()
