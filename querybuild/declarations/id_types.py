"""Defines the types of ids. An id has one text, because it is part of URLs: other spellings of a value that PostgreSQL
takes as equal are no ids.

The value of an id is what asyncpg takes for the column. Of types whose values have several spellings (`id_text`), it is
this one text everywhere in Python, and SQL converts it (`querybuild/sql/keys.py`).

It must not know: resources, requests.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
from pypika.terms import Term

from querybuild.declarations import json_texts
from querybuild.declarations.database_types.texts import CITEXT
from querybuild.declarations.terms import Template, cast_from_text
from querybuild.declarations.types import (
    BIGINT,
    CHAR,
    DATE,
    INT,
    NUMERIC,
    SMALLINT,
    TEXT,
    UUID,
    ColumnType,
    as_text,
)
from querybuild.declarations.values import JsonSchema, ValueFault


class IdType(msgspec.Struct, frozen=True, eq=False):
    """The type of an id column. column_type: that of the id as an attribute. read: converts the canonical text of an
    id, and raises ValueFault for every other text. schema: the JSON Schema of these texts. id_text: selects the
    canonical text of a column, if the value of an id is this text."""

    column_type: ColumnType
    read: Callable[[str], Any]
    schema: JsonSchema
    id_text: Callable[[Term], Term] | None = None


_CANONICAL_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_CANONICAL_NUMERIC = r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?|NaN|-?Infinity"


def _integer_id(column_type: ColumnType) -> IdType:
    def read(text: str) -> int:
        if not _CANONICAL_INTEGER.fullmatch(text):
            raise ValueFault("a whole number without plus sign, blanks or leading zeros")
        number: int = column_type.from_json(int(text))
        return number

    digits = len(str(column_type.schema["maximum"]))
    return IdType(column_type, read, {"type": "string", "pattern": f"^(0|-?[1-9][0-9]{{0,{digits - 1}}})$"})


def _text(text: str) -> str:
    try:
        json_texts.check_text(text)
    except json_texts.JsonFault as error:
        raise ValueFault(f"a text that PostgreSQL can hold ({error})") from error
    return text


def _uuid_id(text: str) -> uuid.UUID:
    number: uuid.UUID = UUID.from_json(text)
    if str(number) != text:
        raise ValueFault("a UUID in lower case")
    return number


def _char(text: str) -> str:
    if text.endswith(" "):
        raise ValueFault("a text without blanks at its end")
    return _text(text)


def _citext(text: str) -> str:
    # PostgreSQL decides what the lower case of other letters is.
    if any("A" <= letter <= "Z" for letter in text):
        raise ValueFault("a text in lower case")
    return _text(text)


PARTS: dict[ColumnType, Callable[[str], str]] = {TEXT: _text, CHAR: _char, CITEXT: _citext}
"""Reads the part of an id with several parts. Unlike an id of one text, it may be empty, `.` or `..`: with its comma it
is no such segment of a path."""


def _text_id(column_type: ColumnType) -> Callable[[str], str]:
    part = PARTS[column_type]

    def read(text: str) -> str:
        # Clients remove the segments `.` and `..` from paths, encoded or not (RFC 3986, 5.2.4).
        if text in ("", ".", ".."):
            raise ValueFault("a text, not empty and neither `.` nor `..`")
        return part(text)

    return read


def _numeric_id(text: str) -> str:
    if not re.fullmatch(_CANONICAL_NUMERIC, text) or text == "-0":
        raise ValueFault("a number without exponent, plus sign, blanks and needless zeros")
    NUMERIC.from_json(text)
    return text


def _date_id(text: str) -> str:
    DATE.from_json(text)
    return text


def _lower(column: Term) -> Term:
    # The extension compares in the lower case of the database's collation, whatever that of the column is.
    return Template('lower(CAST({} AS TEXT) COLLATE "default")', column)


def _trimmed(column: Term) -> Term:
    return Template("CAST(trim_scale({}) AS TEXT)", column)


def _iso(column: Term) -> Term:
    # A cast depends on the setting DateStyle.
    # In parentheses: as an operator it would not bind closer than the || between the parts of an id.
    return Template("(to_json({})#>>'{{}}')", column)


def _spelled(
    column_type: ColumnType, read: Callable[[str], str], id_text: Callable[[Term], Term], schema: JsonSchema
) -> IdType:
    """Return the type of ids whose value is their text."""
    own = msgspec.structs.replace(column_type, bound=cast_from_text(cast_name(column_type)))
    own = msgspec.structs.replace(own, sql_type=cast_name(column_type))
    return IdType(own, read, schema, id_text)


def cast_name(column_type: ColumnType) -> str:
    """Return the name of the type in a cast."""
    return column_type.sql_type or column_type.sql_names[0]


SEQUENCE_TYPES = (BIGINT, INT, SMALLINT)
"""The types of the numbers that a sequence returns."""

_TEXT_SCHEMA: JsonSchema = TEXT.schema | {"minLength": 1}
ID_TYPES: dict[ColumnType, IdType] = {
    **{one: _integer_id(one) for one in SEQUENCE_TYPES},
    TEXT: IdType(TEXT, _text_id(TEXT), _TEXT_SCHEMA),
    UUID: IdType(UUID, _uuid_id, UUID.schema),
    CHAR: _spelled(CHAR, _text_id(CHAR), as_text, _TEXT_SCHEMA | {"pattern": "[^ ]$"}),
    CITEXT: _spelled(CITEXT, _text_id(CITEXT), _lower, _TEXT_SCHEMA | {"pattern": "^[^A-Z]+$"}),
    NUMERIC: _spelled(NUMERIC, _numeric_id, _trimmed, {"type": "string", "pattern": f"^({_CANONICAL_NUMERIC})$"}),
    DATE: _spelled(DATE, _date_id, _iso, DATE.schema),
}
"""Enums and ids of several columns are added when they are declared."""


def add_enum(column_type: ColumnType) -> None:
    """Make an enum a type of ids."""
    if column_type not in ID_TYPES:
        ID_TYPES[column_type] = _spelled(column_type, column_type.from_json, as_text, column_type.schema)


def text_of(value: Any, id_type: IdType) -> Any:
    """Return the value of an id, from the JSON number that a filter may have instead of its text."""
    native = id_type.column_type.from_json(value)
    if id_type.id_text is None or not isinstance(native, Decimal):
        return native
    digits = format(native, "f")
    whole = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return id_type.read("0" if whole in ("-0", "") else whole)
