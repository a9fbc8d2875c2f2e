"""Compares each resource with the live tables. What comes in: declarations and the tables of `live_tables.py`. What
goes out: a Fault for each difference.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from querybuild.declarations.catalog import Catalog, Everywhere
from querybuild.declarations.resource import Attribute, Relationship, Resource
from server.schema.comparing import reads, writes
from server.schema.comparing.versions import version_faults
from server.schema.fault import Fault
from server.schema.live_tables import FoundTables, LiveTable


def resource_faults(
    catalog: Catalog, resource: Resource, tables: FoundTables, *, is_read_only: bool
) -> Iterator[Fault]:
    """Return what does not match between a resource and its tables, or what keeps the role from reading and writing
    them. is_read_only: whether nothing has to be writable."""
    table = tables[resource.schema, resource.table]
    if table is None:
        yield Fault(reads.no_table(resource.schema, resource.table), resource.type)
        return
    everywhere = catalog.everywhere
    for reason in (
        *_table_reasons(resource, table, is_read_only=is_read_only),
        *reads.everywhere_faults(table, everywhere),
    ):
        yield Fault(reason, resource.type)
    for attribute in resource.attributes:
        for reason in _attribute_reasons(resource, attribute, table, is_read_only=is_read_only):
            yield Fault(reason, resource.type, attribute=attribute.name)
    for relationship in resource.relationships:
        target = catalog.target(relationship)
        for reason in _relationship_reasons(
            resource, relationship, target, tables, everywhere, is_read_only=is_read_only
        ):
            yield Fault(reason, resource.type, relationship=relationship.name)


def _table_reasons(resource: Resource, table: LiveTable, *, is_read_only: bool) -> Iterator[str]:
    yield from reads.table_faults(resource, table)
    yield from version_faults(resource, table, is_read_only=is_read_only)
    if not is_read_only:
        yield from writes.table_faults(resource, table)


def _attribute_reasons(
    resource: Resource, attribute: Attribute, table: LiveTable, *, is_read_only: bool
) -> Iterator[str]:
    if attribute.is_stored:
        yield from reads.attribute_faults(resource, attribute, table)
        if not is_read_only:
            yield from writes.attribute_faults(resource, attribute, table)


def _relationship_reasons(
    resource: Resource,
    relationship: Relationship,
    target: Resource,
    tables: FoundTables,
    everywhere: Sequence[Everywhere],
    *,
    is_read_only: bool,
) -> Iterator[str]:
    yield from reads.relationship_faults(resource, relationship, target, tables, everywhere)
    if not is_read_only:
        yield from writes.relationship_faults(resource, relationship, target, tables, everywhere)
