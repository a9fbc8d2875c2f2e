"""Finds the fields that a write would change although nobody has sent them: they share columns with linkage that was
sent. A relationship with the very same columns gets the same key, and is checked as if it had been sent. Any other
field must stay as it is: a link to the role of another tenant must not move a row to this tenant.

It must not know: documents, SQL text.
"""

from __future__ import annotations

from collections.abc import Iterator

from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, own_key_of, referenced_key
from querybuild.errors import ApiError, MethodForbidden, not_allowed, quoted
from querybuild.places import Place
from querybuild.planning.rowsets import hides, open_named
from querybuild.planning.writes.draft import Draft
from querybuild.planning.writes.linkage import owners_relationship
from querybuild.planning.writes.write_plan import Assignment, Implied, Kept


def plan_implied(draft: Draft) -> None:
    """Plan what the assignments of a draft mean for the fields that were not sent. Appends to its errors."""
    assigned = {assignment.column: assignment for assignment in draft.assignments}
    if not draft.on_create:
        draft.kept += _kept(draft)
    for own in _unsent(draft):
        assignments = [own_assignment for name in own.own_columns if (own_assignment := assigned.get(name)) is not None]
        if len(assignments) == len(own.own_columns) and (draft.on_create or _is_whole(assignments, own)):
            _check_as_sent(draft, own, assignments)


def _unsent(draft: Draft) -> Iterator[ToOne]:
    """Yield the to-one relationships, also those that the principal may not read, that neither the document nor the
    path nor a rule sets."""
    change, catalog = draft.change, draft.catalog
    holder = None if change.owner is None else catalog.holder(owners_relationship(change.owner, catalog))
    for relationship in catalog.declared(draft.resource).relationships:
        own = own_key_of(relationship)
        is_sent = relationship.name in change.relationships or relationship.name in draft.set_by_rules
        if own is not None and own is not holder and not is_sent:
            yield own


def _is_whole(assignments: list[Assignment], own: ToOne) -> bool:
    """Return whether one value is the whole key."""
    [*slots] = {assignment.slot for assignment in assignments}
    key = assignments[0].key
    return len(slots) == 1 and (
        own.own_columns == (assignments[0].column,) if key is None else key.columns == own.own_columns
    )


def _check_as_sent(draft: Draft, own: ToOne, assignments: list[Assignment]) -> None:
    """Check the key of a relationship that gets its columns from other fields."""
    resource, target = draft.resource, draft.catalog.target(own)
    pointer = draft.pointer_of(draft.places[assignments[0].slot])
    if _is_read_only(resource, own, draft):
        detail = "What it changes besides may not be written."
        draft.errors.append(not_allowed(draft.context.principal, detail, pointer=pointer))
        return
    rows = open_named(target, draft.context)
    # An attribute that is no linkage may have any value that its column takes.
    is_linkage = any(assignment.key is not None for assignment in assignments)
    if not rows.criteria and not (is_linkage and (own.references or not own.is_enforced)):
        return
    draft.implied.append(Implied(tuple(assignments), rows, referenced_key(own, target).columns))


def _is_read_only(resource: Resource, own: ToOne, draft: Draft) -> bool:
    """Return whether the principal may not write a relationship, or an other side of it."""
    read_only, catalog = draft.context.access.read_only, draft.catalog
    if own.name in read_only.get(resource.type, ()):
        return True
    return not frozenset(read_only.get(own.target, ())).isdisjoint(catalog.other_sides(resource, own))


def _name(own: Relationship, resource: Resource) -> str:
    """Return the name of a relationship, if the principal may read it. resource: as the principal sees it."""
    return quoted(own.name) if own in resource.relationships else "another relationship"


def _kept(draft: Draft) -> Iterator[Kept]:
    """Yield the columns that an update must not change, because other fields have them too."""
    agreeing = [assignment for pair in draft.agreements for assignment in pair]
    for assignment in draft.assignments:
        sent = [assignment, *[other for other in agreeing if other.column == assignment.column]]
        key = next((each.key for each in sent if each.key is not None), None)
        names = _relationships_with(draft, assignment.column, key)
        # One column with an attribute and a relationship is one field with two names.
        if key is not None and key.is_composite:
            names += _attributes_with(draft, assignment.column, {draft.places[each.slot] for each in sent})
        if key is not None and draft.resource.id.key.columns == (assignment.column,):
            names.append("the id")
        if names:
            yield Kept(assignment, tuple(names))


def _relationships_with(draft: Draft, column: str, key: Key | None) -> list[str]:
    """Return the names of the relationships that have the column too, and were not sent. key: of the linkage that sets
    it. An attribute that sets it may change a key with more columns, unless this would pass by the rights of the
    key."""
    resource, names = draft.resource, list[str]()
    for own in _unsent(draft):
        if column not in own.own_columns or (key is not None and key.columns == own.own_columns):
            continue
        is_guarded = hides(draft.catalog.target(own), draft.context) or _is_read_only(resource, own, draft)
        if key is not None or (is_guarded and len(own.own_columns) > 1):
            names.append(_name(own, resource))
    return names


def _attributes_with(draft: Draft, column: str, sent: set[Place]) -> list[str]:
    """Return the names of the attributes that have the column too. sent: the places of the values that set it."""
    names = []
    known = {place.name for place in sent if isinstance(place, Attribute)}
    for attribute in draft.catalog.declared(draft.resource).attributes:
        if attribute.is_stored and attribute.column_name == column and attribute.name not in known:
            seen = draft.resource.attribute(attribute.name)
            names.append(quoted(attribute.name) if seen is not None and seen.readable else "an attribute")
    return names


def kept_columns(target: Resource, relationship: Relationship, draft: Draft) -> tuple[str, ...]:
    """Return the columns of a key in related rows that a link must not change, because other fields of these rows have
    them too."""
    declared, columns = draft.catalog.declared(target), relationship.foreign_columns
    others = [own.own_columns for own in map(own_key_of, declared.relationships) if own is not None]
    shared = {name for names in others if names != columns for name in names} | set(target.id.key.columns)
    if len(columns) > 1:
        shared |= {attribute.column_name for attribute in declared.attributes if attribute.is_stored}
    return tuple([name for name in columns if name in shared])


def refused_alias(target: Resource, relationship: Relationship, draft: Draft, pointer: str | None) -> ApiError | None:
    """Return the error if a write of keys in related rows would also set a relationship there that the principal may
    not write, or that leads to rows that may be hidden. Otherwise None."""
    catalog, context, holder = draft.catalog, draft.context, draft.catalog.holder(relationship)
    for own in map(own_key_of, catalog.declared(target).relationships):
        if own is None or own is holder or own.own_columns != relationship.foreign_columns:
            continue
        if _is_read_only(target, own, draft):
            return not_allowed(context.principal, "What it changes besides may not be written.", pointer=pointer)
        if hides(catalog.target(own), context):
            detail = f"It sets another relationship of {quoted(target.type)} too: write it there."
            return MethodForbidden(detail, pointer=pointer)
    return None
