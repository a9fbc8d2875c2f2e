"""Compiles the statements of branches: the related rows of all parents, or the first of each.

It must not know: values. No request can make it fail.
"""

from __future__ import annotations

from typing import Any

from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Term

from querybuild.declarations.keys import Key
from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.plan import Branch, Choice, Node
from querybuild.planning.row_plan import Rows, Slot
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import columns, from_rows, join, join_links, order, order_terms
from querybuild.sql.keys import column, columns_of, compared_key, is_any_key, is_key, key_parameter, shown_key
from querybuild.sql.keysets import cursor_columns
from querybuild.sql.statement import Statement

KEYS = Slot("keys")


def compile_branch(branch: Branch) -> Statement | None:
    """Return the related rows of all parents.

    With the key in the parent's row:
    `SELECT ... FROM "groups" "t0" WHERE "t0"."id"=ANY($1) ORDER BY "t0"."id"`
    With the key in the related row:
    `SELECT ...,"t0"."owner_id" FROM "computers" "t0" WHERE "t0"."owner_id"=ANY($1) ORDER BY "t0"."id"`
    With a link table:
    `SELECT ...,"t1"."post_id" FROM "tags" "t0" JOIN "post_tags" "t1" ON "t1"."tag_id"="t0"."id"
    WHERE "t1"."post_id"=ANY($1) ORDER BY "t0"."id"`
    """
    binds = Binds()
    match branch.fetch:
        case "keys":
            query = related_rows(branch, binds(KEYS), binds).select(*branch_columns(branch, binds))
            return Statement(_branch_order(query, branch, binds).get_sql(), binds.slots)
        case "each":
            shown, rows = first_of_each(branch, _parents(branch, binds), binds)
            return Statement(f"SELECT {','.join(shown)} FROM {rows}", binds.slots)
        case "ranked":
            return Statement(_ranked(branch, binds), binds.slots)
        case _:
            return None


def _branch_order(query: QueryBuilder, branch: Branch, binds: Binds) -> QueryBuilder:
    rows = branch.node.rows
    if not rows.order:
        return query.orderby(*id_columns(branch.node))
    return order(join(query, rows.joins, binds), rows.order, binds)


def _parents(branch: Branch, binds: Binds) -> str:
    """Return the ids of the parents as rows: `unnest($1::int8[])`."""
    _, key = _far_key(branch)
    # The keys of parents are always their ids.
    parents = key_parameter(binds(KEYS), key if key.referenced is None else key.referenced.id, is_array=True)
    return sql_of(Template("unnest({})", parents))


def first_of_each(branch: Branch, parents: str, binds: Binds) -> tuple[list[str], str]:
    """Return the columns and the FROM of the first rows of each parent, by a subquery for each, and of one row more,
    which shows whether there are others. parents: the ids of the parents, as rows. An index on the key and the order
    gives them without reading the rest (docs/adr/0039-chosen-includes.md):

        SELECT "rows"."c0","rows"."c1","a parent"."id" FROM unnest($1::int8[]) "a parent" ("id") CROSS JOIN LATERAL
        (SELECT "t1"."id","t1"."name" FROM "computers" "t1" WHERE "t1"."owner_id"="a parent"."id"
        ORDER BY "t1"."name","t1"."id" LIMIT 4) "rows" ("c0","c1")

    With a total, a parent without rows has one row, whose other columns are null:

        ... CROSS JOIN LATERAL (SELECT COUNT(*) FROM "computers" "t1" WHERE ...) "a total" ("n") LEFT JOIN LATERAL (...)
        "rows" ("c0","c1") ON TRUE
    """
    alias, key = _far_key(branch)
    choice, parent = _choice_of(branch), column(_PARENT, "id")
    query = _linked_rows(branch, binds).where(is_key(columns_of(alias), key, parent))
    own = list(columns(branch.node, branch.node.rows.alias, binds))
    texts = cursor_columns(branch.cursor_keys, binds)
    limit: Any = Template(str(_read_of_each(choice)))
    first = _branch_order(query.select(*own, *texts), branch, binds).limit(limit)
    names = [f'"c{index}"' for index in range(len(own) + len(texts))]
    shown = [f'"rows".{name}' for name in names]
    shown.insert(len(own), sql_of(parent))
    before, after = "CROSS JOIN LATERAL", ""
    if choice.has_total:
        shown.append('"a total"."n"')
        count = query.select(sql_functions.Count("*")).get_sql()
        before, after = f'CROSS JOIN LATERAL ({count}) "a total" ("n") LEFT JOIN LATERAL', " ON TRUE"
    return shown, f'{parents} "{_PARENT}" ("id") {before} ({first.get_sql()}) "rows" ({",".join(names)}){after}'


def _ranked(branch: Branch, binds: Binds) -> str:
    """Return the same rows if no index finds those of one parent. All of them are read once:

    SELECT * FROM (SELECT "t1"."id","t1"."name","t1"."owner_id",row_number() OVER (PARTITION BY "t1"."owner_id"
    ORDER BY "t1"."name","t1"."id") FROM "computers" "t1" WHERE "t1"."owner_id"=ANY($1)) "rows"
    ("c0","c1","c2","c3") WHERE "c3"<=4 ORDER BY "c3"
    """
    alias, key = _far_key(branch)
    choice, rows = _choice_of(branch), branch.node.rows
    shown = [*branch_columns(branch, binds), *cursor_columns(branch.cursor_keys, binds)]
    partition = Template("PARTITION BY {}", compared_key(columns_of(alias), key))
    if choice.has_total:
        shown.append(Template("COUNT(*) OVER ({})", partition))
    keys = order_terms(rows.order, binds)
    listed = ",".join(["{}"] * len(keys))
    number = Template(f"row_number() OVER ({{}} ORDER BY {listed})", partition, *keys)
    query = join(related_rows(branch, binds(KEYS), binds).select(*shown, number), rows.joins, binds)
    names = [f'"c{index}"' for index in range(len(shown) + 1)]
    return (
        f'SELECT * FROM ({query.get_sql()}) "rows" ({",".join(names)}) '
        f"WHERE {names[-1]}<={_read_of_each(choice)} ORDER BY {names[-1]}"
    )


def _choice_of(branch: Branch) -> Choice:
    assert branch.choice is not None
    return branch.choice


def _read_of_each(choice: Choice) -> int:
    """Return how many rows are read for each parent."""
    assert choice.size is not None
    return choice.size + 1


_PARENT = "a parent"
"""The alias of the ids of the parents. No table has such a name."""


def related_rows(branch: Branch, keys: Term, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of the rows of a branch. keys: an array, as a parameter or a subquery."""
    alias, key = _far_key(branch)
    return _linked_rows(branch, binds).where(is_any_key(columns_of(alias), key, keys))


def _linked_rows(branch: Branch, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of the rows of a branch with any parent."""
    rows = branch.node.rows
    query = from_rows(rows, binds)
    return query if rows.through is None else join_links(query, rows, binds)


def branch_columns(branch: Branch, binds: Binds) -> list[Term]:
    rows = branch.node.rows
    own = list(columns(branch.node, rows.alias, binds))
    if branch.relationship.is_own_key:
        return own
    alias, key = _far_key(branch)
    return [*own, shown_key(columns_of(alias), key)]


def _far_key(branch: Branch) -> tuple[str, Key]:
    """Return the key of the related rows, or of their link table, whose values are the keys of the parents, with its
    alias."""
    rows = branch.node.rows
    if rows.through is not None:
        return rows.through.alias, rows.through.near[1]
    assert rows.pair is not None
    return rows.alias, rows.resource.id.key if branch.relationship.is_own_key else rows.pair[1]


def near_key(branch: Branch, parents: Rows) -> Term:
    """Return the key of the parents whose values are those of the related rows."""
    pair = branch.node.rows.pair if branch.relationship.is_own_key else None
    return shown_key(columns_of(parents.alias), parents.resource.id.key if pair is None else pair[0])


def id_columns(node: Node) -> list[Term]:
    return [column(node.rows.alias, name) for name in node.resource.id.key.columns]
