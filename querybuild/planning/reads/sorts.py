"""Plans sort keys: each becomes a column, and the joins that lead to it.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.json_paths import split_names
from querybuild.declarations.resource import Relationship, Resource, ToOne
from querybuild.declarations.types import JSONB
from querybuild.errors import ApiError, SortError, listed, nearest, quoted
from querybuild.planning.conditions import COUNTED, ConditionPlanner
from querybuild.planning.row_plan import ColumnRef, OrderKey, Rows
from querybuild.query import Limits, SortKey


def has_cursor(key: OrderKey) -> bool:
    """Return whether a cursor can have the value of a sort key. Its text must be cast to the type, and no declaration
    contains the name of an array of an enum."""
    element = key.column.attribute.type.element
    return element is None or element.name != "enum"


def is_part_of_table(rows: Rows) -> bool:
    """Return whether a request may see only some of the rows of a table."""
    abilities = rows.resource.abilities
    return rows.is_limited or abilities.is_view or abilities.has_policies


class SortPlanner:
    """Plans a sort of one request. joins: the joined rows by the path that leads to them. conditions: gives the
    aliases. parameter: that of the sort, for errors. is_of_all: whether all rows of the resource are sorted. Then
    related rows are counted at once, and otherwise for each row."""

    def __init__(
        self,
        catalog: Catalog,
        limits: Limits,
        errors: list[ApiError],
        conditions: ConditionPlanner,
        parameter: str = "sort",
    ) -> None:
        self.catalog = catalog
        self.limits = limits
        self.errors = errors
        self.conditions = conditions
        self.parameter = parameter
        self.joins: dict[tuple[str, ...], Rows] = {}
        self.is_of_all = False

    def order(self, keys: tuple[SortKey, ...], resource: Resource, alias: str) -> tuple[OrderKey, ...]:
        """Plan the sort keys. The id is added in the direction of the last key, so that the order is total."""
        named = [key for sort_key in keys for key in self._order_keys(sort_key, resource, alias)]
        first: dict[ColumnRef, OrderKey] = {}
        for key in named:
            # A second key on the same column has no effect.
            first.setdefault(key.column, key)
        order = list(first.values())
        id_columns = [ColumnRef(alias, attribute) for attribute in self.catalog.order_of(resource)]
        left = set(id_columns)
        for index, key in enumerate(order):
            left.discard(key.column)
            if not left:
                # Keys after the id have no effect.
                return tuple(order[: index + 1])
        is_descending = bool(named) and named[-1].is_descending
        return (*order, *[OrderKey(column, is_descending, False) for column in id_columns if column in left])

    def _order_keys(self, key: SortKey, resource: Resource, alias: str) -> Sequence[OrderKey]:
        """Plan a sort key: the column at the end of its path, or the columns of an id. Each step is a LEFT JOIN, except
        the step to an id whose key is in the row itself."""
        names = key.path.split(".") if key.is_count else self._sort_path(key, resource)
        is_nullable = False
        for position, name in enumerate(names[:-1]):
            if position == self.limits.max_filter_depth:
                self._refuse_depth(key)
                return ()
            relationship = resource.relationship(name)
            attribute = resource.attribute(name)
            if attribute is not None and attribute.is_sortable and attribute.type is JSONB and not key.is_count:
                inner = self.conditions.inner_column(attribute, names[position + 1 :], alias)
                return [OrderKey(inner, key.is_descending, True)]
            if relationship is None or not relationship.filterable:
                what = f"{quoted(name)} is no relationship of {resource.type}"
                self._refuse(key, f"{what}: a path goes through to-one relationships.")
                return ()
            if not isinstance(relationship, ToOne):
                self._refuse_sort(key, name, resource, relationship)
                return ()
            # A key of several columns may be null in part. Its target's id is null then.
            is_id = len(relationship.own_columns) == 1 and not relationship.references
            has_key = is_id and self.conditions.holds_id(relationship)
            is_nullable = is_nullable or relationship.nullable or not has_key
            if names[position + 1 :] == ["id"] and has_key:
                return [OrderKey(ColumnRef(alias, self.catalog.key_of(relationship)), key.is_descending, is_nullable)]
            joined = self.joined(tuple(names[: position + 1]), resource, alias, relationship)
            if joined is None:
                self._refuse_depth(key)
                return ()
            resource, alias = joined.resource, joined.alias
        if key.is_count:
            return self._count_key(key, names, resource, alias)
        columns = self._sort_columns(key, names[-1], resource, alias)
        return [OrderKey(column, key.is_descending, is_nullable or column.attribute.nullable) for column in columns]

    def _count_key(self, key: SortKey, names: list[str], resource: Resource, alias: str) -> Sequence[OrderKey]:
        """Return the key for the number of related rows. It is 0 if the row itself is not there."""
        name = names[-1]
        relationship = resource.relationship(name)
        if relationship is None or not (relationship.filterable and relationship.is_to_many):
            known = [other.name for other in resource.relationships if other.filterable and other.is_to_many]
            what = f"{quoted(name)} is no to-many relationship of {resource.type}, whose resources could be counted."
            self._refuse(key, f"{what}{nearest(name, known)} There are: {listed(known)}.")
            return ()
        steps = [self.joins[tuple(names[:end])] for end in range(1, len(names))]
        if self.is_of_all and not any(map(is_part_of_table, steps)):
            column = self._joined_count(tuple(names), resource, alias, relationship)
        else:
            column = self.conditions.counted(relationship, resource, alias)
        return [OrderKey(column, key.is_descending, False)]

    def _joined_count(
        self, path: tuple[str, ...], resource: Resource, alias: str, relationship: Relationship
    ) -> ColumnRef:
        """Return the number of related rows, which are counted for all rows at once."""
        if path not in self.joins:
            related = self.conditions.related(resource, alias, relationship)
            self.joins[path] = msgspec.structs.replace(related, is_counted=True)
        rows = self.joins[path]
        return ColumnRef(rows.alias if rows.through is None else rows.through.alias, COUNTED, is_count=True)

    def _sort_columns(self, key: SortKey, name: str, resource: Resource, alias: str) -> Sequence[ColumnRef]:
        """Return the columns of the last name of a path: that of an attribute, or those of an id. name: the last
        one. resource, alias: where the path leads to."""
        if name == "id":
            return [ColumnRef(alias, id_part) for id_part in self.catalog.order_of(resource)]
        attribute = resource.attribute(name)
        if attribute is None or not attribute.is_sortable:
            self._refuse_sort(key, name, resource, resource.relationship(name))
            return ()
        if (attribute.type.element or attribute.type).family in ("json", "jsonb"):
            inside = f" Sort by a value inside: {key.path}.name." if attribute.type is JSONB else ""
            self._refuse(key, f"{quoted(name)} holds JSON, which has no order.{inside}")
            return ()
        if not attribute.type.comparison.has_order:
            self._refuse(key, f"{quoted(name)} is of a type that has no order.")
            return ()
        return [ColumnRef(alias, attribute)]

    def _sort_path(self, key: SortKey, resource: Resource) -> list[str]:
        """Return the names of a path. `group_id` at its end is `group.id`, unless there is an attribute `group_id`."""
        *steps, last = split_names(key.path, ".")
        at: Resource | None = resource
        for name in steps:
            relationship = at and at.relationship(name)
            at = self.catalog.target(relationship) if relationship else None
        short = last.removesuffix("_id")
        if at and short != last and not at.attribute(last) and isinstance(at.relationship(short), ToOne):
            return [*steps, short, "id"]
        return [*steps, last]

    def _refuse_sort(self, key: SortKey, name: str, resource: Resource, relationship: Relationship | None) -> None:
        if relationship is None:
            known = [attribute.name for attribute in resource.attributes if attribute.is_sortable]
            detail = f"There is no attribute {quoted(name)} in {resource.type} to sort by."
            self._refuse(key, detail + nearest(name, known) + f" There are: id, {listed(known)}.")
        elif relationship.is_to_many:
            self._refuse(key, f"{quoted(name)} is to-many: a sort goes through to-one relationships.")
        else:
            self._refuse(key, f"{quoted(name)} is a relationship: sort by an attribute of it, as {name}.id.")

    def _refuse_depth(self, key: SortKey) -> None:
        self._refuse(key, f"a sort goes over at most {self.limits.max_filter_depth} relationships.")

    def _refuse(self, key: SortKey, detail: str) -> None:
        where = f"{quoted(key.path)}: " if "." in key.path else ""
        self.errors.append(SortError(where + detail, parameter=self.parameter))

    def joined(self, path: tuple[str, ...], resource: Resource, alias: str, relationship: ToOne) -> Rows | None:
        """Return the rows that a sort joins. Each path is joined once. None if no others can be joined."""
        if path not in self.joins:
            if len(self.joins) == self.limits.max_filter_depth:
                return None
            self.joins[path] = self.conditions.related(resource, alias, relationship)
        return self.joins[path]
