"""Plans the page of a list: its limit, and where it begins.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from itertools import count

import msgspec

from querybuild.cursors import decode_cursor
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, PageError, quoted
from querybuild.planning.page_values import PageValues, Values, page_values
from querybuild.planning.reads.sorts import has_cursor
from querybuild.planning.row_plan import LIMIT, OFFSET, KeysetPosition, OrderKey, Rows, Slot
from querybuild.query import Limits, Page


class PagePlanner:
    """Plans one page. cursor_parent: the parent of the list that the cursor was created for. None without a cursor."""

    def __init__(self, page: Page, limits: Limits, errors: list[ApiError]) -> None:
        self.page = page
        self.cursor_parent: str | None = None
        self._cursor_values: Values = ()
        self._limits = limits
        self._errors = errors

    @property
    def rows_read(self) -> int:
        """The LIMIT of a page with a size. Without an exact total, and with cursors, one row more is read. It shows
        whether there is a next page."""
        return self.page.size + (self.page.total != "exact" or self.page.family == "cursor")

    @property
    def values(self) -> PageValues:
        """The values for its slots."""
        return page_values(self._limit, self.page.offset, self._cursor_values)

    @property
    def _limit(self) -> int | None:
        """How many rows are read, or None for all. One row more than are allowed without pages is an error."""
        if self.page.size:
            return self.rows_read
        return self._limits.unpaginated + 1 if isinstance(self._limits.unpaginated, int) else None

    def placed(self, rows: Rows, order: tuple[OrderKey, ...], mark: str) -> Rows:
        """Return the rows of the page, in this order. mark: that of the list, for its cursors."""
        page = self.page
        if page.is_before:
            order = tuple([msgspec.structs.replace(key, is_backwards=True) for key in order])
        limit = None if self._limit is None else LIMIT
        offset = OFFSET if page.size and page.offset else None
        keyset = self._keyset(order, mark)
        return msgspec.structs.replace(rows, order=order, keyset=keyset, limit=limit, offset=offset)

    def _keyset(self, keys: tuple[OrderKey, ...], mark: str) -> KeysetPosition | None:
        """Return the position of the cursor, or None without a valid cursor."""
        page = self.page
        for key in keys if page.family == "cursor" else ():
            if not has_cursor(key):
                detail = (
                    f"A list that is sorted by {quoted(key.column.attribute.name)} has no cursors: use page[number]."
                )
                self._errors.append(PageError(detail, parameter=page.cursor_parameter))
        if not page.cursor:
            return None
        try:
            cursor = decode_cursor(page.cursor)
            cursor.check(mark, len(keys))
        except ValueFault as error:
            self._errors.append(
                PageError(f"Expected {error}, not {quoted(page.cursor)}.", parameter=page.cursor_parameter)
            )
            return None
        self.cursor_parent, self._cursor_values = cursor.parent, cursor.known
        indexes = count()
        slots = tuple([None if value is None else Slot("cursor", next(indexes)) for value in cursor.values])
        return KeysetPosition(keys, slots, cursor.is_cut if any(cursor.is_cut) else ())
