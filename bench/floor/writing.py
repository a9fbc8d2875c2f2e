"""The writing requests of the floor. It takes a request and returns its document after the commit.

A single statement is its own transaction; it is as durable as any. Constraints are those of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from tornado.web import HTTPError

from bench.floor.bodies import (
    ComputerResource,
    UserResource,
    read_change,
    read_linkage,
    read_operations,
    read_user,
    rows_text,
)
from bench.floor.connections import Connection
from bench.floor.documents import (
    COMPUTER,
    USER,
    USER_WITH_GROUP,
    computers_linkage,
    computers_of,
    document,
    ids_of,
    linked_objects,
    listed,
    results,
    results_document,
    to_group,
    user_object,
    users_of,
)
from bench.floor.handling import Handler, found
from bench.floor.reading import DetailHandler, UsersHandler
from bench.floor.statements import USER_COLUMNS

_COLUMNS = "(first_name, last_name, age, email, birth_date, gender, words, group_id)"
INSERT = f"INSERT INTO users AS u {_COLUMNS} VALUES ($1, $2, $3, $4, $5::text::date, $6, $7, $8)"
INSERT_USER = f"{INSERT} RETURNING {USER_COLUMNS}"
UPDATE_USER = f"UPDATE users AS u SET age = $2, email = $3 WHERE u.id = $1 RETURNING {USER_COLUMNS}"
DELETE_USER = "DELETE FROM users WHERE id = $1 RETURNING id"

# One text for all: an INSERT of 1,000 rows takes a third of the time of 1,000 of one.
INSERT_USERS = f"""
INSERT INTO users AS u {_COLUMNS}
SELECT r.first_name, r.last_name, r.age, r.email, r.birth_date, r.gender, r.words, r.group_id
FROM ROWS FROM (json_to_recordset($1::text::json) AS (first_name text, last_name text, age integer, email text,
    birth_date date, gender text, words text[], group_id bigint)) WITH ORDINALITY AS r ORDER BY r.ordinality
RETURNING {USER_COLUMNS}
"""
INSERT_FAMILY = f"""
WITH owner AS ({INSERT_USER}), made AS (
    INSERT INTO computers (name, serial, owner_id)
    SELECT c.name, c.serial, owner.id
    FROM owner, unnest($9::text[], $10::text[]) WITH ORDINALITY AS c(name, serial, place) ORDER BY c.place
    RETURNING id, name, serial
)
SELECT owner.*, false AS is_computer FROM owner
UNION ALL SELECT made.*, {", ".join(["NULL"] * 8)}, true FROM made ORDER BY is_computer, id
"""

# Writes of one user's computers wait here for each other: each sees the result of the one before.
BEGIN_WITH_OWNER = "BEGIN; SELECT FROM users WHERE id = %d FOR NO KEY UPDATE"
# Added and removed rows are locked in the order of their ids, so that two writes cannot deadlock.
REPLACE_COMPUTERS = """
WITH there AS (
    SELECT id FROM computers WHERE id = ANY($2) OR owner_id = $1 ORDER BY id FOR NO KEY UPDATE
), moved AS (
    UPDATE computers c SET owner_id = CASE WHEN c.id = ANY($2) THEN $1 END FROM there
    WHERE c.id = there.id AND c.owner_id IS DISTINCT FROM CASE WHEN c.id = ANY($2) THEN $1 END
)
SELECT count(*) FROM there WHERE id = ANY($2)
"""

DELETED = b'{"meta":{"message":"Object successfully deleted"},"jsonapi":{"version":"1.0"}}'
LINKAGE = (
    b'{"jsonapi":{"version":"1.0"},"data":%b,"links":{"self":"%b","first":"%b?page%%5Bnumber%%5D=1",'
    b'"last":"%b?page%%5Bnumber%%5D=1","related":"/users/%d/computers"},'
    b'"meta":{"message":"Relationship successfully updated","count":%d,"total":%d,"totalPages":1}}'
)


class UserHandler(DetailHandler):
    """One user: GET, PATCH and DELETE."""

    async def patch(self, own_id: str) -> None:
        change = read_change(self.request.body).data.attributes
        row = found(await self.connections.fetchrow(UPDATE_USER, int(own_id), change.age, change.email))
        self.finish(document(user_object(row), b"/users/%d" % row[0]))

    async def delete(self, own_id: str) -> None:
        found(await self.connections.fetchrow(DELETE_USER, int(own_id)))
        self.finish(DELETED)


class UsersAndCreateHandler(UsersHandler):
    """Users: GET and POST."""

    async def post(self) -> None:
        new = read_user(self.request.body).data
        row = found(await self.connections.fetchrow(INSERT_USER, *new.values))
        own = b"%d" % row[0]
        [data] = listed(linked_objects(USER_WITH_GROUP, [own], users_of([row]), [to_group(new.group_id)]))
        path = b"/users/" + own
        self.set_status(201)
        self.set_header("Location", path)
        self.finish(document(data, path))


class LinkageHandler(Handler):
    """PATCH of a user's computers."""

    async def patch(self, own_id: str) -> None:
        owner_id = int(own_id)
        wanted = sorted({int(one.id) for one in read_linkage(self.request.body).data})
        connection = await self.connections.acquire()
        try:
            await _replace(connection, owner_id, wanted)
        finally:
            await self.connections.release(connection)
        path, count = b"/users/%d/relationships/computers" % owner_id, len(wanted)
        data = computers_linkage([b"%d" % one for one in wanted])
        self.finish(LINKAGE % (data, path, path, path, owner_id, count, count))


async def _replace(connection: Connection, owner_id: int, wanted: Sequence[int]) -> None:
    """Replace the links. The result is what was wanted, so it need not be read again. Raises HTTPError, 404."""
    try:
        status = await connection.execute(BEGIN_WITH_OWNER % owner_id)
        if status != "SELECT 1" or await connection.fetchval(REPLACE_COMPUTERS, owner_id, wanted) != len(wanted):
            raise HTTPError(404)
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


class OperationsHandler(Handler):
    """Adds of users, or of one user and then of computers owned by its lid."""

    async def post(self) -> None:
        added = [one.data for one in read_operations(self.request.body).operations]
        users = [one for one in added if isinstance(one, UserResource)]
        computers = [one for one in added if isinstance(one, ComputerResource)]
        objects = await (self._family(users[0], computers) if computers else self._users(users))
        self.finish(results_document(objects))

    async def _users(self, users: Sequence[UserResource]) -> list[bytes]:
        rows = sorted(await self.connections.fetch(INSERT_USERS, rows_text(users)), key=itemgetter(0))
        return results(USER, ids_of(rows), users_of(rows))

    async def _family(self, user: UserResource, computers: Sequence[ComputerResource]) -> list[bytes]:
        names = [one.attributes.name for one in computers]
        serials = [one.attributes.serial for one in computers]
        owner, *made = await self.connections.fetch(INSERT_FAMILY, *user.values, names, serials)
        return [
            *results(USER, ids_of([owner]), users_of([owner])),
            *results(COMPUTER, ids_of(made), computers_of(made)),
        ]
