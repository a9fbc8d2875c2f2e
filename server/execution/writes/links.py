"""Writes the links of a row: keys of the related rows, or rows of a link table. What comes in: a link of a planned
write, and the id of the row. Errors point to the linkage in the request.

It must not know: SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from querybuild.declarations.resource import link_of
from querybuild.errors import Errors, RequiredLink, not_allowed, raise_all, related_not_found
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.rows import Row
from querybuild.planning.writes.write_plan import LinkWrite
from querybuild.principal import Principal
from querybuild.sql.links import LinkStatements
from querybuild.sql.statement import Statement
from serializers.pointers import slot_pointer
from server.errors import Conflict
from server.execution.arguments import Arguments, repeated
from server.execution.refusals import not_written
from server.execution.writes.locks import fetch_locked
from server.postgres.connection import Connection


class LinkTask(msgspec.Struct, frozen=True, eq=False):
    """The write of one link of a row, with what its statements need. row_id: the id of the row."""

    connection: Connection
    write: PlannedWrite
    link: LinkWrite
    statements: LinkStatements
    sent: Arguments
    row_id: Any
    principal: Principal

    def values_of(self, statement: Statement, leaving: Sequence[Any] = ()) -> list[Any]:
        """Return the values of a statement. leaving: the ids of the related rows that lose their key."""
        return self.sent.of(statement, keys=leaving, row=self.row_id)


async def write_link(task: LinkTask, rows: Sequence[Row] | None, check: Callable[[], None]) -> list[Any]:
    """Write one link. rows: the related rows, as the statement `lock` returns them, if they are locked already. check:
    called when these are known, and before anything else is checked. Returns the ids of the related rows whose keys
    have changed."""
    link, sent = task.link, task.sent
    wanted: list[Any] = sent.request[link.slot]
    is_linked = link_of(link.relationship) is not None
    if not is_linked:
        request = (*sent.request[: link.slot], repeated(wanted), *sent.request[link.slot + 1 :])
        task = msgspec.structs.replace(task, sent=Arguments(request, sent.context, sent.path))
    if rows is None:
        lock = task.statements.lock
        rows = [] if lock is None else await fetch_locked(task.connection, lock, task.values_of(lock))
    check()
    if link.mode != "remove":
        _check_exists(task.write, link, wanted, {row[0] for row in rows})
    return await (_write_rows(task, wanted) if is_linked else _write_keys(task, wanted, rows))


async def _write_rows(task: LinkTask, wanted: Sequence[Any]) -> list[Any]:
    """Remove and create rows of a link table. These are not locked, so it is not known whether links will be
    removed."""
    statements = task.statements
    if statements.detach is not None:
        await _change_links(task, statements.detach, statements.is_detached, None)
    if statements.attach is not None and wanted:
        await _change_links(task, statements.attach, statements.is_attached, len(wanted))
    return []


async def _write_keys(task: LinkTask, wanted: Sequence[Any], rows: Sequence[Row]) -> list[Any]:
    """Change keys of the related rows, which are locked. Returns the ids of those that change."""
    write, link, detach, attach = task.write, task.link, task.statements.detach, task.statements.attach
    named = frozenset(wanted)
    leaving = [row[0] for row in rows if _leaves(link, row, task.row_id, named)]
    joining = [row[0] for row in rows if row[1] != task.row_id and row[0] in named] if link.mode != "remove" else []
    if link.rows.rights:
        _check_rights(write, link, rows, frozenset(leaving + joining), task.principal)
    if leaving and not link.is_detachable:
        raise _required_link(write, link, leaving)
    keys, detached = repeated(leaving), None
    if detach is not None and leaving and joining:
        detached = await task.connection.pipeline(detach.sql, task.values_of(detach, keys))
    elif detach is not None and leaving:
        await _change_links(task, detach, None, len(leaving), keys)
    if attach is not None and joining:
        await _change_links(task, attach, None, len(joining))
    if detached is not None and detached.count != len(leaving):
        raise not_written(write, slot_pointer(write, link.slot))
    await _check_left(task, named)
    return leaving + joining


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
