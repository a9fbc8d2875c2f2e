"""The GET requests of the floor, with a handler for each path. It takes a request and returns its document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from bench.floor import statements
from bench.floor.connections import Connection, Row
from bench.floor.documents import (
    COMPUTER,
    COMPUTER_WITH_OWNER,
    GROUP,
    LIST_HEAD,
    USER,
    USER_ALONE,
    USER_WITH_COMPUTERS,
    USER_WITH_GROUP,
    compound_document,
    computers_linkage,
    computers_of,
    document,
    groups_of,
    ids_of,
    linked_objects,
    list_document,
    list_tail,
    listed,
    named_users_of,
    objects,
    to_group,
    to_user,
    user_object,
    users_of,
)
from bench.floor.handling import Handler, found
from bench.floor.pages import PageRequest, cursor_links, page_links, page_meta, page_request, read_cursor
from bench.floor.statements import Statements

BATCH = 1000
"""Rows of a streamed answer that are in memory at once."""

Part = tuple[Sequence[bytes], Sequence[bytes]]
"""Primary resource objects and included ones."""


class DetailHandler(Handler):
    """One user."""

    async def get(self, own_id: str) -> None:
        row = found(await self.connections.fetchrow(statements.DETAIL, int(own_id)))
        self.finish(document(user_object(row), b"/users/%d" % row[0]))


class ListHandler(Handler):
    """The base of handlers for lists."""

    async def answer(self, request: PageRequest, texts: Statements, *values: Any) -> None:
        """Answer with a page of users."""
        rows = await self.page(request, texts, *values)
        page = rows[: request.size]
        self.finish(list_document(objects(USER, ids_of(page), users_of(page)), *ends(request, rows, page)))

    async def page(self, request: PageRequest, texts: Statements, *values: Any) -> list[Row]:
        """Return the rows of the page, and the next row if there is one."""
        return await self.connections.fetch(texts[request.is_counted] % (request.size + 1, request.offset), *values)


def ends(request: PageRequest, rows: Sequence[Row], page: Sequence[Row]) -> tuple[bytes, bytes]:
    """Return the links and meta of a page whose rows have the total, if there is one, as their last column."""
    total = page[0][-1] if request.is_counted else None
    return page_links(request, total, has_more=len(rows) > len(page)), page_meta(request, len(page), total)


@lru_cache(maxsize=1024)
def filtered(text: str) -> tuple[Statements, tuple[Any, ...]]:
    """Return the statement for a filter, and its values. Raises ValueError for other filters."""
    match json.loads(text):
        case [{"name": "group.name", "op": "eq", "val": group}, {"name": "age", "op": "ge", "val": age}]:
            return statements.IN_GROUP, (group, age)
        case [{"name": "computers", "op": "any", "val": {"name": "serial", "op": "startswith", "val": begin}}]:
            return statements.OWNING, (like(begin),)
        case [
            {
                "and": [
                    {"name": "age", "op": "ge", "val": age},
                    {
                        "or": [
                            {"name": "status", "op": "eq", "val": status},
                            {"not": {"name": "gender", "op": "eq", "val": gender}},
                        ]
                    },
                ]
            }
        ]:
            return statements.IN_TREE, (age, status, gender)
    raise ValueError(text)


def like(begin: str) -> str:
    """Return a LIKE pattern for a text that begins with this."""
    return begin.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


class UsersHandler(ListHandler):
    """Users. Only the filter tree is sorted, in its statement."""

    async def get(self) -> None:
        request = page_request(self.request.path, self.request.query)
        parameters = request.parameters
        if "include" in parameters:
            await self._with_computers(request)
        elif "filter" in parameters:
            texts, values = filtered(parameters["filter"])
            await self.answer(request, texts, *values)
        elif "fields[user]" in parameters:
            rows = await self.page(request, statements.NAMED)
            page = rows[: request.size]
            self.finish(
                list_document(objects(USER_ALONE, ids_of(page), named_users_of(page)), *ends(request, rows, page))
            )
        elif request.size:
            await self.answer(request, statements.LIST)
        else:
            await self._everything(request)

    async def _with_computers(self, request: PageRequest) -> None:
        text = statements.WITH_COMPUTERS[request.is_counted] % (request.size + 1, request.offset, request.size)
        rows = await self.connections.fetch(text)
        count = next((index for index, row in enumerate(rows) if row[-1] is not None), len(rows))
        users, computers = rows[:count], rows[count:]
        page = users[: request.size]
        total = page[0][-2] if request.is_counted else None
        links = page_links(request, total, has_more=count > request.size)
        self.finish(compound_document(*with_computers(page, computers), links, page_meta(request, len(page), total)))

    async def _everything(self, request: PageRequest) -> None:
        connection = await self.connections.acquire()
        try:
            count = await self._stream(connection)
        except BaseException:
            # An incomplete document must not look complete.
            self.detach().close()
            raise
        finally:
            await self.connections.release(connection)
        self.finish(list_tail(page_links_of_all(request), page_meta(request, count, None)))

    async def _stream(self, connection: Connection) -> int:
        """Send the head and all users of a list, as fast as they are read; returns how many."""
        count, head = 0, LIST_HEAD
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(statements.EVERYTHING)
            while rows := await cursor.fetch(BATCH):
                data = objects(USER, ids_of(rows), users_of(rows))
                self.write(b"".join((head, *(data if count else listed(data)))))
                count, head = count + len(rows), b""
                await self.flush()
        return count


def page_links_of_all(request: PageRequest) -> bytes:
    """Return the links of a list without pages."""
    return request.links + b"}"


def with_computers(users: Sequence[Row], computers: Sequence[Row]) -> Part:
    """Return the objects of users and of their computers. computers: in the order of their owners, which is that of the
    users, and then of their ids.
    """
    ids = ids_of(computers)
    owned: dict[int, list[bytes]] = {row[0]: [] for row in users}
    for row, own in zip(computers, ids, strict=True):
        owned[row[-1]].append(own)
    linkage = [computers_linkage(one) for one in owned.values()]
    data = linked_objects(USER_WITH_COMPUTERS, ids_of(users), users_of(users), linkage)
    return data, objects(COMPUTER, ids, computers_of(computers))


class ComputersHandler(ListHandler):
    """Computers. Only the page with owners is sorted, by name."""

    async def get(self) -> None:
        request = page_request(self.request.path, self.request.query)
        include = request.parameters.get("include")
        if include == "owner":
            rows = await self.page(request, statements.WITH_OWNER)
            self._compound(request, rows, with_owners(rows[: request.size]))
        elif include == "owner.group":
            rows = await self.page(request, statements.WITH_OWNER_AND_GROUP)
            self._compound(request, rows, with_owners_and_groups(rows[: request.size]))
        elif "page[after]" in request.parameters:
            await self._after(request)
        else:
            rows = await self.page(request, statements.COMPUTERS)
            page = rows[: request.size]
            self.finish(list_document(objects(COMPUTER, ids_of(page), computers_of(page)), *ends(request, rows, page)))

    def _compound(self, request: PageRequest, rows: Sequence[Row], part: Part) -> None:
        self.finish(compound_document(*part, *ends(request, rows, rows[: request.size])))

    async def _after(self, request: PageRequest) -> None:
        mark, before = read_cursor(request.parameters["page[after]"])
        rows = await self.connections.fetch(statements.COMPUTERS_AFTER % (request.size + 1), before)
        page = rows[: request.size]
        links = cursor_links(request, mark, page, has_more=len(rows) > len(page))
        data = objects(COMPUTER, ids_of(page), computers_of(page))
        self.finish(list_document(data, links, page_meta(request, len(page), None)))


OWNER, OWNERS_GROUP = 3, 14
"""The positions of the columns of a computer's owner, and of the owner's group."""


def with_owners(rows: Sequence[Row]) -> Part:
    """Return the objects of computers and of their owners: each owner once, in first-seen order."""
    owners = {row[OWNER]: row for row in rows if row[OWNER] is not None}
    users = list(owners.values())
    ids = [b"%d" % own for own in owners]
    return computers_with_owners(rows), objects(USER, ids, users_of(users, OWNER + 1))


def with_owners_and_groups(rows: Sequence[Row]) -> Part:
    """Return the objects of computers and of their owners, and then of the owners' groups."""
    owners = {row[OWNER]: row for row in rows if row[OWNER] is not None}
    users = list(owners.values())
    groups = {row[OWNERS_GROUP]: row[OWNERS_GROUP + 1] for row in users if row[OWNERS_GROUP] is not None}
    linkage = [to_group(row[OWNERS_GROUP]) for row in users]
    included = linked_objects(USER_WITH_GROUP, [b"%d" % own for own in owners], users_of(users, OWNER + 1), linkage)
    included += objects(GROUP, [b"%d" % own for own in groups], groups_of(list(groups.values())))
    return computers_with_owners(rows), included


def computers_with_owners(rows: Sequence[Row]) -> list[bytes]:
    """Return the objects of computers, with linkage to their owners."""
    linkage = [to_user(row[OWNER]) for row in rows]
    return linked_objects(COMPUTER_WITH_OWNER, ids_of(rows), computers_of(rows), linkage)


class GroupUsersHandler(ListHandler):
    """The users of a group."""

    async def get(self, own_id: str) -> None:
        await self.answer(page_request(self.request.path, self.request.query), statements.RELATED, int(own_id))
