"""Chooses, of the indexes that the declarations suggest, those that would help one read, and finds the values inside
JSON that it filters and sorts by.

It must not know: connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pypika import Field

from querybuild.declarations.database_types.json_paths import JsonPath, inner_value, path_literal
from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import Template, escaped_braces, sql_of
from querybuild.planning.plan import Node
from querybuild.planning.row_plan import ColumnRef, OrderKey, Rows, Test
from server.tools.advising.index_advisor import Suggestion
from server.tools.advising.inner_indexes import InnerValue
from server.tools.explaining.requested import RequestedRead
from server.tools.explaining.running import ExplainedStatement


def helpful(suggestions: Sequence[Suggestion], statements: Sequence[ExplainedStatement]) -> list[Suggestion]:
    """Return the suggestions for tables whose rows a statement finds without a condition on an index, if its conditions
    or sort keys have their first column, in their order."""
    return [suggestion for suggestion in suggestions if any(_helps(suggestion, statement) for statement in statements)]


def is_scanned(table: str, statement: ExplainedStatement) -> bool:
    """Return whether a statement finds rows of a table without a condition on an index."""
    return any(not scan.has_condition and scan.table == table for scan in statement.scans)


def _helps(suggestion: Suggestion, statement: ExplainedStatement) -> bool:
    if not is_scanned(suggestion.table, statement):
        return False
    # PostgreSQL quotes only the names that need it. An index on a jsonb column does not help for a value inside.
    column = re.compile(rf"(?<![\w$]){re.escape(suggestion.columns[0])}(?![\w$]| #>)")
    found = [expression for expression in statement.expressions if column.search(expression)]
    # An index in ascending order has the nulls at the end, and at the beginning if it is read backward.
    return any(expression.endswith(" DESC NULLS LAST") == suggestion.descends for expression in found)


def inner_values(requested: RequestedRead) -> Iterator[InnerValue]:
    """Yield the values inside JSON by which a read finds and sorts rows, if an index can be on them."""
    for node in _nodes(requested.prepared.plan.node):
        parts = list(_parts(node.rows))
        resources = {part.alias: part.resource for part in parts if isinstance(part, Rows)}
        for part in parts:
            match part:
                case Test(left=left, operator=operator) if _is_inside(left) and not operator.is_text:
                    yield _inner_value(left, resources[left.alias], requested)
                case OrderKey(column=column, is_descending=descends) if _is_inside(column):
                    found = _inner_value(column, resources[column.alias], requested)
                    sorted_as = column.attribute.type.sorted_as
                    sql = found.sql if sorted_as is None else sql_of(sorted_as(Template(escaped_braces(found.sql))))
                    yield msgspec.structs.replace(found, sql=sql, is_sorted=True, descends=descends)


def _is_inside(column: ColumnRef) -> bool:
    return column.inside is not None and column.attribute.sql is None


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


def _inner_value(column: ColumnRef, resource: Resource, requested: RequestedRead) -> InnerValue:
    term = Field(column.attribute.column_name)
    path = column.inside
    assert path is not None
    found = (
        path.of(term) if isinstance(path, JsonPath) else inner_value(term, path_literal(requested.sent.value_of(path)))
    )
    return InnerValue(resource, column.attribute.name, sql_of(found))
