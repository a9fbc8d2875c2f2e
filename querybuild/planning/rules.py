"""Reads the rules of all resources once, and makes the context of each principal from them.

Principals with the same rights share one `Access`, so plans do not depend on who asks. Only the values of a context
differ. It must not know: tokens, requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
    ANYONE,
    Action,
    Allow,
    Audience,
    Claim,
    Declared,
    Now,
    Subject,
    audience_name,
    audiences_of,
    has_principal,
)
from querybuild.declarations.attributes import read_attribute
from querybuild.declarations.catalog import CatalogError, Everywhere
from querybuild.declarations.json_texts import JsonFault, check_text
from querybuild.declarations.operators import EQUAL
from querybuild.declarations.resource import Attribute, Resource, own_key_of
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, quoted
from querybuild.filters import FilterReader
from querybuild.planning.context import Access, AssignedField, Context, View
from querybuild.planning.criteria import (
    NEVER,
    CriteriaPlanner,
    PrincipalRead,
    comes_from_principal,
    principal_read,
    without_missing,
)
from querybuild.planning.everywhere import RuleEverywhere, link_accesses
from querybuild.planning.reads.counting import Reference
from querybuild.planning.row_plan import Condition, Logic
from querybuild.principal import Principal
from querybuild.query import FilterNode, Limits

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
    max_included_page=0,
    max_groups=0,
    max_url_bytes=0,
    max_query_cost=None,
    max_filter_depth=20,
    max_filter_nodes=1000,
    max_list_values=10_000,
    max_json_depth=64,
    max_json_values=100_000,
    max_bulk_rows=0,
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


class FieldRights(msgspec.Struct, frozen=True, eq=False):
    """Who may read and write a field: the indexes of audiences."""

    type: str
    name: str
    readers: tuple[int, ...]
    writers: tuple[int, ...]

    def is_readable(self, has: Sequence[bool]) -> bool:
        """Return whether a principal may read it. has: for each audience, whether it has the principal."""
        return any(has[index] for index in self.readers)

    def is_writable(self, has: Sequence[bool]) -> bool:
        """Return whether a principal may write it. has: for each audience, whether it has the principal."""
        return any(has[index] for index in self.writers)


_Known = tuple[Access, tuple[Any, ...], tuple[PrincipalRead, ...], tuple[Any, ...]]
"""What is known of a principal: the access, the values of its context, those of them that depend on the time, and what
its rights depend on."""

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class Rules:
    """The rules of a catalog. Raises CatalogError for filters and values that do not fit the declarations.

    view: the declarations as a principal with all rights sees them. is_closed: whether a resource without rules is
    closed, because it is known who asks.
    """

    def __init__(self, view: View, *, is_closed: bool = False) -> None:
        self._view = view
        reader = _RuleReader(view)
        self._by_type = {
            resource.type: tuple(reader.rules(resource)) for resource in view.catalog if resource.access or is_closed
        }
        self._fields = tuple(reader.fields())
        self._everywhere = [
            rule for everywhere in view.catalog.everywhere if (rule := reader.everywhere(everywhere)) is not None
        ]
        if reader.faults:
            raise CatalogError("\n".join(reader.faults))
        self._audiences = tuple(reader.audiences.values())
        self._values = tuple(reader.planner.values)
        self._reads = [
            (rule.audience, read)
            for rules in self._by_type.values()
            for rule in rules
            for part in dict.fromkeys((rule.rows, rule.check, rule.assign))
            for read in (() if part is None else part.reads)
        ]
        self._reads += [(rule.audience, read) for rule in self._everywhere for read in rule.reads]
        self._accesses: BoundedCache[Access] = BoundedCache(MAX_ACCESSES, MAX_ACCESSES)
        self._views: BoundedCache[View] = BoundedCache(MAX_ACCESSES, MAX_ACCESSES)
        # Without the principals themselves, which would never go otherwise.
        self._known: WeakKeyDictionary[Principal, _Known] = WeakKeyDictionary()

    def context_of(self, principal: Principal) -> Context:
        """Return the context of the requests of a principal. Raises what the functions of the rules raise."""
        access, values, timed, _ = self._known_of(principal)
        if timed:
            now, timely = datetime.now(UTC), list(values)
            for read in timed:
                _put(timely, read, principal, now)
            values = tuple(timely)
        return Context(access, values, principal)

    def rights_of(self, principal: Principal) -> tuple[Any, ...]:
        """Return what the rules ask a principal for, without the time: as long as it is the same, the principal may do
        the same. Raises what the functions of the rules raise."""
        return self._known_of(principal)[3]

    def _known_of(self, principal: Principal) -> _Known:
        known = self._known.get(principal)
        if known is None:
            known = self._known[principal] = self._made(principal)
        return known

    def _made(self, principal: Principal) -> _Known:
        """Ask the audiences, and read the values of the principal."""
        has = tuple([has_principal(audience, principal) for audience in self._audiences])
        values, now = list(self._values), datetime.now(UTC)
        fits, timed = list[bool](), list[PrincipalRead]()
        for audience, read in self._reads:
            is_fitting = has[audience]
            try:
                if is_fitting:
                    _put(values, read, principal, now)
            except ValueFault:
                is_fitting = False
            fits.append(is_fitting)
            timed += [read] if is_fitting and read.has_now else []
        key = has, tuple(fits)
        access = self._accesses.get_or_make(key, lambda: self._access(*key), lambda _: 1)
        untimed = values.copy()
        for read in timed:
            _put(untimed, read, principal, _ANY_TIME)
        return access, tuple(values), tuple(timed), (*has, *untimed)

    def _access(self, has: Sequence[bool], fits: Sequence[bool]) -> Access:
        missing = {read.slot for (_, read), is_fitting in zip(self._reads, fits, strict=True) if not is_fitting}
        refused = set[tuple[str, Action]]()
        criteria: dict[str, dict[str, tuple[Condition, ...]]] = {}
        assigned: dict[str, tuple[AssignedField, ...]] = {}
        for type_name, rules in self._by_type.items():
            for action in ACTIONS:
                allowing = [rule for rule in rules if has[rule.audience] and rule.allows(action)]
                if action == "create":
                    allowing = [rule for rule in allowing if _may_create(rule, missing)]
                if not allowing:
                    refused.add((type_name, action))
                if action == "create":
                    assigned[type_name] = _assigned([rule.assign for rule in allowing])
                else:
                    rows = [rule.rows for rule in allowing]
                    _add(criteria.setdefault(action, {}), type_name, rows, missing)
                if action in ("create", "update"):
                    checks = [rule.check for rule in allowing]
                    _add(criteria.setdefault(f"check_{action}", {}), type_name, checks, missing)
        for column in self._everywhere:
            column.add_to(self._view.catalog, missing, criteria, assigned, refused)
        return Access(
            **criteria,
            refused=frozenset(refused),
            assigned={name: some for name, some in assigned.items() if some},
            links=link_accesses(self._everywhere, self._view.catalog, missing),
            read_only=_names(field for field in self._fields if not field.is_writable(has)),
            view=self._view_of(has),
        )

    def _view_of(self, has: Sequence[bool]) -> View | None:
        """Return the declarations as principals with these rights see them, or None if they see them as they are."""
        key = tuple([(field.is_readable(has), field.is_writable(has)) for field in self._fields])
        make = lambda: make_view(self._view, zip(self._fields, key, strict=True))  # noqa: E731
        view = self._views.get_or_make(key, make, lambda _: 1)
        return None if view is self._view else view


def read_rules(view: View, *, is_closed: bool = False) -> Rules | None:
    """Return the rules of declarations, or None if there are none, as in most. Raises CatalogError."""
    fields = [field for resource in view.catalog for field in (*resource.attributes, *resource.relationships)]
    has_rights = any(field.read_by != ANYONE or field.write_by != ANYONE for field in fields)
    has_rules = is_closed or has_rights or any(resource.access for resource in view.catalog)
    has_rules = has_rules or bool(view.catalog.everywhere)
    return Rules(view, is_closed=is_closed) if has_rules else None


def _names(fields: Iterable[FieldRights]) -> dict[str, frozenset[str]]:
    names: dict[str, frozenset[str]] = {}
    for field in fields:
        names[field.type] = names.get(field.type, frozenset()) | {field.name}
    return names


def make_view(view: View, fields: Iterable[tuple[FieldRights, tuple[bool, bool]]]) -> View:
    """Return the declarations with these rights: for each field whether it may be read and written.

    An attribute that may not be read is declared so. It is not left out, because computed attributes may depend on it.
    A relationship that may not be read is left out."""
    resources = dict(view.catalog.by_type)
    origins: dict[Attribute, Attribute] = {}
    for field, (is_readable, is_writable) in fields:
        resource = resources[field.type]
        attribute = resource.attribute(field.name)
        seen = None if attribute is None else _seen(attribute, is_readable=is_readable, is_writable=is_writable)
        if attribute is not None and seen is not None and seen is not attribute:
            origins[seen] = attribute
            attributes = tuple([seen if each is attribute else each for each in resource.attributes])
            resources[field.type] = msgspec.structs.replace(resource, attributes=attributes)
        elif attribute is None and not is_readable:
            relationships = tuple(
                [relationship for relationship in resource.relationships if relationship.name != field.name]
            )
            resources[field.type] = msgspec.structs.replace(resource, relationships=relationships)
    if resources == view.catalog.by_type:
        return view
    references = [
        Reference(resources[reference.resource.type], reference.columns, resources[reference.target.type])
        for reference in view.references
    ]
    return View(
        view.catalog.view(resources),
        {**view.checks, **{seen: view.checks[origin] for seen, origin in origins.items() if origin in view.checks}},
        frozenset(references),
    )


def _seen(attribute: Attribute, *, is_readable: bool, is_writable: bool) -> Attribute:
    """Return an attribute as it is declared for those who may read it or not, and write it or not. One that is
    read-only for a principal stays writable here: the planner refuses it by `Access.read_only`."""
    changes: dict[str, bool] = {}
    if not is_readable:
        changes |= {"readable": False}
    if not is_writable and not is_readable:
        changes |= {"creatable": False, "updatable": False}
    if not is_writable and (attribute.required or attribute.required_on_update):
        changes |= {"required": False, "required_on_update": False}
    return msgspec.structs.replace(attribute, **changes) if changes else attribute


def _put(values: list[Any], read: PrincipalRead, principal: Principal, now: datetime) -> None:
    read_values = read.values(principal, now)
    values[read.slot : read.slot + len(read_values)] = read_values


def _add(
    criteria: dict[str, tuple[Condition, ...]],
    type_name: str,
    filters: Sequence[RuleFilter | None],
    missing: AbstractSet[int],
) -> None:
    """Add what a row of this type must meet: one of the filters. None is the filter that every row meets. missing: the
    values that the principal does not have."""
    if None in filters:
        return
    alternatives = [
        without_missing(rule_filter.conditions, missing) for rule_filter in filters if rule_filter is not None
    ]
    alternatives = [conditions for conditions in alternatives if NEVER not in conditions]
    if len(alternatives) == 1:
        criteria[type_name] = alternatives[0]
    else:
        items = [some[0] if len(some) == 1 else Logic("and", some) for some in dict.fromkeys(alternatives)]
        criteria[type_name] = (Logic("or", tuple(items)),)


def _may_create(rule: Rule, missing: AbstractSet[int]) -> bool:
    """Return whether a rule allows a creation: the principal has each value to set, and some row meets the check."""
    if rule.assign is not None and any(read.slot in missing for read in rule.assign.reads):
        return False
    return rule.check is None or NEVER not in without_missing(rule.check.conditions, missing)


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
    """Reads all rules of some declarations. It collects faults, the audiences, and the slots of all values."""

    def __init__(self, view: View) -> None:
        self.faults: list[str] = []
        self.audiences: dict[Any, Audience] = {}
        self._view = view
        self._errors: list[ApiError] = []
        self.planner = CriteriaPlanner(view.catalog, LIMITS, self._errors)

    def rules(self, resource: Resource) -> Iterator[Rule]:
        """Yield the rules of a resource."""
        for number, allow in enumerate(resource.access, 1):
            where = f"resource {quoted(resource.type)}: rule {number} ({audience_name(allow.to)}): "
            rows = self._filter(allow.rows, "rows", resource, where)
            check = rows if allow.check is None else self._filter(allow.check, "check", resource, where)
            assign = self._assign(allow, resource, where)
            yield Rule(self._audience(allow.to), allow.allows, rows, check, assign)

    def everywhere(self, declared: Everywhere) -> RuleEverywhere | None:
        """Return a rule of all tables, or None if it is faulty."""
        attribute, first = declared.attribute, len(self.planner.values)
        where = f"the rule of all tables: {quoted(attribute.name)} must be "
        if not (attribute.is_stored and EQUAL.applies(attribute)):
            self.faults.append(f"{where}a column that can be compared")
            return None
        principal_reads = self._value(declared.value, attribute, where)
        if principal_reads is None:
            return None
        return RuleEverywhere(declared, self._audience(ANYONE), first, principal_reads)

    def fields(self) -> Iterator[FieldRights]:
        """Yield the rights of all fields that are not for everybody."""
        for resource in self._view.catalog:
            for field in (*resource.attributes, *resource.relationships):
                if field.read_by != ANYONE or field.write_by != ANYONE:
                    rights = [
                        tuple(map(self._audience, audiences_of(allowed))) for allowed in (field.read_by, field.write_by)
                    ]
                    yield FieldRights(resource.type, field.name, *rights)

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
            nodes = filter_nodes(given, name, self._errors)
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
            attribute, index = self._assigned_column(resource, name), len(self.planner.values)
            principal_reads = self._value(given, attribute, f"{where}`assign`: {quoted(name)} must be ")
            if principal_reads is not None:
                indexes[name] = index
                reads += principal_reads
        return RuleAssign(indexes, tuple(reads)) if indexes else None

    def _value(self, given: object, attribute: Attribute, fault: str) -> tuple[PrincipalRead, ...] | None:
        """Add a slot for a value of a column. Returns how it comes from the principal, or None if it is faulty. fault:
        how the message begins."""
        read = partial(self._read_assigned, attribute)
        try:
            value = _tree(given)
            if not comes_from_principal(value):
                self.planner.slot(*read(value))
                return ()
            read_from = principal_read(len(self.planner.values), value, read, attribute, "one")
        except ValueFault as error:
            self.faults.append(fault + str(error))
            return None
        self.planner.slot(None)
        return (read_from,)

    def _assigned_column(self, resource: Resource, name: str) -> Attribute:
        """Return the attribute, or the key of the to-one, with this name. The catalog has checked that it exists."""
        attribute, relationship = resource.attribute(name), resource.relationship(name)
        if attribute is not None:
            return attribute
        own = None if relationship is None else own_key_of(relationship)
        assert own is not None
        return self._view.catalog.key_of(own)

    def _read_assigned(self, attribute: Attribute, value: Any) -> list[Any]:
        return [read_attribute(attribute, value, self._view.checks_of(attribute))]


def filter_nodes(given: object, name: str, errors: list[ApiError]) -> tuple[FilterNode, ...]:
    """Return the filter of a rule, with the values of the principal in it. name: for messages. Appends to errors.
    Raises ValueFault."""
    return FilterReader(LIMITS, errors).tree(name, _tree(given))


def _tree(value: object, depth: int = 1) -> Any:
    """Return a filter or a value of a rule as the tree of a JSON text, with the values of the principal in it. depth:
    how many lists and objects it is in. Raises ValueFault."""
    if depth > LIMITS.max_json_depth:
        raise ValueFault(f"nested at most {LIMITS.max_json_depth} deep")
    match value:
        case None | bool() | int() | Decimal() | Subject() | Now():
            return value
        case Claim(path=str(path)) if path:
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
            return {str(name): _tree(item, depth + 1) for name, item in value.items()}
        case list() | tuple():
            return [_tree(item, depth + 1) for item in value]
        case _:
            raise ValueFault(f"JSON with SUBJECT, Claim(...) and NOW in it, and {value!r} is none of these")
