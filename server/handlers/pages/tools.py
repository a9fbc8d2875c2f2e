"""Describes what a person can choose on the page of a list: fields, operators, columns and related rows.

It must not know: SQL, HTTP, rows.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from markupsafe import Markup

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.operators import operator_names
from querybuild.declarations.resource import Attribute, Resource
from serializers.pages.moments import MOMENTS
from serializers.pages.queries import SIGNS, ListQuery

MAX_FIELDS = 400
"""How many fields the builder of filters offers."""

MAX_FACETS = 12
"""How many fields of a list have their values offered."""

RESOURCES = 1024
"""For how many resources the options of filters are kept, as principals see them."""

_NUMBERS = ("eq", "ne", "lt", "le", "gt", "ge")
_FIRST = ("eq", "ne", "ilike", "startswith", "lt", "le", "gt", "ge", "contains", "is_", "isnot")
"""The operators that are offered first."""


class FilterField(msgspec.Struct, frozen=True):
    """A field that a filter may name. operators, choices: separated by blanks and line breaks. type: number, date or
    text."""

    name: str
    text: str
    operators: str
    choices: str = ""
    type: str = "text"


class FieldGroup(msgspec.Struct, frozen=True):
    """The fields of a resource, or of those that a relationship leads to."""

    name: str
    fields: list[FilterField]


class ColumnChoice(msgspec.Struct, frozen=True):
    """A column or a relationship that can be chosen."""

    name: str
    is_on: bool


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What a person can choose on the page of a list. go: the URL of the forms. at: the list with its parameters.
    fields, operators: the options of the builder of filters. csv, ndjson: the URLs of exports."""

    go: str
    at: str
    is_searchable: bool
    search: str
    fields: Markup
    operators: Markup
    columns: list[ColumnChoice]
    includes: list[ColumnChoice]
    csv: str
    ndjson: str


def tools_of(
    resource: Resource, catalog: Catalog, query: ListQuery, base_url: str, shown: frozenset[str], at: str
) -> Tools:
    """Return the tools of the list of a resource. shown: the fields that the table has."""
    fields, operators = filter_options(resource, catalog)
    included = (query.value("include") or "").split(",")
    columns = [attribute.name for attribute in resource.readable_attributes]
    columns += [relationship.name for relationship in resource.relationships if not relationship.is_to_many]
    return Tools(
        go=f"{base_url}/-/pages/go",
        at=at,
        is_searchable=any(attribute.searchable and attribute.is_filterable for attribute in resource.attributes),
        search=query.value("searchText") or "",
        fields=fields,
        operators=operators,
        columns=[ColumnChoice(name, name in shown) for name in columns],
        includes=[
            ColumnChoice(relationship.name, relationship.name in included)
            for relationship in resource.relationships
            if relationship.includable and relationship.is_to_many
        ],
        csv=query.as_form("csv"),
        ndjson=query.as_form("ndjson"),
    )


@lru_cache(RESOURCES)
def filter_options(resource: Resource, catalog: Catalog) -> tuple[Markup, Markup]:
    """Return the options for the fields that filters of a resource may name, and for their operators. They are the same
    on all pages of the list, and a third of the time of a page without being kept."""
    groups = filter_groups(resource, catalog)
    names = dict.fromkeys([name for group in groups for field in group.fields for name in field.operators.split()])
    fields = [
        Markup('<optgroup label="{}">{}</optgroup>').format(group.name, Markup("").join(map(_option, group.fields)))
        for group in groups
    ]
    operators = [
        Markup('<option value="{}">{}</option>').format(name, SIGNS.get(name, name.replace("_", " ").strip()))
        for name in names
    ]
    return Markup("\n").join(fields), Markup("\n").join(operators)


def _option(field: FilterField) -> Markup:
    option = Markup('<option value="{}" data-operators="{}" data-choices="{}" data-type="{}">{}</option>')
    return option.format(field.name, field.operators, field.choices, field.type, field.text)


def filter_groups(resource: Resource, catalog: Catalog) -> list[FieldGroup]:
    """Return the fields that filters of a resource may name: its own, then those behind one relationship."""
    own = [_field(catalog.id_of(resource), "id"), *_fields(resource, "")]
    counts = [
        FilterField(f"{relationship.name}.count", f"number of {relationship.name}", " ".join(_NUMBERS), type="number")
        for relationship in resource.relationships
        if relationship.is_to_many and relationship.filterable
    ]
    groups = [FieldGroup(resource.type, own + counts)]
    room = MAX_FIELDS - len(own)
    for relationship in resource.relationships:
        if relationship.filterable:
            fields = _fields(catalog.target(relationship), f"{relationship.name}.")
            room -= len(fields)
            if fields and room >= 0:
                groups.append(FieldGroup(relationship.name, fields))
    return groups


def _fields(resource: Resource, prefix: str) -> list[FilterField]:
    return [_field(attribute, prefix + attribute.name) for attribute in resource.attributes if attribute.is_filterable]


def _field(attribute: Attribute, name: str) -> FilterField:
    known = operator_names(attribute)
    ordered = [operator for operator in _FIRST if operator in known] + [
        operator for operator in known if operator not in _FIRST
    ]
    choices = attribute.type.choices or (("true", "false") if attribute.type.family == "bool" else ())
    kind = attribute.type.family if attribute.type.family in ("number", "date") else "text"
    kind = "moment" if attribute.type in MOMENTS else kind
    return FilterField(name, name, " ".join(ordered), "\n".join(choices), kind)


def facets_of(resource: Resource) -> list[Attribute]:
    """Return the attributes of which the page of a list offers the values."""
    return [
        attribute
        for attribute in resource.attributes
        if attribute.is_filterable
        and attribute.is_sortable
        and (attribute.facet or attribute.type.choices or attribute.type.family == "bool")
        and attribute.type.element is None
    ][:MAX_FACETS]
