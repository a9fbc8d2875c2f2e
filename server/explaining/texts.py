"""Describes queries, plans, statements and values for people.

It must not know: connections, settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, assert_never

from querybuild.declarations.database_types.searches import SearchedAttribute
from querybuild.declarations.function import Returned
from querybuild.planning.plan import Branch, Fetch, Node, ReadPlan
from querybuild.planning.row_plan import (
    AmongFirst,
    ColumnRef,
    Condition,
    CustomTest,
    Distance,
    Exists,
    IdIs,
    InScope,
    Logic,
    OrderKey,
    Pair,
    Rows,
    Slot,
    Test,
)
from querybuild.query import GroupQuery, IncludeChoice, Page, Query, SortKey
from server.explaining.filters import filter_text, filters_text, value_text

_TOKEN = re.compile(
    r"""(?P<text> "(?:[^"]|"")*" | '(?:[^']|'')*' ) | (?P<paren> [()] )
      | (?P<clause> \b(?:FROM|WHERE|ORDER\ BY|LIMIT|OFFSET|GROUP\ BY|LEFT\ JOIN|JOIN|UNION\ ALL)\b )""",
    re.VERBOSE,
)


# the query


def query_parts(query: Query, *, has_pages: bool) -> Iterator[tuple[str, str]]:
    """Describe a query: each part that was sent, and the page."""
    for node in query.filter:
        yield "filter", filter_text(node)
    if query.search is not None:
        yield "search", query.search.text
    if query.near is not None:
        yield "near", f"{query.near.name} to {query.near.text!r}"
    if query.sort:
        yield "sort", _sort_text(query.sort)
    if query.include is not None:
        yield "include", ", ".join(".".join(path) for path in query.include) or "nothing"
    if query.groups is not None:
        yield "groups", _groups_text(query.groups)
        for node in query.groups.filter:
            yield "having", filter_text(node)
    for choice in query.choices:
        yield "choice", _choice_text(choice)
    for name, fields in query.fields.items():
        yield "fields", f"{name}: {', '.join(fields) or 'none'}"
    if has_pages:
        yield "page", _page_text(query.page)


def _groups_text(groups: GroupQuery) -> str:
    numbers = [
        f"{aggregate.name} = {aggregate.function}({'distinct ' * aggregate.is_distinct}{aggregate.path})"
        for aggregate in groups.aggregates
    ]
    zone = "" if groups.time_zone is None else f" in {groups.time_zone}"
    by = ", ".join([key.name for key in groups.by]) or "nothing"
    return f"by {by}{zone}" + (f": {', '.join(numbers)}" if numbers else "")


def _choice_text(choice: IncludeChoice) -> str:
    parts = []
    if choice.filter:
        parts.append(f"where {filters_text(choice.filter)}")
    if choice.sort:
        parts.append(f"sorted by {_sort_text(choice.sort)}")
    if choice.size is not None:
        parts.append(f"at most {choice.size} of each")
    if choice.has_total:
        parts.append("total exact")
    return f"{'.'.join(choice.path)}: {', '.join(parts) or 'all rows'}"


def _sort_text(keys: Sequence[SortKey]) -> str:
    paths = [f"count({key.path})" if key.is_count else key.path for key in keys]
    return ", ".join(["-" * key.is_descending + path for key, path in zip(keys, paths, strict=True)])


def _page_text(page: Page) -> str:
    size = f"{page.size} rows" if page.size else "all rows"
    place = f" after row {page.offset}" if page.offset else ""
    if page.cursor:
        place = f" {'before' if page.is_before else 'after'} the row of the cursor"
    return f"{size}{place}, total {page.total}"


# the plan


def plan_lines(plan: ReadPlan) -> Iterator[str]:
    """Describe a plan: the rows of each node, with their conditions, indented below their parents."""
    if plan.scope is not None and plan.scope.rows is not None:
        yield f"{_rows_name(plan.scope.rows)}: the resource of the path"
        yield from _conditions_lines(plan.scope.rows)
    yield from _node_lines(plan.node, None, "")


def _node_lines(node: Node, branch: Branch | None, indent: str) -> Iterator[str]:
    yield f"{indent}{_rows_name(node.rows)}: {'primary rows' if branch is None else _branch_text(branch)}"
    names = ("id", *(attribute.name for attribute in node.read), *(name for key in node.keys for name in key.columns))
    yield f"{indent}    columns   {', '.join(names)}"
    for line in _conditions_lines(node.rows):
        yield indent + line
    for computed in node.computed:
        yield f"{indent}    computed  {computed.name}, in Python"
    for below in node.branches:
        yield from _node_lines(below.node, below, f"{indent}    ")


def _branch_text(branch: Branch) -> str:
    shown = "included" if branch.is_included else "linkage"
    first = "" if branch.size is None else f", at most {branch.size} of each"
    return f"{shown} by {branch.relationship.name}{first}, {_FETCHES[branch.fetch]}"


_FETCHES: dict[Fetch, str] = {
    "row": "from the keys of the rows above",
    "join": "joined to the rows above",
    "union": "in the primary statement",
    "keys": "in a statement of its own",
    "each": "in a statement of its own, by a subquery for each row above",
    "ranked": "in a statement of its own, numbered for each row above",
}


def _rows_name(rows: Rows) -> str:
    if rows.grouping is not None:
        return f"groups of {_rows_name(rows.grouping.rows)}"
    table = f"{rows.resource.schema}.{rows.resource.table}" if rows.resource.schema else rows.resource.table
    return f"{rows.resource.type} ({table} as {rows.alias})"


def _conditions_lines(rows: Rows) -> Iterator[str]:
    """Describe which rows are read, and in which order."""
    if rows.grouping is not None:
        yield from _conditions_lines(rows.grouping.rows)
    if rows.parent:
        yield f"    attached  {_attached_text(rows)}"
    for criterion in rows.criteria:
        yield f"    rule      {condition_text(criterion)}"
    for condition in rows.conditions:
        yield f"    where     {condition_text(condition)}"
    for joined in rows.joins:
        counted = "the number of " if joined.is_counted else ""
        yield f"    joins     {counted}{_rows_name(joined)}: {_attached_text(joined)}"
    if rows.keyset is not None:
        yield "    begins    after the row of the cursor"
    if rows.order:
        yield f"    order     {', '.join(map(_order_text, rows.order))}"


def _attached_text(rows: Rows) -> str:
    through = rows.through
    if through is None:
        return _pair_text(rows.parent, rows.alias, rows.pair)
    near = _pair_text(rows.parent, through.alias, through.near)
    far = _pair_text(through.alias, rows.alias, through.far)
    return f"{near} and {far}, through {through.link.table}"


def _pair_text(alias: str, other: str, pair: Pair | None) -> str:
    assert pair is not None
    equal = zip(pair[0].columns, pair[1].columns, strict=True)
    return " and ".join([f"{alias}.{own} = {other}.{two}" for own, two in equal])


def _order_text(key: OrderKey) -> str:
    return _column_text(key.column) + (" descending" if key.is_descending else "")


def condition_text(condition: Condition) -> str:
    """Describe a condition on one line. Values are slots: where each comes from."""
    match condition:
        case Test(operator=operator, left=left, right=right, form=form, slots=slots):
            value = {"null": "null", "field": "" if right is None else _column_text(right)}.get(form)
            return f"{_column_text(left)} {operator.name} {value or ', '.join(map(_slot_text, slots))}"
        case CustomTest(operator=custom, left=left, slot=slot):
            return f"{_column_text(left)} {custom.name} {_slot_text(slot)}"
        case Logic(op="not", items=(item,)):
            return f"not ({condition_text(item)})"
        case Logic(op=op, items=items):
            return "(" + f" {op} ".join(map(condition_text, items)) + ")" if items else str(op == "and").lower()
        case Exists(rows=rows):
            inner = " and ".join(map(condition_text, rows.all_conditions))
            return f"there is {_rows_name(rows)} with {_attached_text(rows)}" + (f" and {inner}" if inner else "")
        case AmongFirst(parents=parents, rows=rows, size=size):
            inner = " and ".join(map(condition_text, (*parents.all_conditions, *rows.all_conditions)))
            first = f"among the first {size} of {_rows_name(rows)} with {_attached_text(rows)}"
            return f"{first} of {_rows_name(parents)}" + (f" and {inner}" if inner else "")
        case IdIs(alias=alias, key=key):
            return f"{', '.join([f'{alias}.{name}' for name in key.columns])} = the id of the path"
        case Returned(alias=alias, key=key, call=call):
            return f"{', '.join([f'{alias}.{name}' for name in key.columns])} = an id that {call.function.name} returns"
        case InScope(scope=scope):
            return f"related to the {scope.parent.type} of the path by {scope.relationship.name}"
        case _:
            assert_never(condition)


def _column_text(column: ColumnRef) -> str:
    # The parts of an id all have its name. The id itself has no column then.
    attribute = column.attribute
    if column.is_count and column.rows is not None:
        inner = " and ".join(map(condition_text, column.rows.all_conditions))
        counted = f"the number of {_rows_name(column.rows)} with {_attached_text(column.rows)}"
        return f"{counted} and {inner}" if inner else counted
    if column.is_count:
        return f"the number of {column.alias}"
    if isinstance(attribute, SearchedAttribute):
        words = f"the words of {', '.join([f'{column.alias}.{part.column_name}' for part in attribute.parts])}"
        return words if column.derived is None else f"the rank of the search in {words}"
    if isinstance(column.derived, Distance):
        return f"the distance of {column.alias}.{attribute.column_name} from a value"
    is_derived = column.derived is not None
    return f"{column.alias}.{attribute.name if is_derived else attribute.column_name}"


def _slot_text(slot: Slot) -> str:
    names = {"request": "a value of the request", "context": "a value of the principal", "path": "the id of the path"}
    return names.get(slot.source, slot.source)


# statements


def sql_lines(sql: str) -> list[str]:
    """Break a statement before its clauses, outside of parentheses.

    >>> sql_lines('SELECT "a" FROM "t" WHERE EXISTS (SELECT FROM "u") ORDER BY "a"')
    ['SELECT "a"', 'FROM "t"', 'WHERE EXISTS (SELECT FROM "u")', 'ORDER BY "a"']
    """
    lines, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(sql):
        if token["paren"] is not None:
            depth += 1 if token[0] == "(" else -1
        elif token["clause"] is not None and not depth and not sql[: token.start()].endswith("LEFT "):
            lines.append(sql[begin : token.start()].rstrip())
            begin = token.start()
    lines.append(sql[begin:])
    return [line for line in lines if line]


def parameter_lines(values: Sequence[Any]) -> list[str]:
    """Return a line for each parameter of a statement."""
    return [f"${number} = {value_text(value)}" for number, value in enumerate(values, 1)]
