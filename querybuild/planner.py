"""Query, with the Catalog, -> ReadPlan. What comes in: what was asked, names unresolved. What goes out: a plan
and the values for its slots. Names of sort, include and fields are resolved here, those of filters in
`conditions.py`; each fault is collected.

Nothing here knows SQL text, rows or HTTP. Writes are planned in `changes.py`.
"""

from __future__ import annotations

import msgspec

from querybuild.catalog import Catalog
from querybuild.conditions import ConditionPlanner, ReadValue
from querybuild.cursors import decode_cursor, list_name, mark_of
from querybuild.errors import ApiError, FieldsError, IncludeError, PageError, SortError, listed, nearest, quoted
from querybuild.filters import vals_of
from querybuild.plan import (
    FIRST_ALIAS,
    Branch,
    ColumnRef,
    IdIs,
    Node,
    OrderKey,
    Place,
    ReadPlan,
    Rows,
    Scope,
    Values,
    node_of,
)
from querybuild.query import Context, Limits, Page, Query, SortKey
from querybuild.resource import Attribute, Relationship, Resource, ToOne, own_key_of
from querybuild.rows import MOST_COLUMNS, joined_width, nodes, row_width
from querybuild.rowsets import open_related, open_rows
from querybuild.types import OPAQUE
from querybuild.values import ValueFault

LAST_OFFSET = 2**63 - 1

LINK, PARENT, KEY = "t1", "p", "k"
"""Aliases: of the link table that a statement's related rows are joined with, of the row that the path names, and of
the row that a key refers to."""

JOINED_ROWS = 100
"""Up to how many primary rows the rows of to-one includes come with them: one that many name comes as often."""

FAR_ROWS = 1000
"""An offset from which on it is cheaper to find a page by its ids and then to read its rows (docs/pages.md)."""


class PlannedRead(msgspec.Struct, frozen=True):
    """values: for the slots of the plan: those of the filter, of the cursor, limit and offset. list_name, cursor_mark:
    what its cursors are bound to. cursor_parent: the parent of the list that the request's cursor is of; None where it
    has none. readers: of the filter's values: which val of the request each is made of, and how."""

    plan: ReadPlan
    values: Values
    list_name: str = ""
    cursor_mark: str = ""
    cursor_parent: str | None = None
    readers: tuple[tuple[int, ReadValue], ...] = ()


Fieldset = tuple[tuple[Attribute, ...], tuple[Relationship, ...]]
IncludeTree = dict[str, "IncludeTree"]


def plan_collection(
    query: Query,
    resource: Resource,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
    scope: Scope | None = None,
) -> PlannedRead:
    """The page of a collection that the query asks for. Appends FilterError, SortError, IncludeError and
    FieldsError to errors; the plan is of use only when there are none. scope: of related resources, for their
    cursors."""
    planner = _ReadPlanner(catalog, context, limits, errors)
    rows = planner.conditions.open(resource)
    conditions = planner.conditions.plan(query.filter, resource, rows.alias)
    order = planner.order(query.sort, resource, rows.alias)
    name = list_name(query, resource, scope) if query.page.family == "cursor" else ""
    mark = mark_of(name, vals_of(query.filter)) if name else ""
    if query.page.is_before:
        order = tuple(msgspec.structs.replace(key, is_backwards=True) for key in order)
    place = planner.place(query, order, mark)
    limit, offset = planner.page_slots(query)
    plan = ReadPlan(
        node=planner.root(query, rows, (), is_joining=0 < query.page.size <= JOINED_ROWS),
        conditions=conditions,
        joins=tuple(planner.joins.values()),
        order=order,
        limit=limit,
        offset=offset,
        is_collection=True,
        total=query.page.total if query.page.size else None,
        has_included=query.include is not None,
        has_cursors=query.page.family == "cursor",
        place=place,
        is_far=offset is not None and query.page.offset >= FAR_ROWS,
        usual_limit=_rows_read(query.page) if query.page.size == limits.page_size else None,
    )
    return PlannedRead(
        plan, tuple(planner.conditions.values), name, mark, planner.cursor_parent, tuple(planner.conditions.readers)
    )


def plan_resource(
    query: Query,
    resource: Resource,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
    written: tuple[str, ...] = (),
) -> PlannedRead:
    """The resource that the path names. written: relationships whose linkage is shown because the request
    wrote them."""
    planner = _ReadPlanner(catalog, context, limits, errors)
    rows = planner.conditions.open(resource)
    plan = ReadPlan(
        node=planner.root(query, rows, written, is_joining=True),
        conditions=(IdIs(rows.alias, resource.id.column),),
        is_collection=False,
        has_included=query.include is not None,
    )
    return PlannedRead(plan, ())


def plan_related(
    query: Query,
    scope: Scope,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
) -> PlannedRead:
    """The resources at the other end of a relationship of the resource that the path names: a page of a to-many, or
    the one of a to-one."""
    planned = plan_collection(query, scope.target, catalog, context, limits, errors, scope)
    return _scoped(planned, scope, context, is_linkage=False)


def plan_linkage(
    query: Query,
    scope: Scope,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
) -> PlannedRead:
    """A relationship's linkage, paged as a collection. Every path of include starts with the relationship's
    own name."""
    name = scope.relationship.name
    inner: list[tuple[str, ...]] = []
    for path in query.include or ():
        if path[0] != name:
            detail = f"Include parameter is invalid: here every path starts with {quoted(name)}."
            errors.append(IncludeError(detail, parameter="include"))
        elif (too_deep := _too_deep(path, limits)) is not None:
            errors.append(too_deep)
        else:
            inner.append(path[1:])
    within = msgspec.structs.replace(query, include=tuple(path for path in inner if path))
    planned = plan_collection(within, scope.target, catalog, context, limits, errors, scope)
    planned = _scoped(planned, scope, context, is_linkage=True)
    if inner:
        return msgspec.structs.replace(planned, plan=msgspec.structs.replace(planned.plan, includes_primary=True))
    bare = node_of(planned.plan.node.rows)
    plan = msgspec.structs.replace(planned.plan, node=bare, has_included=query.include is not None)
    return msgspec.structs.replace(planned, plan=plan)


def _too_deep(path: tuple[str, ...], limits: Limits) -> IncludeError | None:
    if len(path) <= limits.max_include_depth:
        return None
    detail = f"{quoted('.'.join(path))} goes deeper than {limits.max_include_depth} relationships."
    return IncludeError(f"Include parameter is invalid: {detail}", parameter="include")


def _scoped(planned: PlannedRead, scope: Scope, context: Context, *, is_linkage: bool) -> PlannedRead:
    scope = msgspec.structs.replace(scope, rows=open_rows(scope.parent, PARENT, context))
    plan = msgspec.structs.replace(
        planned.plan, scope=scope, is_collection=scope.relationship.is_to_many, is_linkage=is_linkage
    )
    if not plan.is_collection:
        plan = msgspec.structs.replace(
            plan, order=(), limit=None, offset=None, total=None, has_cursors=False, place=None, is_far=False
        )
    return msgspec.structs.replace(planned, plan=plan)


def _rows_read(page: Page) -> int:
    """Without an exact total, and with cursors, one row more is read, which tells whether there is another page."""
    return page.size + (page.total != "exact" or page.family == "cursor")


def _united(node: Node) -> Node:
    """The one branch that else would be read by a statement of its own comes with the primary rows."""
    read_apart = [branch for below, _ in nodes(node) for branch in below.branches if branch.has_statement]
    if len(read_apart) != 1 or read_apart[0] not in node.branches:
        return node
    if joined_width(node) + row_width(read_apart[0].node, read_apart[0]) > MOST_COLUMNS:
        return node
    branches = [
        msgspec.structs.replace(branch, is_united=True) if branch is read_apart[0] else branch
        for branch in node.branches
    ]
    return msgspec.structs.replace(node, branches=tuple(branches))


class _ReadPlanner:
    """One read's planning: what it has resolved so far."""

    def __init__(self, catalog: Catalog, context: Context, limits: Limits, errors: list[ApiError]) -> None:
        self.catalog = catalog
        self.context = context
        self.limits = limits
        self.errors = errors
        self.conditions = ConditionPlanner(catalog, context, limits, errors)
        self.joins: dict[tuple[str, ...], Rows] = {}
        self._joined_count = 0
        self.cursor_parent: str | None = None

    def order(self, keys: tuple[SortKey, ...], resource: Resource, alias: str) -> tuple[OrderKey, ...]:
        """The sort keys, and the id in the direction of the last one, so that every order is total."""
        named = [key for sort_key in keys if (key := self.order_key(sort_key, resource, alias)) is not None]
        first: dict[ColumnRef, OrderKey] = {}
        for key in named:
            # A column that is there already leaves nothing to sort.
            first.setdefault(key.column, key)
        order = list(first.values())
        id_column = ColumnRef(alias, self.catalog.id_of(resource))
        for place, key in enumerate(order):
            if key.column == id_column:
                # Nothing is alike after it.
                return tuple(order[: place + 1])
        return (*order, OrderKey(id_column, bool(named) and named[-1].is_descending, False))

    def order_key(self, key: SortKey, resource: Resource, alias: str) -> OrderKey | None:
        """The column at the end of the path, a LEFT JOIN a step; a key in the row itself needs none."""
        names = self._sort_path(key, resource)
        if len(names) - 1 > self.limits.max_filter_depth or len(self.joins) > self.limits.max_filter_depth:
            self._refuse(key, f"a sort goes over at most {self.limits.max_filter_depth} relationships.")
            return None
        is_nullable = False
        for position, name in enumerate(names[:-1]):
            relationship = resource.relationship(name)
            if relationship is None or not relationship.filterable:
                what = f"{quoted(name)} is no relationship of {resource.type}"
                self._refuse(key, f"{what}: a path goes through to-one relationships.")
                return None
            if not isinstance(relationship, ToOne):
                self._refuse_sort(key, name, resource, relationship)
                return None
            is_sure = relationship.is_own_key and not self.conditions.hides(relationship)
            is_nullable = is_nullable or relationship.nullable or not is_sure
            if names[position + 1 :] == ["id"] and is_sure:
                return OrderKey(ColumnRef(alias, self.catalog.key_of(relationship)), key.is_descending, is_nullable)
            alias = self.join(tuple(names[: position + 1]), resource, alias, relationship).alias
            resource = self.catalog.target(relationship)
        name = names[-1]
        attribute = self.catalog.id_of(resource) if name == "id" else resource.attribute(name)
        if attribute is None or not attribute.is_sortable:
            self._refuse_sort(key, name, resource, resource.relationship(name))
            return None
        if (attribute.type.element or attribute.type).family in ("json", "jsonb"):
            self._refuse(key, f"{quoted(name)} holds JSON, which has no order.")
            return None
        if attribute.type is OPAQUE:
            self._refuse(key, f"{quoted(name)} is of a type that has no order.")
            return None
        column = ColumnRef(alias, attribute)
        return OrderKey(column, key.is_descending, is_nullable or attribute.nullable)

    def _sort_path(self, key: SortKey, resource: Resource) -> list[str]:
        """The names of a path; `group_id` at its end stands for `group.id`, unless an attribute is called so."""
        *steps, last = key.path.split(".")
        found: Resource | None = resource
        for name in steps:
            relationship = found and found.relationship(name)
            found = self.catalog.target(relationship) if relationship else None
        short = last.removesuffix("_id")
        if found and short != last and not found.attribute(last) and isinstance(found.relationship(short), ToOne):
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

    def _refuse(self, key: SortKey, detail: str) -> None:
        place = f"{quoted(key.path)}: " if "." in key.path else ""
        self.errors.append(SortError(place + detail, parameter="sort"))

    def join(self, path: tuple[str, ...], resource: Resource, alias: str, relationship: ToOne) -> Rows:
        """The join that a sort needs, once a path."""
        if path not in self.joins:
            self.joins[path] = self.conditions.related(resource, alias, relationship)
        return self.joins[path]

    def place(self, query: Query, keys: tuple[OrderKey, ...], mark: str) -> Place | None:
        """Where the cursor says that the page begins."""
        page = query.page
        for key in keys if page.family == "cursor" else ():
            element = key.column.attribute.type.element
            if element is not None and element.name == "enum":
                # Their type has a name that no declaration says, and a cursor's text has to be read as it.
                detail = (
                    f"A list that is sorted by {quoted(key.column.attribute.name)} has no cursors: use page[number]."
                )
                self.errors.append(PageError(detail, parameter=page.cursor_parameter))
        if not page.cursor:
            return None
        try:
            cursor = decode_cursor(page.cursor)
            cursor.check(mark, len(keys))
        except ValueFault as error:
            self.errors.append(
                PageError(f"Expected {error}, not {quoted(page.cursor)}.", parameter=page.cursor_parameter)
            )
            return None
        self.cursor_parent = cursor.parent
        return Place(keys, tuple(None if value is None else self.conditions.slot(value) for value in cursor.values))

    def page_slots(self, query: Query) -> tuple[int | None, int | None]:
        """Slots of LIMIT and OFFSET."""
        page = query.page
        if page.size == 0:
            if not isinstance(self.limits.unpaginated, int):
                return None, None
            return self.conditions.slot(self.limits.unpaginated + 1), None
        limit = self.conditions.slot(_rows_read(query.page))
        return limit, self.conditions.slot(min(page.offset, LAST_OFFSET)) if page.offset else None

    def root(self, query: Query, rows: Rows, written: tuple[str, ...], *, is_joining: bool) -> Node:
        tree = self._include_tree(query, rows.resource)
        fieldsets = self._fieldsets(query.fields)
        node = self.node(rows, tree, written, fieldsets, is_joining=is_joining)
        if is_joining and joined_width(node) > MOST_COLUMNS:
            return self.node(rows, tree, written, fieldsets, is_joining=False)
        return _united(node) if is_joining and not written else node

    def _include_tree(self, query: Query, resource: Resource) -> IncludeTree:
        """The relationships that the paths lead over, each once: most of them are a statement of their own."""
        tree: IncludeTree = {}
        opened: set[tuple[str, ...]] = set()
        for path in query.include or ():
            if (too_deep := _too_deep(path, self.limits)) is not None:
                self.errors.append(too_deep)
            elif self._is_path(path, resource):
                opened.update(path[:end] for end in range(1, len(path) + 1))
                branch = tree
                for name in path:
                    branch = branch.setdefault(name, {})
        most = self.limits.max_includes
        if len(opened) > most:
            detail = f"it leads over {len(opened)} relationships, and at most {most} are allowed: include less."
            self._refuse_include(detail)
            return {}
        return tree

    def _is_path(self, path: tuple[str, ...], resource: Resource) -> bool:
        for name in path:
            relationship = resource.relationship(name)
            if relationship is None or not relationship.includable:
                known = [known.name for known in resource.relationships if known.includable]
                detail = f"{resource.type} has no relationship {quoted(name)}."
                self._refuse_include(f"{detail}{nearest(name, known)} There are: {listed(known)}.")
                return False
            resource = self.catalog.target(relationship)
        return True

    def _refuse_include(self, detail: str) -> None:
        self.errors.append(IncludeError(f"Include parameter is invalid: {detail}", parameter="include"))

    def _fieldsets(self, fields: dict[str, tuple[str, ...]]) -> dict[str, Fieldset]:
        fieldsets: dict[str, Fieldset] = {}
        for type_name, names in fields.items():
            parameter = f"fields[{type_name}]"
            resource = self.catalog.by_type.get(type_name)
            if resource is None:
                detail = f"There is no resource type {quoted(type_name)}.{nearest(type_name, self.catalog.by_type)}"
                self.errors.append(FieldsError(detail, parameter=parameter))
                continue
            attributes = resource.readable_attributes
            known = [field.name for field in (*attributes, *resource.relationships)]
            for name in names:
                if name not in known:
                    detail = f"{type_name} has no field {quoted(name)}.{nearest(name, known)}"
                    self.errors.append(FieldsError(detail, parameter=parameter))
            fieldsets[type_name] = (
                tuple(attribute for attribute in attributes if attribute.name in names),
                tuple(relation for relation in resource.relationships if relation.name in names),
            )
        return fieldsets

    def node(
        self,
        rows: Rows,
        tree: IncludeTree,
        written: tuple[str, ...],
        fieldsets: dict[str, Fieldset],
        *,
        is_joining: bool,
    ) -> Node:
        """is_joining: whether to-one includes are joined to these rows."""
        resource = rows.resource
        attributes, relationships = fieldsets.get(resource.type, (resource.readable_attributes, resource.relationships))
        branches = []
        for relationship in resource.relationships:
            if relationship.name in tree:
                is_joined = is_joining and relationship.is_own_key
                related = self._branch_rows(relationship, rows, is_joined=is_joined)
                child = self.node(related, tree[relationship.name], (), fieldsets, is_joining=is_joined)
                branches.append(Branch(relationship, child, True, is_joined))
            elif relationship.name in written and relationship in relationships:
                related = self._branch_rows(relationship, rows, is_joined=False)
                branches.append(Branch(relationship, node_of(related), False))
        keys = {
            own.column_name: branch.relationship
            for branch in branches
            if (own := own_key_of(branch.relationship)) is not None
        }
        targets = tuple([self._key_rows(relationship, rows) for relationship in keys.values()])
        return node_of(rows, attributes, relationships, tuple(keys), tuple(branches), targets if any(targets) else ())

    def _branch_rows(self, relationship: Relationship, parents: Rows, *, is_joined: bool) -> Rows:
        """The related rows: joined to their parents, or those that a statement of their own is about."""
        aliases = [LINK, FIRST_ALIAS]
        if is_joined:
            self._joined_count += 1
            aliases = [f"j{self._joined_count}"]
        return open_related(relationship, parents.resource, parents.alias, aliases, self.catalog, self.context)

    def _key_rows(self, relationship: Relationship, parents: Rows) -> Rows | None:
        """The rows that a key of the parents refers to, where the context may hide some of them."""
        if not self.conditions.hides(relationship):
            return None
        return open_related(relationship, parents.resource, parents.alias, [KEY], self.catalog, self.context)
