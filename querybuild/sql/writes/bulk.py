"""Compiles writes of many rows, those that a filter finds. Either the rows are locked, and then written like others, or
one statement does both.

It must not know: values. The slot `max_rows` is one more than the rows that may be written.
"""

from __future__ import annotations

from pypika.terms import Term

from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.plan import Slot
from querybuild.planning.writes.bulk import BulkPlan
from querybuild.planning.writes.write_plan import LockStrength, WritePlan
from querybuild.shortcuts import Knows
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import criterion, decides_again, delete_from, from_rows, table
from querybuild.sql.keys import columns_of, compared_key, shown_key
from querybuild.sql.statement import Statement
from querybuild.sql.writes.locks import lock_clause
from querybuild.sql.writes.modify import returning, update_without_where

OF_ROWS = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments", "checked"))
"""What the one statement knows of what is written to each row. The rows themselves are those of the bulk. What they
must be once they are written is checked after it."""

MAX_ROWS = Slot("max_rows")


def compile_bulk_lock(plan: BulkPlan) -> Statement:
    """Compile `SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."age">$1 ORDER BY "t0"."id" LIMIT $2 FOR UPDATE`."""
    binds = Binds()
    shown = shown_key(columns_of(plan.rows.alias), plan.rows.resource.id.key)
    return Statement(_found(plan, [shown], binds), binds.slots, decides_again(plan.rows))


def compile_whole_bulk(plan: BulkPlan, write: WritePlan) -> Statement:
    """Compile the one statement that finds, locks and writes the rows, and returns their ids. If they are too many, it
    writes none of them. write: as in the plan.

        WITH "found" AS (SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."age">$1 ORDER BY "t0"."id" LIMIT $2
        FOR NO KEY UPDATE) UPDATE "users" SET "status"=$3 WHERE "id" IN (SELECT * FROM "found")
        AND (SELECT count(*) FROM "found")<$2 RETURNING "users"."id"

    PostgreSQL runs such a WITH once: a subquery with LIMIT and a lock might run several times, and find other rows.
    """
    binds, rows = Binds(), table(write.resource)
    key, of = write.resource.id.key, columns_of(plan.rows.alias)
    found = _found(plan, [of(name) for name in key.columns], binds)
    is_found = Template("{} IN (SELECT * FROM " + _FOUND + ")", compared_key(rows.field, key))
    are_few = Template("(SELECT count(*) FROM " + _FOUND + ")<{}", binds(MAX_ROWS))
    query = delete_from(rows) if write.kind == "delete" else update_without_where(write, binds)
    sql = str(query.where(is_found).where(are_few).get_sql()) + returning(write, None, binds)
    return Statement(f"WITH {_FOUND} AS ({found}) {sql}", binds.slots)


_FOUND = '"the found rows"'
"""The name of the rows that are found. No table has it."""


def _found(plan: BulkPlan, shown: list[Term], binds: Binds) -> str:
    rows, resource = plan.rows, plan.rows.resource
    query = from_rows(rows, binds).select(*shown)
    for right in rows.rights:
        query = query.where(criterion(right, binds))
    query = query.orderby(*map(columns_of(rows.alias), resource.id.key.columns))
    strength = LockStrength.UPDATE if plan.kind == "delete" else LockStrength.NO_KEY_UPDATE
    return f"{query.get_sql()} LIMIT {sql_of(binds(MAX_ROWS))}{lock_clause(strength, resource)}"


def is_one_statement(plan: BulkPlan, write: WritePlan) -> bool:
    """Return whether one statement may write all rows: nothing can tell it from one for each, and nothing has to be
    read before it."""
    resource, abilities = write.resource, write.resource.abilities
    if not OF_ROWS.takes(write) or write.kind not in abilities.merged or abilities.cancels_writes or abilities.is_view:
        return False
    if not (abilities.has_unique_ids and abilities.locks_rows) or (resource.soft_delete and write.kind == "delete"):
        return False
    if decides_again(plan.rows) or (write.checked is not None and decides_again(write.checked)):
        return False
    columns = {assignment.column for assignment in write.assignments}
    is_changed = write.kind == "delete" or bool(columns)
    return is_changed and not columns & {*resource.id.key.columns} and all(one.key is None for one in write.assignments)
