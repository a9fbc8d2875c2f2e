"""Compiles a write of a to-many whose key is in the related rows, as a pipeline: statements that are sent without
waiting for their results. For PostgreSQL they are one transaction, in one round trip.

Nobody looks at their results in between. So the last one fails if the result is not what was meant: a related row does
not exist, or a trigger has changed it. Then nothing is written, and the statements of `links.py` find out what to
answer. It must not know: values.
"""

from __future__ import annotations

from pypika.terms import NullValue

from querybuild.declarations.resource import link_of
from querybuild.declarations.terms import sql_of
from querybuild.planning.writes.write_plan import LinkWrite, WritePlan
from querybuild.shortcuts import Knows
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import table
from querybuild.sql.keys import is_any_key, is_key, is_no_key
from querybuild.sql.statement import Statement
from querybuild.sql.writes.links import KEYS, ROW, LinkStatements, foreign_key_of
from querybuild.sql.writes.parts import set_version, update_of

PLAN = Knows(WritePlan, used=("kind", "rows", "id_slot", "links"))
LINK = Knows(
    LinkWrite,
    used=("resource", "relationship", "rows", "slot", "mode", "is_detachable", "emptied", "kept"),
    ignored=("is_target_first",),
)
"""What the pipeline knows of a write and of its link."""


def compile_pipelined(plan: WritePlan, lock: Statement, links: tuple[LinkStatements, ...]) -> tuple[Statement, ...]:
    """Return the statements, or none for other writes, and for those that depend on rules. lock: locks the written row.

    The row is locked before the related rows, as in `locks.py`. The value of the slot `keys` is the number of related
    rows that the document names.
    """
    if len(plan.links) != 1 or not PLAN.takes(plan) or plan.is_limited:
        return ()
    [link], [statements] = plan.links, links
    if not LINK.takes(link) or statements.changed is not None or not (link.is_detachable or link.mode == "add"):
        return ()
    # The values of other keys are texts, which are converted or looked up.
    is_text = link.target.id.key.is_text or plan.resource.id.key.is_text
    is_plain = not (is_text or link.relationship.references)
    if link_of(link.relationship) is not None or not is_plain or statements.lock is None:
        return ()
    detach = () if link.mode == "add" else (_detach(link),)
    attach = () if statements.attach is None else (statements.attach,)
    return (lock, statements.lock, *detach, *attach, _check(plan, link))


def _detach(link: LinkWrite) -> Statement:
    """Compile `UPDATE "computers" SET "owner_id"=null WHERE "owner_id"=$1 AND "id"<>ALL($2)`, for a removal with
    `=ANY`."""
    binds, rows = Binds(), table(link.target)
    key, id_key = foreign_key_of(link), link.target.id.key
    query = update_of(rows)
    for name in link.emptied:
        query = query.set(rows.field(name), NullValue())
    query = set_version(query, link.target)
    query = query.where(is_key(rows.field, key, binds(ROW)))
    leaves = is_any_key if link.mode == "remove" else is_no_key
    return Statement(query.where(leaves(rows.field, id_key, binds.request(link.slot))).get_sql(), binds.slots)


_IS_DONE = {
    "replace": "count(*)={count} AND count(*) FILTER (WHERE {named})={count} FROM {rows} WHERE {is_linked}",
    "add": "count(*)={count} FROM {rows} WHERE {is_linked} AND {named}",
    "remove": "count(*)=0 FROM {rows} WHERE {is_linked} AND {named}",
}
"""What the rows that are linked to the owner must be, by the mode."""


def _check(plan: WritePlan, link: LinkWrite) -> Statement:
    """Return a statement that returns the id of the written row, and fails if the row is not there or has other links.

    SELECT $1::int8,1/CASE WHEN EXISTS (SELECT FROM "users" WHERE "id"=$1) AND (SELECT count(*)=$3 AND
    count(*) FILTER (WHERE "id"=ANY($2))=$3 FROM "computers" WHERE "owner_id"=$1) THEN 1 ELSE 0 END
    """
    binds, owners, rows = Binds(), table(plan.resource), table(link.target)
    key, id_key = foreign_key_of(link), link.target.id.key
    is_linked = sql_of(is_key(rows.field, key, binds(ROW)))
    is_owner = sql_of(is_key(owners.field, plan.resource.id.key, binds(ROW)))
    named = sql_of(is_any_key(rows.field, id_key, binds.request(link.slot)))
    count = "" if link.mode == "remove" else sql_of(binds(KEYS))
    is_done = _IS_DONE[link.mode].format(named=named, count=count, rows=sql_of(rows), is_linked=is_linked)
    row = f"{sql_of(binds(ROW))}::{plan.resource.id.key.types[0].sql_names[0]}"
    there = f"EXISTS (SELECT FROM {sql_of(owners)} WHERE {is_owner})"
    return Statement(f"SELECT {row},1/CASE WHEN {there} AND (SELECT {is_done}) THEN 1 ELSE 0 END", binds.slots)
