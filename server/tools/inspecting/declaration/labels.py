"""Chooses the attribute that people know the rows of a table by, where no name says it by itself.

What comes in: a resource without a label, and its table. It must not know: other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from querybuild.declarations.resource import Attribute, Resource
from querybuild.errors import nearest, quoted
from querybuild.planning.reads.labels import label_of
from server.tools.inspecting.catalog.model import InspectedTable
from server.tools.inspecting.declaration.names_taken import Names

_FULL_NAMES = ("full_name", "fullname", "username", "user_name", "login", "email", "email_address")
_LAST_NAMES = ("last_name", "lastname", "surname", "family_name")
_PART_OF_NAME = re.compile(r"(first|last|middle|given|family|maiden|sur|nick|fore)_?name|.*_(first|last|middle)_?name")
_OTHERS = ("subject", "headline", "caption", "summary", "slug", "key", "reference", "number")
_NO_LABEL = re.compile(r"(^|_)(password|passwd|passphrase|pwd|secret|token|hash|salt|digest)(_|$)|_(key|url|uri|path)$")
"""Secrets, and texts that nobody reads."""


def declared_label(resource: Resource, table: InspectedTable, names: Names) -> str:
    """Return the label that the hints name, or else the chosen one. A hint that names no text becomes a remark."""
    hint = names.hints.label
    texts = {attribute.name for attribute in resource.attributes if attribute.type.is_text}
    if hint in texts:
        return hint
    if hint:
        names.remarks.append(
            f"{table.full_name}: the hint about the label: {quoted(hint)} is no text of it.{nearest(hint, texts)}"
        )
    return _chosen_label(resource, table)


def _chosen_label(resource: Resource, table: InspectedTable) -> str:
    """Return the name of the label. Empty if the resource has one without a declaration, or if no text identifies a
    row."""
    texts = [attribute for attribute in resource.attributes if _may_be_label(attribute)]
    names = {attribute.name for attribute in texts}
    label = label_of(resource)
    is_person = not names.isdisjoint(_LAST_NAMES)
    # The title of a person is a job, or a form of address.
    if label is not None and not (is_person and label.name == "title"):
        return ""
    return next((name for name in _candidates(resource.type, texts, table) if name in names), "")


def _may_be_label(attribute: Attribute) -> bool:
    is_text = attribute.readable and attribute.type.is_text and not attribute.type.choices
    return is_text and _NO_LABEL.search(attribute.name) is None


def _candidates(type_name: str, texts: Sequence[Attribute], table: InspectedTable) -> Iterator[str]:
    """Yield names, the best first."""
    yield from (type_name, f"{type_name}_name", f"{type_name}_title", f"{type_name}_code", f"{type_name}_number")
    yield from _FULL_NAMES
    for attribute in texts:
        if attribute.name.endswith("name") and _PART_OF_NAME.fullmatch(attribute.name) is None:
            yield attribute.name
    yield from _LAST_NAMES
    for attribute in texts:
        if (attribute.column_name,) in table.unique:
            yield attribute.name
    yield from _OTHERS
