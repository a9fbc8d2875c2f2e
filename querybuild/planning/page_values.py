"""Defines the values of the slots of a page."""

from __future__ import annotations

from typing import Any

import msgspec

Values = tuple[Any, ...]


class PageValues(msgspec.Struct, frozen=True):
    """The values for the slots of a page. cursor: the texts of a cursor, without those that are null."""

    limit: int | None = None
    offset: int = 0
    cursor: Values = ()


WHOLE = PageValues()
"""Those of a read without pages."""

_LAST_OFFSET = 2**63 - 1


def page_values(limit: int | None, offset: int, cursor: Values) -> PageValues:
    """Return the values of a page. A request may send an offset that PostgreSQL has no type for."""
    return PageValues(limit, min(offset, _LAST_OFFSET), cursor)
