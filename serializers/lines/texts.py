"""Writes rows of values as lines of CSV. What comes in: values as msgspec encodes them. What goes out: bytes.

Null is an empty field, and an empty text is `""`, as in COPY of PostgreSQL. The rows are encoded as JSON by one call,
because its texts have quotes as those of CSV have, and only some of them have other escapes. So most rows need no look
at their values.

Sources: RFC 4180; PostgreSQL "COPY", "CSV Format"; OWASP "CSV Injection".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

import msgspec

FORMULA = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"
"""The characters with which a program for spreadsheets begins a formula, and their full-width forms."""

NEVER_FORMULAS = frozenset({"number", "date", "time", "interval", "bool", "uuid"})
"""The families of types whose values are no texts."""

begins_formula = re.compile(f"'*[{re.escape(FORMULA)}]").match
# The first byte of a text that may be one: JSON escapes a tab, and the full-width forms begin with EF.
_MAY_BEGIN_FORMULA = re.compile(rb",\"[=+\-@'\\\xef]").search

_ENCODER = msgspec.json.Encoder()
_END = b"\r\n"
# The encoder writes nothing for it.
_NULL = msgspec.Raw(b"")
# The kinds of values whose JSON is no text.
_STRUCTURES = frozenset({list, tuple, dict, msgspec.Raw, type(None)})

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(rb"\\(?:u00([0-9a-f]{2})|(.))")
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b'"': b'""', b"\\": b"\\"}


def encode_lines(columns: Sequence[Sequence[Any]], texts: Collection[int] = ()) -> bytes:
    """Return a line for each row. The values are texts, numbers, booleans, dates and null: `as_texts` makes texts of
    all others. texts: the columns, without the first one, whose texts get a `'` if a program may take them for a
    formula.

    >>> encode_lines([(1, 2, 3), ("a", "", "=1"), (None, True, False)], [1])
    b'1,"a",\\r\\n2,"",true\\r\\n3,"\\'=1",false\\r\\n'
    """
    if not columns[0]:
        return b""
    encoded = _encoded(columns)
    if texts and _MAY_BEGIN_FORMULA(encoded):
        encoded = _encoded(
            [without_formulas(column) if index in texts else column for index, column in enumerate(columns)]
        )
    # Line breaks within texts are escaped, so these are the ends of rows.
    lines = _END.join(encoded[1:-2].split(b"]\n[")) + _END
    escapes = lines.count(b"\\")
    if not escapes:
        return lines
    return lines.replace(b'\\"', b'""') if escapes == lines.count(b'\\"') else _TEXT.sub(_csv_text, lines)


def _encoded(columns: Sequence[Sequence[Any]]) -> bytes:
    """Return each row as a JSON array, with nothing in the place of null, and a line break after it."""
    filled = [
        [_NULL if value is None else value for value in column] if None in column else column for column in columns
    ]
    return _ENCODER.encode_lines(list(zip(*filled, strict=True)))


def _csv_text(match: re.Match[bytes]) -> bytes:
    """Return a text of JSON as CSV has it."""
    return _ESCAPE.sub(_unescaped, match[0]) if b"\\" in match[0] else match[0]


def _unescaped(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 16),)) if match[1] else _ESCAPED[match[2]]


def as_texts(values: Sequence[Any]) -> Sequence[str | None]:
    """Return arrays, objects, bytes and raw JSON as the texts that JSON has for them. Null and texts stay."""
    kinds = set(map(type, values))
    if kinds <= _STRUCTURES:
        texts = _ENCODER.encode_lines(values).decode().split("\n")[:-1]
        # A value of a `json` column may have line breaks.
        if len(texts) == len(values):
            if type(None) not in kinds:
                return texts
            return [None if value is None else text for value, text in zip(values, texts, strict=True)]
    return [value if value is None or isinstance(value, str) else _text(value) for value in values]


def _text(value: Any) -> str | None:
    text = _ENCODER.encode(value).decode()
    if isinstance(value, msgspec.Raw):
        return text
    # JSON has null for NaN and infinities.
    return None if text == "null" else str(msgspec.json.decode(text)) if text.startswith('"') else text


def without_infinities(values: Sequence[float | None]) -> list[float | None]:
    """Return numbers with null for each that JSON does not have."""
    return [None if value is None or not isfinite(value) else value for value in values]


def without_formulas(values: Sequence[Any]) -> list[Any]:
    """Return texts with a `'` before each that a program would take for a formula, and before each that has such a mark
    already."""
    return [f"'{value}" if value is not None and begins_formula(value) else value for value in values]
