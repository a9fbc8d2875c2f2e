"""Documents and rows that many tests of writes use."""

from __future__ import annotations

from typing import Any

import asyncpg

from tests.http.conftest import Api

ADA = {"first_name": "Ada", "last_name": "Byron"}


def document(type_name: str, attributes: Any = None, **members: Any) -> dict[str, Any]:
    """Return a document with one resource. members: further members of the resource, such as id and relationships."""
    data: dict[str, Any] = {"type": type_name, **members}
    if attributes is not None:
        data["attributes"] = attributes
    return {"data": data}


def user(attributes: dict[str, Any] | None = None, **relationships: Any) -> dict[str, Any]:
    """Return a new user Ada, with other or further attributes. Each relationship is its linkage."""
    return document("user", ADA | (attributes or {}), relationships=linked(**relationships))


def linked(**relationships: Any) -> dict[str, Any]:
    """`linked(group=None)` is `{"group": {"data": null}}`."""
    return {name: {"data": linkage} for name, linkage in relationships.items()}


def of(type_name: str, *ids: Any) -> list[dict[str, Any]]:
    """Return to-many linkage of these ids."""
    return [one(type_name, id_value) for id_value in ids]


def one(type_name: str, id_value: Any) -> dict[str, Any]:
    return {"type": type_name, "id": id_value}


async def create_user(api: Api, attributes: dict[str, Any] | None = None, **relationships: Any) -> str:
    return await api.create("/users", "user", ADA | (attributes or {}), **relationships)


HOUSEHOLD = """
    INSERT INTO groups (name) VALUES ('rowers');
    INSERT INTO users (first_name, last_name, age, words, group_id)
        VALUES ('Ada', 'Byron', 36, '{engine}', 1), ('Bea', 'Byron', NULL, '{}', NULL);
    INSERT INTO computers (name, owner_id) VALUES ('abacus', 1), ('bombe', 1), ('cray', 2), ('deck', NULL);
    INSERT INTO posts (title, body, user_id) VALUES ('first', 'text', 1), ('second', 'text', 1);
    INSERT INTO user_bios (birth_city, user_id) VALUES ('London', 1), ('Paris', 2);
    INSERT INTO parents (name) VALUES ('pat');
    INSERT INTO children (name) VALUES ('kim');
    INSERT INTO parent_child_associations (parent_id, child_id) VALUES (1, 1);
    INSERT INTO persons (name) VALUES ('Noor');
    INSERT INTO photos (name, meta) VALUES ('lake', '{"tags": ["water"]}');
"""


async def create_household(api: Api) -> None:
    """Fill an empty database. User 1 has group 1, computers 1 and 2, posts 1 and 2 and bio 1. User 2 has computer 3 and
    bio 2. Computer 4 has no owner. There are also parent 1 and child 1 with association 1, person 1 and photo 1."""
    connection = await asyncpg.connect(api.database_url)
    try:
        await connection.execute(HOUSEHOLD)
    finally:
        await connection.close()


async def select(api: Api, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, as plain tuples."""
    return [tuple(row) for row in await api.sql(statement, *values)]
