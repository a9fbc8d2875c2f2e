"""Writes rows of values as lines of CSV. What comes in: values as msgspec encodes them. What goes out: bytes.

Null is an empty field, and an empty text is `""`, as in COPY of PostgreSQL. The rows are encoded as JSON by one call,
because its texts have quotes as those of CSV have, and only some of them have other escapes. So most rows need no look
at their values.

Sources: RFC 4180; PostgreSQL "COPY", "CSV Format"; OWASP "CSV Injection".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
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

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|null')
_ESCAPE = re.compile(rb"\\(?:u00([0-9a-f]{2})|(.))")
_ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b'"': b'""', b"\\": b"\\"}


def encode_lines(rows: Sequence[tuple[Any, ...]], texts: Collection[int] = ()) -> bytes:
    """Return a line for each row. The values are texts, numbers, booleans, dates and null: `as_texts` makes texts of
    all others. texts: the columns, without the first one, whose texts get a `'` if a program may take them for a
    formula.

    >>> encode_lines([(1, "a", None), (2, "", True), (3, "=1", False)], [1])
    b'1,"a",\\r\\n2,"",true\\r\\n3,"\\'=1",false\\r\\n'
    """
    if not rows:
        return b""
    encoded = _ENCODER.encode_lines(rows)
    if texts and _MAY_BEGIN_FORMULA(encoded):
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        for index in texts:
            columns[index] = without_formulas(columns[index])
        rows = list(zip(*columns, strict=True))
        encoded = _ENCODER.encode_lines(rows)
    # Line breaks within texts are escaped, so these are the ends of rows.
    found = encoded[1:-2].replace(b"]\n[", _END) + _END
    nulls, escapes = found.count(b"null"), found.count(b"\\")
    if nulls and nulls != sum([row.count(None) for row in rows]):
        return _TOKEN.sub(_csv_token, found)
    if escapes:
        if escapes != found.count(b'\\"'):
            return _TOKEN.sub(_csv_token, found)
        found = found.replace(b'\\"', b'""')
    return found.replace(b"null", b"") if nulls else found


def _csv_token(found: re.Match[bytes]) -> bytes:
    """Return a text or null of JSON as CSV has it."""
    token = found[0]
    if token == b"null":
        return b""
    return _ESCAPE.sub(_unescaped, token) if b"\\" in token else token


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes((int(found[1], 16),)) if found[1] else _ESCAPED[found[2]]


def as_texts(values: Sequence[Any]) -> list[str | None]:
    """Return arrays, objects, bytes and raw JSON as the texts that JSON has for them. Null and texts stay."""
    return [value if value is None or isinstance(value, str) else _text(value) for value in values]


def _text(value: Any) -> str:
    text = _ENCODER.encode(value).decode()
    is_text = text.startswith('"') and not isinstance(value, msgspec.Raw)
    return str(msgspec.json.decode(text)) if is_text else text


def without_formulas(values: Sequence[Any]) -> list[Any]:
    """Return texts with a `'` before each that a program would take for a formula, and before each that has such a mark
    already."""
    return [f"'{value}" if value is not None and begins_formula(value) else value for value in values]
