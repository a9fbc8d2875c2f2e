"""Defines how the values of a column type are ids. An id has one text, because it is part of URLs: other spellings of a
value that PostgreSQL takes as equal are no ids.

The value of an id is what asyncpg takes for the column. Of types whose values have several spellings (`id_text`), it is
this one text everywhere in Python, and SQL converts it (`querybuild/sql/keys.py`).

It must not know: column types (`types.py`), resources, requests.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from pypika.terms import Term

from querybuild.declarations import json_texts, values
from querybuild.declarations.terms import Template, as_text
from querybuild.declarations.values import JsonSchema, ReadAll, ValueFault


class IdType(msgspec.Struct, frozen=True, eq=False):
    """How the values of a column type are ids.

    read: converts the canonical text of an id, and raises ValueFault for every other text.
    schema: the JSON Schema of these texts. pattern: that of the texts of values, in a filter and as a part of an id. It
        is more exact than the schema, because it is not in each document.
    id_text: selects the canonical text of a column, if the value of an id is this text. to_column: converts such a text
        to the type of the column, if a cast does not.
    read_part: reads the part of an id with several parts, if that may be more texts. Unlike an id of one text, it may
        be empty, `.` or `..`: with its comma it is no such segment of a path.
    text_of: returns the canonical text of a value of an attribute.
    is_number: whether the values are whole numbers, which a sequence may return.
    read_all: converts many texts at once. It returns None if they have to be converted one by one.
    """

    read: Callable[[str], Any]
    schema: JsonSchema
    id_text: Callable[[Term], Term] | None = None
    read_part: Callable[[str], Any] | None = None
    text_of: Callable[[Any], str] = str
    is_number: bool = False
    read_all: ReadAll | None = None
    to_column: Callable[[Term], Term] | None = None
    pattern: str = r"([^\\,\u0000]|\\[\\,])*"


def _no_id(text: str) -> Any:
    raise ValueFault("of a type that ids can have")


NO_IDS = IdType(_no_id, {})
"""For column types that an id cannot have."""

_CANONICAL_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_CANONICAL_NUMERIC = r"0|-?(0\.[0-9]*[1-9]|[1-9][0-9]*(\.[0-9]*[1-9])?)|NaN|-?Infinity"


def integer_ids(reader: values.Integer) -> IdType:
    """Return the ids that are whole numbers."""

    def read(text: str) -> int:
        if not _CANONICAL_INTEGER.fullmatch(text):
            raise ValueFault("a whole number without plus sign, blanks or leading zeros")
        return reader(int(text))

    def read_all(sent: Sequence[Any]) -> Sequence[int] | None:
        # A filter may have JSON numbers.
        if (numbers := reader.read_all(sent)) is not None:
            return numbers
        if set(map(type, sent)) != {str}:
            return None
        try:
            numbers = list(map(int, sent))
        except ValueError:
            return None
        return reader.read_all(numbers) if list(map(str, numbers)) == list(sent) else None

    digits = len(str(reader.high))
    pattern = f"^(0|-?[1-9][0-9]{{0,{digits - 1}}})$"
    exact = f"(0|-?({_up_to(str(reader.high))})|{reader.low})"
    return IdType(read, {"type": "string", "pattern": pattern}, is_number=True, pattern=exact, read_all=read_all)


def _up_to(high: str) -> str:
    """Return the pattern of the numbers from 1 to this one.

    >>> _up_to("327")
    '[1-9][0-9]{0,1}|[1-2][0-9]{2}|3[0-1][0-9]{1}|32[0-6]|327'
    """
    alternatives = [f"[1-9][0-9]{{0,{len(high) - 2}}}"]
    for place, digit in enumerate(high):
        first, last = int(place == 0), int(digit) - 1
        if first <= last:
            others = len(high) - place - 1
            alternatives.append(f"{high[:place]}[{first}-{last}]" + (f"[0-9]{{{others}}}" if others else ""))
    return "|".join([*alternatives, high])


def _text(text: str) -> str:
    try:
        json_texts.check_text(text)
    except json_texts.JsonFault as error:
        raise ValueFault(f"a text that PostgreSQL can hold ({error})") from error
    return text


def _uuid_id(text: str) -> uuid.UUID:
    number = values.uuid_of(text)
    if str(number) != text:
        raise ValueFault("a UUID in lower case")
    return number


def _char(text: str) -> str:
    if text.endswith(" "):
        raise ValueFault("a text without blanks at its end")
    return _text(text)


def _citext(text: str) -> str:
    # PostgreSQL would find the row of another spelling, whose id is not this text.
    if text != text.lower():
        raise ValueFault("a text in lower case")
    return _text(text)


def _not_empty(part: Callable[[str], str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        # Clients remove the segments `.` and `..` from paths, encoded or not (RFC 3986, 5.2.4).
        if text in ("", ".", ".."):
            raise ValueFault("a text, not empty and neither `.` nor `..`")
        return part(text)

    return read


def _numeric_id(text: str) -> str:
    if not re.fullmatch(_CANONICAL_NUMERIC, text):
        raise ValueFault("a number without exponent, plus sign, blanks and needless zeros")
    values.numeric_of(text)
    return text


def _hex(text: str) -> str:
    if not re.fullmatch("(?:[0-9a-f]{2})*", text):
        raise ValueFault("bytes in lower-case hexadecimal digits, two a byte")
    return text


def _hex_of(column: Term) -> Term:
    return Template("encode({},'hex')", column)


def _bytes_of(text: Term) -> Term:
    return Template("decode({},'hex')", text)


def _hex_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


# A row of another writer may have an infinite date, or the first or last date that Python has, as its id: 9999-12-31 is
# often the end of a period. No attribute shows these (`values.FIRST_DATE`), but an id is only a text.
_INFINITE = ("infinity", "-infinity")


def _date_id(text: str) -> str:
    if text not in _INFINITE and values.any_date_of(text) is None:
        raise ValueFault("a date such as 2024-05-31, `infinity` or `-infinity`")
    return text


def _moment_id(text: str) -> str:
    moment = values.any_moment_of(text)
    if text not in _INFINITE and (moment is None or moment.isoformat().replace("+00:00", "Z") != text):
        raise ValueFault("a date and time in UTC such as 2024-05-31T23:59:59Z, with six digits of a fraction or none")
    return text


def _blanks_removed(value: Any) -> str:
    return str(value).rstrip(" ")


def _in_lower_case(value: Any) -> str:
    return str(value).lower()


def _numeric_text(value: Any) -> str:
    """Return a number in digits, without zeros at the end of a fraction."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return str(value)
    digits = format(value, "f")
    whole = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if whole in ("-0", "") else whole


def _moment_text(value: Any) -> str:
    return value.isoformat().replace("+00:00", "") + "Z" if isinstance(value, datetime) else str(value)


def _lower(column: Term) -> Term:
    # The extension compares in the lower case of the database's collation, whatever that of the column is.
    return Template('lower(CAST({} AS TEXT) COLLATE "default")', column)


def _trimmed(column: Term) -> Term:
    return Template("CAST(trim_scale({}) AS TEXT)", column)


def _iso(column: Term) -> Term:
    # A cast depends on the setting DateStyle.
    # In parentheses: as an operator it would not bind closer than the || between the parts of an id.
    return Template("(to_json({})#>>'{{}}')", column)


def _utc(column: Term) -> Term:
    return _moment(Template("({} AT TIME ZONE 'UTC')", column))


def _moment(column: Term) -> Term:
    """Return the text that an attribute shows, or that of an infinite value. A value before the year 1 or after the
    year 9999 gets a text that is no valid id."""
    second, whole = 'YYYY-MM-DD"T"HH24:MI:SS', Template("date_trunc('second',{})", column)
    is_shown = Template("{} BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'", column)
    form = Template(f"CASE WHEN {{}}={{}} THEN '{second}\"Z\"' ELSE '{second}.US\"Z\"' END", whole, column)
    return Template("(CASE WHEN {} THEN to_char({},{}) ELSE {} END)", is_shown, column, form, _iso(column))


_TEXT: JsonSchema = {"type": "string", "minLength": 1}
TEXT_IDS = IdType(_not_empty(_text), _TEXT, read_part=_text)
CHAR_IDS = IdType(_not_empty(_char), _TEXT | {"pattern": "[^ ]$"}, as_text, _char, _blanks_removed)
CITEXT_IDS = IdType(_not_empty(_citext), _TEXT | {"pattern": "^[^A-Z]+$"}, _lower, _citext, _in_lower_case)
BYTEA_IDS = IdType(
    _not_empty(_hex),
    {"type": "string", "pattern": "^([0-9a-f]{2})+$"},
    _hex_of,
    _hex,
    _hex_text,
    to_column=_bytes_of,
    pattern="([0-9a-f]{2})*",
)
UUID_IDS = IdType(_uuid_id, {"type": "string", "format": "uuid"}, pattern="[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NUMERIC_IDS = IdType(
    _numeric_id,
    {"type": "string", "pattern": f"^({_CANONICAL_NUMERIC})$"},
    _trimmed,
    text_of=_numeric_text,
    pattern=f"({_CANONICAL_NUMERIC})",
)
DATE_IDS = IdType(_date_id, {"type": "string", "anyOf": [{"format": "date"}, {"enum": [*_INFINITE]}]}, _iso)
_MOMENT: JsonSchema = {"type": "string", "anyOf": [{"format": "date-time"}, {"enum": [*_INFINITE]}]}
TIMESTAMP_IDS = IdType(_moment_id, _MOMENT, _moment, text_of=_moment_text)
"""A timestamp without time zone is one in UTC."""
TIMESTAMPTZ_IDS = IdType(_moment_id, _MOMENT, _utc, text_of=_moment_text)


def enum_ids(read: Callable[[str], str], schema: JsonSchema) -> IdType:
    """Return the ids that are labels of an enum."""
    labels = [re.sub(r"([\\,])", r"\\\1", label) for label in schema["enum"]]
    # Not re.escape: what it does to a blank is no pattern of ECMA-262.
    labels = [re.sub(r"([\\^$.|?*+()\[\]{}/])", r"\\\1", label) for label in labels]
    return IdType(read, schema, as_text, pattern=f"({'|'.join(labels)})")
