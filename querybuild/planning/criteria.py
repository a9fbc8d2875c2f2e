"""Plans criteria: filters whose values may come from the principal. What comes in: filter nodes. What goes out:
conditions, and for each of their values where it comes from.

Their values have slots of the source `context`, so all principals share the statements. For a principal that lacks some
of the values, the comparisons with these are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from querybuild.declarations.access import Claim, Now, PrincipalValue, Subject
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.json_texts import JsonFault, check_text, dump_json, load_json
from querybuild.declarations.operators import JSONB_CONTAINS, PATTERN_OPERATORS, Arity
from querybuild.declarations.resource import Attribute, Relationship, Resource
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, shortened
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.context import Context
from querybuild.planning.filter_values import ReadValue
from querybuild.planning.row_plan import (
    ColumnRef,
    Condition,
    CustomTest,
    Exists,
    Logic,
    Rows,
    Slot,
    Test,
    conditions_within,
)
from querybuild.planning.rowsets import ANY_ROW
from querybuild.principal import Principal, claim_of
from querybuild.query import FieldFilter, FilterNode, Limits

_NEVER_TEXT = frozenset({"number", "numeric", "bool"})
"""The families of types whose JSON values are no strings."""


class PrincipalRead(msgspec.Struct, frozen=True, eq=False):
    """Values that come from the principal. slot: that of the first one. val: as a filter has it, with the values of the
    principal still open. read: converts it. is_date: whether the time of the request is a date. needs_content: whether
    a claim that is an empty object or list counts as missing, because every value contains it."""

    slot: int
    val: Any
    read: ReadValue
    is_date: bool = False
    needs_content: bool = False

    @property
    def has_now(self) -> bool:
        """Whether the values depend on the time of the request."""
        return _contains(self.val, Now)

    def values(self, principal: Principal, now: datetime) -> list[Any]:
        """Return the values for the slots. Raises ValueFault if one is missing or does not fit."""
        now_text = now.date().isoformat() if self.is_date else _instant(now)
        return self.read(_filled(self.val, principal, now_text, needs_content=self.needs_content))


def _instant(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _contains(val: Any, kinds: Any) -> bool:
    match val:
        case list():
            return any(_contains(item, kinds) for item in val)
        case dict():
            return any(_contains(item, kinds) for item in val.values())
        case _:
            return isinstance(val, kinds)


def _filled(val: Any, principal: Principal, now: str, *, needs_content: bool) -> Any:
    """Return the val with the values of the principal. Raises ValueFault."""
    match val:
        case Now():
            return now
        case Subject():
            return _json_value(principal.subject or None)
        case Claim(path=path):
            claim = claim_of(principal.claims, path)
            return _json_value(None if needs_content and claim in ({}, []) else claim)
        case list():
            return [_filled(item, principal, now, needs_content=needs_content) for item in val]
        case dict():
            return {name: _filled(item, principal, now, needs_content=needs_content) for name, item in val.items()}
        case _:
            return val


def _json_value(value: Any) -> Any:
    """Return the value of a claim as the filter of a request would have it. Raises ValueFault."""
    if value is None:
        raise ValueFault("a value that the principal has")
    try:
        if type(value) is str:
            check_text(value)
            return value
        return load_json(dump_json(value))
    except (JsonFault, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise ValueFault(f"a JSON value ({type(error).__name__})") from error


class CriteriaPlanner(ConditionPlanner):
    """Plans the criteria of contexts. They may use all attributes that have a column and all relationships, and see all
    rows.

    The aliases are "criterion 0", "criterion 1", ..., because criteria are also used in statements that write, where
    tables have no alias. No table has such a name. reads: the values that come from the principal.
    """

    alias_prefix = "criterion "
    source = "context"

    def __init__(self, catalog: Catalog, limits: Limits, errors: list[ApiError]) -> None:
        super().__init__(catalog, Context(), limits, errors)
        self.reads: list[PrincipalRead] = []

    def criteria(self, nodes: tuple[FilterNode, ...], resource: Resource) -> tuple[Condition, ...]:
        """Plan the criteria of a resource. Their steps are counted from zero: those of other resources are in other
        places of a statement."""
        self.step_count = 0
        return self.plan(nodes, resource, ANY_ROW)

    def may_compare(self, attribute: Attribute) -> bool:
        return attribute.compute is None

    def may_follow(self, relationship: Relationship) -> bool:
        return True

    def slots(self, node: FieldFilter, read: ReadValue, attribute: Attribute, arity: Arity) -> tuple[Slot, ...]:
        if not comes_from_principal(node.val):
            return super().slots(node, read, attribute, arity)
        if node.op in PATTERN_OPERATORS:
            raise ValueFault("a constant, because only PostgreSQL knows which patterns are valid")
        slot = principal_read(len(self.values), node.val, read, attribute, arity)
        self.reads.append(msgspec.structs.replace(slot, needs_content=node.op == JSONB_CONTAINS.name))
        return tuple([Slot("context", self.slot(None)) for _ in range(2 if arity == "pair" else 1)])

    def shown(self, val: Any) -> str:
        return shortened(repr(val)) if comes_from_principal(val) else super().shown(val)


def comes_from_principal(val: Any) -> bool:
    """Return whether the val of a filter has values of the principal."""
    return _contains(val, PrincipalValue)


def principal_read(slot: int, val: Any, read: ReadValue, attribute: Attribute, arity: Arity) -> PrincipalRead:
    """Return the values that come from the principal, after all checks that need no principal: of constants beside
    them, and of their types. Raises ValueFault."""
    column_type = attribute.type.element or attribute.type
    if column_type.family == "opaque" or column_type.is_checked_by_database:
        raise ValueFault("a constant, because only PostgreSQL knows what fits this type")
    if _contains(val, Now) and column_type.family != "date":
        raise ValueFault("a value of its type, and NOW is one of date, timestamp and timestamptz")
    if _contains(val, Subject) and column_type.family in _NEVER_TEXT:
        try:
            read({"one": "1", "list": ["1"], "pair": ["1", "1"]}[arity])
        except ValueFault as error:
            raise ValueFault(f"{error}, and a subject is a text") from error
    if isinstance(val, list):
        for item in val:
            if not comes_from_principal(item):
                read([item, item] if arity == "pair" else [item])
        if arity == "pair" and len(val) != 2:
            read(val)
    elif isinstance(val, Subject | Now) and arity != "one" and attribute.type.element is None:
        raise ValueFault("a list")
    return PrincipalRead(slot, val, read, column_type.name == "date")


NEVER = Logic("or", ())
"""What no row meets."""

_ALWAYS = Logic("and", ())


def without_missing(conditions: tuple[Condition, ...], missing: AbstractSet[int]) -> tuple[Condition, ...]:
    """Return the conditions without the comparisons whose values are missing: a comparison with a missing value is not
    met, and below `not` it is not met either, as with null in SQL. If no row can meet the conditions, `NEVER` is one of
    them. missing: the indexes of the values in the context."""
    if not missing:
        return conditions
    known = [_known(condition, missing, is_negated=False) for condition in conditions]
    return tuple([condition for condition in known if condition != _ALWAYS])


def _known(condition: Condition, missing: AbstractSet[int], *, is_negated: bool) -> Condition:
    """is_negated: whether the condition is below an odd number of `not`."""
    is_missing = partial(_is_missing, missing=missing)
    match condition:
        case Test(slots=slots) if any(map(is_missing, slots)):
            return _ALWAYS if is_negated else NEVER
        case CustomTest(slot=slot) if is_missing(slot):
            return _ALWAYS if is_negated else NEVER
        case Test(left=ColumnRef(rows=Rows(conditions=counted))) if any(map(is_missing, _slots(counted))):
            # A number of rows that nobody knows which they are: it may be compared in either direction.
            return _ALWAYS if is_negated else NEVER
        case Logic(op="not", items=items):
            inner = _joined("and", [_known(item, missing, is_negated=not is_negated) for item in items])
            if inner in (NEVER, _ALWAYS):
                return _ALWAYS if inner == NEVER else NEVER
            return Logic("not", (inner,))
        case Logic(op=op, items=items):
            return _joined(op, [_known(item, missing, is_negated=is_negated) for item in items])
        case Exists(rows=rows):
            inside = _joined("and", [_known(part, missing, is_negated=is_negated) for part in rows.conditions])
            if inside == NEVER:
                return NEVER
            kept = () if inside == _ALWAYS else (inside,)
            return msgspec.structs.replace(condition, rows=msgspec.structs.replace(rows, conditions=kept))
        case _:
            return condition


def _slots(conditions: Iterable[Condition]) -> Iterator[Slot]:
    """Yield the slots of conditions at any depth."""
    for condition in conditions_within(conditions):
        if isinstance(condition, Test):
            yield from condition.slots
        elif isinstance(condition, CustomTest):
            yield condition.slot


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
