"""ReadPlan -> the statements of a streamed document. What comes in: the plan of a collection without pages. What goes
out: its parts, each with one statement for a cursor and one for each of its linkage: first the primary data, then the
included resources by type, each made unique by PostgreSQL, which reads the rows of a type that primary rows lead to:

    SELECT "i0"."id","i0"."name",... FROM "computers" "i0"
    WHERE EXISTS (SELECT 1 FROM "users" "t0" WHERE "t0"."age">$1 AND "t0"."id"="i0"."owner_id") ORDER BY "i0"."id"

Nothing here can fail for a request's sake, and nothing knows a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pypika import PostgreSQLQuery
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Criterion, ExistsCriterion, Field

from querybuild.binds import Binds
from querybuild.clauses import column, columns, from_rows, join, link_table, table
from querybuild.plan import Branch, Node, ReadPlan, Rows, Slot, Statement, node_of
from querybuild.resource import Resource
from querybuild.rowsets import moved_rows
from querybuild.select import KEYS, compile_read, matching
from querybuild.terms import Template, equals_any

INCLUDED = "i0"
"""The alias of included rows. Those on the way from the primary rows to them are i1, i2, ..."""

MOST = Slot("most")
ROW_BYTES = 28
"""The least that PostgreSQL keeps of a row: its header and the pointer to it."""


class Part(msgspec.Struct, frozen=True, eq=False):
    """Resources of one type that stand together in the document. node: how they are shown; what it branches to is only
    identified. linkage: the statement of each branch; None where the rows themselves have the keys. linked: the
    statement that gives, of some ids, those of the resources that show the linkage of each branch; None where all do.
    count: how many rows there are, up to a number. ambiguous: an id that is null or of two rows, if there is one."""

    node: Node
    rows: Statement
    linkage: tuple[Statement | None, ...]
    linked: tuple[Statement | None, ...]
    count: Statement
    ambiguous: Statement


class StreamStatements(msgspec.Struct, frozen=True, eq=False):
    """included: by type. bounds: how many rows the tables of `included` have at most, each; null where only counting
    tells. None where nothing is included."""

    data: Part
    included: tuple[Part, ...]
    bounds: Statement | None

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.data, *self.included)


class Hop(msgspec.Struct, frozen=True):
    """One relationship on the way from a primary resource to an included one."""

    source: Rows
    target: Rows


Chain = tuple[Hop, ...]
Place = tuple[Node, Chain]
"""Where resources of the document come from: a node, and the relationships that lead to it."""


def compile_stream(plan: ReadPlan) -> StreamStatements:
    """plan: of a collection whose page has no size."""
    places: dict[Resource, list[Place]] = {}
    for place in _places(plan.node):
        places.setdefault(place[0].resource, []).append(place)
    included = []
    for resource in sorted(places, key=lambda resource: resource.type):
        led_to = [(node, chain) for node, chain in places[resource] if chain or plan.includes_primary]
        if led_to and not _is_all_primary(plan, resource):
            included.append(_included(plan, led_to))
    bounds = row_bounds([part.node.resource for part in included]) if included else None
    return StreamStatements(_data(plan, places[plan.node.resource]), tuple(included), bounds)


def _places(node: Node, chain: Chain = ()) -> Iterator[Place]:
    """The primary resources, and the end of each chain of include."""
    yield node, chain
    for branch in node.branches:
        if branch.is_included:
            yield from _places(branch.node, (*chain, Hop(node.rows, branch.node.rows)))


def _is_all_primary(plan: ReadPlan, resource: Resource) -> bool:
    """Whether the primary data has every resource of that type, and so none is included."""
    is_whole = not plan.conditions and plan.scope is None and not plan.is_linkage
    return is_whole and resource is plan.node.resource


def _with_linkage(places: Sequence[Place]) -> Node:
    """What is shown of a type that is met at several places: the linkage that any of them shows."""
    nodes = [node for node, _ in places]
    first = nodes[0]
    branches = {
        branch.relationship: Branch(branch.relationship, node_of(branch.node.rows), False)
        for node in nodes
        for branch in node.branches
        if branch.relationship in first.relationships
    }
    keys = {key: target for node in nodes for key, target in node.keys_and_targets}
    shown = first.attributes, first.relationships
    return node_of(first.rows, *shown, tuple(keys), tuple(branches.values()), tuple(keys.values()))


def _data(plan: ReadPlan, places: Sequence[Place]) -> Part:
    node = node_of(plan.node.rows) if plan.is_linkage else _with_linkage(places)
    statements = compile_read(msgspec.structs.replace(plan, node=node, limit=None))
    binds = Binds()
    count = _count(matching(plan, binds), binds)
    rows = join(matching(plan, asked := Binds()), plan.joins, asked)
    ambiguous = _ambiguous(plan.node.resource, rows, plan.node.rows.alias, asked)
    # All of them are at the first place.
    linked = tuple([None if _shows(plan.node, branch) else _linked(plan, branch, places) for branch in node.branches])
    return Part(node, statements.primary, statements.branches, linked, count, ambiguous)


def _included(plan: ReadPlan, places: Sequence[Place]) -> Part:
    node, chains = _with_linkage(places), [chain for _, chain in places]
    binds, counted = Binds(), Binds()
    query = _reached_rows(plan, node, chains, binds).select(*columns(node, INCLUDED, binds))
    query = query.orderby(_id(INCLUDED, node.resource))
    count = _count(_reached_rows(plan, node, chains, counted), counted)
    linkage = compile_read(ReadPlan(node=node, conditions=(), is_collection=True)).branches
    linked = tuple([_linked(plan, branch, places) for branch in node.branches])
    ambiguous = _ambiguous(node.resource, _reached_rows(plan, node, chains, asked := Binds()), INCLUDED, asked)
    return Part(node, Statement(query.get_sql(), binds.slots), linkage, linked, count, ambiguous)


def _linked(plan: ReadPlan, branch: Branch, places: Sequence[Place]) -> Statement | None:
    """Of some ids, those of the resources that are met at a place that shows the linkage of the branch: a user that no
    chain leads to does not name its computers. None where all of the resources are met at such a place.

    `SELECT "i0"."id" FROM "users" "i0" WHERE "i0"."id"=ANY($1) AND EXISTS (SELECT 1 FROM "groups" "i1" WHERE ...)`
    """
    showing = [chain for node, chain in places if _shows(node, branch)]
    if len(showing) == len(places):
        return None
    resource, binds = places[0][0].resource, Binds()
    rows = from_rows(moved_rows(places[0][0].rows, INCLUDED), binds)
    rows = rows.where(equals_any(_id(INCLUDED, resource), binds(KEYS)))
    reached = _any([_reached(plan, chain, INCLUDED, binds) for chain in showing])
    return Statement(rows.where(reached).select(_id(INCLUDED, resource)).get_sql(), binds.slots)


def _shows(node: Node, branch: Branch) -> bool:
    return any(one.relationship is branch.relationship for one in node.branches)


def _reached_rows(plan: ReadPlan, node: Node, chains: list[Chain], binds: Binds) -> QueryBuilder:
    """FROM and WHERE of the rows that one of the chains leads to, and that are not in the primary data."""
    reached = [_reached(plan, chain, INCLUDED, binds) for chain in chains]
    query = from_rows(moved_rows(node.rows, INCLUDED), binds).where(_any(reached))
    if node.resource is plan.node.resource and not plan.is_linkage:
        query = query.where(Template("NOT {}", _is_primary(plan, INCLUDED, binds)))
    return query


def _any(criteria: list[Criterion]) -> Criterion:
    return criteria[0] if len(criteria) == 1 else Template("(" + " OR ".join(["{}"] * len(criteria)) + ")", *criteria)


def _reached(plan: ReadPlan, chain: Chain, alias: str, binds: Binds) -> Criterion:
    """Whether the row `alias` stands at the end of a chain that begins at a primary row."""
    if not chain:
        return _is_primary(plan, alias, binds)
    *before, hop = chain
    if not before:
        return ExistsCriterion(_hop(matching(plan, binds), hop, plan.node.rows.alias, alias))
    source = f"i{len(before)}"
    rows = from_rows(moved_rows(hop.source, source), binds)
    return ExistsCriterion(_hop(rows.where(_reached(plan, tuple(before), source, binds)), hop, source, alias))


def _is_primary(plan: ReadPlan, alias: str, binds: Binds) -> Criterion:
    resource = plan.node.resource
    rows = matching(plan, binds)
    rows = rows.where(Template("{}={}", _id(plan.node.rows.alias, resource), _id(alias, resource)))
    return ExistsCriterion(rows.select(1))


def _hop(rows: QueryBuilder, hop: Hop, source: str, target: str) -> QueryBuilder:
    """Those of the rows `source` that the relationship leads from to the row `target`."""
    through = hop.target.through
    if through is None:
        ((near, far),) = hop.target.pairs
        found = Template("{}={}", column(source, near), column(target, far))
    else:
        links = f"l{source}"
        ((near, link_near),), ((link_far, far),) = through.near, through.far
        meets = Template("{}={}", column(links, link_near), column(source, near))
        rows = rows.join(link_table(through.link, links)).on(meets)
        found = Template("{}={}", column(links, link_far), column(target, far))
    return rows.where(found).select(1)


def _ambiguous(resource: Resource, rows: QueryBuilder, alias: str, binds: Binds) -> Statement:
    """`SELECT "t0"."id" FROM ... GROUP BY "t0"."id" HAVING COUNT(*)>1 OR "t0"."id" IS NULL LIMIT 1`"""
    found = _id(alias, resource)
    query = rows.select(found).groupby(found).having(Template("COUNT(*)>1 OR {} IS NULL", found)).limit(1)
    return Statement(query.get_sql(), binds.slots)


def _count(rows: QueryBuilder, binds: Binds) -> Statement:
    """`SELECT COUNT(*) FROM (SELECT 1 FROM ... LIMIT $1) "c"`"""
    limited = rows.select(1).limit(binds(MOST))  # type: ignore[arg-type]  # PyPika's hint is of plain numbers
    counted = PostgreSQLQuery.from_(limited.as_("c")).select(sql_functions.Count("*"))
    return Statement(counted.get_sql(), binds.slots)


def row_bounds(resources: Sequence[Resource]) -> Statement:
    """How many rows a table can have for its size, which costs next to nothing, where counting them would delay the
    first byte. Not known of views, of partitioned and of foreign tables, and where another server has the rows."""
    tables = [table(resource).get_sql(quote_char='"').replace("'", "''") for resource in resources]
    names = ",".join([f"'{name}'" for name in tables])
    is_plain = (
        """"relkind"='r' AND NOT "relhassubclass" AND "relam"=(SELECT "oid" FROM "pg_am" WHERE "amname"='heap')"""
    )
    sql = (
        f'SELECT CASE WHEN {is_plain} THEN NULLIF(pg_relation_size("oid")/{ROW_BYTES},0) END '
        f'FROM "pg_class" JOIN unnest(ARRAY[{names}]::regclass[]) "n" ON "oid"="n"'
    )
    return Statement(sql, ())


def _id(alias: str, resource: Resource) -> Field:
    return column(alias, resource.id.column)
