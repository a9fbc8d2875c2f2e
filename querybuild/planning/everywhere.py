"""Adds the rules of the whole catalog to what a principal may do with each resource and each link table.

It must not know: principals, statements.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, MutableSet
from collections.abc import Set as AbstractSet

import msgspec

from querybuild.declarations.access import Action
from querybuild.declarations.catalog import Catalog, Everywhere
from querybuild.declarations.operators import EQUAL
from querybuild.declarations.resource import Resource, link_of, own_key_of
from querybuild.planning.context import AssignedField, LinkAccess
from querybuild.planning.criteria import PrincipalRead, without_missing
from querybuild.planning.row_plan import ColumnRef, Condition, Slot, Test
from querybuild.planning.rowsets import ANY_ROW

_CRITERIA = ("read", "check_create", "check_update")
"""The criteria of `Access` that each row of a table meets."""


class RuleEverywhere(msgspec.Struct, frozen=True, eq=False):
    """A rule of all tables. audience: its index; everybody. index: of the value in `Context.values`. reads: the value,
    if it comes from the principal."""

    declared: Everywhere
    audience: int
    index: int
    reads: tuple[PrincipalRead, ...]

    def has(self, table: str) -> bool:
        """Return whether a table has the column."""
        return table not in self.declared.without

    def criteria(self, missing: AbstractSet[int]) -> tuple[Condition, ...]:
        """Return what each row meets. missing: the values that the principal does not have."""
        attribute = self.declared.attribute
        test = Test(EQUAL, ColumnRef(ANY_ROW, attribute), "value", (Slot("context", self.index),))
        return without_missing((test,), missing)

    def add_to(
        self,
        catalog: Catalog,
        missing: AbstractSet[int],
        criteria: MutableMapping[str, dict[str, tuple[Condition, ...]]],
        assigned: MutableMapping[str, tuple[AssignedField, ...]],
        refused: MutableSet[tuple[str, Action]],
    ) -> None:
        """Add the rule to the rights of all resources, which are those of `Access`."""
        met = self.criteria(missing)
        for resource in catalog:
            if not self.has(resource.table):
                continue
            for name in _CRITERIA:
                own = criteria.setdefault(name, {})
                own[resource.type] = (*met, *own.get(resource.type, ()))
            assigned[resource.type] = (*assigned.get(resource.type, ()), self._field(resource))
            if self.index in missing:
                refused.add((resource.type, "create"))

    def _field(self, resource: Resource) -> AssignedField:
        """Return what a create sets: the field that the resource declares over the column, or the column itself."""
        attribute = self.declared.attribute
        column = attribute.column_name
        declared = {stored.column_name: stored.name for stored in resource.attributes if stored.is_stored}
        for relationship in resource.relationships:
            own = own_key_of(relationship)
            if own is not None and own.own_columns == (column,):
                declared[column] = relationship.name
        if column in declared:
            return AssignedField(declared[column], self.index, is_fixed=True)
        return self.column

    @property
    def column(self) -> AssignedField:
        """The column, as what a new row gets."""
        attribute = self.declared.attribute
        return AssignedField(attribute.name, self.index, is_fixed=True, attribute=attribute)


def link_accesses(
    rules: Iterable[RuleEverywhere], catalog: Catalog, missing: AbstractSet[int]
) -> dict[tuple[str | None, str], LinkAccess]:
    """Return what the rules say of each link table."""
    relationships = [relationship for resource in catalog for relationship in resource.relationships]
    names = dict.fromkeys(
        (link.schema, link.table) for relationship in relationships if (link := link_of(relationship)) is not None
    )
    by_table: dict[tuple[str | None, str], LinkAccess] = {}
    for name in names:
        own = [rule for rule in rules if rule.has(name[1])]
        if own:
            criteria = [condition for rule in own for condition in rule.criteria(missing)]
            by_table[name] = LinkAccess(tuple(criteria), tuple([rule.column for rule in own]))
    return by_table
