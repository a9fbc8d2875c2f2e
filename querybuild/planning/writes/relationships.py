"""Plans the relationships of a document, and the link to the resource that the path names.

It must not know: documents, SQL text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from querybuild.declarations.resource import Relationship, Resource, ToOne, link_of, own_key_of, referring_key
from querybuild.declarations.values import ValueFault
from querybuild.errors import (
    ApiError,
    LinkageTypeConflict,
    MethodForbidden,
    OwnerConflict,
    RelationshipFault,
    listed,
    nearest,
    not_allowed,
    quoted,
    related_not_found,
)
from querybuild.planning.context import check_action, refused_action
from querybuild.planning.row_plan import Rows, Slot
from querybuild.planning.rowsets import (
    open_checked,
    open_key_rows,
    open_links,
    open_named,
    open_written,
    rows_with_alias,
)
from querybuild.planning.writes.draft import Draft
from querybuild.planning.writes.implied import kept_columns, refused_alias
from querybuild.planning.writes.linkage import in_lock_order, null_refused, owners_relationship, why_fixed
from querybuild.planning.writes.shared_columns import assigned_key, is_value_of, key_assignments
from querybuild.planning.writes.write_plan import LinkWrite, OwnerRow
from querybuild.query import Identifier, LinkageChange, LinkMode, Owner

TARGET = "the target"
"""The alias of a related row beside tables that have their own names. No table has this name."""


def plan_relationships(draft: Draft) -> None:
    """Plan the relationships of the document."""
    for name, linkage in draft.change.relationships.items():
        relationship = draft.resource.relationship(name)
        if relationship is None:
            known = [relation.name for relation in draft.resource.relationships]
            detail = f"{draft.resource.type} has no relationship {quoted(name)}.{nearest(name, known)}"
            pointer = linkage.name_pointer or draft.relationship_pointer(name)
            draft.errors.append(RelationshipFault(detail, pointer=pointer))
        elif (fault := _unwritable(draft, draft.resource, relationship, linkage.pointer)) is not None:
            draft.errors.append(fault)
        elif linkage.mode != "replace" and not relationship.is_to_many:
            detail = f"{quoted(name)} is to-one: it can be replaced, but nothing can be added or removed."
            draft.errors.append(RelationshipFault(detail, pointer=linkage.name_pointer or linkage.pointer))
        elif linkage.mode not in relationship.methods:
            draft.errors.append(MethodForbidden(_closed_detail(relationship, linkage.mode), pointer=linkage.pointer))
        elif why := why_fixed(draft.change, draft.resource, relationship, linkage, draft.catalog):
            detail = f"The relationship {quoted(name)} cannot be written here: {why}."
            draft.errors.append(MethodForbidden(detail, pointer=linkage.pointer))
        elif linkage.is_list != relationship.is_to_many:
            what = "an array of resource identifiers" if relationship.is_to_many else "one resource identifier or null"
            detail = f"The data of {quoted(name)} must be {what}."
            draft.errors.append(RelationshipFault(detail, pointer=linkage.pointer))
        elif (own := own_key_of(relationship)) is not None and not (draft.on_create or own.updatable):
            _keep(draft, own, linkage)
        else:
            _link(draft, relationship, linkage)
    if len(draft.change.relationships) > 1:
        draft.errors += _contradictions(draft)


def _contradictions(draft: Draft) -> Iterator[RelationshipFault]:
    """Yield the errors for the two sides of a relationship of a type with itself, if the document has both, and only
    one of them links the resource to itself."""
    sent, resource = draft.change.relationships, draft.resource
    seen: set[str] = set()
    for name, linkage in sent.items():
        relationship = resource.relationship(name)
        if relationship is None or relationship.target != resource.type:
            continue
        seen.add(name)
        for other in draft.catalog.other_sides(resource, relationship):
            is_itself = _has_itself(linkage, draft)
            if other in seen - {name} and is_itself != _has_itself(sent[other], draft):
                field, without = (name, other) if is_itself else (other, name)
                detail = (
                    f"{quoted(field)} links this {resource.type} to itself, and {quoted(without)}, its other side, "
                )
                yield RelationshipFault(f"{detail}does not.", pointer=linkage.pointer)


def _has_itself(linkage: LinkageChange, draft: Draft) -> bool:
    change = draft.change
    return any(
        identifier.id == change.id if identifier.lid is None else identifier.lid == change.lid
        for identifier in linkage.identifiers
    )


_PARTICIPLES: dict[LinkMode, str] = {"add": "added", "replace": "replaced", "remove": "removed"}


def _closed_detail(relationship: Relationship, mode: LinkMode) -> str:
    """Return the detail for a write that the declaration of a relationship does not allow."""
    allowed = listed(name for name in ("read", "add", "replace", "remove") if name in relationship.methods)
    return f"Links of {quoted(relationship.name)} cannot be {_PARTICIPLES[mode]} here; allowed are: {allowed}."


def _unwritable(draft: Draft, resource: Resource, relationship: Relationship, pointer: str | None) -> ApiError | None:
    """Return the error if the principal may not write the relationship, or an other side of it, which the error
    does not name. Otherwise None."""
    names = draft.context.access.read_only_of(relationship.target)
    if names.isdisjoint(draft.catalog.other_sides(resource, relationship)):
        return draft.read_only(resource, relationship.name, pointer)
    return not_allowed(draft.context.principal, f"{quoted(relationship.name)} may not be written.", pointer=pointer)


def _keep(draft: Draft, own: ToOne, linkage: LinkageChange) -> None:
    """Plan a to-one that is only set on create, in a document that updates its resource."""
    for identifier in linkage.identifiers:
        _linked_id(draft, identifier, draft.catalog.target(own), linkage)
    text = linkage.identifiers[0].id if linkage.identifiers else None
    target = open_key_rows(own, draft.resource, draft.resource.table, draft.catalog, draft.context)
    draft.expect(draft.catalog.key_of(own), text, linkage.pointer, relationship=own, target=target)


def _link(draft: Draft, relationship: Relationship, linkage: LinkageChange) -> None:
    target, own = draft.catalog.target(relationship), own_key_of(relationship)
    has_key = own is None and link_of(relationship) is None
    if has_key:
        refused: ApiError | None = refused_action(target, "update", draft.context, linkage.pointer)
        refused = refused or refused_alias(target, relationship, draft, linkage.pointer)
        draft.errors += [] if refused is None else [refused]
    rows = open_written(target, draft.context, "update") if has_key else open_named(target, draft.context)
    ids: dict[Any, str] = {}
    for identifier in linkage.identifiers:
        id_value = _linked_id(draft, identifier, target, linkage)
        if id_value is not None:
            ids.setdefault(id_value, identifier.pointer)
    if own is not None:
        if not linkage.identifiers and not own.nullable:
            draft.errors.append(null_refused(own, linkage.pointer, on_create=draft.on_create))
        if not ids and (linkage.identifiers or not own.nullable):
            return  # It has its error already.
        slot = draft.slot(next(iter(ids), None), next(iter(ids.values()), linkage.pointer))
        # A key that refers to other columns than the id is looked up, so its row must be there. So must it be if no
        # foreign key checks this.
        is_checked = bool(rows.criteria or own.references or not own.is_enforced)
        facts = {"owner": locked_owner(draft, own), "target": rows if is_checked else None}
        draft.assignments += assigned_key(own, slot, draft.values[slot], draft.resource, draft.catalog, **facts)
    else:
        slot = draft.slot(list(ids), linkage.pointer)
        draft.item_pointers[slot] = tuple(ids.values())
        is_detachable = draft.catalog.is_detachable(relationship)
        visible = rows_with_alias(rows, TARGET) if rows.criteria else None
        checked = open_checked(target, draft.context, "update") if has_key else None
        emptied = draft.catalog.emptied_columns(target, relationship.foreign_columns)
        link = LinkWrite(
            draft.resource,
            relationship,
            rows,
            slot,
            linkage.mode,
            is_detachable,
            visible=visible,
            checked=checked,
            emptied=emptied,
            kept=kept_columns(target, relationship, draft) if has_key else (),
            **_of_links(relationship, draft),
        )
        draft.links.append(in_lock_order(link, draft.catalog))


def locked_owner(draft: Draft, own: ToOne) -> Rows | None:
    """Return the rows of the other side of a to-one, if a write there may remove the link."""
    is_locked = draft.catalog.is_written_from_owner(draft.resource, own)
    return open_named(draft.catalog.target(own), draft.context) if is_locked else None


def _linked_id(draft: Draft, identifier: Identifier, target: Resource, linkage: LinkageChange) -> Any:
    """Return the id of a resource identifier. Returns None if it has an error, or if the link is removed and cannot
    exist."""
    if identifier.type != target.type:
        detail = f"This relationship is to resources of type {quoted(target.type)}, not {quoted(identifier.type)}."
        pointer = draft.pointers.member_pointer(identifier.pointer, "type")
        draft.errors.append(LinkageTypeConflict(detail, pointer=pointer))
        return None
    if identifier.lid is not None:
        return draft.lid(target, identifier.lid)
    try:
        return target.id_type.read(identifier.id)
    except ValueFault:
        if linkage.mode != "remove":
            draft.errors.append(related_not_found(target.type, identifier.id, identifier.pointer))
        return None


def plan_owner(draft: Draft, owner: Owner) -> OwnerRow:
    """Link a new resource to the one of the path, by its own key or through a link table."""
    parent, relationship = draft.catalog.by_type[owner.type], owners_relationship(owner, draft.catalog)
    check_action(parent, "read", draft.context)
    if "add" not in relationship.methods:
        draft.errors.append(MethodForbidden(_closed_detail(relationship, "add")))
    elif (fault := _unwritable(draft, parent, relationship, None)) is not None:
        draft.errors.append(fault)
    slot = draft.slot(parent.id_type.read(owner.id), draft.change.pointer)
    holder = draft.catalog.holder(relationship)
    if holder not in draft.resource.relationships:
        # The principal may not read it, so the document cannot name it.
        holder = None
    if link_of(relationship) is not None:
        draft.links.append(_through(draft, relationship, owner))
    elif holder is None or holder.name not in draft.change.relationships:
        key = referring_key(relationship, relationship.foreign_columns, parent)
        target = open_named(parent, draft.context) if relationship.references else None
        draft.assignments += key_assignments(key, slot, target=target)
    elif any(is_value_of(assignment, holder) for assignment in draft.assignments):
        _check_owner(draft, draft.change.relationships[holder.name], owner)
    return _owner_row(draft, parent, slot, has_links=link_of(relationship) is not None)


def _owner_row(draft: Draft, parent: Resource, slot: int, *, has_links: bool) -> OwnerRow:
    """Return the row of the path. has_links: whether its links are rows of a link table. Such a link is made for
    this row as well as for the new one; a key is one of the new row."""
    if not has_links:
        return OwnerRow(open_named(parent, draft.context), slot)
    if (error := refused_action(parent, "update", draft.context)) is not None:
        draft.errors.append(error)
    checked = open_checked(parent, draft.context, "update")
    return OwnerRow(open_written(parent, draft.context, "update"), slot, checked)


def _through(draft: Draft, relationship: Relationship, owner: Owner) -> LinkWrite:
    """Return the link of a new resource to the one of the path, through a link table."""
    parent = draft.catalog.by_type[owner.type]
    slot = draft.slot([parent.id_type.read(owner.id)], draft.change.pointer)
    draft.item_pointers[slot] = (draft.change.pointer,)
    inverse = draft.catalog.inverse(relationship)
    rows, of_links = open_named(parent, draft.context), _of_links(inverse, draft)
    return LinkWrite(draft.resource, inverse, rows, slot, "add", is_detachable=True, **of_links)


def _of_links(relationship: Relationship, draft: Draft) -> dict[str, Any]:
    """Return what `LinkWrite` has of the rows of a link table. A column of its two keys has the value of the key."""
    link = link_of(relationship)
    if link is None:
        return {}
    keys = {*link.source_columns, *link.target_columns}
    assigned = [
        (assigned_field.attribute, Slot("context", assigned_field.index))
        for assigned_field in draft.context.access.of_links(link).assigned
        if assigned_field.attribute is not None and assigned_field.attribute.column_name not in keys
    ]
    return {"criteria": open_links(link, link.table, draft.context), "assigned": tuple(assigned)}


def _check_owner(draft: Draft, linkage: LinkageChange, owner: Owner) -> None:
    if [(sent.type, sent.id) for sent in linkage.identifiers] != [(owner.type, owner.id)]:
        detail = f"The path links it to the {owner.type} {quoted(owner.id)}, but the document to another one."
        draft.errors.append(OwnerConflict(detail, pointer=linkage.pointer))
