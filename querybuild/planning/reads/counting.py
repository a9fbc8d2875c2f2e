"""Decides whether the exact total of a list can be counted by keys (docs/adr/0021-counted-by-keys.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from querybuild.declarations.function import Returned
from querybuild.declarations.resource import Resource
from querybuild.planning.row_plan import (
    AmongFirst,
    ColumnRef,
    Condition,
    CustomTest,
    Exists,
    IdIs,
    InScope,
    Logic,
    RelatedScope,
    Rows,
    Test,
)
from querybuild.shortcuts import Knows


class Reference(msgspec.Struct, frozen=True):
    """Columns with a foreign key: one of them is null, or they are the id of a row of the target."""

    resource: Resource
    columns: tuple[str, ...]
    target: Resource


COUNTED = Knows(
    Rows, used=("resource", "alias", "conditions", "criteria"), ignored=("joins", "order", "limit", "offset", "keyset")
)
"""What a count of keys knows of the primary rows. A total does not depend on the page."""

KEYS = Knows(Rows, used=("resource", "alias", "parent", "pair", "criteria", "conditions"))
"""What it knows of the rows with the keys."""

References = frozenset[Reference]
NO_REFERENCES: References = frozenset()


def counted_by(rows: Rows, references: References) -> Exists | None:
    """Return the rows whose keys are counted instead of the primary rows, or None.

    The number of users who have a computer is the number of different owners of computers, because a foreign key
    guarantees that an owner is a user. So PostgreSQL does not read the users. This is not possible if a condition on
    the computers also refers to the user.
    """
    match rows.conditions:
        case (Exists(rows=Rows(pair=(near, far)) as owned) as exists,) if (
            near == rows.resource.id.key
            and not rows.criteria
            and Reference(owned.resource, far.columns, rows.resource) in references
            and owned.parent not in _aliases(owned.conditions)
            and COUNTED.takes(rows)
            and KEYS.takes(owned)
        ):
            return exists
        case _:
            return None


def _aliases(conditions: tuple[Condition, ...]) -> Iterator[str]:
    """Return the aliases of the rows that the conditions refer to."""
    for condition in conditions:
        match condition:
            case Test(left=left, right=right):
                yield from (_row_of(left), _row_of(left if right is None else right))
            case CustomTest(left=left):
                yield left.alias
            case Logic(items=items):
                yield from _aliases(items)
            case Exists(rows=rows):
                yield rows.parent
                yield from _aliases(rows.conditions)
            case AmongFirst(alias=alias) | IdIs(alias=alias) | Returned(alias=alias):
                yield alias
            case InScope(scope=RelatedScope(rows=Rows(parent=alias))):
                yield alias
            case InScope():
                pass
            case _:
                assert_never(condition)


def _row_of(column: ColumnRef) -> str:
    return column.alias if column.rows is None else column.rows.parent
