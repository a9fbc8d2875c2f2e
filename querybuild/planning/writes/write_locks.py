"""Says which existing rows a planned write locks, and plans the related row that a path names over a to-one.

`querybuild/sql/writes/locks.py` explains the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Relationship, Resource, referring_key
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Context
from querybuild.planning.row_plan import Rows
from querybuild.planning.rowsets import open_named, without_rights
from querybuild.planning.writes.write_plan import LockStrength
from querybuild.query import Lid


def rows_to_lock(write: PlannedWrite) -> Iterator[tuple[Rows, Key, Any, LockStrength]]:
    """Yield the existing rows that a write locks, each by a key and its value: its own row, rows whose keys it sets
    or clears, and rows that it links to."""
    plan = write.plan
    row_id = None if plan.id_slot is None or plan.kind == "create" else write.values[plan.id_slot]
    exists = row_id is not None and not isinstance(row_id, Lid)
    if exists:
        yield without_rights(plan.rows), plan.resource.id.key, row_id, plan.lock_strength
    for assignment in plan.assignments:
        owner, owner_id = assignment.owner, write.values[assignment.slot]
        if owner is not None and owner_id is not None and not isinstance(owner_id, Lid):
            yield owner, owner.resource.id.key, owner_id, LockStrength.KEY_SHARE
    for link in plan.links:
        key = referring_key(link.relationship, link.relationship.foreign_columns, plan.resource)
        has_key = bool(key.columns)
        strength, related = LockStrength.NO_KEY_UPDATE if has_key else LockStrength.KEY_SHARE, without_rights(link.rows)
        for value in write.values[link.slot] if has_key or link.mode != "remove" else ():
            if not isinstance(value, Lid):
                yield related, link.target.id.key, value, strength
        if has_key and exists and link.mode == "replace":
            yield related, key, row_id, strength


class RelatedRow(msgspec.Struct, frozen=True):
    """The related row of a to-one relationship, for a write whose path names the owner. rows: the rows that the related
    row must be one of. owners: those that the owner must be one of."""

    owners: Rows
    rows: Rows
    relationship: Relationship

    @property
    def resource(self) -> Resource:
        """The resource of the row."""
        return self.rows.resource


def plan_related_row(resource: Resource, relationship: Relationship, catalog: Catalog, context: Context) -> RelatedRow:
    """Plan the row that a write of a related resource is about."""
    target = catalog.target(relationship)
    return RelatedRow(open_named(resource, context), open_named(target, context), relationship)
