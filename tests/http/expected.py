"""Builds whole documents as the contract defines them, for comparison.

In: facts about a request and its rows. Out: plain dicts. It must not know the server's code."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

Pairs = list[tuple[str, str]]
PATHS = {
    "user": "/users",
    "group": "/groups",
    "post": "/posts",
    "user_bio": "/user-bio",
    "computer": "/computers",
    "parent": "/parents",
    "child": "/children",
    "parent-to-child-association": "/parent-to-child-association",
    "person": "/persons",
    "photo": "/photos",
}
COLLECTIONS = tuple(path[1:] for path in PATHS.values())


def target(path: str, pairs: Pairs) -> str:
    """Return a path with its query, percent-encoded as in links of the server."""
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return f"{path}?{query}" if query else path


def bare(type_name: str, id_text: str) -> dict[str, Any]:
    """Return a resource object whose fieldset is empty."""
    return {"type": type_name, "id": id_text, "links": {"self": f"{PATHS[type_name]}/{id_text}"}}


def bare_list(type_name: str, ids: list[int], pairs: Pairs) -> dict[str, Any]:
    """Return a list of these resources on one page, if the request has `fields[type]=` and no other page parameters."""
    path = PATHS[type_name]
    first = target(path, [*pairs, ("page[number]", "1")])
    return {
        "jsonapi": {"version": "1.0"},
        "data": [bare(type_name, str(number)) for number in ids],
        "links": {"self": target(path, pairs), "first": first} | ({"last": first} if ids else {}),
        "meta": {"count": len(ids), "total": len(ids), "totalPages": 1 if ids else 0},
    }


def error(
    status: int, code: str, title: str, detail: str, *, parameter: str | None = None, header: str | None = None
) -> dict[str, Any]:
    """Return an error object without its id."""
    made: dict[str, Any] = {"status": str(status), "code": code, "title": title, "detail": detail}
    if parameter is not None:
        made["source"] = {"parameter": parameter}
    if header is not None:
        made["source"] = {"header": header}
    return made


NO_DATA = object()
"""A relationship with links and without data."""


def resource(type_name: str, id_text: str, relationships: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    """Return a resource object. relationships: the linkage of each, or NO_DATA."""
    path = f"{PATHS[type_name]}/{id_text}"
    made: dict[str, Any] = {"type": type_name, "id": id_text}
    if attributes:
        made["attributes"] = attributes
    if relationships:
        made["relationships"] = {
            name: {"links": {"self": f"{path}/relationships/{name}", "related": f"{path}/{name}"}}
            | ({} if linkage is NO_DATA else {"data": linkage})
            for name, linkage in relationships.items()
        }
    return made | {"links": {"self": path}}


def one(type_name: str, id_text: str) -> dict[str, str]:
    """Return a resource identifier object."""
    return {"type": type_name, "id": id_text}


def many(type_name: str, *ids: int) -> list[dict[str, str]]:
    return [one(type_name, str(number)) for number in ids]


ADA = resource(
    "user",
    "1",
    {"computers": NO_DATA, "posts": NO_DATA, "bio": NO_DATA, "group": NO_DATA},
    first_name="Ada",
    last_name="Lovelace",
    display_name="Ada Lovelace",
    age=36,
    email="ada@example.org",
    status="active",
    birth_date="1815-12-10",
    gender="female",
    words=["math", "poetry"],
    date_create="2024-01-01",
)
"""The first user of `tests/http/rows.py`."""
