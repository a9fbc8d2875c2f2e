"""Finds the faults of attributes, without the tables.

It must not know: requests, statements, documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from querybuild.declarations.database_types.distances import OF_VECTORS
from querybuild.declarations.database_types.json_paths import has_inner_type, inner_type_names, path_fault
from querybuild.declarations.database_types.texts import TSVECTOR, VECTOR
from querybuild.declarations.faults.relationship_faults import FILLED_AND_REQUIRED
from querybuild.declarations.hooks import accepts_arguments, is_async
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import JSONB, is_bound_of
from querybuild.errors import listed, nearest, quoted

_CONFIGURATION = re.compile(r"[a-z_][a-z0-9_$]*([.][a-z_][a-z0-9_$]*)?")
"""The name of a text search configuration, with or without its schema."""


def attribute_faults(attribute: Attribute, resource: Resource) -> Iterator[str]:
    """Yield the faults of an attribute of a resource."""
    if attribute.required and attribute.filled:
        yield FILLED_AND_REQUIRED
    if attribute.required and not attribute.is_writable(on_create=True):
        yield "it is required on create but cannot be written then"
    if (attribute.min_length, attribute.max_length) != (None, None) and not (
        attribute.type.is_text or attribute.type.element is not None
    ):
        yield f"lengths are for texts and arrays, not {attribute.type.name}"
    shortest, longest = attribute.min_length, attribute.max_length
    if any(length is not None and length < 0 for length in (shortest, longest)):
        yield "a length is not negative"
    elif shortest is not None and longest is not None and shortest > longest:
        yield f"min_length {shortest} is above max_length {longest}: no value fits"
    if attribute.pattern is not None and not attribute.type.is_text:
        yield f"patterns are for texts, not {attribute.type.name}"
    bounds = (attribute.minimum, attribute.maximum)
    wrong = [bound for bound in bounds if bound is not None and not is_bound_of(bound, attribute.type)]
    yield from (f"{bound!r} is not a minimum or maximum of {attribute.type.name}" for bound in wrong)
    if not wrong and None not in bounds and bounds[0] > bounds[1]:
        yield f"minimum {bounds[0]} is above maximum {bounds[1]}: no value fits"
    yield from _shape_faults(attribute)
    if attribute.pattern is not None:
        try:
            re.compile(attribute.pattern)
        except re.error as error:
            yield f"the pattern is not a valid regular expression: {error}"
    yield from repeated_names("operator", (operator.name for operator in attribute.operators))
    if any(operator.name in ("any", "has", "count") for operator in attribute.operators):
        yield "`any`, `has` and `count` are operators of relationships"
    yield from _path_faults(attribute)
    yield from _search_faults(attribute)
    if attribute.distance and attribute.type is not VECTOR:
        yield f"`distance` is for vectors, not {attribute.type.name}"
    if attribute.distance not in ("", *OF_VECTORS):
        yield f"`distance` must be one of {', '.join(OF_VECTORS)}, not {attribute.distance!r}"
    yield from _computed_faults(attribute, resource)


def _search_faults(attribute: Attribute) -> Iterator[str]:
    if not attribute.searchable:
        return
    is_text = attribute.type.is_text and not attribute.type.choices
    if not (is_text or attribute.type is TSVECTOR):
        yield f"`searchable` is for texts and tsvector, not {attribute.type.name}"
    if not attribute.is_stored:
        yield "`searchable` is for attributes that have a column"
    if not _CONFIGURATION.fullmatch(attribute.searchable):
        yield f"`searchable` is the name of a text search configuration, such as english, not {attribute.searchable!r}"


def _path_faults(attribute: Attribute) -> Iterator[str]:
    if attribute.paths and attribute.type is not JSONB:
        yield f"`paths` are for jsonb, not {attribute.type.name}"
    for json_path in attribute.paths:
        if why := path_fault(json_path.path):
            yield f"the path {quoted(json_path.path)} {why}"
        if not has_inner_type(json_path.type):
            known = listed(inner_type_names())
            yield f"the path {quoted(json_path.path)} cannot be {json_path.type.name}. There are: {known}"
    yield from repeated_names("path", (json_path.path for json_path in attribute.paths))


def _shape_faults(attribute: Attribute) -> Iterator[str]:
    if attribute.shape is None:
        return
    try:
        msgspec.convert(None, attribute.shape)
    except msgspec.ValidationError:
        pass
    except Exception as error:  # an invalid type can raise anything
        yield f"`shape` must be a type such as dict[str, list[int]], not {attribute.shape!r} ({error})"


def _computed_faults(attribute: Attribute, resource: Resource) -> Iterator[str]:
    if attribute.sql is not None and attribute.compute is not None:
        yield "`sql` and `compute` exclude each other"
    if attribute.sql is not None and (is_async(attribute.sql) or not accepts_arguments(attribute.sql, 1)):
        yield "`sql` must be a function of the row's columns, and not async"
    if attribute.compute is not None and (is_async(attribute.compute) or not accepts_arguments(attribute.compute, 1)):
        yield "`compute` must be a function of a list of tuples, and not async"
    if attribute.of and attribute.compute is None:
        yield "`of` is only used with `compute`"
    for name in attribute.of:
        source = resource.attribute(name)
        if source is None:
            known = [known.name for known in resource.attributes]
            yield f"it depends on {quoted(name)}, which is not declared.{nearest(name, known)}"
        elif source.compute is not None:
            yield f"it depends on {quoted(name)}, which is computed in Python, too"


def repeated_names(what: str, names: Iterable[str]) -> Iterator[str]:
    """Yield a fault for each name that occurs again."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"the {what} {quoted(name)} is declared twice"
        seen.add(name)
