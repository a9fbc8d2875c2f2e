"""Plans filters. What comes in: filter nodes whose names are not resolved, with the resource and the alias of their
rows. What goes out: conditions. Each value is converted to the type of its column and gets a slot.

The aliases of a read are also chosen here, for filters and for sorts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, TypeVar

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.json_paths import path_fault, split_names, unescaped
from querybuild.declarations.json_texts import dump_json
from querybuild.declarations.operators import (
    NULL_OPERATORS,
    Arity,
    OperatorRow,
    all_names,
    find_operator,
    operator_names,
)
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, inner_attribute, link_of
from querybuild.declarations.types import BIGINT, JSONB
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, listed, nearest, quoted, shortened
from querybuild.filters import fault
from querybuild.planning.context import Context
from querybuild.planning.filter_values import ReadValue, custom_reader, value_reader
from querybuild.planning.row_plan import AmongFirst, ColumnRef, Condition, CustomTest, Exists, Logic, Rows, Slot, Test
from querybuild.planning.rowsets import may_lack, open_related, open_rows, with_conditions
from querybuild.query import CountFilter, FieldFilter, FilterGroup, FilterNode, Limits, RelationFilter

MakeCondition = Callable[[ColumnRef], Condition | None]
"""Returns the condition on the column at the end of a path."""

NamedFilter = FieldFilter | RelationFilter | CountFilter
Result = TypeVar("Result")

COUNTED = Attribute("count", BIGINT)
"""The number of related rows, as an attribute."""

COUNT_OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "between", "in_", "notin_")
"""The operators that compare it."""

NULL_TEXT = "null"
"""The text for null in a simple filter, if the operator accepts null."""

MAX_JOINED_STEPS = 8
"""How many conditions over relationships PostgreSQL's planner may turn into joins. It searches for the best order of
all joins: for 12 filters of four steps this took 3 s, for 20 more than 30 s. Further conditions are planned
separately."""


class ConditionPlanner:
    """Plans the conditions of one request. It chooses the aliases t0, t1, ... and collects the values."""

    alias_prefix = "t"
    source: Literal["request", "context"] = "request"
    """The source of the slots."""

    def __init__(self, catalog: Catalog, context: Context, limits: Limits, errors: list[ApiError]) -> None:
        self.catalog = catalog
        self.context = context
        self.limits = limits
        self.errors = errors
        self.values: list[Any] = []
        # For each converted val: its index in the request, and the function that converts it. None for a value that is
        # made of those before it, or is the same in each request of this form.
        self.readers: list[tuple[int | None, ReadValue]] = []
        # The index of a val -> the indexes of its values.
        self.value_slots: dict[int, tuple[int, ...]] = {}
        # The indexes of the vals that only PostgreSQL can check.
        self.checked: set[int] = set()
        self._paths: dict[tuple[str, ...], Slot] = {}
        self._alias_count = 0
        self._step_depth = 0
        self.step_count = 0
        # Whether null and false have different results for the condition that is being planned. They have below a
        # `not`, but not in the WHERE of an EXISTS.
        self._is_negated = False

    def open(self, resource: Resource) -> Rows:
        """Return rows of the resource that are not attached to other rows."""
        return self._counted(open_rows(resource, self._alias(), self.context))

    def related(self, resource: Resource, alias: str, relationship: Relationship) -> Rows:
        """Return the related rows, attached to the rows of the resource."""
        aliases = [self._alias() for _ in range(1 if link_of(relationship) is None else 2)]
        return self._counted(open_related(relationship, resource, alias, aliases, self.catalog, self.context))

    def _counted(self, rows: Rows) -> Rows:
        """Count the steps of the criteria like those of the filter, because PostgreSQL plans them together."""
        self.step_count += sum(map(steps_of, rows.criteria))
        return rows

    def _alias(self) -> str:
        self._alias_count += 1
        return f"{self.alias_prefix}{self._alias_count - 1}"

    def slot(self, value: Any) -> int:
        """Add a value. Return the index of its slot."""
        self.values.append(value)
        return len(self.values) - 1

    def constant(self, value: Any) -> Slot:
        """Add a value that is the same in each request of this form."""
        self.readers.append((None, lambda _: [value]))
        return Slot(self.source, self.slot(value))

    def plan(self, nodes: tuple[FilterNode, ...], resource: Resource, alias: str) -> tuple[Condition, ...]:
        """Plan filter nodes that are combined with AND. Invalid ones are appended to the errors and left out."""
        planned = [self.condition(node, resource, alias) for node in nodes]
        return tuple(condition for condition in planned if condition is not None)

    def condition(self, node: FilterNode, resource: Resource, alias: str) -> Condition | None:
        """Plan a filter node. Return None if it is invalid."""
        if not isinstance(node, FilterGroup) and self._has_no_path(node):
            return None
        match node:
            case FilterGroup(op="not"):
                was_negated, self._is_negated = self._is_negated, True
                items = self.plan(node.items, resource, alias)
                self._is_negated = was_negated
                return Logic("not", items)
            case FilterGroup():
                items = self.plan(node.items, resource, alias)
                return Logic(node.op, self._united(items) if node.op == "or" else items)
            case RelationFilter():
                return self.relation(node, resource, alias)
            case CountFilter():
                return self.count(node, resource, alias)
            case FieldFilter():
                return self.compare(node, node.name, node.field, resource, alias)

    def _united(self, items: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Return alternatives with one list for each column. For `"id"=ANY($1) OR "id"=ANY($2)` PostgreSQL may read the
        whole table: 200 to 300 ms for ten lists of 100, 1.3 ms for one list of 1,000."""
        lists: dict[tuple[str, Attribute], list[Test]] = {}
        kept: list[Condition] = []
        for item in items:
            if isinstance(item, Test) and item.operator.unites_lists and item.form == "value" and _is_own(item.left):
                lists.setdefault((item.left.alias, item.left.attribute), []).append(item)
            else:
                kept.append(item)
        # The values of a principal are not known yet.
        is_known = self.source == "request" and len(kept) + len(lists) < len(items)
        return (*map(self._one_list, lists.values()), *kept) if is_known else items

    def _one_list(self, tests: Sequence[Test]) -> Test:
        indexes = [test.slots[0].index for test in tests]

        def unite(values: Sequence[Any]) -> list[Any]:
            return [list(chain.from_iterable([values[index] for index in indexes]))]

        self.readers.append((None, unite))
        return msgspec.structs.replace(tests[0], slots=(Slot(self.source, self.slot(*unite(self.values))),))

    def _has_no_path(self, node: NamedFilter) -> bool:
        for path in (node.name, node.field if isinstance(node, FieldFilter) else None):
            if path and (why := path_fault(path)):
                self._refuse(node, f"{quoted(path)} {why}.")
                return True
        return False

    def relation(self, node: RelationFilter, resource: Resource, alias: str) -> Condition | None:
        """Plan `any` or `has` at the end of a path of relationships."""
        head, _, rest = node.name.partition(".")
        attribute = self._attribute(head, resource)
        if attribute is not None and not rest:
            self._refuse_operator(node, attribute)
            return None
        relationship = self._relationship(node, head, resource)
        if relationship is None:
            return None
        if not rest and relationship.is_to_many != (node.op == "any"):
            kind, right = ("to-many", "any") if relationship.is_to_many else ("to-one", "has")
            self._refuse(node, f"{quoted(head)} is {kind}: its operator is `{right}`.")
            return None
        if not rest:
            return self._exists(
                node, resource, alias, relationship, lambda at: self.plan(node.items, at.resource, at.alias)
            )
        onward = RelationFilter(rest, node.op, node.items, node.source)
        return self._exists(
            node, resource, alias, relationship, lambda at: _one(self.relation(onward, at.resource, at.alias))
        )

    def count(self, node: CountFilter, resource: Resource, alias: str) -> Condition | None:
        """Plan `count` at the end of a path of relationships."""
        head, _, rest = node.name.partition(".")
        relationship = self._relationship(node, head, resource)
        if relationship is None:
            return None
        if rest:
            onward = msgspec.structs.replace(node, name=rest)
            return self._exists(
                node, resource, alias, relationship, lambda at: _one(self.count(onward, at.resource, at.alias))
            )
        if not relationship.is_to_many:
            self._refuse(node, f"{quoted(head)} is to-one: its operator is `has`.")
            return None
        operator = find_operator(COUNTED, node.test.op)
        if not isinstance(operator, OperatorRow) or operator.name not in COUNT_OPERATORS:
            detail = f"`count` has no operator {quoted(node.test.op)}.{nearest(node.test.op, COUNT_OPERATORS)}"
            self._refuse(node.test, f"{detail} There are: {', '.join(COUNT_OPERATORS)}.")
            return None
        if node.test.val is None:
            self._refuse(node.test, "the number of related resources is never null.")
            return None
        inner = self._within(node, lambda: self.counted(relationship, resource, alias, node.items))
        return None if inner is None else self.test(node.test, inner, None, resource, alias)

    def counted(
        self, relationship: Relationship, resource: Resource, alias: str, items: tuple[FilterNode, ...] = ()
    ) -> ColumnRef:
        """Return the number of the related rows that match all filters."""
        rows = self.related(resource, alias, relationship)
        rows = with_conditions(rows, self.plan(items, rows.resource, rows.alias))
        return ColumnRef(alias, COUNTED, rows, is_count=True)

    def _within(self, node: NamedFilter, make: Callable[[], Result]) -> Result | None:
        """Return what is planned of rows one step further. The limit for nesting is max_filter_depth, for dots and for
        `any`, `has` and `count`: PostgreSQL plans 60 levels in 1 s, and 160 in 6 s."""
        if self._step_depth == self.limits.max_filter_depth:
            self._refuse(node, f"a filter goes over at most {self.limits.max_filter_depth} relationships in a row")
            return None
        self._step_depth += 1
        self.step_count += 1
        was_negated, self._is_negated = self._is_negated, False
        made = make()
        self._is_negated = was_negated
        self._step_depth -= 1
        return made

    def compare(
        self, node: FieldFilter, path: str, field: str | None, resource: Resource, alias: str
    ) -> Condition | None:
        """Plan a filter object on the column at the end of a path. Two fields of the same to-many are compared within
        one row: each step that both paths have in common, up to the last to-many, is one EXISTS."""
        shared = None if field is None else self._shared_step(path, field, resource)
        if field is None or shared is None:
            return self.reach(node, path, resource, alias, lambda left: self.test(node, left, field, resource, alias))
        rest, other = path.partition(".")[2], field.partition(".")[2]
        return self._exists(
            node, resource, alias, shared, lambda at: _one(self.compare(node, rest, other, at.resource, at.alias))
        )

    def _shared_step(self, path: str, field: str, resource: Resource) -> Relationship | None:
        """Return the relationship that both paths begin with, or None if their common part has no to-many."""
        first: Relationship | None = None
        for name, other in zip(path.split(".")[:-1], field.split(".")[:-1], strict=False):
            relationship = resource.relationship(name)
            if name != other or relationship is None or not self.may_follow(relationship):
                return None
            first = first or relationship
            if relationship.is_to_many:
                return first
            resource = self.catalog.target(relationship)
        return None

    def reach(
        self, node: FieldFilter, path: str, resource: Resource, alias: str, make: MakeCondition
    ) -> Condition | None:
        """Plan a condition on the column at the end of a dotted path. Each step is an EXISTS, except the step to an id
        whose key is in the row itself."""
        head, _, rest = path.partition(".")
        if not rest:
            attribute = self._attribute(head, resource)
            if attribute is not None:
                return make(ColumnRef(alias, attribute))
            to_one = None if resource.attribute(head) is not None else self._to_one_named(head, resource)
            if to_one is not None:
                head, rest = to_one.name, "id"
        elif (attribute := self._attribute(head, resource)) is not None and attribute.type is JSONB:
            return make(self.inner_column(attribute, split_names(rest, "."), alias))
        relationship = self._relationship(node, head, resource, is_last=not rest)
        if relationship is None:
            return None
        if not rest:
            self._refuse(node, f"{quoted(head)} is to-many: ask with `any`, or name a field of it, {head}.id.")
            return None
        if rest == "id" and isinstance(relationship, ToOne) and self._is_value(node, relationship):
            return make(self.id_of(relationship, resource, alias))
        return self._exists(
            node, resource, alias, relationship, lambda at: _one(self.reach(node, rest, at.resource, at.alias, make))
        )

    def inner_column(self, attribute: Attribute, names: Sequence[str], alias: str) -> ColumnRef:
        """Return the value inside of a jsonb attribute. names: its path, escaped. The path of a request is a value of
        its statements."""
        inner, declared = inner_attribute(attribute, tuple(names))
        if declared is not None:
            return ColumnRef(alias, inner, derived=declared)
        path = unescaped(names)
        if path not in self._paths:
            self._paths[path] = self.constant(list(path))
        return ColumnRef(alias, inner, derived=self._paths[path])

    def _is_value(self, node: FieldFilter, relationship: ToOne) -> bool:
        """Return whether the related id is planned as a value, which is null if there is no related row. An EXISTS is
        used if the key is in the related row and null means false: then PostgreSQL can begin with the related row."""
        matches_null = node.field is not None or node.op in NULL_OPERATORS
        return self.holds_id(relationship) or self._is_negated or matches_null

    def id_of(self, relationship: ToOne, resource: Resource, alias: str) -> ColumnRef:
        """Return the id of the related row of a to-one, null if there is none. It is read from that row if the key is
        there, or if that row may be hidden."""
        if self.holds_id(relationship):
            return ColumnRef(alias, self.catalog.key_of(relationship, is_negated=self._is_negated))
        rows = self.related(resource, alias, relationship)
        return ColumnRef(rows.alias, self.catalog.id_of(rows.resource), rows)

    def holds_id(self, relationship: ToOne) -> bool:
        """Return whether the row itself has the id of a related row that is there, and that the request may see."""
        return relationship.is_own_key and not may_lack(relationship, self.catalog, self.context)

    def _exists(
        self,
        node: NamedFilter,
        resource: Resource,
        alias: str,
        relationship: Relationship,
        inner: Callable[[Rows], tuple[Condition, ...] | None],
    ) -> Condition | None:
        """Plan an EXISTS over a relationship. inner: returns the conditions on the related rows."""

        def plan() -> Condition | None:
            rows = self.related(resource, alias, relationship)
            is_separate = self.step_count > MAX_JOINED_STEPS
            conditions = inner(rows)
            return None if conditions is None else Exists(with_conditions(rows, conditions), is_separate)

        return self._within(node, plan)

    def _attribute(self, name: str, resource: Resource) -> Attribute | None:
        if name == "id":
            return self.catalog.id_of(resource)
        attribute = resource.attribute(name)
        return attribute if attribute is not None and self.may_compare(attribute) else None

    def may_compare(self, attribute: Attribute) -> bool:
        """Return whether filters may use the attribute."""
        return attribute.is_filterable

    def may_follow(self, relationship: Relationship) -> bool:
        """Return whether filters may go over the relationship."""
        return relationship.filterable

    def _to_one_named(self, name: str, resource: Resource) -> ToOne | None:
        """Return the to-one that `group` or `group_id` refers to."""
        for known in (name, name.removesuffix("_id")):
            relationship = resource.relationship(known)
            if isinstance(relationship, ToOne):
                return relationship
        return None

    def _relationship(
        self, node: NamedFilter, name: str, resource: Resource, *, is_last: bool = False
    ) -> Relationship | None:
        relationship = resource.relationship(name)
        if relationship is not None and self.may_follow(relationship):
            return relationship
        known = [relation.name for relation in resource.relationships if self.may_follow(relation)]
        what = "relationship"
        if is_last:
            attributes = [attribute.name for attribute in resource.attributes if self.may_compare(attribute)]
            known = ["id", *attributes, *known]
            what = "attribute or relationship"
        detail = f"{resource.type} has no {what} {quoted(name)}.{nearest(name, known)}"
        self._refuse(node, f"{detail} There are: {listed(known)}.")
        return None

    def test(
        self, node: FieldFilter, left: ColumnRef, field: str | None, resource: Resource, alias: str
    ) -> Condition | None:
        """Plan a comparison of a column. field: the path of another field, from rows of the resource. None: the column
        is compared with the val of the node."""
        attribute = left.attribute
        operator = find_operator(attribute, node.op)
        if operator is None:
            self._refuse_operator(node, attribute)
            return None
        if field is not None:
            if isinstance(operator, OperatorRow) and operator.on_field is not None:
                return self._against_field(node, operator, left, field, resource, alias)
            self._refuse(node, f"`{node.op}` has no `field` form.")
            return None
        try:
            if not isinstance(operator, OperatorRow):
                reader = custom_reader(operator, attribute, self.limits, is_text=node.is_text)
                [slot] = self.slots(node, reader, attribute, "one")
                return CustomTest(operator, left, slot)
            return self._against_value(node, operator, left)
        except ValueFault as error:
            shown = quoted(node.val) if node.is_text else self.shown(node.val)
            self._refuse(node, f"the value for {quoted(node.name)} must be {error}, not {shown}.")
            return None

    def shown(self, val: Any) -> str:
        """Return a val for an error."""
        return shortened(dump_json(val))

    def slots(self, node: FieldFilter, read: ReadValue, attribute: Attribute, arity: Arity) -> tuple[Slot, ...]:
        """Convert the val of the filter. Return the slots of its values. Raises ValueFault."""
        values = read(node.val)
        self.readers.append((node.index, read))
        slots = tuple([self.slot(value) for value in values])
        self.value_slots[node.index] = slots
        return tuple([Slot(self.source, slot) for slot in slots])

    def _against_field(
        self, node: FieldFilter, row: OperatorRow, left: ColumnRef, path: str, resource: Resource, alias: str
    ) -> Condition | None:
        def make(right: ColumnRef) -> Condition | None:
            if left.attribute.type.family != right.attribute.type.family:
                kinds = f"{left.attribute.type.name} with {right.attribute.type.name}"
                self._refuse(node, f"{quoted(node.name)} and {quoted(node.field or path)} do not compare: {kinds}.")
                return None
            return Test(row, left, "field", right=right)

        return self.reach(node, path, resource, alias, make)

    def _against_value(self, node: FieldFilter, row: OperatorRow, left: ColumnRef) -> Condition | None:
        attribute = left.attribute
        if node.val is None or (node.is_text and row.on_null is not None and node.val == NULL_TEXT):
            if row.on_null is not None:
                return Test(row, left, "null")
            self._refuse(node, f"`{node.op}` never matches null: ask with `is_` or `isnot`.")
            return None
        if row.only_null(attribute):
            self._refuse(node, f"`{node.op}` of {attribute.type.name} takes only null.")
            return None
        reader = value_reader(row, attribute, self.limits, is_text=node.is_text)
        slots = self.slots(node, reader, attribute, row.arity)
        if row.value_type_of(attribute).is_checked_by_database:
            self.checked.add(node.index)
        return Test(row, left, "value", slots)

    def _refuse_operator(self, node: FieldFilter | RelationFilter, attribute: Attribute) -> None:
        names = operator_names(attribute)
        advice = _advice(node.op, attribute, names)
        if node.op in all_names():
            detail = f"{quoted(node.name)} is {attribute.type.name} and has no operator {quoted(node.op)}.{advice}"
        else:
            detail = f"There is no operator {quoted(node.op)}.{advice or nearest(node.op, names)}"
        self._refuse(node, f"{detail} {quoted(node.name)} has: {', '.join(names)}.")

    def _refuse(self, node: NamedFilter, detail: str) -> None:
        self.errors.append(fault(node.source, detail))


_PART_OPERATORS = frozenset(
    {"contains", "icontains", "contain", "includes", "like", "ilike", "has", "any", "overlaps", "search"}
)
"""Names of operators that clients send to find a part of a value, here or in other APIs."""

_PART_ADVICE = {
    "search": "Use “search” to find words.",
    "jsonb_contains": "Use “jsonb_contains” to find a part.",
    "ilike": "Use “ilike” to find a part of a text.",
}
"""Our operator that finds a part of a value -> what an error says about it. The first that there is counts."""


def _advice(operator: str, attribute: Attribute, names: Sequence[str]) -> str:
    """Return which operator finds a part of a value, if the client looks for one. names: the operators that there
    are."""
    if operator not in _PART_OPERATORS:
        return ""
    if attribute.type.element is not None and "in_" in names:
        return " Use “in_” to find the arrays that contain a value."
    return next((f" {advice}" for name, advice in _PART_ADVICE.items() if name in names), "")


def steps_of(condition: Condition) -> int:
    """Return how many steps over relationships a condition has."""
    match condition:
        case AmongFirst(parents=parents, rows=rows):
            return 2 + sum(map(steps_of, (*parents.all_conditions, *rows.all_conditions)))
        case Exists(rows=rows):
            return 1 + sum(map(steps_of, (*rows.criteria, *rows.conditions)))
        case Test(left=ColumnRef(rows=Rows(criteria=criteria, conditions=conditions), is_count=True)):
            return 1 + sum(map(steps_of, (*criteria, *conditions)))
        case Logic(items=items):
            return sum(map(steps_of, items))
        case _:
            return 0


def _one(condition: Condition | None) -> tuple[Condition, ...] | None:
    return None if condition is None else (condition,)


def _is_own(column: ColumnRef) -> bool:
    """Return whether it is a column of the row itself."""
    return column.rows is None and column.derived is None
