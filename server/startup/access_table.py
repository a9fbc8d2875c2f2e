"""Describes who may do what, for people who check declarations. What comes in: a Catalog. What goes out: rows of a
table, and the resources that are closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from querybuild.declarations.access import (
    ACTIONS,
    ANYONE,
    Allow,
    Claim,
    Now,
    Subject,
    audience_name,
    audiences_of,
)
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.json_texts import dump_json
from querybuild.declarations.resource import Resource
from querybuild.errors import listed

OPEN = "all: it has no rules"
"""The rows of a resource that everybody may use."""


class AccessRow(msgspec.Struct, frozen=True):
    """A rule, or the rights of a field. what: the JSON:API type, or type and field. actions: what is allowed. to: for
    whom. rows: `all`, or the filter that rows meet. check: the filter that written rows meet, if it is another."""

    what: str
    actions: tuple[str, ...]
    to: str
    rows: str
    check: str = ""


def closed_types(catalog: Catalog, *, is_authenticated: bool) -> tuple[str, ...]:
    """Return the types that nobody may use: they have no rules, and it is known who asks."""
    return tuple([resource.type for resource in catalog if is_authenticated and not resource.access])


def closed_line(closed: tuple[str, ...]) -> str:
    """Return a line for the user about closed types."""
    return f"closed to everybody, because they have no rules (access=...): {listed(closed)}"


def access_rows(catalog: Catalog, *, is_authenticated: bool) -> tuple[AccessRow, ...]:
    """Return who may do what with each resource, and with fields that are not for everybody."""
    return tuple([row for resource in catalog for row in _rows_of(resource, is_authenticated)])


def _rows_of(resource: Resource, is_authenticated: bool) -> Iterator[AccessRow]:
    known = tuple([action for action in ACTIONS if _methods_of(action) & resource.methods])
    if not resource.access:
        closed = AccessRow(resource.type, (), "nobody", "none: it has no rules")
        yield closed if is_authenticated else AccessRow(resource.type, known, str(ANYONE), OPEN)
    for allow in resource.access:
        actions = tuple([action for action in known if allow.allows(action)])
        check = "" if allow.check is None else filter_text(allow.check)
        yield AccessRow(resource.type, actions, audience_name(allow.to), _rows_text(allow), check)
    for field in (*resource.attributes, *resource.relationships):
        for action, declared in (("read", field.read_by), ("write", field.write_by)):
            if declared != ANYONE:
                to = ", ".join(map(audience_name, audiences_of(declared)))
                yield AccessRow(f"{resource.type}.{field.name}", (action,), to, "all")


def _methods_of(action: str) -> frozenset[str]:
    return frozenset({"list", "detail"}) if action == "read" else frozenset({action})


def _rows_text(allow: Allow) -> str:
    return "all" if allow.rows is None else filter_text(allow.rows)


def filter_text(node: Any) -> str:
    """Return a filter of a rule as a short text.

    >>> filter_text({"or": [{"name": "owner", "op": "eq", "val": SUBJECT}, {"name": "age", "op": "gt", "val": 1}]})
    'owner eq SUBJECT or age gt 1'
    """
    match node:
        case list() | tuple():
            return " and ".join(map(_inner_text, node))
        case {"and": items}:
            return " and ".join(map(_inner_text, items)) or "everything"
        case {"or": items}:
            return " or ".join(map(_inner_text, items)) or "nothing"
        case {"not": inner}:
            return f"not {_inner_text(inner)}"
        case {"name": name, "op": op, "field": field}:
            return f"{name} {op} {field}"
        case {"name": name, "op": "any" | "has" as op, "val": inner}:
            return f"{op} {name}" + (f" ({filter_text(inner)})" if inner else "")
        case {"name": name, "op": op, "val": val}:
            return f"{name} {op} {_value_text(val)}"
        case _:
            return str(node)


def _inner_text(node: Any) -> str:
    text = filter_text(node)
    is_group = isinstance(node, list | tuple) or (isinstance(node, Mapping) and bool({"and", "or"} & set(node)))
    return f"({text})" if is_group else text


def _value_text(val: Any) -> str:
    match val:
        case Subject():
            return "SUBJECT"
        case Now():
            return "NOW"
        case Claim(path=path):
            return f"Claim({path})"
        case list() | tuple():
            return f"[{', '.join(map(_value_text, val))}]"
        case _:
            return dump_json(val)
