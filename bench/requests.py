"""Defines the measured requests, one row each: method, path and body in terms of JSON:API, the same for every server.
It must not know which server is measured, nor how often.

Paths are readable here and percent-encoded when they are sent. Path and body may contain

    {n}       a number that no other request of the run sends
    {user}    the id of an existing user; it changes with each request
    {c1} {c2} {c3}   the ids of three existing computers, different for each user
    {cursor}  the start of page 3,000 of ten, as given by the server

Each list occurs twice: with `page[total]=none`, and as `NAME-exact` with `page[total]=exact`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

MEDIA_TYPE = "application/vnd.api+json"

USERS = 10_000
"""The number of users, with ids from 1. There are three times as many computers."""

GROUPS = 20
"""The number of groups, with ids from 1."""

MIN_AGE, AGES = 20, 40
"""The lowest age in filters, and the number of different ages in filters."""

ADDS = 1000
"""Operations in the longest request: the most that `max_operations` allows."""

DEEP_OFFSET = 29_990
"""Rows before page 3,000 of ten."""


class Request(msgspec.Struct, frozen=True):
    """A request. name: one word, for options and files. label: for people. total: the `page[total]` of a list, or "".
    alone: so long that it is sent over only one connection.
    """

    name: str
    label: str
    method: str
    path: str
    body: str = ""
    total: str = ""
    writes: bool = False
    alone: bool = False

    @property
    def has_cursor(self) -> bool:
        """Whether the path contains a cursor."""
        return "{cursor}" in self.path

    @property
    def is_fixed(self) -> bool:
        """Whether all its requests are equal, because it has no value that clients would change."""
        return not any(f"{{{name}}}" in self.path + self.body for name in PLACEHOLDERS)


def _values(number: int) -> dict[str, str]:
    """Return the values of the placeholders in the `number`-th request. load.lua has the same code."""
    user = number % USERS + 1
    computers = {f"c{index}": str(3 * (user - 1) + index) for index in (1, 2, 3)}
    turns = {"group": number % GROUPS + 1, "age": MIN_AGE + number % AGES, "digit": number % 10}
    return {"n": str(number), "user": str(user), **computers, **{name: str(turn) for name, turn in turns.items()}}


PLACEHOLDERS = tuple(_values(0))


def rendered(request: Request, number: int, cursor: str = "") -> tuple[str, str]:
    """Path, percent-encoded, and body of the request that is sent as the `number`-th."""
    path, body = request.path, request.body
    for name, value in {**_values(number), "cursor": cursor}.items():
        path, body = path.replace(f"{{{name}}}", value), body.replace(f"{{{name}}}", value)
    return quote(path, safe="/?&=,"), body


def template(request: Request, cursor: str = "") -> str:
    """Return the path, percent-encoded except for its placeholders."""
    path = quote(request.path.replace("{cursor}", cursor), safe="/?&=,")
    for name in PLACEHOLDERS:
        path = path.replace(f"%7B{name}%7D", f"{{{name}}}")
    return path


def user_object(mark: str) -> dict[str, Any]:
    """Return a user to create; `mark` makes the email unique."""
    return {
        "type": "user",
        "attributes": {
            "first_name": "Wanjiru",
            "last_name": "Kamau",
            "age": 36,
            "email": f"wanjiru.{mark}@example.com",
            "birth_date": "1989-09-09",
            "gender": "female",
            "words": ["maps", "satellites"],
        },
        "relationships": {"group": {"data": {"type": "group", "id": "4"}}},
    }


def operations(objects: Sequence[dict[str, Any]]) -> str:
    """Return the body that adds these resource objects."""
    return _json({"atomic:operations": [{"op": "add", "data": each} for each in objects]})


def _json(value: Any) -> str:
    """Return the value as JSON. The placeholder of an age becomes a number, without quotes."""
    return json.dumps(value, separators=(",", ":")).replace('"{age}"', "{age}")


def _get(name: str, label: str, path: str) -> Request:
    return Request(name, label, "GET", path)


def _list(name: str, label: str, path: str) -> tuple[Request, Request]:
    mark = "&" if "?" in path else "?"
    return (
        Request(name, label, "GET", f"{path}{mark}page[total]=none", total="none"),
        Request(f"{name}-exact", f"{label}, exact total", "GET", f"{path}{mark}page[total]=exact", total="exact"),
    )


def _write(name: str, label: str, method: str, path: str, body: str = "") -> Request:
    return Request(name, label, method, path, body, writes=True)


_DOTTED = _json(
    [{"name": "group.name", "op": "eq", "val": "Group {group}"}, {"name": "age", "op": "ge", "val": "{age}"}]
)
_ANY = _json([{"name": "computers", "op": "any", "val": {"name": "serial", "op": "startswith", "val": "SN-{digit}"}}])
# Users without an age do not match, because servers order nulls differently in a descending sort.
_TREE = _json(
    [
        {
            "and": [
                {"name": "age", "op": "ge", "val": "{age}"},
                {
                    "or": [
                        {"name": "status", "op": "eq", "val": "active"},
                        {"not": {"name": "gender", "op": "eq", "val": "female"}},
                    ]
                },
            ]
        }
    ]
)
_UPDATE = {"type": "user", "id": "{user}", "attributes": {"age": 37, "email": "updated.{n}@example.com"}}
_THREE = [{"type": "computer", "id": f"{{c{index}}}"} for index in (1, 2, 3)]
_OWNER = {"owner": {"data": {"type": "user", "lid": "owner"}}}
_COMPUTERS = [
    {"type": "computer", "attributes": {"name": name, "serial": "NEW-{n}"}, "relationships": _OWNER}
    for name in ("desk", "field")
]
_MANY = [user_object(f"{{n}}.{index}") for index in range(ADDS)]

REQUESTS: tuple[Request, ...] = (
    _get("detail", "one resource", "/users/{user}"),
    *_list("list-30", "list 30", "/users?page[size]=30"),
    *_list("list-30-include", "list 30 + include", "/users?page[size]=30&include=computers"),
    *_list("list-1000-include", "list 1000 + include", "/users?page[size]=1000&include=computers"),
    *_list("to-one-sorted", "to-one include, sorted", "/computers?sort=name&include=owner&page[size]=30"),
    *_list("two-level", "two-level include", "/computers?include=owner.group&page[size]=30"),
    *_list("related", "related collection", "/groups/{group}/users?page[size]=30"),
    *_list("dotted-filter", "dotted filter", f"/users?filter={_DOTTED}&page[size]=30"),
    *_list("any-filter", "any-filter", f"/users?filter={_ANY}&page[size]=30"),
    *_list("boolean-filter", "filter tree, sorted", f"/users?filter={_TREE}&sort=-age,last_name&page[size]=30"),
    *_list("deep-page", "page 3,000 of ten", "/computers?page[size]=10&page[number]=3000"),
    _get("deep-cursor", "the same by cursor", "/computers?page[size]=10&page[after]={cursor}"),
    *_list("sparse", "sparse fieldset", "/users?fields[user]=first_name,last_name,age&page[size]=30"),
    Request("everything", "the whole table", "GET", "/users?page[size]=0&page[total]=none", alone=True),
    _write("create", "POST", "POST", "/users", _json({"data": user_object("{n}")})),
    _write("update", "PATCH", "PATCH", "/users/{user}", _json({"data": _UPDATE})),
    _write("delete", "DELETE", "DELETE", "/users/{n}"),
    _write("replace", "PATCH of a to-many", "PATCH", "/users/{user}/relationships/computers", _json({"data": _THREE})),
    _write(
        "operations-3",
        "operations, 3 adds",
        "POST",
        "/operations",
        operations([user_object("{n}") | {"lid": "owner"}, *_COMPUTERS]),
    ),
    Request(
        "operations-1000", "operations, 1,000 adds", "POST", "/operations", operations(_MANY), writes=True, alone=True
    ),
)

BY_NAME: dict[str, Request] = {request.name: request for request in REQUESTS}
