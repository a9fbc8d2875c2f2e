"""Compiles a ReadPlan to SELECT statements.

It must not know: values. No request can make it fail. The statement for a list of users with a filter on `group.name`,
sorted by `-age`:

    SELECT "t0"."id","t0"."first_name",... FROM "users" "t0"
    WHERE EXISTS (SELECT 1 FROM "groups" "t1" WHERE "t1"."id"="t0"."group_id" AND "t1"."name"=$1)
    ORDER BY "t0"."age" DESC NULLS LAST,"t0"."id" DESC LIMIT $2
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
from pypika import PostgreSQLQuery
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Term

from querybuild.declarations.terms import Template
from querybuild.planning.plan import Branch, Node, ReadPlan
from querybuild.planning.reads.fetching import is_one_of_several
from querybuild.planning.row_plan import Exists, Nearest
from querybuild.planning.rows import MAX_COLUMNS, key_position, nodes, page_width, part_width, row_width
from querybuild.query import CAPPED_TOTAL
from querybuild.sql.binds import Binds
from querybuild.sql.branches import branch_columns, compile_branch, first_of_each, id_columns, near_key, related_rows
from querybuild.sql.clauses import (
    columns,
    from_rows,
    join,
    named_parent,
    operand,
    order,
    order_terms,
    scope_criteria,
    table,
    where,
)
from querybuild.sql.groups import grouped
from querybuild.sql.keys import columns_of, is_any_key, key_is_not_null, shown_key
from querybuild.sql.keysets import cursor_columns, rows_after
from querybuild.sql.statement import Statement


class ReadStatements(msgspec.Struct, frozen=True):
    """The statements of a read.

    primary: the primary rows.
    first: the first rows of a list without pages, which decide whether it is streamed. Otherwise the same as primary.
    count: the total.
    branches: the related rows of each branch, in pre-order. None if a branch needs no rows, or if they come with the
        primary rows.
    parent: finds the resource that the path names. Only for related rows.
    combined: primary and branches in one statement, for a read without a snapshot of its own. None if it would only
        have the primary rows.
    """

    primary: Statement
    first: Statement
    count: Statement | None
    branches: tuple[Statement | None, ...]
    parent: Statement | None
    combined: Statement | None

    def all(self) -> Iterator[Statement]:
        """Yield the statements that are not None."""
        for statement in (self.primary, self.count, self.parent, self.combined, *self.branches):
            if statement is not None:
                yield statement


def compile_read(plan: ReadPlan) -> ReadStatements:
    """Compile a plan."""
    primary = _primary(plan) if plan.united is None else _united(plan, plan.united)
    return ReadStatements(
        primary=primary,
        first=primary if plan.first_rows is None else _first(plan, plan.first_rows),
        count=_count(plan),
        branches=tuple(_branches(plan.node)),
        parent=_parent(plan),
        combined=_combined(plan) if plan.answers_writes and _can_combine(plan.node) else None,
    )


def compile_linkage_version(plan: ReadPlan) -> Statement:
    """Compile the version of linkage, and how many links there are: a hash of their ids in the order of their bytes.
    plan: that of the ids. `serializers/tags.py` has the same in Python.

    SELECT count(*),left(encode(sha256(convert_to(coalesce(string_agg("id",',' ORDER BY "id" COLLATE "C"),''),'UTF8')),
    'hex'),16) FROM (SELECT CAST("id" AS TEXT) FROM (SELECT "t0"."id" ...) "rows" ("id")) "links" ("id")
    """
    ids = _primary(plan)
    listed = 'string_agg("id",\',\' ORDER BY "id" COLLATE "C")'
    version = f"left(encode(sha256(convert_to(coalesce({listed},''),'UTF8')),'hex'),16)"
    links = f'(SELECT CAST("id" AS TEXT) FROM ({ids.sql}) "rows" ("id")) "links" ("id")'
    return Statement(f"SELECT count(*),{version} FROM {links}", ids.slots)


def _can_combine(root: Node) -> bool:
    """Return whether there is more than one part, their columns fit into one row, and the statement knows all that
    their rows ask for."""
    parts = list(_parts(root))
    widths = [row_width(node, branch) + 1 for node, branch in parts]
    is_known = all(branch is None or is_one_of_several(branch) for _, branch in parts)
    return len(widths) > 1 and sum(widths) <= MAX_COLUMNS and is_known


def _parts(root: Node) -> Iterator[tuple[Node, Branch | None]]:
    """Yield the nodes whose rows are read, in pre-order."""
    return ((node, branch) for node, branch in nodes(root) if branch is None or branch.fetch != "row")


def _primary(plan: ReadPlan) -> Statement:
    """Compile `SELECT ...,(SELECT COUNT(*) FROM "users" "t0" WHERE ...) FROM "users" "t0" WHERE ...`. The exact total
    is the last column: this saves a round trip, and the transaction that two statements would need.

    If there are few primary rows, to-one includes are joined: `SELECT ...,"j1"."id","j1"."name",... FROM "users" "t0"
    LEFT JOIN "groups" "j1" ON "j1"."id"="t0"."group_id"` (docs/adr/0014-joined-includes.md)."""
    binds = Binds()
    return Statement(_primary_rows(plan, binds).get_sql(), binds.slots)


def _first(plan: ReadPlan, max_rows: int) -> Statement:
    """Compile `SELECT ... ORDER BY "t0"."id" LIMIT 1001`. PostgreSQL knows the number of rows when it plans the
    statement, and chooses a plan that returns the first rows early."""
    binds = Binds()
    limit: Any = Template(str(max_rows))
    return Statement(_ordered_rows(plan, binds).limit(limit).get_sql(), binds.slots)


def _primary_rows(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    return _limit(_ordered_rows(plan, binds), plan, binds)


def _ordered_rows(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    joined = list(_joined(plan.node))
    query = _page(plan, binds).select(*_primary_columns(plan, binds))
    query = query.select(*[term for node in joined for term in columns(node, node.rows.alias, binds)])
    query = join(_with_total(query, plan, binds), (*plan.rows.joins, *[node.rows for node in joined]), binds)
    return order(query, plan.rows.order, binds)


def _united(plan: ReadPlan, branch: Branch) -> Statement:
    """Return one statement for the primary rows and then the rows of a branch, in columns of their own. The last column
    numbers the primary rows (docs/adr/0020-united-includes.md). The primary rows may contain one row more than the
    page. Its related rows are not read:

        WITH "the page" ("c0","c1",...) AS MATERIALIZED (SELECT ... FROM "users" "t0" ORDER BY "t0"."id" LIMIT 31)
        SELECT "the page".*,NULL,NULL,NULL,row_number() OVER () FROM "the page"
        UNION ALL SELECT NULL,NULL,...,"t0"."id","t0"."name","t0"."owner_id",NULL FROM "computers" "t0"
        WHERE "t0"."owner_id"=ANY(ARRAY(SELECT "c0" FROM "the page" LIMIT 30)) ORDER BY 15,12

    A materialized CTE keeps the order of its rows. The first rows of each parent are not sorted again: those of one
    parent come one after the other, in the order of their subquery, and UNION ALL returns one part after the other.
    """
    binds = Binds()
    page = _primary_rows(plan, binds).get_sql()
    width, own_width = page_width(plan), row_width(branch.node, branch)
    names = ",".join(f'"c{index}"' for index in range(width))
    limit = _limit_term(plan, binds, is_page=True)
    bounded = "" if limit is None else f" LIMIT {limit.get_sql()}"
    keys = f'(SELECT "c{key_position(plan.node, branch)}" FROM {_PAGE}{bounded})'
    if branch.choice is None:
        number, order_by = "row_number() OVER ()", f" ORDER BY {width + own_width + 1},{width + 1}"
        query = related_rows(branch, Template(f"ARRAY{keys}"), binds)
        related = query.select(*[_NULL] * width, *branch_columns(branch, binds), _NULL).get_sql()
    else:
        number, order_by = "1", ""
        shown, rows = first_of_each(branch, keys, binds)
        related = f"SELECT {'NULL,' * width}{','.join(shown)},NULL FROM {rows}"
    return Statement(
        f"WITH {_PAGE} ({names}) AS MATERIALIZED ({page}) "
        f"SELECT {_PAGE}.*,{'NULL,' * own_width}{number} FROM {_PAGE} UNION ALL {related}{order_by}",
        binds.slots,
    )


_NULL = Template("NULL")
_PAGE = '"the page"'


def _joined(node: Node) -> Iterator[Node]:
    """Yield the nodes of joined to-one includes, in pre-order."""
    for branch in node.branches:
        if branch.fetch == "join":
            yield branch.node
            yield from _joined(branch.node)


def _primary_columns(plan: ReadPlan, binds: Binds) -> list[Term]:
    return [*columns(plan.node, plan.node.rows.alias, binds), *cursor_columns(plan.cursor_keys, binds)]


def _with_total(query: QueryBuilder, plan: ReadPlan, binds: Binds) -> QueryBuilder:
    if not plan.counts:
        return query
    if plan.rows.grouping is not None and plan.rows.keyset is None:
        # The groups are computed once.
        return query.select(Template("COUNT(*) OVER ()"))
    return query.select(Template("{}", _counted(plan, binds)))


def _counted(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    """Compile `SELECT COUNT(*) FROM "users" "t0" WHERE ...`. If the keys of related rows are counted instead:

    SELECT COUNT(*) FROM (SELECT DISTINCT "t1"."owner_id" FROM "computers" "t1"
    WHERE NOT "t1"."owner_id" IS NULL AND "t1"."serial" LIKE $1) "k"

    A capped total counts one row more than is shown: `SELECT COUNT(*) FROM (SELECT 1 FROM ... LIMIT 10001) "n"`
    """
    rows = matching(plan, binds) if plan.counted_by is None else _keys_of(plan.counted_by, binds)
    if plan.total == "capped":
        limit: Any = Template(str(CAPPED_TOTAL + 1))
        rows = PostgreSQLQuery.from_(rows.select(1).limit(limit).as_("n"))
    return rows.select(sql_functions.Count("*"))


def _keys_of(owned: Exists, binds: Binds) -> QueryBuilder:
    rows = owned.rows
    assert rows.pair is not None
    of, key = columns_of(rows.alias), rows.pair[1]
    keys = from_rows(rows, binds).select(*map(of, key.columns)).distinct().where(key_is_not_null(of, key))
    return PostgreSQLQuery.from_(keys.as_("k"))


def _count(plan: ReadPlan) -> Statement | None:
    """Return the counted total for a page without rows, which has no row for the total; or the estimate of PostgreSQL's
    planner."""
    if plan.total in (None, "none"):
        return None
    binds = Binds()
    if plan.counts:
        return Statement(_counted(plan, binds).get_sql(), binds.slots)
    return Statement("EXPLAIN (FORMAT JSON) " + matching(plan, binds).select(1).get_sql(), binds.slots)


def _parent(plan: ReadPlan) -> Statement | None:
    """Compile `SELECT 1 FROM "users" "p" WHERE "p"."id"=$1`"""
    if plan.scope is None:
        return None
    binds = Binds()
    return Statement(named_parent(plan.scope, binds).select(1).get_sql(), binds.slots)


def matching(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of the primary rows."""
    rows = plan.node.rows
    if rows.grouping is not None:
        groups = grouped(rows.grouping, binds).as_(rows.alias)
        return where(PostgreSQLQuery.from_(groups), rows, binds)
    query = PostgreSQLQuery.from_(table(rows.resource, rows.alias))
    for criterion in scope_criteria(plan.scope, binds) if plan.scope is not None else ():
        query = query.where(criterion)
    return where(query, rows, binds)


def _page(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of the rows of the page. A cursor adds one condition:

        FROM "users" "t0" WHERE "t0"."group_id"=$1 AND ("t0"."last_name","t0"."id")>($2,$3)

    If the position of the cursor has several parts, or if the offset is large, the ids of the page are found first, and
    then the rows. An index may be enough to find the ids (docs/adr/0011-pages.md):

        FROM "users" "t0" WHERE "t0"."id"=ANY(ARRAY(
        (SELECT "t0"."id" FROM "users" "t0" WHERE ("t0"."age","t0"."id")>($1,$2) ORDER BY "t0"."age","t0"."id" LIMIT $3)
        UNION ALL
        (SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."age" IS NULL ORDER BY "t0"."age","t0"."id" LIMIT $3)))
    """
    rows, keyset, nearest = matching(plan, binds), plan.rows.keyset, plan.rows.nearest
    if keyset is not None and plan.rows.grouping is not None:
        after = rows_after(plan.rows, keyset, binds)
        return rows.where(Template(" OR ".join(["({})"] * len(after)), *after))
    own_order = order_terms(plan.rows.order, binds)
    if keyset is not None:
        parts = [(rows.where(part), own_order) for part in rows_after(plan.rows, keyset, binds)]
    elif nearest is not None and nearest.is_indexed and nearest.measure.is_ordered:
        parts = list(_both_ways(rows, nearest, own_order[1:], binds))
    elif nearest is not None and nearest.is_indexed:
        return _of_ids(plan, _nearest_ids(rows, own_order[0], plan, binds))
    else:
        parts = [(rows, own_order)]
    if len(parts) == 1 and not plan.finds_ids_first:
        return parts[0][0]
    ids: Any = None
    for part, order_by in parts:
        own = _page_ids(part, order_by, plan, binds)
        ids = own if ids is None else ids.union_all(own)
    return _of_ids(plan, Template("ARRAY{}", ids))


def _of_ids(plan: ReadPlan, ids: Term) -> QueryBuilder:
    """Return the rows with these ids, without the criteria: they already apply to the ids."""
    query = PostgreSQLQuery.from_(table(plan.node.resource, plan.node.rows.alias))
    return query.where(is_any_key(columns_of(plan.node.rows.alias), plan.node.resource.id.key, ids))


def _both_ways(
    rows: QueryBuilder, nearest: Nearest, ids: list[Term], binds: Binds
) -> Iterator[tuple[QueryBuilder, list[Term]]]:
    """Yield the rows from a value upwards, and those from it downwards, each with its order. An index of the column has
    both orders, and no row is in both. ids: the last keys of each order."""
    column, value = operand(nearest.column, binds), nearest.measure.value(binds(nearest.slot))
    yield rows.where(Template("{}>={}", column, value)), [column, *ids]
    yield rows.where(Template("{}<{}", column, value)), [Template("{} DESC", column), *ids]


def _nearest_ids(rows: QueryBuilder, distance: Term, plan: ReadPlan, binds: Binds) -> Term:
    """Return the ids of the rows that an index finds in the order of their distance alone. Those of the last distance
    are all found, and the rows are sorted by their ids later:

    `ARRAY((SELECT "t0"."id" FROM ...) ORDER BY "t0"."at"<->$1 FETCH FIRST ($2) ROWS WITH TIES)`
    """
    limit = _limit_term(plan, binds, is_page=False)
    assert limit is not None
    text = "ARRAY({} ORDER BY {} FETCH FIRST ({}) ROWS WITH TIES)"
    return Template(text, rows.select(_shown_id(plan.node)), distance, limit)


def _page_ids(rows: QueryBuilder, order_by: list[Term], plan: ReadPlan, binds: Binds) -> QueryBuilder:
    query = join(rows.select(_shown_id(plan.node)), plan.rows.joins, binds).orderby(*order_by)
    return _offset(_limit(query, plan, binds), plan, binds)


def _limit(query: QueryBuilder, plan: ReadPlan, binds: Binds, *, is_page: bool = False) -> QueryBuilder:
    # For PyPika's type hints, a limit and an offset are numbers.
    limit: Any = _limit_term(plan, binds, is_page=is_page)
    if limit is not None:
        query = query.limit(limit)
    return query if plan.finds_ids_first else _offset(query, plan, binds)


def _limit_term(plan: ReadPlan, binds: Binds, *, is_page: bool) -> Term | None:
    """Return LIMIT. is_page: without the additional row that shows whether there is a next page.

    PostgreSQL plans a statement with `LIMIT $1` on each execution, because the best plan depends on the limit. It plans
    one with a number once. A statement with a filter is planned each time: a generic plan may read a million rows."""
    if plan.rows.limit is None:
        return None
    is_filtered = plan.scope is not None or plan.rows.conditions or plan.rows.criteria
    is_fixed = plan.usual_limit is not None and not is_filtered
    limit = Template(str(plan.usual_limit)) if is_fixed else binds(plan.rows.limit)
    return Template("{}-1", limit) if is_page and plan.reads_one_more else limit


def _offset(query: QueryBuilder, plan: ReadPlan, binds: Binds) -> QueryBuilder:
    if plan.rows.offset is None:
        return query
    offset: Any = binds(plan.rows.offset)
    return query.offset(offset)


def _branches(node: Node) -> Iterator[Statement | None]:
    for branch in node.branches:
        yield compile_branch(branch)
        yield from _branches(branch.node)


def _shown_id(node: Node) -> Term:
    return shown_key(columns_of(node.rows.alias), node.resource.id.key)


def _combined(plan: ReadPlan) -> Statement:
    """Return one statement for all rows of the answer to a write. So they are of one snapshot, at any isolation level.
    The primary rows are one resource, or a page of linkage in the order of the ids.

    Each part numbers its rows. A row of the result belongs to the part whose number is not null. ORDER BY refers to
    the numbers by position, because a column may have any name:

        SELECT * FROM (SELECT row_number() OVER (ORDER BY "t0"."id"),... FROM "users" "t0" WHERE "t0"."id"=$1) "p0"
        FULL JOIN (SELECT row_number() OVER (ORDER BY "t0"."id"),... FROM "computers" "t0" WHERE
        "t0"."owner_id"=ANY(ARRAY(SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."id"=$1))) "p1" ON FALSE
        ORDER BY 1,8
    """
    binds = Binds()
    primary = _page(plan, binds)
    number = _numbered(order_terms(plan.rows.order, binds) or id_columns(plan.node))
    shown = _with_total(primary.select(number, *_primary_columns(plan, binds)), plan, binds)
    parts = [_limit(order(shown, plan.rows.order, binds), plan, binds)]
    _add_parts(plan.node, _limit(order(primary, plan.rows.order, binds), plan, binds, is_page=True), parts, binds)
    sql = f'({parts[0].get_sql()}) "p0"'
    for index, part in enumerate(parts[1:], 1):
        sql += f' FULL JOIN ({part.get_sql()}) "p{index}" ON FALSE'
    widths = [part_width(plan, node, branch) for node, branch in _parts(plan.node)]
    positions = accumulate(widths[:-1], initial=1)
    return Statement(f"SELECT * FROM {sql} ORDER BY {','.join(map(str, positions))}", binds.slots)


def _add_parts(node: Node, rows: QueryBuilder, parts: list[QueryBuilder], binds: Binds) -> None:
    """Append the parts of the branches of a node, in pre-order. A branch that needs no rows has none."""
    for branch in node.branches:
        if branch.fetch == "row":
            continue
        keys = Template("ARRAY{}", rows.select(near_key(branch, node.rows)))
        related = related_rows(branch, keys, binds)
        parts.append(related.select(_numbered(id_columns(branch.node)), *branch_columns(branch, binds)))
        _add_parts(branch.node, related, parts, binds)


def _numbered(order_by: list[Term]) -> Term:
    listed = ",".join(["{}"] * len(order_by))
    return Template(f"row_number() OVER (ORDER BY {listed})", *order_by)
