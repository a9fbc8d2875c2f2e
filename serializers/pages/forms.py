"""Describes forms that write a resource, and makes documents of what a person typed. What comes in: declarations, rows,
and the fields of a sent form. What goes out: fields for a template, and a document as a program would send it.

A form has, for each field, what was typed and what was shown before. Only a field whose text differs is written, so a
form that is saved untouched changes nothing. Line breaks are compared as LF: browsers send CRLF.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.resource import Attribute, Resource, ToOne
from querybuild.declarations.types import ColumnType, is_structure
from querybuild.errors import ApiError
from serializers.errors import InvalidDocument
from serializers.pages.moments import MOMENTS, typed_moment
from serializers.pointers import attribute_pointer

VALUE, SHOWN, NULL, SHOWN_NULL = "a:", "s:", "n:", "z:"
LINKED, SHOWN_LINKED, SEARCH = "r:", "t:", "q:"
"""What precedes the name of a field in the names of a form: its typed text and the one that was shown; whether null was
chosen, and whether it was shown; of a to-one the id, the id that was shown, and the words to search for."""

VERSION, FIND = "version", "find"

LONG, LONG_LIMIT = 80, 512
"""Texts with more characters, and those that may have more than the second, have several lines."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ENCODER = msgspec.json.Encoder()

Sent = Mapping[str, str]
"""The fields of a form, by their names."""


class FormField(msgspec.Struct, kw_only=True):
    """A field of a form. kind: `text`, `long`, `choice`, `date`, `number` or `read-only`. text: typed or shown.
    is_null: whether null is chosen, if it is apart from an empty text (`has_null`). shown, was_null: what was shown
    before. errors: what is wrong with it. now: the text that it has meanwhile, if another one has changed it."""

    name: str
    kind: str
    label: str
    hint: str = ""
    text: str = ""
    shown: str = ""
    has_null: bool = False
    is_null: bool = False
    was_null: bool = False
    is_required: bool = False
    choices: tuple[str, ...] = ()
    errors: list[str] = []
    now: str | None = None


class SearchMatch(msgspec.Struct):
    """A resource that a search has found."""

    id: str
    label: str


class LinkField(msgspec.Struct, kw_only=True):
    """A to-one of a form. id, shown: typed, and shown before. title: of the resource with this id. words: that are
    searched for. matches: what was found, None before a search. list_url, by: where the script searches, and by which
    attribute."""

    name: str
    label: str
    hint: str = ""
    id: str = ""
    shown: str = ""
    title: str = ""
    words: str = ""
    matches: list[SearchMatch] | None = None
    is_required: bool = False
    is_editable: bool = True
    list_url: str = ""
    by: str = ""
    target: str = ""
    errors: list[str] = []
    now: str | None = None


def attribute_fields(resource: Resource, read_only: Iterable[str], *, on_create: bool) -> list[FormField]:
    """Return the fields for the attributes of a resource. read_only: those that the principal may not write."""
    fields = []
    for attribute in resource.attributes:
        is_editable = (
            attribute.is_writable(on_create=on_create)
            and attribute.name not in read_only
            and attribute.type.family != "bytea"
        )
        if is_editable or (attribute.readable and not on_create):
            fields.append(_field(attribute, is_editable=is_editable, on_create=on_create))
    return fields


def _field(attribute: Attribute, *, is_editable: bool, on_create: bool) -> FormField:
    has_default = on_create and not attribute.required and not attribute.nullable
    hints = _constraint(attribute), "Left empty, it gets its default." if has_default else ""
    return FormField(
        name=attribute.name,
        kind=_kind(attribute) if is_editable else "read-only",
        label=attribute.name,
        hint=" ".join(filter(None, (attribute.description, *hints))) if is_editable else attribute.description,
        has_null=is_editable and attribute.nullable and attribute.type.is_text and not attribute.type.choices,
        is_required=is_editable and on_create and attribute.required,
        choices=_choices(attribute, on_create=on_create) if is_editable else (),
        errors=[],
    )


def _kind(attribute: Attribute) -> str:
    if _choices(attribute, on_create=True):
        return "choice"
    if attribute.type.name == "date":
        return "date"
    if attribute.type.family == "number":
        return "number"
    is_long = attribute.type.is_text and (attribute.max_length is None or attribute.max_length > LONG_LIMIT)
    return "long" if is_long or is_structure(attribute.type) else "text"


def _choices(attribute: Attribute, *, on_create: bool) -> tuple[str, ...]:
    known = attribute.type.choices or (("true", "false") if attribute.type.family == "bool" else ())
    may_be_empty = attribute.nullable or (on_create and not attribute.required)
    return (*([""] if may_be_empty else []), *known) if known else ()


def _constraint(attribute: Attribute) -> str:
    parts = []
    if is_structure(attribute.type):
        parts.append("JSON.")
    if attribute.max_length is not None and attribute.type.is_text:
        parts.append(f"At most {attribute.max_length} characters.")
    if attribute.minimum is not None or attribute.maximum is not None:
        low = "" if attribute.minimum is None else f"at least {attribute.minimum}"
        high = "" if attribute.maximum is None else f"at most {attribute.maximum}"
        parts.append(f"{' and '.join(filter(None, (low, high))).capitalize()}.")
    if attribute.type in MOMENTS:
        parts.append("As 2026-01-31T12:30:00Z.")
    elif attribute.type.json.example:
        parts.append(f"As {attribute.type.json.example}.")
    return " ".join(parts)


def link_fields(resource: Resource, read_only: Iterable[str], *, on_create: bool) -> list[LinkField]:
    """Return the fields for the to-ones whose key is in the row of the resource."""
    return [
        LinkField(
            name=relationship.name,
            label=relationship.name,
            hint=relationship.description,
            is_required=on_create and relationship.is_required,
            is_editable=(on_create or (relationship.updatable and "replace" in relationship.methods))
            and relationship.name not in read_only,
            target=relationship.target,
            errors=[],
        )
        for relationship in resource.relationships
        if isinstance(relationship, ToOne) and relationship.is_own_key
    ]


def typed_text(value: Any) -> str:
    """Return a value as it stands in the field of a form. Null is an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = _ENCODER.encode(value).decode()
    if text.startswith(("{", "[")):
        return msgspec.json.format(text, indent=2) if len(text) > LONG else text
    is_text = text.startswith('"') and not isinstance(value, msgspec.Raw)
    return str(msgspec.json.decode(text)) if is_text else text


def with_text(field: FormField, value: Any) -> FormField:
    """Return a field with the value of a row."""
    text = typed_text(value)
    kind = field.kind
    if kind == "text" and ("\n" in text or len(text) > LONG):
        kind = "long"
    if kind == "date" and text and not _DATE.fullmatch(text):
        kind = "text"
    is_null = value is None and field.has_null
    return msgspec.structs.replace(field, kind=kind, text=text, shown=text, is_null=is_null, was_null=is_null)


def with_sent(field: FormField, sent: Sent) -> FormField:
    """Return a field as a form has sent it."""
    if field.kind == "read-only":
        return msgspec.structs.replace(field, text=sent.get(SHOWN + field.name, ""))
    text, shown = _lines(sent.get(VALUE + field.name, "")), _lines(sent.get(SHOWN + field.name, ""))
    # Who types a text means it, even if null stays chosen.
    is_null = NULL + field.name in sent and (not text or text == shown)
    was_null = SHOWN_NULL + field.name in sent
    filled = msgspec.structs.replace(field, text=text, shown=shown, is_null=is_null, was_null=was_null)
    if filled.kind == "text" and ("\n" in filled.text or len(filled.text) > LONG):
        filled.kind = "long"
    return filled


def link_with_sent(field: LinkField, sent: Sent) -> LinkField:
    """Return the field of a to-one as a form has sent it."""
    return msgspec.structs.replace(
        field,
        id=sent.get(LINKED + field.name, "").strip(),
        shown=sent.get(SHOWN_LINKED + field.name, ""),
        words=sent.get(SEARCH + field.name, ""),
    )


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def document_of(
    resource: Resource,
    fields: list[FormField],
    links: list[LinkField],
    row_id: str | None,
    errors: list[ApiError],
    *,
    on_create: bool,
) -> bytes:
    """Return the document that a program would send for a form. row_id: None if the server chooses the id. Appends
    InvalidDocument to errors."""
    attributes: dict[str, Any] = {}
    for field in fields:
        attribute = resource.attribute(field.name)
        if attribute is None or field.kind == "read-only" or not _is_changed(field, on_create=on_create):
            continue
        attributes[field.name] = None if _is_null(field, attribute) else _json_value(attribute, field.text, errors)
    relationships = {
        field.name: {"data": {"type": field.target, "id": field.id} if field.id else None}
        for field in links
        if field.is_editable and field.id != field.shown
    }
    data: dict[str, Any] = {"type": resource.type}
    if row_id is not None:
        data["id"] = row_id
    if attributes:
        data["attributes"] = attributes
    if relationships:
        data["relationships"] = relationships
    return _ENCODER.encode({"data": data})


def _is_changed(field: FormField, *, on_create: bool) -> bool:
    """A create sends what was typed, so that the others have their defaults."""
    if on_create:
        return bool(field.text) or field.is_null
    if field.is_null or field.was_null:
        return field.is_null != field.was_null
    return field.text != field.shown


def _is_null(field: FormField, attribute: Attribute) -> bool:
    return (
        field.is_null
        if field.has_null
        else not field.text and not (attribute.type.is_text and not attribute.type.choices)
    )


def _json_value(attribute: Attribute, text: str, errors: list[ApiError]) -> Any:
    """Return the JSON of a typed text. What is no value of the type stays a text, and the server says what it must
    be."""
    if is_structure(attribute.type):
        try:
            load_json(text, 100)
        except (JsonFault, RecursionError) as error:
            errors.append(
                InvalidDocument(f"It must be JSON: {error}.", pointer=attribute_pointer("/data", attribute.name))
            )
            return None
        return msgspec.Raw(text.encode())
    return scalar(attribute.type, typed_moment(attribute.type, text))


def scalar(column_type: ColumnType, text: str) -> Any:
    """Return the JSON value of a typed text, if the type has no structure. The digits of a number are kept as they
    are. What is no value of the type stays a text."""
    if column_type.family == "bool" and text in ("true", "false"):
        return text == "true"
    if column_type.family == "number" and _NUMBER.fullmatch(text.strip()):
        return msgspec.Raw(text.strip().encode())
    return text


def changed_meanwhile(fields: list[FormField], current: Mapping[str, Any]) -> Iterator[FormField]:
    """Yield the fields with what they are now, where that is not what was shown. current: the values of the row."""
    for field in fields:
        text = typed_text(current.get(field.name)) if field.name in current else field.shown
        is_same = text == field.shown
        yield field if is_same else msgspec.structs.replace(field, now=text)
