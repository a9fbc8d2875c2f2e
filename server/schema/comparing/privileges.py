"""Checks the privileges of the role that declarations need. What comes in: declarations and the tables of
`live_tables.py`. What goes out: messages that say which privilege is missing, with the GRANT.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from querybuild.declarations.database_types.versions import is_counted
from querybuild.declarations.faults.relationship_faults import MAKE_READ_ONLY
from querybuild.declarations.resource import Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import ColumnType
from querybuild.errors import listed, quoted
from server.schema.fault import Denied, Grant
from server.schema.live_tables import DELETE, INSERT, RELATION_KINDS, UPDATE, LiveTable

EVENTS = {"create": INSERT, "update": UPDATE, "delete": DELETE}
"""The methods of a resource, and the event that each needs."""


def read_privileges(table: LiveTable, names: Iterable[str]) -> Iterator[str]:
    """Return the missing privileges to read a table. names: the columns that are read."""
    if not table.may_use_schema:
        grant = Grant("USAGE", quote_ident(table.schema), table.role, "SCHEMA ")
        yield Denied(f"the role {quoted(table.role)} may not use the schema {quoted(table.schema)}: {grant}", grant)
        return
    known = dict.fromkeys(name for name in names if name in table.columns)
    if any(not table.columns[name].may_select for name in known):
        yield _denied(table, "SELECT", [name for name in known if not table.columns[name].may_select], len(known))


def type_privileges(table: LiveTable, name: str, declared: ColumnType, *, is_id: bool = False) -> Iterator[str]:
    """Return the missing privilege on the schema of a column's type, if statements name the type. They convert to a
    composite type, and to an enum where the column is an id or has a domain."""
    column, column_type = table.columns.get(name), declared.element or declared
    if column is None or column.denied_schema is None:
        return
    if column_type.fields or (column_type.choices and (is_id or column.is_domain)):
        grant = Grant("USAGE", quote_ident(column.denied_schema), table.role, "SCHEMA ")
        text = f"may not use the schema {quoted(column.denied_schema)} of the type of {quoted(name)}"
        yield Denied(f"the role {quoted(table.role)} {text}: {grant}", grant)


def write_privileges(resource: Resource, table: LiveTable) -> Iterator[str]:
    """Return the missing privileges to write a resource's own table."""
    if not table.may_use_schema:
        return
    for method, privilege, flag in (("create", "INSERT", "may_insert"), ("update", "UPDATE", "may_update")):
        names = written_columns(resource, on_create=method == "create") & table.columns.keys()
        names |= _version_columns(resource, table, on_create=method == "create")
        denied = sorted(name for name in names if not getattr(table.columns[name], flag))
        if denied and method in resource.methods and table.allowed_writes & EVENTS[method]:
            yield _denied(table, privilege, denied, len(names), instead=f"take `{method}` out of its `methods`")
    if "delete" in resource.methods and table.allowed_writes & DELETE and not table.may_delete:
        yield _denied(table, "DELETE", instead="take `delete` out of its `methods`")
    if "create" in resource.methods and table.allowed_writes & INSERT:
        yield from _sequence_faults(resource, table)


def key_privileges(resource: Resource, relationship: Relationship, target: Resource, table: LiveTable) -> Iterator[str]:
    """Return the missing privileges of a relationship whose key is in its target's rows."""
    columns = [name for name in relationship.foreign_columns if name in table.columns.keys() - target.id.key.columns]
    is_updated = is_written(resource, relationship) and "update" in target.methods
    if table.may_use_schema and is_updated and not all(table.columns[name].may_update for name in columns):
        yield _denied(table, "UPDATE", columns, instead=MAKE_READ_ONLY)


def lock_privileges(
    resource: Resource, relationship: Relationship, target: Resource, own: LiveTable, theirs: LiveTable
) -> Iterator[str]:
    """Return the missing privileges of a relationship whose key is not in the resource's own rows. A new link locks the
    rows at both ends."""
    if not is_written(resource, relationship) or not relationship.methods & {"add", "replace"}:
        return
    ends = [own, theirs] if link_of(relationship) is not None else [own] if "update" in target.methods else []
    for table in {table.oid: table for table in ends}.values():
        # A resource with `update` needs the privilege itself, and has its own message.
        is_reported = table is own and "update" in resource.methods and bool(written_columns(resource, on_create=False))
        if table.may_use_schema and not table.may_lock and not is_reported:
            denied = _denied(table, "UPDATE")
            text = f"a new link locks rows, and {denied}, on one column at least, or {MAKE_READ_ONLY}"
            yield Denied(text, denied.grant)


def link_privileges(links: LiveTable, keys: set[str], needed: dict[int, str]) -> Iterator[str]:
    """Return the missing privileges to write a link table. keys: its two keys. needed: the events that are used."""
    columns = [links.columns[name] for name in keys & links.columns.keys()]
    if INSERT in needed and not all(column.may_insert for column in columns):
        yield _denied(links, "INSERT", sorted(keys), instead=MAKE_READ_ONLY)
    if DELETE in needed and not links.may_delete:
        yield _denied(links, "DELETE", instead=MAKE_READ_ONLY)


def is_written(resource: Resource, relationship: Relationship) -> bool:
    """Return whether any method writes a relationship."""
    return not relationship.methods <= {"read"} and not resource.methods.isdisjoint({"create", "update"})


def written_columns(resource: Resource, *, on_create: bool) -> set[str]:
    """Return the columns that a create or an update may write. An INSERT of only defaults contains the id."""
    names = {attribute.column_name for attribute in resource.attributes if attribute.is_writable(on_create=on_create)}
    id_columns = set(resource.id.key.columns)
    written = [own for own in own_keys(resource) if "replace" in own.methods and (on_create or own.updatable)]
    keys = {name for own in written for name in own.own_columns}
    if not on_create:
        return names | (keys - id_columns)
    names |= keys
    return names | id_columns if resource.client_ids or not names else names


def _version_columns(resource: Resource, table: LiveTable, *, on_create: bool) -> set[str]:
    """Return the column of the version, if statements set it. A write of links sets it to itself, for the trigger that
    changes it."""
    declared = resource.declared_version
    column = None if declared is None else table.columns.get(declared.column)
    if declared is None or column is None or column.is_generated:
        return set()
    return {declared.column} if not on_create or is_counted(declared, column.type) else set()


def own_keys(resource: Resource) -> list[ToOne]:
    """Return the to-ones whose keys are in the resource's own rows."""
    return [own for relationship in resource.relationships if (own := own_key_of(relationship)) is not None]


def _sequence_faults(resource: Resource, table: LiveTable) -> Iterator[str]:
    always_sent = {attribute.column_name for attribute in resource.attributes if attribute.required}
    for name, column in table.columns.items():
        for sequence in column.denied_sequences if name not in always_sent else ():
            grant = Grant("USAGE", sequence, table.role, "SEQUENCE ")
            text = f"the role {quoted(table.role)} may not use the sequence {quoted(sequence)} of the column"
            yield Denied(f"{text} {quoted(name)}: {grant}, or take `create` out of its `methods`", grant)


def _denied(table: LiveTable, privilege: str, names: Iterable[str] = (), of: int = 0, instead: str = "") -> Denied:
    """Return a message about a missing privilege. of: how many columns are needed. If only some of them are denied, the
    message names these. instead: what else would help."""
    denied = list(names)
    columns = f" ({', '.join(map(quote_ident, denied))})" if len(denied) < of else ""
    about = f"the columns {listed(map(quoted, denied))} of " if columns else ""
    grant = Grant(f"{privilege}{columns}", table.quoted_name, table.role)
    text = (
        f"the role {quoted(table.role)} has no {privilege} privilege on {about}the {RELATION_KINDS[table.kind]} "
        f"{quoted(table.name)}: {grant}"
    )
    return Denied(f"{text}, or {instead}" if instead else text, grant)
