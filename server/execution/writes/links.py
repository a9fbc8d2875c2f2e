"""Writes the links of a row: keys of the related rows, or rows of a link table. What comes in: a link of a planned
write, and the id of the row. Errors point to the linkage in the request.

It must not know: SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from querybuild.declarations.resource import link_of
from querybuild.errors import (
    Errors,
    RelationshipFault,
    RequiredLink,
    listed,
    not_allowed,
    quoted,
    raise_all,
    related_not_found,
)
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.rows import Row
from querybuild.planning.writes.write_plan import LinkWrite
from querybuild.principal import Principal
from querybuild.query import ChangeKind
from querybuild.sql.statement import Statement
from querybuild.sql.writes.links import LinkStatements
from serializers.pointers import slot_pointer
from server.errors import Conflict
from server.execution.arguments import Arguments, repeated
from server.execution.refusals import not_written
from server.execution.writes.locks import fetch_locked, repeated_id
from server.postgres.connection import PostgresConnection


class LinkTask(msgspec.Struct, frozen=True, eq=False):
    """The write of one link of a row, with what its statements need. row_id: the id of the row."""

    connection: PostgresConnection
    write: PlannedWrite
    link: LinkWrite
    statements: LinkStatements
    sent: Arguments
    row_id: Any
    principal: Principal

    def values_of(self, statement: Statement, leaving: Sequence[Any] = ()) -> list[Any]:
        """Return the values of a statement. leaving: the ids of the related rows that lose their key."""
        return self.sent.of(statement, keys=leaving, row=self.row_id)

    def naming(self, ids: Sequence[Any]) -> LinkTask:
        """Return the task as if the document named these related rows."""
        sent, slot = self.sent, self.link.slot
        request = (*sent.request[:slot], ids, *sent.request[slot + 1 :])
        return msgspec.structs.replace(self, sent=Arguments(request, sent.context, sent.path))


async def write_link(task: LinkTask, rows: Sequence[Row] | None, check: Callable[[], None]) -> list[Any]:
    """Write one link. rows: the related rows, as the statement `lock` returns them, if they are locked already. check:
    called when these are known, and before anything else is checked. Returns the ids of the related rows whose keys
    have changed."""
    link, sent = task.link, task.sent
    wanted: list[Any] = sent.request[link.slot]
    is_linked = link_of(link.relationship) is not None
    if not is_linked:
        task = task.naming(repeated(wanted))
    if rows is None:
        lock = task.statements.lock
        rows = [] if lock is None else await fetch_locked(task.connection, lock, task.values_of(lock))
    check()
    if not link.target.abilities.has_unique_ids:
        _check_unique(task.write, link, rows)
    if link.mode != "remove":
        _check_exists(task.write, link, wanted, {row[0] for row in rows})
    return await (_write_rows(task, wanted) if is_linked else _write_keys(task, wanted, rows))


class _Step(msgspec.Struct, frozen=True, eq=False):
    """A statement that changes the keys of some related rows. ids: of these rows. leaving: the same, repeated, if they
    lose their key."""

    task: LinkTask
    statement: Statement
    ids: Sequence[Any]
    leaving: Sequence[Any] = ()


async def _write_rows(task: LinkTask, wanted: list[Any]) -> list[Any]:
    """Remove and create rows of a link table. These are not locked, so it is not known whether links will be
    removed."""
    statements, through = task.statements, link_of(task.link.relationship)
    assert through is not None
    if statements.detach is not None and statements.leaving is not None:
        await _unlink_each(task, statements.detach, statements.leaving)
    elif statements.detach is not None:
        await _change_links(task, statements.detach, statements.is_detached, None)
    if statements.attach is not None:
        for ids in _per_statement(wanted, through.merged, "create"):
            await _change_links(task.naming(ids), statements.attach, statements.is_attached, len(ids))
    return []


def _per_statement(ids: list[Any], merged: frozenset[str], kind: ChangeKind) -> list[list[Any]]:
    """Return the ids of the rows that each statement writes: all of them, or one if something can tell it."""
    if not ids:
        return []
    return [ids] if kind in merged else [[row_id] for row_id in ids]


async def _unlink_each(task: LinkTask, detach: Statement, leaving: Statement) -> None:
    """Remove links one by one. Raises NotWritten if a trigger keeps one of them."""
    for _ in range(2):
        rows = await task.connection.fetch(leaving.sql, *task.values_of(leaving))
        if not rows:
            return
        for row in rows:
            link_task = task.naming([row[0]])
            await task.connection.execute(detach.sql, *link_task.values_of(detach))
    check = task.statements.is_detached
    if check is not None and await _is_there(task, check):
        raise not_written(task.write, slot_pointer(task.write, task.link.slot))


async def _write_keys(task: LinkTask, wanted: list[Any], rows: Sequence[Row]) -> list[Any]:
    """Change keys of the related rows, which are locked. Returns the ids of those that change."""
    write, link, detach, attach = task.write, task.link, task.statements.detach, task.statements.attach
    named = frozenset(wanted)
    leaving = [row[0] for row in rows if _leaves(link, row, task.row_id, named)]
    linked = {row[0] for row in rows if row[1] == task.row_id}
    joining = [key for key in wanted if key not in linked] if link.mode != "remove" else []
    if link.rows.rights:
        _check_rights(write, link, rows, frozenset(leaving + joining), task.principal)
    if leaving and not link.is_detachable:
        raise _required_link(write, link, leaving)
    if joining:
        await _check_kept(task)
    merged = link.target.abilities.merged
    steps = [_Step(task, detach, ids, repeated(ids)) for ids in _per_statement(leaving, merged, "update") if detach]
    steps += [
        _Step(task.naming(repeated(ids)), attach, ids) for ids in _per_statement(joining, merged, "update") if attach
    ]
    sent = [
        (
            await task.connection.pipeline(step.statement.sql, step.task.values_of(step.statement, step.leaving)),
            len(step.ids),
        )
        for step in steps[:-1]
    ]
    for last in steps[-1:]:
        await _change_links(last.task, last.statement, None, len(last.ids), last.leaving)
    if any(statement.count != expected for statement, expected in sent):
        raise not_written(write, slot_pointer(write, link.slot))
    await _check_left(task, named)
    return leaving + joining


async def _check_kept(task: LinkTask) -> None:
    """Check that the link changes no column of related rows that other fields have too. Raises RelationshipFault."""
    changed, write, link = task.statements.changed, task.write, task.link
    rows = [] if changed is None else await task.connection.fetch(changed.sql, *task.values_of(changed))
    if rows:
        pointers = dict(zip(write.values[link.slot], write.item_pointers[link.slot], strict=True))
        errors, names = Errors(), listed(map(quoted, link.kept))
        detail = f"It would change {names} of {link.target.type} {{}}, which other fields have too: write it there."
        errors.extend(RelationshipFault(detail.format(row[0]), pointer=pointers.get(row[0])) for row in rows)
        raise_all(errors)


async def _check_left(task: LinkTask, named: frozenset[Any]) -> None:
    """Check that no related row keeps a key that it should lose. Policies may let a row be read, and not be locked. If
    it can be locked, a concurrent write has linked it. Raises NotWritten."""
    find, lock = task.statements.find, task.statements.lock
    if find is None or lock is None:
        return
    rows = await task.connection.fetch(find.sql, *task.values_of(find))
    if left := {row[0] for row in rows if _leaves(task.link, row, task.row_id, named)}:
        locked = await fetch_locked(task.connection, lock, task.values_of(lock))
        if not left <= {row[0] for row in locked}:
            raise not_written(task.write, slot_pointer(task.write, task.link.slot))


async def _change_links(
    task: LinkTask, change: Statement, check: Statement | None, expected: int | None, leaving: Sequence[Any] = ()
) -> None:
    """Run a statement that creates or removes links. check: returns a row if links are missing or left. expected: how
    many rows change without concurrent writes of the same links, None if this is not known. Raises Conflict,
    NotWritten if a trigger cancels a change."""
    connection, link, statements = task.connection, task.link, task.statements
    # Links of a concurrent write may be invisible to the first statement. The second one sees them.
    for _ in range(2):
        changed = int((await connection.execute(change.sql, *task.values_of(change, leaving))).rpartition(" ")[2])
        if changed == expected:
            return
        if check is None:
            break
        if not await _is_there(task, check):
            return
    pointer, is_referable = slot_pointer(task.write, link.slot), statements.is_referable
    if change is statements.attach and is_referable is not None and not await _is_there(task, is_referable):
        detail = f"This {link.resource.type} has no value that the relationship can refer to."
        raise Conflict(detail, pointer=pointer)
    raise not_written(task.write, pointer)


async def _is_there(task: LinkTask, statement: Statement) -> bool:
    return await task.connection.fetchval(statement.sql, *task.values_of(statement)) is not None


def _check_unique(write: PlannedWrite, link: LinkWrite, rows: Sequence[Row]) -> None:
    """Check that no two of the related rows have the same id. Raises AmbiguousIds."""
    seen: set[Any] = set()
    pointers = dict(zip(write.values[link.slot], write.item_pointers[link.slot], strict=True))
    for row in rows:
        if row[0] in seen:
            raise repeated_id(row[0], pointers.get(row[0], slot_pointer(write, link.slot)))
        seen.add(row[0])


def _check_exists(write: PlannedWrite, link: LinkWrite, wanted: Sequence[Any], existing: set[Any]) -> None:
    """Check that the related rows exist. Raises RelatedNotFound for each that does not."""
    pointers = write.item_pointers[link.slot]
    errors = Errors()
    errors.extend(
        related_not_found(link.target.type, str(id_value), pointer)
        for id_value, pointer in zip(wanted, pointers, strict=True)
        if id_value not in existing
    )
    raise_all(errors)


def _check_rights(
    write: PlannedWrite, link: LinkWrite, rows: Sequence[Row], changed: frozenset[Any], principal: Principal
) -> None:
    """Check that the related rows whose keys change may be updated. Raises Forbidden, Unauthenticated."""
    forbidden = [row for row in rows if not row[-1] and row[0] in changed]
    if forbidden:
        pointers = dict(zip(write.values[link.slot], write.item_pointers[link.slot], strict=True))
        named = [pointers[row[0]] for row in forbidden if row[0] in pointers]
        detail = f"You may not update {link.target.type} {_ids([row[0] for row in forbidden])}."
        raise not_allowed(principal, detail, pointer=named[0] if named else slot_pointer(write, link.slot))


def _leaves(link: LinkWrite, row: Row, row_id: Any, named: frozenset[Any]) -> bool:
    """Return whether a locked row, (id, key), loses its link."""
    return link.mode != "add" and row[1] == row_id and (row[0] in named) == (link.mode == "remove")


def _required_link(write: PlannedWrite, link: LinkWrite, leaving: Sequence[Any]) -> RequiredLink:
    """Return the error for rows that would lose a key that must not be null."""
    detail = f"{link.target.type} {_ids(leaving)} would be left without a required relationship: delete or move first."
    return RequiredLink(detail, pointer=slot_pointer(write, link.slot))


def _ids(ids: Sequence[Any]) -> str:
    return ", ".join(str(id_value) for id_value in ids[:5])
