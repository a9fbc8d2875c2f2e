"""Plans groups: their keys, their numbers, their filter and their order. What comes in: a GroupQuery whose names are
not resolved, and the rows that are grouped. What goes out: groups as rows of a resource of their own, whose attributes
are the keys and the numbers. So they have pages, cursors and a total like any list.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from querybuild.declarations.catalog import Catalog, KeyAttribute
from querybuild.declarations.database_types.json_paths import split_names
from querybuild.declarations.resource import Attribute, Id, Resource, ToOne
from querybuild.declarations.types import (
    BIGINT,
    FLOAT,
    INT,
    INTERVAL,
    JSONB,
    NUMERIC,
    NUMERIC_NUMBER,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    ColumnType,
)
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, FilterError, GroupError, SortError, listed, nearest, quoted
from querybuild.filters import fault
from querybuild.parsing.groups import GROUP_BY, TIME_ZONE
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.plan import Node, node_of
from querybuild.planning.reads.sorts import SortPlanner
from querybuild.planning.row_plan import ColumnRef, GroupColumn, Grouping, OrderKey, RelatedScope, Rows, Slot
from querybuild.planning.rowsets import open_groups
from querybuild.query import Aggregate, FieldFilter, GroupKey, GroupQuery, Limits, SortKey, Source

GROUPS = "the groups"
"""The alias of groups in a statement. No table has such a name."""

_WHOLE = (SMALLINT.name, INT.name, BIGINT.name)
_PERIODS_OF = {
    "date": ("year", "month", "day"),
    "timestamp": ("year", "month", "day", "hour"),
    "timestamptz": ("year", "month", "day", "hour"),
}
"""The name of a type -> the periods that its values can be cut to."""

_SUMMED = {"number", "interval"}
"""The families of the types that have sums and means."""


class _GroupConditions(ConditionPlanner):
    """Plans the filter of groups. It shares the values of the other filters. attributes: the numbers."""

    def __init__(self, others: ConditionPlanner, attributes: dict[str, Attribute]) -> None:
        super().__init__(others.catalog, others.context, others.limits, others.errors)
        self.values, self.readers = others.values, others.readers
        self.value_slots, self.checked = others.value_slots, others.checked
        self._attributes = attributes

    def reach(self, node: FieldFilter, path: str, resource: Resource, alias: str, make: Any) -> Any:
        attribute = self._attributes.get(path)
        if attribute is not None:
            return make(ColumnRef(alias, attribute))
        known = list(self._attributes)
        detail = f"there is no number {quoted(path)} of the groups.{nearest(path, known)} There are: {listed(known)}."
        self.errors.append(fault(node.source, detail, FilterError))
        return None


class GroupPlanner:
    """Plans the groups of some rows. conditions, sorts: those of the read. node: what is shown of the groups, once they
    are planned."""

    def __init__(self, catalog: Catalog, limits: Limits, errors: list[ApiError], conditions: ConditionPlanner) -> None:
        self._catalog = catalog
        self._limits = limits
        self._errors = errors
        self._conditions = conditions
        self._steps = SortPlanner(catalog, limits, errors, conditions, GROUP_BY)
        self._has_zone = False
        self._zone: Slot | None = None
        # Of each key and each number: the attribute that is compared and sorted, by its name as sent.
        self._by: dict[str, Attribute] = {}
        self._numbers: dict[str, Attribute] = {}
        self._shown: list[Attribute] = []

    def plan(self, query: GroupQuery, rows: Rows, scope: RelatedScope | None) -> Rows:
        """Return the groups, without an order. rows: those that are grouped. Appends GroupError and FilterError to the
        errors."""
        if query.time_zone is not None:
            self._zone = self._read_zone(query)
        by = [column for index, key in enumerate(query.by) for column in self._key(index, key, rows)]
        numbers = [
            column
            for index, aggregate in enumerate(query.aggregates)
            for column in self._number(index, aggregate, rows)
        ]
        if query.time_zone is not None and not self._has_zone:
            detail = "No key of the groups is cut from timestamps with a time zone."
            self._errors.append(GroupError(detail, parameter=TIME_ZONE))
        attributes = (*dict.fromkeys([*self._shown, *self._by.values(), *self._numbers.values()]),)
        resource = Resource("groups", "", GROUPS, attributes, id=Id("id", BIGINT))
        inner = msgspec.structs.replace(rows, joins=tuple(self._steps.joins.values()))
        groups = open_groups(resource, GROUPS, Grouping(inner, scope, tuple(by), tuple(numbers)))
        conditions = _GroupConditions(self._conditions, self._numbers).plan(query.filter, resource, GROUPS)
        return msgspec.structs.replace(groups, conditions=conditions)

    def order(self, keys: Sequence[SortKey]) -> tuple[OrderKey, ...]:
        """Plan the sort keys, then all keys of the groups, nulls last. The last one is a constant, so that a cursor
        never ends in null."""
        known = self._by | self._numbers
        order: dict[Attribute, OrderKey] = {}
        for key in keys:
            name = f"count({key.path})" if key.is_count else key.path
            attribute = known.get(name)
            if attribute is None:
                detail = f"There is no key and no number {quoted(name)} of the groups.{nearest(name, known)}"
                self._errors.append(SortError(f"{detail} There are: {listed(known)}.", parameter="sort"))
            else:
                order.setdefault(attribute, OrderKey(ColumnRef(GROUPS, attribute), key.is_descending, True))
        for attribute in self._by.values():
            order.setdefault(attribute, OrderKey(ColumnRef(GROUPS, attribute), False, True))
        last = OrderKey(ColumnRef(GROUPS, _CONSTANT), False, False)
        return (*order.values(), last)

    def node(self, groups: Rows) -> Node:
        """Return what is shown of the groups: their keys, and then their numbers."""
        return node_of(groups, (*self._shown, *self._numbers.values()))

    def _read_zone(self, query: GroupQuery) -> Slot | None:
        assert query.time_zone is not None
        node = FieldFilter(TIME_ZONE, "eq", query.time_zone, None, True, Source(TIME_ZONE), query.zone_index)
        try:
            [slot] = self._conditions.slots(node, partial(read_zone, known=self._limits.time_zones), _ZONE, "one")
        except ValueFault as error:
            detail = f"Expected {error}, not {quoted(query.time_zone)}."
            detail += nearest(query.time_zone, self._limits.time_zones)
            self._errors.append(GroupError(detail, parameter=TIME_ZONE))
            return None
        return slot

    def _key(self, index: int, key: GroupKey, rows: Rows) -> Sequence[GroupColumn]:
        of = self._column(key.path, rows, GROUP_BY)
        if of is None:
            return ()
        own = of.attribute
        if not key.period:
            if not own.type.comparison.has_order:
                self._refuse(GROUP_BY, f"{quoted(key.path)} is of a type that cannot be grouped.")
                return ()
            self._by[key.name] = _attribute(key.name, _value_type(own), f"b{index}")
            self._shown.append(self._by[key.name])
            return (GroupColumn(f"b{index}", "", of),)
        periods = _PERIODS_OF.get(own.type.name, ())
        if key.period not in periods:
            known = f"has the periods {listed(periods)}" if periods else "is no date and no timestamp"
            self._refuse(GROUP_BY, f"{quoted(key.name)}: {quoted(key.path)} {known}.")
            return ()
        is_zoned = own.type.name == TIMESTAMPTZ.name
        self._has_zone = self._has_zone or is_zoned
        zone = self._zone if is_zoned else None
        compared = TIMESTAMPTZ if key.period == "hour" else TIMESTAMP
        column = GroupColumn(f"b{index}", key.period, of, zone=zone)
        self._by[key.name] = _attribute(key.name, compared, column.name)
        self._shown.append(_attribute(key.name, TEXT, column.text_name))
        return (column,)

    def _number(self, index: int, aggregate: Aggregate, rows: Rows) -> Sequence[GroupColumn]:
        of = self._column(aggregate.path, rows, aggregate.parameter) if aggregate.path else None
        if aggregate.path and of is None:
            return ()
        column_type = BIGINT if of is None or aggregate.function == "count" else self._type_of(aggregate, of.attribute)
        if aggregate.is_distinct and of is not None and not of.attribute.type.comparison.has_order:
            self._refuse(aggregate.parameter, f"{quoted(aggregate.path)} is of a type whose values cannot be compared.")
            return ()
        if column_type is None:
            return ()
        self._numbers[aggregate.name] = _attribute(aggregate.name, column_type, f"a{index}")
        return (GroupColumn(f"a{index}", aggregate.function, of, aggregate.is_distinct),)

    def _type_of(self, aggregate: Aggregate, attribute: Attribute) -> ColumnType | None:
        """Return the type of a number, or None if the attribute has none."""
        own = attribute.type
        if aggregate.function in ("min", "max"):
            if own.comparison.has_order:
                return _value_type(attribute)
            self._refuse(aggregate.parameter, f"{quoted(aggregate.path)} is of a type that has no order.")
            return None
        if own.family not in _SUMMED or own.element is not None:
            self._refuse(
                aggregate.parameter,
                f"{quoted(aggregate.path)} is {own.name}, and {quoted(aggregate.function)} takes numbers.",
            )
            return None
        if own.family == "interval":
            return INTERVAL
        if own.name in _WHOLE:
            return NUMERIC_NUMBER if aggregate.function == "sum" else NUMERIC
        return own if "numeric" in own.sql_names else FLOAT

    def _column(self, path: str, rows: Rows, parameter: str) -> ColumnRef | None:
        """Return the column at the end of a path of to-one relationships."""
        names, resource, alias = split_names(path, "."), rows.resource, rows.alias
        for position, name in enumerate(names[:-1], 1):
            if position > self._limits.max_filter_depth:
                self._refuse(parameter, f"a path goes over at most {self._limits.max_filter_depth} relationships.")
                return None
            attribute = self._attribute(name, resource)
            if attribute is not None and attribute.type is JSONB:
                return self._conditions.inner_column(attribute, names[position:], alias)
            relationship = resource.relationship(name)
            if not (isinstance(relationship, ToOne) and relationship.filterable):
                known = [
                    other.name for other in resource.relationships if isinstance(other, ToOne) and other.filterable
                ]
                detail = f"{quoted(name)} is no to-one relationship of {resource.type}.{nearest(name, known)}"
                self._refuse(parameter, f"{detail} There are: {listed(known)}.")
                return None
            is_plain = not self._catalog.target(relationship).id.key.is_text
            if names[position:] == ["id"] and is_plain and self._conditions.holds_id(relationship):
                return ColumnRef(alias, self._catalog.key_of(relationship))
            joined = self._steps.joined(tuple(names[:position]), resource, alias, relationship)
            if joined is None:
                self._refuse(parameter, f"groups join at most {self._limits.max_filter_depth} relationships.")
                return None
            resource, alias = joined.resource, joined.alias
        attribute = self._attribute(names[-1], resource)
        if attribute is None:
            known = ["id", *[other.name for other in resource.readable_attributes if _may_be_grouped(other)]]
            detail = f"There is no attribute {quoted(names[-1])} in {resource.type} for groups."
            self._refuse(parameter, f"{detail}{nearest(names[-1], known)} There are: {listed(known)}.")
            return None
        return ColumnRef(alias, attribute)

    def _attribute(self, name: str, resource: Resource) -> Attribute | None:
        if name == "id":
            id_attribute, key = self._catalog.id_of(resource), resource.id.key
            return KeyAttribute("id", id_attribute.type, key=key) if key.is_text else id_attribute
        attribute = resource.attribute(name)
        is_known = attribute in resource.readable_attributes
        return attribute if attribute is not None and is_known and _may_be_grouped(attribute) else None

    def _refuse(self, parameter: str, detail: str) -> None:
        self._errors.append(GroupError(detail, parameter=parameter))


_ZONE, _CONSTANT = Attribute(TIME_ZONE, TEXT), Attribute("id", BIGINT, column="id")
"""A time zone, and what each group has as its id, as attributes."""


def read_zone(text: Any, *, known: frozenset[str]) -> list[Any]:
    """Return a time zone as the values of a slot. known: all names, empty if they are not known. Raises ValueFault."""
    if "\0" in text or not text or (known and text not in known):
        raise ValueFault("the name of a time zone, such as Europe/Paris")
    return [text]


def _may_be_grouped(attribute: Attribute) -> bool:
    return attribute.compute is None and (attribute.is_filterable or attribute.is_sortable)


def _value_type(attribute: Attribute) -> ColumnType:
    """Return the type of a value as groups show it. Ids are texts, as everywhere in documents."""
    if isinstance(attribute, KeyAttribute) and attribute.key.is_text:
        return TEXT
    return attribute.type.with_json(shown=_id_text) if attribute.name == "id" else attribute.type


def _id_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _attribute(name: str, column_type: ColumnType, column: str) -> Attribute:
    return Attribute(name, column_type, column=column, nullable=True)
