"""Plans rules for a principal that lacks some of their values: a claim is missing, null, or does not fit the column.

A comparison with a missing value is not met, and below `not` it is not met either, as with null in SQL. Other branches
of an `or` stay as they are. It must not know: principals, claims.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import partial

import msgspec

from querybuild.planning.plan import Condition, CustomTest, Exists, Logic, Slot, Test

NEVER = Logic("or", ())
"""What no row meets."""

_ALWAYS = Logic("and", ())


def without_missing(conditions: tuple[Condition, ...], missing: AbstractSet[int]) -> tuple[Condition, ...]:
    """Return the conditions without the comparisons whose values are missing. If no row can meet them, `NEVER` is one
    of them. missing: the indexes of the values in the context."""
    if not missing:
        return conditions
    known = [_known(condition, missing, is_negated=False) for condition in conditions]
    return tuple([one for one in known if one != _ALWAYS])


def _known(condition: Condition, missing: AbstractSet[int], *, is_negated: bool) -> Condition:
    """is_negated: whether the condition is below an odd number of `not`."""
    is_missing = partial(_is_missing, missing=missing)
    match condition:
        case Test(slots=slots) if any(map(is_missing, slots)):
            return _ALWAYS if is_negated else NEVER
        case CustomTest(slot=slot) if is_missing(slot):
            return _ALWAYS if is_negated else NEVER
        case Logic(op="not", items=items):
            inner = _joined("and", [_known(item, missing, is_negated=not is_negated) for item in items])
            return Logic("not", (inner,)) if inner not in (NEVER, _ALWAYS) else _ALWAYS if inner == NEVER else NEVER
        case Logic(op=op, items=items):
            return _joined(op, [_known(item, missing, is_negated=is_negated) for item in items])
        case Exists(rows=rows):
            inside = _joined("and", [_known(one, missing, is_negated=is_negated) for one in rows.conditions])
            if inside == NEVER:
                return NEVER
            kept = () if inside == _ALWAYS else (inside,)
            return msgspec.structs.replace(condition, rows=msgspec.structs.replace(rows, conditions=kept))
        case _:
            return condition


def _is_missing(slot: Slot, missing: AbstractSet[int]) -> bool:
    return slot.source == "context" and slot.index in missing


def _joined(op: str, items: list[Condition]) -> Condition:
    """Return the items combined with AND or OR, without those that change nothing."""
    neutral, decisive = (_ALWAYS, NEVER) if op == "and" else (NEVER, _ALWAYS)
    if decisive in items:
        return decisive
    kept = tuple([item for item in items if item != neutral])
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else Logic("and" if op == "and" else "or", kept)
