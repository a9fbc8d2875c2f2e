"""Gives the parameters of statements their values."""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.declarations.values import ValueFault
from querybuild.errors import resource_not_found
from querybuild.planning.context import Context
from querybuild.planning.page_values import WHOLE, PageValues, Values
from querybuild.planning.row_plan import Slot
from querybuild.sql.statement import Statement
from server.preparing.reads import PreparedRead


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """The values that a request has for the slots of its statements. The fields are named after the sources of `Slot`.
    request: those of the filter or the body. page: limit, offset and cursor."""

    request: Values = ()
    context: Values = ()
    path: Any = None
    page: PageValues = WHOLE
    argument: Values = ()
    returned: Any = None

    def value_of(self, slot: Slot) -> Any:
        """Return the value of a slot that is known before the statement runs."""
        return self._groups()[slot.position[0]][slot.position[1]]

    def of(self, statement: Statement, *, keys: Any = None, row: Any = None, max_rows: Any = None) -> list[Any]:
        """Return the values of $1, $2, ... keys, row, max_rows: the values for the slots of these sources, which are
        only known when the statement runs."""
        groups = self._groups(keys, row, max_rows)
        return [groups[group][index] for group, index in statement.positions]

    def _groups(self, keys: Any = None, row: Any = None, max_rows: Any = None) -> tuple[Values, ...]:
        """Return the values in the order of `Slot.position`."""
        page = self.page
        single = (self.path, page.limit, page.offset, self.returned, keys, row, max_rows)
        return self.request, self.context, page.cursor, self.argument, single


def arguments_of(read: PreparedRead, context: Context, path: Any = None, argument: Values = ()) -> Arguments:
    """Return the values of a read. path: the id in the path. argument: the values of a called function."""
    planned = read.planned
    return Arguments(planned.values, context.values, path, planned.page_values, argument)


_PLANNED_IDS = 10
"""The length that PostgreSQL assumes of an array when it plans for any values."""


def repeated(ids: list[Any]) -> list[Any]:
    """Return the ids, repeated until they are as many as PostgreSQL assumes: `"id"=ANY($1)` means the same. For fewer,
    a plan for these very values looks cheaper than the kept one, so PostgreSQL would plan each time again."""
    return ids if not ids or len(ids) >= _PLANNED_IDS else ids * -(-_PLANNED_IDS // len(ids))


def read_id(resource: Resource, id_text: str) -> Any:
    """Return an id, converted to the type of its column. Raises ResourceNotFound if it is not a valid id."""
    try:
        return resource.id_type.read(id_text)
    except ValueFault:
        raise resource_not_found(resource.type, id_text) from None
