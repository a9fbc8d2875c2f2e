"""Reads moments as people type them: as pages show them, or only the day.

It must not know: fields of forms, parameters of URLs.
"""

from __future__ import annotations

import re

from querybuild.declarations.types import TIMESTAMP, TIMESTAMPTZ, ColumnType

MOMENTS = (TIMESTAMP, TIMESTAMPTZ)
"""The types of moments. A `timestamp` is in UTC."""

_TYPED = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)? ?(UTC|Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def typed_moment(column_type: ColumnType, text: str, *, is_utc: bool = False) -> str:
    """Return a typed moment as JSON has it. Any other text stays as it is, and the server says what it must be.
    is_utc: whether what names no zone, and a day, is in UTC.

    >>> typed_moment(TIMESTAMPTZ, "2026-01-31 10:00 UTC"), typed_moment(TIMESTAMPTZ, "2026-01-31", is_utc=True)
    ('2026-01-31T10:00:00Z', '2026-01-31T00:00:00Z')
    >>> typed_moment(TIMESTAMPTZ, "2026-01-31 10:00"), typed_moment(TIMESTAMP, "2026-01-31 10:00")
    ('2026-01-31 10:00', '2026-01-31T10:00:00Z')
    """
    match = _TYPED.fullmatch(text.strip()) if column_type in MOMENTS else None
    if match is None:
        return text
    day, time, seconds, zone = match.groups()
    if zone is None and not is_utc and (time is None or column_type is TIMESTAMPTZ):
        return text
    return f"{day}T{time or '00:00'}{seconds or ':00'}{'Z' if zone in (None, 'UTC') else zone}"
