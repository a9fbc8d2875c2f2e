"""Writes the expressions that indexes can be on: the words of searches, and the values inside JSON that a read filters
and sorts by.

What comes in: attributes, or the plan of a read and a function that returns the value of a slot. What goes out: SQL
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from pypika.terms import Field, Term

from querybuild.declarations.database_types.json_paths import JsonPath, inner_value, path_literal
from querybuild.declarations.database_types.searches import search_vector
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.terms import sql_of
from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.row_plan import ColumnRef, OrderKey, Rows, Slot, Test


def search_expression(parts: tuple[Attribute, ...]) -> str:
    """Return the words of attributes, as searches compare them."""
    return sql_of(search_vector(parts, lambda attribute: Field(attribute.column_name)))


class InnerValue(msgspec.Struct, frozen=True):
    """A value inside a jsonb column. name: of the attribute, with the path. sql: the expression. is_sorted, descends:
    whether a sort uses it, and in which direction."""

    resource: Resource
    name: str
    sql: str
    is_sorted: bool = False
    descends: bool = False


def inner_values(plan: ReadPlan, value_of: Callable[[Slot], Any]) -> Iterator[InnerValue]:
    """Yield the values by which a read finds and sorts rows, if an index can be on them."""
    for node in _nodes(plan.node):
        parts = list(_parts(node.rows))
        resources = {part.alias: part.resource for part in parts if isinstance(part, Rows)}
        for part in parts:
            match part:
                case Test(left=left, operator=operator) if _is_inside(left) and not operator.is_text:
                    sql = sql_of(_expression(left, value_of))
                    yield InnerValue(resources[left.alias], left.attribute.name, sql)
                case OrderKey(column=column, is_descending=descends) if _is_inside(column):
                    term, sorted_as = _expression(column, value_of), column.attribute.type.sql.sorted_as
                    sql = sql_of(term if sorted_as is None else sorted_as(term))
                    yield InnerValue(resources[column.alias], column.attribute.name, sql, True, descends)


def _is_inside(column: ColumnRef) -> bool:
    return isinstance(column.derived, Slot | JsonPath) and column.attribute.sql is None


def _expression(column: ColumnRef, value_of: Callable[[Slot], Any]) -> Term:
    term, path = Field(column.attribute.column_name), column.derived
    if isinstance(path, JsonPath):
        return path.of(term)
    assert isinstance(path, Slot)
    return inner_value(term, path_literal(value_of(path)))


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for branch in node.branches:
        yield from _nodes(branch.node)


def _parts(part: Any) -> Iterator[Any]:
    """Yield a part of a plan and all parts in it, without declarations."""
    if isinstance(part, tuple):
        for item in part:
            yield from _parts(item)
    elif isinstance(part, msgspec.Struct) and type(part).__module__ == Rows.__module__:
        yield part
        yield from _parts(msgspec.structs.astuple(part))
