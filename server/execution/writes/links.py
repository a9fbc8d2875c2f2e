"""Writes the links of a row: keys of the related rows, or rows of a link table. What comes in: a link of a planned
write, and the id of the row. Errors point to the linkage in the request.

It must not know: SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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


async def write_link(
    connection: Connection,
    write: PlannedWrite,
    link: LinkWrite,
    statements: LinkStatements,
    sent: Arguments,
    row_id: Any,
    rows: Sequence[Row] | None,
    principal: Principal,
    check: Callable[[], None],
) -> list[Any]:
    """Write one link. rows: the related rows, as the statement `lock` returns them, if they are locked already. check:
    called when these are known, and before anything else is checked. Returns the ids of the related rows whose keys
    have changed."""

    def values_of(statement: Statement) -> list[Any]:
        return sent.of(statement, keys=leaving if is_linked else repeated(leaving), row=row_id)

    is_linked = link_of(link.relationship) is not None
    leaving: list[Any] = []
    wanted: list[Any] = sent.request[link.slot]
    named = frozenset(wanted)
    if not is_linked:
        request = (*sent.request[: link.slot], repeated(wanted), *sent.request[link.slot + 1 :])
        sent = Arguments(request, sent.context, sent.path)
    if rows is None:
        lock = statements.lock
        rows = [] if lock is None else await fetch_locked(connection, lock, values_of(lock))
    check()
    if link.mode != "remove":
        _check_exists(write, link, wanted, {row[0] for row in rows})
    leaving = [row[0] for row in rows if _leaves(link, row, row_id, named)]
    joins = not is_linked and link.mode != "remove"
    joining = [row[0] for row in rows if row[1] != row_id and row[0] in named] if joins else []
    if link.rows.rights:
        _check_rights(write, link, rows, frozenset(leaving + joining), principal)
    if leaving and not link.is_detachable:
        raise _required_link(write, link, leaving)
    detach, attach, detached = statements.detach, statements.attach, None
    if detach is not None and leaving and joining:
        detached = await connection.send_ahead(detach.sql, values_of(detach))
    # Rows of a link table are not locked, so it is not known whether links will be removed.
    elif detach is not None and (leaving or is_linked):
        expected = None if is_linked else len(leaving)
        await _change_links(connection, write, link, detach, statements.is_detached, None, values_of, expected)
    if attach is not None and wanted and (is_linked or joining):
        expected = len(wanted) if is_linked else len(joining)
        checks = statements.is_attached, statements.is_referable
        await _change_links(connection, write, link, attach, *checks, values_of, expected)
    if detached is not None and detached.count != len(leaving):
        raise not_written(write, slot_pointer(write, link.slot))
    return [] if is_linked else leaving + joining


async def _change_links(
    connection: Connection,
    write: PlannedWrite,
    link: LinkWrite,
    change: Statement,
    check: Statement | None,
    is_referable: Statement | None,
    values_of: Callable[[Statement], list[Any]],
    expected: int | None,
) -> None:
    """Run a statement that creates or removes links. check: returns a row if links are missing or left. is_referable:
    returns no row if the owner has no value to refer to. expected: how many rows change without concurrent writes of
    the same links, None if this is not known. Raises Conflict, NotWritten if a trigger cancels a change."""
    # Links of a concurrent write may be invisible to the first statement. The second one sees them.
    for _ in range(2):
        changed = int((await connection.execute(change.sql, *values_of(change))).rpartition(" ")[2])
        if changed == expected:
            return
        if check is None:
            break
        if await connection.fetchval(check.sql, *values_of(check)) is None:
            return
    pointer = slot_pointer(write, link.slot)
    if is_referable is not None and await connection.fetchval(is_referable.sql, *values_of(is_referable)) is None:
        raise Conflict(f"This {link.resource.type} has no value that the relationship can refer to.", pointer=pointer)
    raise not_written(write, pointer)


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
