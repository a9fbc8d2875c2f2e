"""Compiles a WritePlan to INSERT, UPDATE and DELETE.

It must not know: values. `locks.py` explains which rows are locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import msgspec
from pypika import Parameter, PostgreSQLQuery
from pypika.terms import Criterion, Term

from querybuild.declarations.keys import Key, Referenced
from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import Template, escaped_braces, sql_of
from querybuild.planning.plan import Node, node_of
from querybuild.planning.row_plan import Condition, Rows
from querybuild.planning.rowsets import with_alias
from querybuild.planning.writes.write_plan import Assignment, Implied, LockStrength, RowConflict, WritePlan
from querybuild.shortcuts import Knows
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import (
    are_met,
    columns,
    decides_again,
    is_writable,
    of_visible,
    one_of,
    one_of_writable,
    table,
)
from querybuild.sql.keys import columns_of, is_key, key_is_not_null, key_parts, shown_key
from querybuild.sql.statement import Statement
from querybuild.sql.writes.free_ids import FreeIdStatements, compile_free_ids
from querybuild.sql.writes.links import ROW, LinkStatements, compile_link
from querybuild.sql.writes.locks import lock_clause
from querybuild.sql.writes.parts import as_shown, delete_from, into, is_updated, set_version, update_of, updated_instead
from querybuild.sql.writes.pipelined_links import compile_pipelined

OF_ROW = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments", "checked", "conflict", "precondition"))
"""What the statement of a row knows of the whole write, if it is the only one of its transaction, or one of a batch or
of an INSERT of several rows. What the rows must be once they are written is checked after these."""

CREATES = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments"))
"""What one statement for several creates knows of each of them."""

MAX_INSERTED_VALUES = 320
"""How many values one INSERT of several rows writes: so few that the statement is short enough to be kept prepared. 12
rows of 8 columns take half the time of 12 single rows, and 40 a tenth less than these."""

_SIZE_DIVISOR = 6
"""If there are too few rows for such a statement, a smaller one is used, whose size is divided by this number."""


class TargetStatement(msgspec.Struct, frozen=True):
    """A statement that locks the row with the id in the slot, and returns the id.

    is_looked_up: whether the key refers to other columns than the id. Then the second column that is returned says
        whether the row has values in them.
    parts: the assignments of the columns of a key, if it was not sent. The slot is that of the first one."""

    resource: Resource
    slot: int
    lock: Statement
    is_looked_up: bool = False
    parts: tuple[Assignment, ...] = ()


class WriteStatements(msgspec.Struct, frozen=True):
    """The statements of a write.

    owner: locks the row that a new row is linked to.
    joined: lock the rows whose ids become keys of the written row, if `lock` is not None.
    lock: locks the written row. None on create, and if the row's own statement is enough.
    there: finds the id of the row to update or delete.
    has_rights: whether these two return, in their last column, whether the row may be written.
    row: writes the row and returns its id. None if no column of it changes.
    targets: lock the rows that the written keys refer to, if other rows may be hidden.
    is_limited: as in the plan.
    free_ids: find another id if a client has taken the one that the default returned.
    links: write the links.
    keeps_row: whether a trigger keeps the deleted row.
    is_in_order: whether each of several writes must be done, and checked, before the next one.
    is_merged: whether the write may be one of several creates in one statement.
    met: locks the row that a create updates instead.
    standalone: `row` as the only statement of a transaction, if it is the whole write.
    pipelined: the statements of the whole write, if they can be sent without waiting for results
        (`pipelined_links.py`). The last one fails if they have not done it.
    is_repeatable: whether writes of this shape can be executed as one batch of the statement `row`.
    """

    owner: Statement | None
    joined: tuple[Statement, ...]
    lock: Statement | None
    there: Statement | None
    has_rights: bool
    row: Statement | None
    targets: tuple[TargetStatement, ...]
    is_limited: bool
    free_ids: FreeIdStatements | None
    links: tuple[LinkStatements, ...]
    keeps_row: bool
    is_in_order: bool
    is_merged: bool = False
    met: Statement | None = None
    standalone: Statement | None = None
    pipelined: tuple[Statement, ...] = ()
    is_repeatable: bool = False


def compile_write(plan: WritePlan, shown: Node | None = None) -> WriteStatements:
    """Compile a write. shown: the columns that the statement `row` returns. None: only the id."""
    is_update = plan.kind == "update"
    targets = tuple(_targets(plan))
    has_lock = bool(plan.rows.is_limited or plan.precondition or plan.kept) or (
        is_update and bool(plan.links or targets or not plan.assignments or _locks_owner_first(plan))
    )
    binds = Binds()
    row = row_statement(plan, shown, binds) if not is_update or plan.assignments or _sets_only_version(plan) else None
    statements = WriteStatements(
        owner=None if plan.owner is None else _lock_named(plan.owner.rows, plan.owner.slot),
        joined=tuple(_lock_joined(plan)) if has_lock else (),
        lock=_lock_row(plan) if has_lock else None,
        there=None if plan.kind == "create" else _find_row(plan),
        has_rights=bool(plan.rows.rights),
        row=None if row is None else Statement(row, binds.slots),
        targets=targets,
        is_limited=plan.is_limited or (shown is not None and bool(shown.targets)),
        free_ids=_free_ids(plan, shown) if may_meet_taken_ids(plan) else None,
        links=tuple(compile_link(link) for link in plan.links),
        keeps_row=plan.kind == "delete" and plan.resource.soft_delete,
        is_in_order=_is_in_order(plan),
        met=None if plan.conflict is None else _lock_met(plan.conflict),
    )
    if row is None and statements.lock is not None and not targets and shown is None:
        pipelined = compile_pipelined(plan, statements.lock, statements.links)
        statements = msgspec.structs.replace(statements, pipelined=pipelined)
    if row is not None and not (statements.free_ids or statements.keeps_row or _needs_transaction(plan, shown)):
        is_merged = plan.kind == "create" and "create" in plan.resource.abilities.merged and CREATES.takes(plan)
        statements = msgspec.structs.replace(statements, is_merged=is_merged, standalone=_standalone(plan, shown))
    return msgspec.structs.replace(statements, is_repeatable=_is_repeatable(statements))


def _is_repeatable(statements: WriteStatements) -> bool:
    """Return whether the statement of the row does the whole write. Under a lock it does if its WHERE has all that the
    lock is for: the criteria and rights of the row, and nothing of other rows. If it writes no row, the writes run one
    after the other."""
    if statements.row is None or statements.owner or statements.links or statements.keeps_row or statements.is_in_order:
        return False
    return statements.standalone is not None or (statements.lock is None and not statements.is_limited)


def _sets_only_version(plan: WritePlan) -> bool:
    """Return whether an update that only writes links changes the version of the row too: a declared one protects all
    that a document shows."""
    version = plan.resource.abilities.version
    return bool(plan.links) and version is not None and version.is_written


def _needs_transaction(plan: WritePlan, shown: Node | None) -> bool:
    """Return whether a write needs more than the statement of its row, or depends on other rows that it must lock."""
    if not _is_of_row(plan):
        return True
    if any(assignment.target for assignment in plan.assignments) or _locks_owner_first(plan) or may_be_ambiguous(plan):
        return True
    # A trigger INSTEAD OF waits for the rows of its tables, and PostgreSQL does not test the view again after that.
    if plan.kind != "create" and plan.rows.is_limited and plan.resource.abilities.is_view:
        return True
    rows = [plan.rows, plan.checked, None if shown is None else shown.rows]
    return (shown is not None and bool(shown.targets)) or any(row is not None and decides_again(row) for row in rows)


def _is_of_row(plan: WritePlan) -> bool:
    """Return whether the statement of the row is the whole write. Its WHERE has the version that the row must have,
    unless PostgreSQL may not test it again for a row that another transaction has changed, or tests it for another
    statement. Other values are compared as answers show them."""
    abilities = plan.resource.abilities
    is_in_where = not (abilities.is_view or abilities.has_rules) and all(each.is_version for each in plan.precondition)
    return OF_ROW.takes(plan) and (is_in_where or not plan.precondition)


def may_be_ambiguous(plan: WritePlan) -> bool:
    """Return whether several rows may have the id of the written row. Then nothing must be written."""
    return plan.kind != "create" and not plan.resource.abilities.has_unique_ids


def _is_in_order(plan: WritePlan) -> bool:
    """Return whether each of several writes must be done before the next one: its rows are counted, or what it leaves
    is checked, and the next write might change this."""
    if may_be_ambiguous(plan) or not _is_of_row(plan):
        return True
    checked = plan.checked
    return checked is not None and (decides_again(checked) or plan.kind not in plan.resource.abilities.merged)


def _locks_owner_first(plan: WritePlan) -> bool:
    """Return whether an update locks the owner of a key by a statement of its own. If the key is one column that holds
    the id, the statement of the row locks the owner (`_joined`)."""
    if plan.kind != "update":
        return False
    return any(
        assignment.owner is not None and assignment.key is not None and not assignment.key.holds_id
        for assignment in plan.assignments
    )


def may_meet_taken_ids(plan: WritePlan) -> bool:
    """Return whether a sequence chooses the id, and a client may already have taken it."""
    resource = plan.resource
    if plan.kind != "create" or plan.id_slot is not None or not resource.client_ids:
        return False
    return resource.abilities.has_conflicts_of_id and resource.id_type.is_number


def row_statement(plan: WritePlan, shown: Node | None, binds: Binds, *tests: tuple[Condition, ...]) -> str:
    """Return the statement of the row. It returns the columns of `shown`, and for each of the tests that has conditions
    whether the row meets them."""
    statement = _insert if plan.kind == "create" else _change
    sql = statement(plan, binds) + returning(plan, shown, binds)
    terms = [sql_of(term) for conditions in tests for term in are_met(conditions, binds)]
    return ",".join([sql, *terms])


def _insert(plan: WritePlan, binds: Binds) -> str:
    """Return `INSERT INTO "groups" ("name") VALUES ($1)`. If clients may choose ids, the id of the default may be
    taken. Then ON CONFLICT DO NOTHING returns no row, and `free_ids.py` finds another id."""
    terms = [assigned(assignment, binds.request(assignment.slot)) for assignment in plan.assignments]
    return str(inserted(plan, [terms]).get_sql())


def inserted(plan: WritePlan, rows: Sequence[Sequence[Term]]) -> Any:
    """Return an INSERT. rows: for each row the values of the assignments."""
    columns = [assignment.column for assignment in plan.assignments] or [*plan.resource.id.key.columns]
    defaults = [Template("DEFAULT")] * len(columns)
    version = plan.resource.abilities.version
    first = [version.column] if version is not None and version.is_counted else []
    values = [(*(row or defaults), *[Template("1") for _ in first]) for row in rows]
    query = into(table(plan.resource)).columns(*columns, *first).insert(*values)
    if plan.conflict is not None:
        return updated_instead(query, plan.resource, plan.conflict)
    if may_meet_taken_ids(plan):
        query = query.on_conflict(*plan.resource.id.key.columns).do_nothing()
    return query


def rows_per_insert(plan: WritePlan) -> list[int]:
    """Return how many rows one statement may write, the most first and one last: 40, 6 and 1 of 8 columns. It is always
    one if something can tell several rows from one after the other."""
    kinds = {plan.kind} if plan.conflict is None else {plan.kind, "update"}
    if plan.kind != "create" or not kinds <= plan.resource.abilities.merged or not OF_ROW.takes(plan):
        return [1]
    sizes, size = [], MAX_INSERTED_VALUES // max(1, len(plan.assignments))
    while size > 1:
        sizes.append(size)
        size //= _SIZE_DIVISOR
    return [*sizes, 1]


def compile_rows(plan: WritePlan, size: int, shown: Node | None = None) -> str:
    """Return one INSERT for several rows with the same columns: `INSERT INTO "groups" ("name") VALUES ($1),($2),...
    RETURNING "groups"."id"`. The rows are written and returned in their order."""
    numbers = count(1)
    rows = []
    for _ in range(size):
        parameters = {assignment.slot: Parameter(f"${next(numbers)}") for assignment in _by_slot(plan)}
        rows.append([assigned(assignment, parameters[assignment.slot]) for assignment in plan.assignments])
    return str(inserted(plan, rows).get_sql()) + returning(plan, shown, Binds())


def _free_ids(plan: WritePlan, shown: Node | None) -> FreeIdStatements:
    """Return the statements that find a free id and write the row with it: `INSERT INTO "persons" ("id","name") VALUES
    ($1,$2) ON CONFLICT ("id") DO NOTHING RETURNING "persons"."id"`."""
    binds = Binds()
    terms = [binds(ROW), *[assigned(assignment, binds.request(assignment.slot)) for assignment in plan.assignments]]
    with_id = (Assignment(plan.resource.id.key.columns[0], -1), *plan.assignments)
    query = inserted(msgspec.structs.replace(plan, assignments=with_id), [terms])
    return compile_free_ids(plan.resource, Statement(query.get_sql() + returning(plan, shown, binds), binds.slots))


def _change(plan: WritePlan, binds: Binds) -> str:
    """Return `UPDATE "groups" SET "name"=$1 WHERE "id"=$2` or `DELETE FROM "groups" WHERE "id"=$1`. The WHERE also has
    the criteria and the rights of the rows, and their version: no other transaction can write between a look at the row
    and the change."""
    query = change_of_all(plan, binds).where(_is_writable(plan, binds))
    for expected in plan.precondition if _is_of_row(plan) else ():
        [_, version] = columns(node_of(plan.rows, (expected.attribute,)), plan.resource.table, binds)
        query = query.where(Template("{}=ANY({})", version, binds(expected.slot)))
    return str(query.get_sql())


def change_of_all(plan: WritePlan, binds: Binds) -> Any:
    """Return the UPDATE or DELETE without its WHERE."""
    rows = table(plan.resource)
    if plan.kind == "delete":
        return delete_from(rows)
    query = update_of(rows)
    for assignment in plan.assignments:
        value = assigned(assignment, binds.request(assignment.slot))
        column = rows.field(assignment.column)
        value = as_shown(assignment, column, _joined(assignment, value))
        if assignment.sent is not None:
            value = Template("CASE WHEN {} THEN {} ELSE {} END", binds.request(assignment.sent), value, column)
        query = query.set(column, value)
    return set_version(query, plan.resource, is_only=not plan.assignments)


def returning(plan: WritePlan, shown: Node | None, binds: Binds) -> str:
    """Return ` RETURNING "groups"."id"`, or the columns that the answer shows. It is text, because PyPika's `returning`
    only accepts tables of the query."""
    node = shown or node_of(plan.rows)
    terms = [sql_of(term) for term in columns(node, plan.resource.table, binds)]
    terms += [is_updated(plan.resource)] if plan.conflict is not None else []
    return " RETURNING " + ",".join(terms)


def _standalone(plan: WritePlan, shown: Node | None) -> Statement:
    """Return the statement of the row as the only one of a transaction. If a trigger cancels the write, it may have
    written other rows before: then the division fails, and everything is rolled back. If the row does not exist, all
    columns are null.

        WITH "the row" ("c0","c1") AS (UPDATE "groups" SET "name"=$1 WHERE "id"=$2 RETURNING "groups"."id",...)
        SELECT "the row".*,1/CASE WHEN "the row"."c0" IS NULL AND EXISTS (SELECT 1 FROM "groups" WHERE "id"=$2)
        THEN 0 ELSE 1 END FROM (VALUES (0)) "all" LEFT JOIN "the row" ON TRUE

    A table that cannot cancel a write needs only the inner statement, which PostgreSQL executes in 5 us less. If it
    returns no row, a transaction finds out why.

    It also fails if the row may not be written, or must not be as it is now. Then a transaction finds out what to
    answer. If rows may be hidden, the column after those of `shown` says whether the row may be read.
    """
    binds = Binds()
    width, readable = width_of(plan, shown), () if shown is None else shown.rows.criteria
    right = () if plan.checked is None else plan.checked.rights
    names = [f'"c{number}"' for number in range(width + bool(readable) + bool(right))]
    if shown is not None:
        readable = with_alias(readable, shown.rows.alias, plan.resource.table)
    row = row_statement(plan, shown, binds, readable, right)
    if not right and not plan.resource.abilities.cancels_writes:
        return Statement(row, binds.slots)
    is_undone = '"the row"."c0" IS NULL'
    if plan.kind != "create":
        query = PostgreSQLQuery.from_(table(plan.resource)).select(1).where(_is_row(plan, binds))
        is_undone += f" AND EXISTS ({query.get_sql()})"
    if right:
        is_undone += f' OR NOT "the row".{names[-1]}'
    result = f'"the row".*,1/CASE WHEN {is_undone} THEN 0 ELSE 1 END'
    joined = '(VALUES (0)) "all" LEFT JOIN "the row" ON TRUE'
    return Statement(f'WITH "the row" ({",".join(names)}) AS ({row}) SELECT {result} FROM {joined}', binds.slots)


def width_of(plan: WritePlan, shown: Node | None) -> int:
    """Return the number of columns that the statement `row` returns."""
    return (shown or node_of(plan.rows)).width


def _find_row(plan: WritePlan) -> Statement:
    """Compile `SELECT "id" FROM "groups" WHERE "id"=$1`, with a column that says whether it may be written, if there
    are rights."""
    binds = Binds()
    rows = table(plan.resource)
    shown = [shown_key(rows.field, plan.resource.id.key), *is_writable(plan.rows, binds)]
    query = PostgreSQLQuery.from_(rows).select(*shown).where(_is_row(plan, binds))
    return Statement(query.get_sql(), binds.slots)


def _lock_row(plan: WritePlan) -> Statement:
    """Compile `SELECT "groups"."id" FROM "groups" WHERE "id"=$1 FOR NO KEY UPDATE`, with the attributes of the
    precondition, whether the columns that must be kept have the values that are written, and the column of
    `_find_row`."""
    binds = Binds()
    node = node_of(plan.rows, tuple(expected.attribute for expected in plan.precondition))
    shown = [*columns(node, plan.resource.table, binds), *_are_kept(plan, binds), *is_writable(plan.rows, binds)]
    for expected in plan.precondition:
        if expected.target is not None:
            index = 1 + node.read.index(expected.attribute)
            shown[index] = of_visible(plan.resource.table, shown[index], expected.target, binds)
    query = PostgreSQLQuery.from_(table(plan.resource)).select(*shown).where(_is_row(plan, binds))
    return Statement(
        query.get_sql() + lock_clause(plan.lock_strength, plan.resource), binds.slots, decides_again(plan.rows)
    )


def _are_kept(plan: WritePlan, binds: Binds) -> Iterator[Term]:
    """Yield `"members"."tenant_id" IS NOT DISTINCT FROM $2`"""
    for kept in plan.kept:
        value = assigned(kept.assignment, binds.request(kept.assignment.slot))
        column_term = columns_of(plan.resource.table)(kept.assignment.column)
        yield Template("{} IS NOT DISTINCT FROM {}", column_term, value)


def _lock_named(rows: Rows, slot: int, referenced: Referenced | None = None) -> Statement:
    """Compile `SELECT "id" FROM "users" WHERE "id"=$1 FOR KEY SHARE`, with a column that says whether it may be
    written, if there are rights. referenced: columns that a key refers to; a column says whether they have values."""
    binds, locked_table = Binds(), table(rows.resource)
    shown = [shown_key(locked_table.field, rows.resource.id.key)]
    if referenced is not None:
        shown.append(key_is_not_null(locked_table.field, Key(referenced.columns, ())))
    query = PostgreSQLQuery.from_(locked_table).select(*shown, *is_writable(rows, binds))
    sql = query.where(_named(rows, slot, binds)).get_sql() + lock_clause(LockStrength.KEY_SHARE, rows.resource)
    return Statement(sql, binds.slots, decides_again(rows))


def _lock_joined(plan: WritePlan) -> Iterator[Statement]:
    """Compile `SELECT "id" FROM "groups" WHERE "id"=$1 FOR KEY SHARE`"""
    for assignment in _by_slot(plan):
        if assignment.owner is not None:
            yield _lock_named(assignment.owner, assignment.slot)


def _targets(plan: WritePlan) -> Iterator[TargetStatement]:
    for assignment in _by_slot(plan):
        if assignment.target is not None:
            referenced = None if assignment.key is None else assignment.key.referenced
            lock = _lock_named(assignment.target, assignment.slot, referenced)
            yield TargetStatement(assignment.target.resource, assignment.slot, lock, referenced is not None)
    for implied in plan.implied:
        parts = implied.assignments
        yield TargetStatement(implied.rows.resource, parts[0].slot, _lock_implied(implied), parts=parts)


def _lock_equal(
    rows: Rows,
    names: Iterable[str],
    assignments: Iterable[Assignment],
    strength: LockStrength,
    *,
    has_equal_nulls: bool = False,
) -> Statement:
    """Compile `SELECT "id" FROM "teams" WHERE "tenant_id"=$1 AND "id"=$2 FOR KEY SHARE`. names: the columns that have
    the values of the assignments. has_equal_nulls: whether two nulls are equal."""
    binds, locked_table = Binds(), table(rows.resource)
    same = "{} IS NOT DISTINCT FROM {}" if has_equal_nulls else "{}={}"
    equal = [
        Template(same, locked_table.field(name), assigned(assignment, binds.request(assignment.slot)))
        for name, assignment in zip(names, assignments, strict=True)
    ]
    meant = one_of(rows, Template(" AND ".join(["{}"] * len(equal)), *equal), binds)
    query = PostgreSQLQuery.from_(locked_table).select(shown_key(locked_table.field, rows.resource.id.key)).where(meant)
    return Statement(query.get_sql() + lock_clause(strength, rows.resource), binds.slots, decides_again(rows))


def _lock_implied(implied: Implied) -> Statement:
    return _lock_equal(implied.rows, implied.columns, implied.assignments, LockStrength.KEY_SHARE)


def _lock_met(conflict: RowConflict) -> Statement:
    """Compile `SELECT (SELECT "id" FROM "cars" WHERE "plate"=$1 FOR NO KEY UPDATE)`. It always returns one row, so that
    the rows of a batch are in the order of its writes."""
    names, nulls = [assignment.column for assignment in conflict.key], conflict.has_equal_nulls
    lock = _lock_equal(conflict.rows, names, conflict.key, LockStrength.NO_KEY_UPDATE, has_equal_nulls=nulls)
    return msgspec.structs.replace(lock, sql=f"SELECT ({lock.sql})")


def _by_slot(plan: WritePlan) -> Iterable[Assignment]:
    """Return one assignment for each value: that of a key may have several columns."""
    return {assignment.slot: assignment for assignment in plan.assignments}.values()


def _is_row(plan: WritePlan, binds: Binds) -> Criterion:
    assert plan.id_slot is not None
    return _named(plan.rows, plan.id_slot, binds)


def _is_writable(plan: WritePlan, binds: Binds) -> Criterion:
    assert plan.id_slot is not None
    is_row = is_key(table(plan.resource).field, plan.resource.id.key, binds.request(plan.id_slot))
    return one_of_writable(plan.rows, is_row, binds)


def _named(rows: Rows, slot: int, binds: Binds) -> Criterion:
    """Return `"id"=$1`, with the criteria of the rows."""
    return one_of(rows, is_key(table(rows.resource).field, rows.resource.id.key, binds.request(slot)), binds)


def assigned(assignment: Assignment, parameter: Term) -> Term:
    """Return the value of an assignment, with what its type needs. parameter: that of its slot."""
    if assignment.key is not None:
        return key_parts(parameter, assignment.key)[assignment.part]
    return parameter if assignment.attribute is None else assignment.attribute.type.bind(parameter)


def _joined(assignment: Assignment, value: Term) -> Term:
    """Return the value of a key. If its owner may be written from the other side, the owner is locked first:
    `COALESCE((SELECT "id" FROM "groups" WHERE "id"=$1 FOR KEY SHARE),$1)`.

    The foreign key would lock the owner after the row. Then two writes from both sides would wait for each other. If
    there is no owner with this id, the foreign key refuses the write."""
    if assignment.owner is None or assignment.key is None or not assignment.key.holds_id:
        # The owners of other keys are locked by an earlier statement (`_locks_owner_first`).
        return value
    owner = assignment.owner.resource
    rows = table(owner)
    id_column = rows.field(owner.id.key.columns[0])
    query = PostgreSQLQuery.from_(rows).select(id_column).where(id_column == value)
    locked = escaped_braces(query.get_sql() + lock_clause(LockStrength.KEY_SHARE, owner))
    return Template("COALESCE((" + locked + "),{})", value)
