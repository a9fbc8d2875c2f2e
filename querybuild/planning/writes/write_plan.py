"""Defines the plan of a write: the row, the columns that are set, the links, and what must be locked and checked. As in
`plan.py`, it contains slots instead of values, so that all writes of the same shape have equal plans.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne
from querybuild.planning.row_plan import Condition, Rows, Slot
from querybuild.query import ChangeKind, LinkMode


class LockStrength(IntEnum):
    """The strength of a row lock. A stronger lock excludes everything that a weaker one excludes."""

    KEY_SHARE = 1
    """The row cannot be deleted and its id cannot change. It only excludes UPDATE."""
    NO_KEY_UPDATE = 2
    """The lock of an UPDATE statement: no other transaction can write the row, but rows that refer to it can be
    written."""
    UPDATE = 3
    """In addition, no other row can be made to refer to the row."""


class Assignment(msgspec.Struct, frozen=True):
    """A column of the written row and the slot of its value.

    attribute: None for the key of a relationship and for the id.
    key, part: for these, all columns of the key that has the value, and which one this is.
    owner: for a key whose links can be removed from the other side, the rows of that side.
    target: for a key, the rows that it may refer to, if other rows may be hidden.
    sent: the slot that says whether an update has the value. If not, the column stays as it is. None: it has one.
    """

    column: str
    slot: int
    attribute: Attribute | None = None
    owner: Rows | None = None
    target: Rows | None = None
    key: Key | None = None
    part: int = 0
    sent: int | None = None


class Expected(msgspec.Struct, frozen=True):
    """A value that the row must have before it is written: of an attribute, as answers show it, or the id of a to-one
    relationship, whose key is the attribute. slot: of the value, from the document or from anywhere else. target: the
    rows that the key refers to, if some may be hidden. Then it is null. is_version: whether it is the version of the
    row, and the value a list of which it must be one."""

    attribute: Attribute
    slot: Slot
    relationship: ToOne | None = None
    target: Rows | None = None
    is_version: bool = False


class ExpectedLinkage(msgspec.Struct, frozen=True):
    """The relationship whose linkage must be as it was read. slot: of the versions, of which its version must be
    one."""

    relationship: Relationship
    slot: int


class Kept(msgspec.Struct, frozen=True):
    """A column of a key that an update must not change. names: what else it belongs to, for an error."""

    assignment: Assignment
    names: tuple[str, ...]


class Implied(msgspec.Struct, frozen=True):
    """A key that a write sets without being sent, since other fields have its columns. assignments: those of the
    columns. rows: the rows that the key may refer to. columns: those of these rows that it refers to."""

    assignments: tuple[Assignment, ...]
    rows: Rows
    columns: tuple[str, ...]


class LinkWrite(msgspec.Struct, frozen=True):
    """A write of a relationship whose key is not in the written row.

    rows: the related rows.
    slot: the slot of their ids, an array.
    is_detachable: whether the key of removed rows may become null.
    is_target_first: whether the targets of a link table are locked before the written row.
    visible: the related rows as they stand beside a link table, if some may be hidden: links to hidden rows stay.
    checked: the rows that related rows must be one of once their key has changed, if that is not any row.
    emptied: the columns that become null when a key is removed.
    kept: the columns of the key that the link must not change.
    criteria, assigned: of the rows of a link table: what those that exist for the principal meet, and the columns that
        rules set in new ones, with the slots of their values.
    """

    resource: Resource
    relationship: Relationship
    rows: Rows
    slot: int
    mode: LinkMode
    is_detachable: bool
    is_target_first: bool = False
    visible: Rows | None = None
    checked: Rows | None = None
    emptied: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    criteria: tuple[Condition, ...] = ()
    assigned: tuple[tuple[Attribute, Slot], ...] = ()

    @property
    def target(self) -> Resource:
        """The resource of the related rows."""
        return self.rows.resource


class OwnerRow(msgspec.Struct, frozen=True):
    """The row that the path names and that a new row is linked to. It must exist.

    rows: the rows that it must be one of. If the link is in a link table, the row must be one that may be updated.
    slot: the slot of its id.
    checked: the rows that it must be one of afterwards, if that is not any row.
    """

    rows: Rows
    slot: int
    checked: Rows | None = None

    @property
    def resource(self) -> Resource:
        """The resource of the row."""
        return self.rows.resource


class RowConflict(msgspec.Struct, frozen=True, kw_only=True):
    """What a create does if a row with the same unique values is there: it updates this row.

    key: the assignments of the unique columns. has_equal_nulls: whether two nulls are equal there.
    updated: the assignments of the update. rows: the rows that it may update.
    is_one_statement: whether one statement may do both."""

    key: tuple[Assignment, ...]
    has_equal_nulls: bool
    updated: tuple[Assignment, ...]
    rows: Rows
    is_one_statement: bool


class WritePlan(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The plan of a write of one row and its links.

    rows: the rows that the written row must be one of.
    id_slot: the slot of its id. None for a create without an id of the client.
    precondition: values that the row must have. Otherwise an update or a delete is refused.
    linkage: what the linkage that it writes must be before.
    kept: columns that the assignments must leave as they are. The write is refused if they would change.
    implied: keys that the assignments set without being sent, and that are checked.
    owner: the row that a new row is linked to.
    checked: the rows that the row must be one of once it is written, if that is not any row.
    conflict: what a create does if the row is there.
    """

    kind: ChangeKind
    rows: Rows
    id_slot: int | None
    assignments: tuple[Assignment, ...] = ()
    links: tuple[LinkWrite, ...] = ()
    precondition: tuple[Expected, ...] = ()
    linkage: ExpectedLinkage | None = None
    kept: tuple[Kept, ...] = ()
    implied: tuple[Implied, ...] = ()
    owner: OwnerRow | None = None
    checked: Rows | None = None
    conflict: RowConflict | None = None

    @property
    def resource(self) -> Resource:
        """The resource of the written row."""
        return self.rows.resource

    @property
    def is_limited(self) -> bool:
        """Whether the context may hide rows that the write refers to or changes, or may forbid to write them."""
        return bool(
            self.rows.is_limited
            or any(link.rows.is_limited for link in self.links)
            or any(assignment.target for assignment in self.assignments)
            or self.implied
            or (self.owner is not None and self.owner.rows.is_limited)
        )

    @property
    def lock_strength(self) -> LockStrength:
        """The strength of the lock on the written row. If links may be removed, or must be as they were read, no row
        may be linked at the same time."""
        removes_links = self.kind == "delete" or any(link.mode != "add" for link in self.links)
        removes_links = removes_links or self.linkage is not None
        return LockStrength.UPDATE if removes_links else LockStrength.NO_KEY_UPDATE
