"""Says what a read shows in other forms than a document: the columns of lines, and what a page for people shows besides
what is asked for.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

import msgspec

from querybuild.declarations.resource import Attribute, Relationship, Resource
from querybuild.planning.reads.labels import label_of, summary_of
from querybuild.query import IncludeChoice, Limits, Query, ReadForm

FIRST_RELATED = 5
"""How many related resources of a to-many the page of a resource shows."""

WIDE, FIRST_FIELDS = 40, 20
"""A table with more fields than WIDE shows the first ones, if a request does not choose."""

Path = tuple[str, ...]
Fieldset = tuple[tuple[Attribute, ...], tuple[Relationship, ...]]


def line_columns(query: Query, resource: Resource) -> tuple[str, ...]:
    """Return the fields of each line of an answer with lines, as declared or as `fields` orders them. A to-many has no
    column."""
    if query.form != "rows":
        return ()
    known = [attribute.name for attribute in resource.readable_attributes]
    known += [relationship.name for relationship in resource.relationships if not relationship.is_to_many]
    sent = query.fields.get(resource.type)
    return tuple(known if sent is None else [name for name in dict.fromkeys(sent) if name in known])


def shown_linkage(query: Query, resource: Resource) -> tuple[str, ...]:
    """Return the relationships whose linkage is shown although they are not included: to-ones."""
    if query.form == "document":
        return ()
    return tuple([relationship.name for relationship in resource.relationships if not relationship.is_to_many])


def browsed(query: Query, resource: Resource, limits: Limits, *, is_single: bool) -> tuple[Query, frozenset[Path]]:
    """Return the query of a page for people with what it shows besides: the label of each to-one, and of a single
    resource the first rows of each to-many. Also returns the paths of which only labels are shown."""
    if query.form != "page":
        return query, frozenset()
    shown = _shown_relationships(query, resource)
    sent = {name for path in query.include or () for name in path}
    room = limits.max_includes - len({path[:end] for path in query.include or () for end in range(1, len(path) + 1)})
    added = [
        relationship
        for relationship in shown
        if relationship.includable and relationship.name not in sent and (is_single or not relationship.is_to_many)
    ]
    added = added[: max(0, room)]
    chosen = {choice.path for choice in query.choices}
    choices = [
        IncludeChoice(
            path=(relationship.name,),
            size=FIRST_RELATED,
            is_counted=True,
            has_total=True,
            parameters=(f"includePage[{relationship.name}][size]",),
        )
        for relationship in added
        if relationship.is_to_many and (relationship.name,) not in chosen
    ]
    paths = tuple([(relationship.name,) for relationship in added])
    include = (*(query.include or ()), *paths)
    browsed_query = msgspec.structs.replace(query, include=include, choices=(*query.choices, *choices))
    return browsed_query, frozenset(paths)


def _shown_relationships(query: Query, resource: Resource) -> list[Relationship]:
    sent = query.fields.get(resource.type)
    return [relationship for relationship in resource.relationships if sent is None or relationship.name in sent]


def first_fields(query: Query, resource: Resource, *, is_single: bool) -> Fieldset | None:
    """Return the fields of a page with a table that would be too wide. None for others."""
    if query.form != "page" or is_single or resource.type in query.fields:
        return None
    attributes = resource.readable_attributes
    to_ones = [relationship for relationship in resource.relationships if not relationship.is_to_many]
    if len(attributes) + len(to_ones) <= WIDE:
        return None
    others = tuple(to_ones[: max(0, FIRST_FIELDS - len(attributes))])
    return attributes[:FIRST_FIELDS], others


def carried(form: ReadForm, resource: Resource) -> tuple[Attribute, ...]:
    """Return the attributes that are read although they may not be shown: the label, or the summary without one."""
    if form != "page":
        return ()
    label = label_of(resource)
    return summary_of(resource) if label is None else (label,)
