"""Finds the relationships that a write is about, those that it may not change, and which end of a link is locked first.

It must not know: documents, SQL text.
"""

from __future__ import annotations

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.errors import BodyError, RelationshipFault, RequiredLink, quoted
from querybuild.planning.writes.write_plan import LinkWrite
from querybuild.query import Change, LinkageChange, Owner


def written_relationships(change: Change, resource: Resource, catalog: Catalog) -> tuple[str, ...]:
    """Return the relationships whose linkage the answer to a write shows: those of the document, and the one to the
    owner."""
    if not change.relationships and change.owner is None:
        return ()
    to_owner = None if change.owner is None else catalog.other_side(owners_relationship(change.owner, catalog))
    return tuple(
        relationship.name
        for relationship in resource.relationships
        if relationship.name in change.relationships or relationship is to_owner
    )


def owners_relationship(owner: Owner, catalog: Catalog) -> Relationship:
    """Return the relationship of the owner. The route has checked that it exists."""
    relationship = catalog.by_type[owner.type].relationship(owner.relationship)
    assert relationship is not None
    return relationship


def in_lock_order(link: LinkWrite, catalog: Catalog) -> LinkWrite:
    """Return the link with the end of the link table that is locked first."""
    ranks = catalog.lock_rank(link.target), catalog.lock_rank(link.resource)
    is_target_first = link_of(link.relationship) is not None and ranks[0] < ranks[1]
    return msgspec.structs.replace(link, is_target_first=True) if is_target_first else link


def why_fixed(
    change: Change, resource: Resource, relationship: Relationship, linkage: LinkageChange, catalog: Catalog
) -> str:
    """Return why a write cannot change the key of a relationship, or "". A create sets its own keys. A document with
    the whole resource may contain a to-one that is only set on create."""
    own = own_key_of(relationship)
    if change.kind == "create" and own is not None:
        return ""
    is_whole = own is not None and not own.references and change.type is not None and linkage.name_pointer is None
    return catalog.why_fixed(resource, relationship, ignores_updatable=is_whole)


def null_refused(relationship: ToOne, pointer: str, *, on_create: bool) -> BodyError:
    """Return the error for a to-one that must not be empty."""
    if on_create:
        return RelationshipFault(f"The relationship {quoted(relationship.name)} is required.", pointer=pointer)
    return RequiredLink(f"The relationship {quoted(relationship.name)} must not be empty.", pointer=pointer)
