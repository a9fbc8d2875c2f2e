"""Compiles writes of many rows, those that a filter finds. One statement finds and writes them; or they are locked, and
then written by a second statement, or like others.

It must not know: values. The slot `max_rows` is one more than the rows that may be written.
"""

from __future__ import annotations

from typing import Any

from pypika import PostgreSQLQuery
from pypika.terms import Term

from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.row_plan import MAX_ROWS, Slot
from querybuild.planning.rowsets import without_conditions
from querybuild.planning.writes.bulk import BulkPlan
from querybuild.planning.writes.write_plan import LockStrength, WritePlan
from querybuild.shortcuts import Knows
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import criterion, decides_again, table, where
from querybuild.sql.keys import columns_of, compared_key, is_any_key, shown_key
from querybuild.sql.statement import Statement
from querybuild.sql.writes.locks import lock_clause
from querybuild.sql.writes.modify import change_of_all, returning
from querybuild.sql.writes.parts import delete_from

OF_ROWS = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments", "checked"))
"""What the one statement knows of what is written to each row. The rows themselves are those of the bulk. What they
must be once they are written is checked after it."""


def compile_bulk_lock(plan: BulkPlan) -> Statement:
    """Compile `SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."age">$1 ORDER BY "t0"."id" LIMIT $2 FOR UPDATE`."""
    binds = Binds()
    shown = shown_key(columns_of(plan.rows.alias), plan.rows.resource.id.key)
    return Statement(_found(plan, [shown], binds), binds.slots, decides_again(plan.rows))


def compile_whole_bulk(plan: BulkPlan, write: WritePlan) -> Statement:
    """Compile the one statement that finds, locks and writes the rows, and returns their ids, each with the number of
    rows that it has found: a trigger may cancel some. If they are too many, it writes none of them. write: as in the
    plan.

        WITH "found" AS (SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."age">$1 ORDER BY "t0"."id" LIMIT $2
        FOR NO KEY UPDATE) UPDATE "users" SET "status"=$3 WHERE "id" IN (SELECT * FROM "found")
        AND (SELECT count(*) FROM "found")<$2 RETURNING "users"."id",(SELECT count(*) FROM "found")

    PostgreSQL runs such a WITH once: a subquery with LIMIT and a lock might run several times, and find other rows.

    A lock is an UPDATE for policies, so it would hide rows that may be deleted and not updated. Then the DELETE itself
    finds the rows, and all of it is undone if they are too many: `DELETE FROM "posts" "t0" WHERE "t0"."age">$1`.
    """
    binds, alias, key = Binds(), plan.rows.alias, write.resource.id.key
    if is_decided_by_policies(plan):
        query = _writable(delete_from(table(write.resource, alias)), plan, binds)
        shown = shown_key(columns_of(alias), key)
        return Statement(f"{query.get_sql()} RETURNING {sql_of(shown)}", binds.slots)
    rows = _found(plan, [columns_of(alias)(name) for name in key.columns], binds)
    own_key = compared_key(table(write.resource).field, key)
    query = change_of_all(write, binds).where(Template("{} IN (SELECT * FROM " + _FOUND + ")", own_key))
    query = query.where(Template(_COUNT + "<{}", binds(MAX_ROWS)))
    sql = f"{query.get_sql()}{returning(write, None, binds)},{_COUNT}"
    return Statement(f"WITH {_FOUND} AS ({rows}) {sql}", binds.slots)


def compile_locked_bulk(write: WritePlan) -> Statement:
    """Compile the statement that writes locked rows, and returns their ids:
    `UPDATE "users" SET "status"=$1 WHERE "id"=ANY($2) RETURNING "users"."id"`."""
    binds, of = Binds(), table(write.resource).field
    query = change_of_all(write, binds).where(is_any_key(of, write.resource.id.key, binds(Slot("keys"))))
    return Statement(str(query.get_sql()) + returning(write, None, binds), binds.slots)


_FOUND = '"the found rows"'
"""The name of the rows that are found. No table has it."""

_COUNT = f"(SELECT count(*) FROM {_FOUND})"


def is_decided_by_policies(plan: BulkPlan) -> bool:
    """Return whether policies of PostgreSQL decide which rows are deleted."""
    return plan.kind == "delete" and plan.rows.resource.abilities.has_policies


def _writable(query: Any, plan: BulkPlan, binds: Binds) -> Any:
    """Return the query with a WHERE for the rows that the filter finds, and that may be written."""
    query = where(query, plan.rows, binds)
    for right in plan.rows.rights:
        query = query.where(criterion(right, binds))
    return query


def _found(plan: BulkPlan, shown: list[Term], binds: Binds) -> str:
    resource = plan.rows.resource
    query = PostgreSQLQuery.from_(table(resource, plan.rows.alias)).select(*shown)
    query = _writable(query, plan, binds).orderby(*map(columns_of(plan.rows.alias), resource.id.key.columns))
    strength = LockStrength.UPDATE if plan.kind == "delete" else LockStrength.NO_KEY_UPDATE
    return f"{query.get_sql()} LIMIT {sql_of(binds(MAX_ROWS))}{lock_clause(strength, resource)}"


def is_one_statement(plan: BulkPlan, write: WritePlan) -> bool:
    """Return whether one statement may find and write all rows: no other rows say which they are. What policies decide
    is not decided again either."""
    rows = without_conditions(plan.rows) if is_decided_by_policies(plan) else plan.rows
    return is_plain(write) and not decides_again(rows)


def is_plain(write: WritePlan) -> bool:
    """Return whether one statement may write several rows: nothing has to be read before it."""
    resource, abilities = write.resource, write.resource.abilities
    if not OF_ROWS.takes(write) or abilities.is_view or abilities.has_rules:
        return False
    if not (abilities.has_unique_ids and abilities.locks_rows) or (resource.soft_delete and write.kind == "delete"):
        return False
    columns = {assignment.column for assignment in write.assignments}
    is_changed = write.kind == "delete" or bool(columns)
    return (
        is_changed
        and not columns & {*resource.id.key.columns}
        and all(assignment.key is None for assignment in write.assignments)
    )
