"""Chooses the label of a resource: the attribute that people know its rows by. Without one, it chooses those that tell
its rows apart."""

from __future__ import annotations

import re

from querybuild.declarations.resource import Attribute, Resource

LABELS = ("name", "title", "label", "display_name", "code")
"""The attributes that are the label of a resource that declares none: the first that is a readable text."""

SUMMARY_SIZE = 2
_OF_NO_ROW = re.compile(r"(^|_)(updated?|modified|changed|version)(_|$)")
"""Names of attributes that say nothing about a row."""


def label_of(resource: Resource) -> Attribute | None:
    """Return the label of a resource, as the principal sees it. None: its rows are known by their ids."""
    names = (resource.label,) if resource.label else LABELS
    candidates = (resource.attribute(name) for name in names)
    return next(
        (
            attribute
            for attribute in candidates
            if attribute is not None and attribute.readable and attribute.type.is_text
        ),
        None,
    )


def summary_of(resource: Resource) -> tuple[Attribute, ...]:
    """Return the first attributes of a resource without a label that say something short: numbers, days, moments, and
    one of several texts."""
    return tuple([attribute for attribute in resource.attributes if _is_short(attribute)][:SUMMARY_SIZE])


def _is_short(attribute: Attribute) -> bool:
    is_short = attribute.type.family in ("number", "date") or bool(attribute.type.choices)
    is_known = attribute.readable and attribute.is_stored and attribute.type.element is None
    return is_short and is_known and _OF_NO_ROW.search(attribute.name) is None
