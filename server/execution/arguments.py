"""Gives the parameters of statements their values."""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.planning.plan import Slot, Values
from querybuild.sql.statement import Statement


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """The values that a request has for the slots of its statements. request: those of the query or the body. context:
    those of `Context`. path: the id that the path names."""

    request: Values = ()
    context: Values = ()
    path: Any = None

    def value_of(self, slot: Slot) -> Any:
        """Return the value of a slot from the request, the context or the path."""
        if slot.source == "request":
            return self.request[slot.index]
        return self.context[slot.index] if slot.source == "context" else self.path

    def of(self, statement: Statement, *, keys: Any = None, row: Any = None, max_rows: Any = None) -> list[Any]:
        """Return the values of $1, $2, ... keys, row, max_rows: the values for the slots of these sources, which are
        only known when the statement runs."""
        if statement.request_indexes is not None:
            return [self.request[index] for index in statement.request_indexes]
        # Local names, because this runs for each parameter of each statement.
        request, context = self.request, self.context
        others = {"path": self.path, "keys": keys, "row": row, "max_rows": max_rows}
        return [
            request[slot.index]
            if slot.source == "request"
            else context[slot.index]
            if slot.source == "context"
            else others[slot.source]
            for slot in statement.slots
        ]


_PLANNED_IDS = 10
"""The length that PostgreSQL assumes of an array when it plans for any values."""


def repeated(ids: list[Any]) -> list[Any]:
    """Return the ids, repeated until they are as many as PostgreSQL assumes: `"id"=ANY($1)` means the same. For fewer,
    a plan for these very values looks cheaper than the kept one, so PostgreSQL would plan each time again."""
    return ids if not ids or len(ids) >= _PLANNED_IDS else ids * -(-_PLANNED_IDS // len(ids))
