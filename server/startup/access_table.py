"""Describes who may do what, for people who check declarations. What comes in: a Catalog. What goes out: rows of a
table, and the resources that are closed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from querybuild.declarations.access import (
    ACTIONS,
    ANYONE,
    Allow,
    audience_name,
    audiences_of,
)
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Resource
from querybuild.errors import listed
from querybuild.planning.rules import filter_nodes
from server.explaining.filters import filters_text

OPEN = "all: it has no rules"
"""The rows of a resource that everybody may use."""


class AccessRow(msgspec.Struct, frozen=True):
    """A rule, or the rights of a field or a function. what: the JSON:API type, type and field, or the path of the
    function. actions: what is allowed. to: for whom. rows: `all`, or the filter that rows meet. check: the filter that
    written rows meet, if it is another."""

    what: str
    actions: tuple[str, ...]
    to: str
    rows: str
    check: str = ""


def closed_types(catalog: Catalog, *, is_authenticated: bool) -> tuple[str, ...]:
    """Return the types, and the paths of functions, that nobody may use: they have no rules, and it is known who
    asks."""
    if not is_authenticated:
        return ()
    types = [resource.type for resource in catalog if not resource.access]
    functions = [function.route_path for function in catalog.functions if not function.audiences(is_authenticated=True)]
    return (*types, *functions)


def closed_line(closed: tuple[str, ...]) -> str:
    """Return a line for the user about closed types."""
    return f"closed to everybody, because they have no rules (access=...): {listed(closed)}"


def access_rows(catalog: Catalog, *, is_authenticated: bool) -> tuple[AccessRow, ...]:
    """Return who may do what with each resource, and with fields that are not for everybody, and who may call each
    function."""
    of_resources = [row for resource in catalog for row in _rows_of(resource, is_authenticated)]
    return (*of_resources, *[_row_of(function, is_authenticated) for function in catalog.functions])


def _row_of(function: Function, is_authenticated: bool) -> AccessRow:
    audiences = function.audiences(is_authenticated=is_authenticated)
    if not audiences:
        return AccessRow(function.route_path, (), "nobody", "none: it has no rules")
    if function.access is None:
        return AccessRow(function.route_path, ("call",), str(ANYONE), OPEN)
    rows = f"those of {function.returns}" if function.returns else "all"
    return AccessRow(function.route_path, ("call",), ", ".join(map(audience_name, audiences)), rows)


def _rows_of(resource: Resource, is_authenticated: bool) -> Iterator[AccessRow]:
    known = tuple([action for action in ACTIONS if _methods_of(action) & resource.methods])
    if not resource.access:
        closed = AccessRow(resource.type, (), "nobody", "none: it has no rules")
        yield closed if is_authenticated else AccessRow(resource.type, known, str(ANYONE), OPEN)
    for allow in resource.access:
        actions = tuple([action for action in known if allow.allows(action)])
        check = "" if allow.check is None else _filter_text(allow.check)
        yield AccessRow(resource.type, actions, audience_name(allow.to), _rows_text(allow), check)
    for field in (*resource.attributes, *resource.relationships):
        for action, declared in (("read", field.read_by), ("write", field.write_by)):
            if declared != ANYONE:
                to = ", ".join(map(audience_name, audiences_of(declared)))
                yield AccessRow(f"{resource.type}.{field.name}", (action,), to, "all")


def _methods_of(action: str) -> frozenset[str]:
    return frozenset({"list", "detail"}) if action == "read" else frozenset({action})


def _rows_text(allow: Allow) -> str:
    return "all" if allow.rows is None else _filter_text(allow.rows)


def _filter_text(given: object) -> str:
    return filters_text(filter_nodes(given, "", []))
