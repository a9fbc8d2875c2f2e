"""Reads the rules of all resources once, and makes the context of each principal from them.

Principals with the same rights share one `Access`, so plans do not depend on who asks. Only the values of a context
differ. It must not know: tokens, requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.access import (
    ACTIONS,
    Action,
    Allow,
    Audience,
    Claim,
    Declared,
    Now,
    Subject,
    audience_name,
    has_principal,
)
from querybuild.declarations.attributes import NO_CHECKS, Checks, read_attribute
from querybuild.declarations.catalog import Catalog, CatalogError
from querybuild.declarations.resource import Attribute, Resource, own_key_of
from querybuild.declarations.values import JsonFault, ValueFault, check_text
from querybuild.errors import ApiError, quoted
from querybuild.filters import FilterReader
from querybuild.planning.context import Access, AssignedField, Context
from querybuild.planning.criteria import CriteriaPlanner, PrincipalRead, comes_from_principal, principal_read
from querybuild.planning.plan import Condition, Logic
from querybuild.principal import Principal
from querybuild.query import Limits

NOTHING: tuple[Condition, ...] = (Logic("or", ()),)
"""Criteria that no row meets."""

MAX_ACCESSES = 1000
"""How many combinations of rights are kept. There is one for each set of roles, scopes and missing claims that
principals have."""

LIMITS = Limits(
    page_size=1,
    max_page_size=1,
    unpaginated="off",
    total="none",
    max_include_depth=0,
    max_includes=0,
    max_included=0,
    max_filter_depth=20,
    max_filter_nodes=1000,
    max_list_values=10_000,
    max_json_depth=64,
    max_json_values=100_000,
)
"""The limits for the filters of rules. Those of the settings are for requests."""


class RuleFilter(msgspec.Struct, frozen=True, eq=False):
    """The filter of a rule. reads: the values that come from the principal."""

    conditions: tuple[Condition, ...]
    reads: tuple[PrincipalRead, ...]


class RuleAssign(msgspec.Struct, frozen=True, eq=False):
    """The fields that a rule sets, each with the index of its value."""

    indexes: Mapping[str, int]
    reads: tuple[PrincipalRead, ...]


class Rule(msgspec.Struct, frozen=True, eq=False):
    """A rule. audience: its index among those of all rules."""

    audience: int
    allows: Callable[[Action], bool]
    rows: RuleFilter | None
    check: RuleFilter | None
    assign: RuleAssign | None


Fitting = frozenset[RuleFilter | RuleAssign]
"""The filters whose values the principal has."""


_Known = tuple[Access, tuple[Any, ...], tuple[PrincipalRead, ...]]
"""What is known of a principal: the access, the values of its context, and those of them that depend on the time."""


class Rules:
    """The rules of a catalog. Raises CatalogError for filters and values that do not fit the declarations.

    checks: those of attributes whose columns accept less than their declarations say. is_closed: whether a resource
    without rules is closed, because it is known who asks.
    """

    def __init__(self, catalog: Catalog, checks: Checks = NO_CHECKS, *, is_closed: bool = False) -> None:
        reader = _RuleReader(catalog, checks)
        self._by_type = {
            resource.type: tuple(reader.rules(resource)) for resource in catalog if resource.access or is_closed
        }
        if reader.faults:
            raise CatalogError("\n".join(reader.faults))
        self._audiences = tuple(reader.audiences.values())
        self._values = tuple(reader.planner.values)
        self._read_parts = [
            (rule.audience, part)
            for rules in self._by_type.values()
            for rule in rules
            for part in {rule.rows, rule.check, rule.assign}
            if part is not None and part.reads
        ]
        self._accesses: BoundedCache[Access] = BoundedCache(MAX_ACCESSES, MAX_ACCESSES)
        # Without the principals themselves, which would never go otherwise.
        self._known: WeakKeyDictionary[Principal, _Known] = WeakKeyDictionary()

    def context_of(self, principal: Principal) -> Context:
        """Return the context of the requests of a principal. Raises what the functions of the rules raise."""
        known = self._known.get(principal)
        if known is None:
            known = self._known[principal] = self._made(principal)
        access, values, timed = known
        if timed:
            now, timely = datetime.now(UTC), list(values)
            for read in timed:
                _put(timely, read, principal, now)
            values = tuple(timely)
        return Context(access, values, principal)

    def _made(self, principal: Principal) -> _Known:
        has = tuple([has_principal(audience, principal) for audience in self._audiences])
        values, now = list(self._values), datetime.now(UTC)
        fits, timed = list[bool](), list[PrincipalRead]()
        for audience, part in self._read_parts:
            is_fitting = has[audience]
            try:
                for read in part.reads if is_fitting else ():
                    _put(values, read, principal, now)
            except ValueFault:
                is_fitting = False
            fits.append(is_fitting)
            timed += [read for read in part.reads if is_fitting and read.has_now]
        key = has, tuple(fits)
        access = self._accesses.get_or_make(key, lambda: self._access(*key), lambda _: 1)
        return access, tuple(values), tuple(timed)

    def _access(self, has: Sequence[bool], fits: Sequence[bool]) -> Access:
        missing = {part for (_, part), is_fitting in zip(self._read_parts, fits, strict=True) if not is_fitting}
        refused = set[tuple[str, Action]]()
        criteria: dict[str, dict[str, tuple[Condition, ...]]] = {}
        assigned: dict[str, tuple[AssignedField, ...]] = {}
        for type_name, rules in self._by_type.items():
            for action in ACTIONS:
                allowing = [rule for rule in rules if has[rule.audience] and rule.allows(action)]
                if not allowing:
                    refused.add((type_name, action))
                rows = [rule.rows for rule in allowing]
                checks = [rule.check for rule in allowing if rule.assign not in missing]
                if action == "create":
                    fixed = [rule.assign for rule in allowing if rule.assign not in missing]
                    assigned[type_name] = _assigned(fixed)
                else:
                    _add(criteria.setdefault(action, {}), type_name, rows, missing)
                if action in ("create", "update"):
                    _add(criteria.setdefault(f"check_{action}", {}), type_name, checks, missing)
        return Access(
            **criteria, refused=frozenset(refused), assigned={name: some for name, some in assigned.items() if some}
        )


def read_rules(catalog: Catalog, checks: Checks = NO_CHECKS, *, is_closed: bool = False) -> Rules | None:
    """Return the rules of a catalog, or None if it has none, as most have. Raises CatalogError."""
    has_rules = is_closed or any(resource.access for resource in catalog)
    return Rules(catalog, checks, is_closed=is_closed) if has_rules else None


def _put(values: list[Any], read: PrincipalRead, principal: Principal, now: datetime) -> None:
    found = read.values(principal, now)
    values[read.slot : read.slot + len(found)] = found


def _add(
    criteria: dict[str, tuple[Condition, ...]],
    type_name: str,
    filters: Sequence[RuleFilter | None],
    missing: set[Any],
) -> None:
    """Add what a row of this type must meet: one of the filters. None is the filter that every row meets."""
    if None in filters:
        return
    found = [one.conditions for one in filters if one is not None and one not in missing]
    if len(found) == 1:
        criteria[type_name] = found[0]
    else:
        items = [some[0] if len(some) == 1 else Logic("and", some) for some in dict.fromkeys(found)]
        criteria[type_name] = (Logic("or", tuple(items)),)


def _assigned(parts: Sequence[RuleAssign | None]) -> tuple[AssignedField, ...]:
    """Return the fields that the rules of a creation set: each with the value of the first rule that sets it."""
    indexes: dict[str, int] = {}
    for part in parts:
        for name, index in part.indexes.items() if part is not None else ():
            indexes.setdefault(name, index)
    return tuple(
        [
            AssignedField(name, index, all(part is not None and name in part.indexes for part in parts))
            for name, index in indexes.items()
        ]
    )


class _RuleReader:
    """Reads all rules of a catalog. It collects faults, the audiences, and the slots of all values."""

    def __init__(self, catalog: Catalog, checks: Checks) -> None:
        self.faults: list[str] = []
        self.audiences: dict[Any, Audience] = {}
        self._catalog = catalog
        self._checks = checks
        self._errors: list[ApiError] = []
        self.planner = CriteriaPlanner(catalog, LIMITS, self._errors)

    def rules(self, resource: Resource) -> Iterator[Rule]:
        """Yield the rules of a resource."""
        for number, allow in enumerate(resource.access, 1):
            where = f"resource {quoted(resource.type)}: rule {number} ({audience_name(allow.to)}): "
            rows = self._filter(allow.rows, "rows", resource, where)
            check = rows if allow.check is None else self._filter(allow.check, "check", resource, where)
            assign = self._assign(allow, resource, where)
            yield Rule(self._audience(allow.to), allow.allows, rows, check, assign)

    def _audience(self, audience: Audience) -> int:
        """Return the index of an audience. Equal ones are asked once."""
        key = audience if isinstance(audience, Declared) else id(audience)
        self.audiences.setdefault(key, audience)
        return list(self.audiences).index(key)

    def _filter(self, given: object, name: str, resource: Resource, where: str) -> RuleFilter | None:
        if given is None:
            return None
        first, reads = len(self._errors), len(self.planner.reads)
        try:
            nodes = FilterReader(LIMITS, self._errors).tree(name, _tree(given))
        except ValueFault as error:
            self.faults.append(f"{where}`{name}` must be {error}")
            return None
        conditions = self.planner.criteria(nodes, resource)
        self.faults += [f"{where}`{name}`: {error.detail}" for error in self._errors[first:]]
        return RuleFilter(conditions, tuple(self.planner.reads[reads:]))

    def _assign(self, allow: Allow, resource: Resource, where: str) -> RuleAssign | None:
        indexes: dict[str, int] = {}
        reads: list[PrincipalRead] = []
        for name, given in allow.assign.items():
            attribute = self._assigned_column(resource, name)
            read = partial(self._read_assigned, attribute)
            try:
                value = _tree(given)
                if comes_from_principal(value):
                    reads.append(principal_read(len(self.planner.values), value, read, attribute, "one"))
                    indexes[name] = self.planner.slot(None)
                else:
                    indexes[name] = self.planner.slot(*read(value))
            except ValueFault as error:
                self.faults.append(f"{where}`assign`: {quoted(name)} must be {error}")
        return RuleAssign(indexes, tuple(reads)) if indexes else None

    def _assigned_column(self, resource: Resource, name: str) -> Attribute:
        """Return the attribute, or the key of the to-one, with this name. The catalog has checked that it exists."""
        attribute, relationship = resource.attribute(name), resource.relationship(name)
        if attribute is not None:
            return attribute
        own = None if relationship is None else own_key_of(relationship)
        assert own is not None
        return self._catalog.key_of(own)

    def _read_assigned(self, attribute: Attribute, value: Any) -> list[Any]:
        return [read_attribute(attribute, value, self._checks.get(attribute))]


def _tree(value: object) -> Any:
    """Return a filter or a value of a rule as the tree of a JSON text, with the values of the principal in it. Raises
    ValueFault."""
    match value:
        case None | bool() | int() | Decimal() | Subject() | Now() | Claim(path=str()):
            return value
        case str():
            try:
                check_text(value)
            except JsonFault as error:
                raise ValueFault(f"JSON: {error}") from error
            return value
        case float() if isfinite(value):
            return Decimal(repr(value))
        case Mapping():
            return {str(name): _tree(item) for name, item in value.items()}
        case list() | tuple():
            return [_tree(item) for item in value]
        case _:
            raise ValueFault(f"JSON with SUBJECT, Claim(...) and NOW in it, and {value!r} is none of these")
