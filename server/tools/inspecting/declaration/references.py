"""Finds what the foreign keys of a database can become: relationships to the ids of resources, and link tables.

What comes in: tables, and the ids of those that are served. What goes out: References, Links, and comments about the
other keys. It must not know: names of fields, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from querybuild.declarations.types import ColumnType
from querybuild.errors import listed, quoted
from server.schema.comparing.keys import is_alike
from server.tools.inspecting.catalog.model import ForeignKey, InspectedTable
from server.tools.inspecting.declaration.column_types import column_type_of
from server.tools.inspecting.declaration.identity import Identity


class Served(msgspec.Struct, frozen=True, eq=False):
    """A table that becomes a resource."""

    table: InspectedTable
    identity: Identity
    type: str
    path: str


class InspectedReference(msgspec.Struct, frozen=True, eq=False):
    """A foreign key to a resource. columns: in the order of references. references: the columns that it refers to, in
    the order of the id if they are the id."""

    source: InspectedTable
    key: ForeignKey
    target: Served
    columns: tuple[str, ...]
    references: tuple[str, ...]

    @property
    def is_to_id(self) -> bool:
        """Whether it refers to the id."""
        return self.references == self.target.identity.columns

    def is_part_of_id(self, identity: Identity) -> bool:
        """Return whether a part of the id is a key that refers to other columns than an id. Such a key is not written:
        the id has the values of its columns, and not those of the ids that they refer to."""
        return not self.is_to_id and not set(self.columns).isdisjoint(identity.columns)

    @property
    def is_unique(self) -> bool:
        """Whether at most one row refers to a resource."""
        return any(set(columns) <= set(self.columns) for columns in self.source.unique)


class Ends(msgspec.Struct, frozen=True, eq=False):
    """The two keys of a link table."""

    table: InspectedTable
    one: InspectedReference
    other: InspectedReference

    @property
    def is_pure(self) -> bool:
        """Whether the table has no columns besides the keys."""
        return {column.name for column in self.table.columns} == {*self.one.columns, *self.other.columns}


def references_of(table: InspectedTable, served: Mapping[int, Served]) -> list[InspectedReference]:
    """Return the foreign keys of a table that can become relationships."""
    by_columns: dict[tuple[object, ...], InspectedReference] = {}
    for key in table.foreign_keys:
        target = served.get(key.target)
        if target is not None and _reason_against(table, key, target) is None:
            reference = _reference(table, key, target)
            by_columns.setdefault((reference.columns, reference.references, key.target), reference)
    order = {column.name: column.number for column in table.columns}
    return sorted(by_columns.values(), key=lambda each: (order[each.columns[0]], len(each.columns), each.key.name))


def _reference(table: InspectedTable, key: ForeignKey, target: Served) -> InspectedReference:
    pairs = dict(zip(key.references, key.columns, strict=True))
    is_to_id = pairs.keys() == set(target.identity.columns)
    references = target.identity.columns if is_to_id else key.references
    return InspectedReference(table, key, target, tuple([pairs[name] for name in references]), references)


def unserved_keys(
    table: InspectedTable, served: Mapping[int, Served], names: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    """Yield the first column and a comment for each foreign key that cannot become a relationship. names: of tables, by
    oid."""
    for key in table.partial_keys:
        columns, name = listed(map(quoted, key.columns)), names.get(key.target, "a table")
        yield (
            key.columns[0],
            f"{columns} refers to {name} in some partitions only: add the foreign key to the whole table",
        )
    for key in table.foreign_keys:
        target = served.get(key.target)
        columns = listed(map(quoted, key.columns))
        if target is None:
            yield key.columns[0], f"{columns} refers to {names.get(key.target, 'a table')}, which is not served"
        elif (reason := _reason_against(table, key, target)) is not None:
            yield key.columns[0], f"{columns} refers to {target.table.full_name}: {reason}"


def _reason_against(table: InspectedTable, key: ForeignKey, target: Served) -> str | None:
    """Return why a foreign key cannot become a relationship, with what would help."""
    known = {column.name: column for column in table.columns}
    if denied := [name for name in key.columns if not known[name].may_select]:
        return f"the role may not read it: {table.grant('SELECT', *denied)}"
    theirs = {column.name: column for column in target.table.columns}
    if denied := [name for name in key.references if not theirs[name].may_select]:
        return f"the role may not read it: {target.table.grant('SELECT', *denied)}"
    for name, reference in zip(key.columns, key.references, strict=True):
        own, other = known[name].type, theirs[reference].type
        if other.name.endswith("range"):
            return "a row refers to it for a PERIOD, and relationships compare equal values"
        is_alike = own.labels == other.labels if other.labels else _is_alike(own.name, column_type_of(other))
        if not is_alike:
            return f"{quoted(name)} is {own.shown}, and what it refers to is {other.shown}: make both of one type"
    return None


def _is_alike(name: str, referenced: ColumnType) -> bool:
    """Return whether the columns of a foreign key can be compared. Those of PostgreSQL may be different integers."""
    return name in referenced.sql_names or any(is_alike(name, other) for other in referenced.sql_names)


def links_of(tables: Mapping[int, InspectedTable], served: Mapping[int, Served]) -> list[Ends]:
    """Return the link tables: they have two keys that are unique together, and not each by itself."""
    return [
        ends
        for table in tables.values()
        if table.kind in "rp" and (ends := _ends(table, references_of(table, served))) is not None
    ]


def _ends(table: InspectedTable, references: list[InspectedReference]) -> Ends | None:
    references = [reference for reference in references if reference.is_to_id and not reference.is_unique]
    for index, one in enumerate(references):
        for other in references[index + 1 :]:
            both = {*one.columns, *other.columns}
            is_disjoint = len(both) == len(one.columns) + len(other.columns)
            if is_disjoint and any(set(columns) == both for columns in table.unique):
                return Ends(table, one, other)
    return None
