"""Writes the expressions that indexes can be on: the words of searches, and the values inside JSON that a read filters
and sorts by. It also finds the texts that a read compares with patterns, which need indexes of their own.

What comes in: attributes, or the plan of a read and a function that returns the value of a slot. What goes out: SQL
text, and attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from pypika.terms import Field, Term

from querybuild.declarations.database_types.json_paths import JsonPath, inner_value, path_literal
from querybuild.declarations.database_types.searches import search_vector
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.terms import sql_of
from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.row_plan import ColumnRef, Distance, OrderKey, Rows, Slot, Test


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


TextUse = Literal["beginning", "trigrams", "distance"]
"""What a read knows of texts: the first characters, three characters in a row, or a text that is near."""


class MatchedText(msgspec.Struct, frozen=True):
    """A column with texts that a read finds by something else than their order."""

    resource: Resource
    attribute: Attribute
    use: TextUse


_BEGINNINGS = frozenset({"like", "startswith"})
_TRIGRAMS = frozenset({*_BEGINNINGS, "endswith", "ilike", "match"})
# In LIKE and in regular expressions: an escaped character, a set of characters.
_UNKNOWN = re.compile(r"\\.|\[.*?\]", re.DOTALL)
_TRIGRAM = re.compile(r"[^\W_]{3}")


def matched_texts(plan: ReadPlan, value_of: Callable[[Slot], Any]) -> Iterator[MatchedText]:
    """Yield the texts that a read compares with patterns, or finds by their distance, if an index can find them."""
    for node in _nodes(plan.node):
        parts = list(_parts(node.rows))
        resources = {part.alias: part.resource for part in parts if isinstance(part, Rows)}
        for part in parts:
            match part:
                case Test(operator=operator, left=ColumnRef(attribute=attribute, derived=None), form="value") if (
                    operator.name in _TRIGRAMS and _is_text(attribute)
                ):
                    use = _use_of(operator.name, value_of(part.slots[0]))
                    if use is not None:
                        yield MatchedText(resources[part.left.alias], attribute, use)
                case OrderKey(column=ColumnRef(attribute=attribute, derived=Distance())) if _is_text(attribute):
                    yield MatchedText(resources[part.column.alias], attribute, "distance")


def _is_text(attribute: Attribute) -> bool:
    return attribute.is_stored and attribute.type.is_text and not attribute.type.choices


def _use_of(operator: str, pattern: str) -> TextUse | None:
    """Return what is known of the texts that a pattern matches. None if no index finds them."""
    if operator in _BEGINNINGS and pattern[:1] not in ("%", "_"):
        return "beginning"
    # One side of `|` may have none.
    if operator == "match" and "|" in pattern:
        return None
    return "trigrams" if _TRIGRAM.search(_UNKNOWN.sub(" ", pattern)) else None


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
