"""Chooses the label of a resource: the attribute that people know its rows by."""

from __future__ import annotations

from querybuild.declarations.resource import Attribute, Resource

LABELS = ("name", "title", "label", "display_name", "code")
"""The attributes that are the label of a resource that declares none: the first that is a readable text."""


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
