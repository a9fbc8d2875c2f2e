"""Plans reads. What comes in: a Query whose names are not resolved, and the Catalog. What goes out: a ReadPlan and the
values for its slots. Names of sort, include and fields are resolved here, names of filters in `conditions.py`. All
errors are collected.

It must not know: SQL text, rows, HTTP. Writes are planned in `changes.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.cursors import mark_of
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Call, Returned
from querybuild.declarations.resource import Relationship, Resource, own_key_of, referring_key
from querybuild.errors import ApiError, FieldsError, IncludeError, listed, nearest, quoted
from querybuild.filters import SentFilter, sent_filters
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.context import Context
from querybuild.planning.filter_values import ReadValue
from querybuild.planning.page_values import WHOLE, PageValues, Values
from querybuild.planning.plan import Branch, Included, Node, ReadPlan, node_of
from querybuild.planning.reads.choices import NOTHING_CHOSEN, ChoicePlanner, Path, PlannedChoice
from querybuild.planning.reads.counting import NO_REFERENCES, References, counted_by
from querybuild.planning.reads.fetching import chosen_fetch, included_fetch, linkage_fetch, united
from querybuild.planning.reads.forms import Fieldset, browsed, carried, first_fields, line_columns, shown_linkage
from querybuild.planning.reads.grouping import GroupPlanner
from querybuild.planning.reads.list_names import list_name, list_vals
from querybuild.planning.reads.nearest import near_filter, plan_near
from querybuild.planning.reads.pages import PagePlanner
from querybuild.planning.reads.searches import plan_search
from querybuild.planning.reads.sorts import SortPlanner, is_part_of_table
from querybuild.planning.reads.stream_plan import can_be_streamed
from querybuild.planning.row_plan import FIRST_ALIAS, Condition, IdIs, OrderKey, RelatedScope, Rows
from querybuild.planning.rows import MAX_COLUMNS, joined_width
from querybuild.planning.rowsets import open_key_rows, open_owners, open_related, rows_with_alias, with_conditions
from querybuild.query import GroupQuery, Limits, Page, Query, ReadForm

LINK, PARENT = "t1", "p"
"""The aliases of a link table that is joined to related rows, and of the row that the path names."""

MAX_JOINED_ROWS = 100
"""The largest page for which to-one includes are joined. Joined rows are repeated for each primary row."""

FIRST_ROWS = 1000
"""The longest list without pages that is not streamed."""

FAR_OFFSET = 1000
"""From this offset on, it is cheaper to find the ids of the page before its rows (docs/pages.md)."""


class PlannedRead(msgspec.Struct, frozen=True):
    """A planned read.

    page: the page, with the total that is counted.
    values: the values of the filter. page_values: those of the page.
    list_name, cursor_mark: the list that its cursors are valid for.
    cursor_parent: the parent of the list that the request's cursor was created for. None without a cursor.
    readers: for each converted val of the filters its index, None for a value that is the same in each request of this
    form, and the function that converts it.
    filters: the filter objects of the request.
    cost: what it costs, by what it asks for.
    choices: the lists that the chosen included rows are the first of. has_form: whether another read of the same form
        has the same plan.
    """

    plan: ReadPlan
    page: Page
    values: Values = ()
    page_values: PageValues = WHOLE
    list_name: str = ""
    cursor_mark: str = ""
    cursor_parent: str | None = None
    readers: tuple[tuple[int | None, ReadValue], ...] = ()
    filters: tuple[SentFilter, ...] = ()
    choices: tuple[PlannedChoice, ...] = ()
    has_form: bool = True
    cost: int = 0


IncludeTree = dict[str, "IncludeTree"]


def plan_collection(
    query: Query,
    resource: Resource,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
    references: References = NO_REFERENCES,
    call: Call | None = None,
) -> PlannedRead:
    """Plan the page of a collection. Appends FilterError, SortError, IncludeError, FieldsError and PageError to errors.
    The plan is only valid if there are none. references: foreign keys that allow counting keys instead of rows. call:
    that of a function, if only the resources that it returns are listed."""
    planner = _ReadPlanner(catalog, context, limits, errors)
    return planner.page(query, resource, references=references, call=call)


def plan_resource(
    query: Query,
    resource: Resource,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
    written: tuple[str, ...] = (),
) -> PlannedRead:
    """Plan the resource that the path names. written: relationships whose linkage is shown because the request wrote
    them."""
    planner = _ReadPlanner(catalog, context, limits, errors)
    rows = planner.conditions.open(resource)
    rows = with_conditions(rows, (IdIs(rows.alias, resource.id.key),))
    plan = ReadPlan(
        node=planner.root(query, rows, written, is_joining=True, is_single=True),
        data="resource",
        included=_included(query, None),
    )
    return planner.planned(plan, query)


def plan_related(
    query: Query,
    scope: RelatedScope,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
) -> PlannedRead:
    """Plan the related resources of the resource that the path names: a page of a to-many, or the resource of a
    to-one."""
    planner = _ReadPlanner(catalog, context, limits, errors)
    return planner.related(query, scope)


def plan_linkage(
    query: Query,
    scope: RelatedScope,
    catalog: Catalog,
    context: Context,
    limits: Limits,
    errors: list[ApiError],
) -> PlannedRead:
    """Plan the linkage of a relationship, which has pages like a collection. Every path of include starts with the name
    of the relationship."""
    planner = _ReadPlanner(catalog, context, limits, errors)
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
    choices = []
    for choice in query.choices:
        if choice.path[:1] != (name,) or len(choice.path) == 1:
            detail = f"here the path continues {quoted(name)}, whose own linkage is chosen by filter, sort and page."
            errors.append(IncludeError(f"{quoted('.'.join(choice.path))}: {detail}", parameter=choice.parameters[0]))
        else:
            choices.append(msgspec.structs.replace(choice, path=choice.path[1:]))
    include = None if query.include is None else tuple(path for path in inner if path)
    query = msgspec.structs.replace(query, include=include, choices=tuple(choices))
    return planner.related(query, scope, shows_resources=bool(inner))


def plan_all_linkage(
    scope: RelatedScope, catalog: Catalog, context: Context, limits: Limits, errors: list[ApiError]
) -> PlannedRead:
    """Plan the ids of all links of a relationship, and of one more than are counted at most."""
    page = Page(family="number", size=limits.max_included, offset=0, total="none")
    query = Query(filter=(), sort=(), page=page, include=None, fields={})
    return plan_linkage(query, scope, catalog, context, limits, errors)


def _too_deep(path: tuple[str, ...], limits: Limits) -> IncludeError | None:
    if len(path) <= limits.max_include_depth:
        return None
    detail = f"{quoted('.'.join(path))} goes deeper than {limits.max_include_depth} relationships."
    return IncludeError(f"Include parameter is invalid: {detail}", parameter="include")


def _included(query: Query, shows_resources: bool | None) -> Included:
    """Return what the document includes. shows_resources: for linkage, as for `related`."""
    if query.include is None:
        return "nothing"
    return "identified" if shows_resources else "related"


class _ReadPlanner:
    """Plans one read."""

    def __init__(self, catalog: Catalog, context: Context, limits: Limits, errors: list[ApiError]) -> None:
        self.catalog = catalog
        self.context = context
        self.limits = limits
        self.errors = errors
        self.conditions = ConditionPlanner(catalog, context, limits, errors)
        self.sorts = SortPlanner(catalog, limits, errors, self.conditions)
        self._choices = NOTHING_CHOSEN
        self._joined_count = 0
        self._form: ReadForm = "document"
        self._labelled: frozenset[Path] = frozenset()

    def related(self, query: Query, scope: RelatedScope, *, shows_resources: bool | None = None) -> PlannedRead:
        """Plan the related rows of the resource that the path names. shows_resources: for linkage, whether the
        resources that it identifies are included. None if the resources are the primary data."""
        owners = open_owners(scope.relationship, scope.parent, PARENT, FIRST_ALIAS, self.catalog, self.context)
        scope = msgspec.structs.replace(scope, rows=owners)
        if scope.relationship.is_to_many:
            return self.page(query, scope.target, scope, shows_resources=shows_resources)
        rows = self.conditions.open(scope.target)
        plan = ReadPlan(
            node=self._primary(query, rows, shows_resources=shows_resources, is_joining=True, is_single=True),
            data="resource" if shows_resources is None else "identifier",
            included=_included(query, shows_resources),
            scope=scope,
        )
        return self.planned(plan, query)

    def page(
        self,
        query: Query,
        resource: Resource,
        scope: RelatedScope | None = None,
        *,
        shows_resources: bool | None = None,
        references: References = NO_REFERENCES,
        call: Call | None = None,
    ) -> PlannedRead:
        """Plan a page of a collection or of a to-many. shows_resources: as for `related`."""
        page = self._page(query.page)
        if query.near is not None:
            page = msgspec.structs.replace(page, total="none")
        pages = PagePlanner(page, self.limits, self.errors)
        has_cursors = page.family == "cursor"
        name = list_name(query, resource, scope, call) if has_cursors else ""
        mark = mark_of(name, list_vals(query)) if name else ""
        if query.groups is not None:
            return self._groups(query, query.groups, pages, resource, scope, call, name)
        rows = self._called(self.rows(query, pages, resource, mark, is_chosen=bool(scope or call)), call)
        is_joining = 0 < page.size <= MAX_JOINED_ROWS
        plan = ReadPlan(
            node=self._primary(query, rows, shows_resources=shows_resources, is_joining=is_joining),
            data="collection" if shows_resources is None else "identifiers",
            included=_included(query, shows_resources),
            total=page.total if page.size else None,
            scope=scope,
            has_cursors=has_cursors,
            has_far_offset=rows.offset is not None and page.offset >= FAR_OFFSET,
            usual_limit=pages.rows_read if page.size == self.limits.page_size else None,
            counted_by=counted_by(rows, references),
            columns=line_columns(query, resource),
        )
        if not page.size and can_be_streamed(plan):
            plan = msgspec.structs.replace(plan, first_rows=self._first_rows())
        return self._paged(plan, query, pages, name, mark)

    def _called(self, rows: Rows, call: Call | None) -> Rows:
        """Return those of the rows that a function returns."""
        if call is None:
            return rows
        returned = Returned(rows.alias, rows.resource.id.key, call)
        return msgspec.structs.replace(rows, conditions=(*rows.conditions, returned))

    def _groups(
        self,
        query: Query,
        groups: GroupQuery,
        pages: PagePlanner,
        resource: Resource,
        scope: RelatedScope | None,
        call: Call | None,
        name: str,
    ) -> PlannedRead:
        """Plan a page of the groups of a list. name: that of the list, for cursors."""
        mark = mark_of(name, list_vals(query)) if name else ""
        rows = self.conditions.open(resource)
        conditions, _ = self._conditions(query, rows)
        rows = self._called(msgspec.structs.replace(rows, conditions=conditions), call)
        planner = GroupPlanner(self.catalog, self.limits, self.errors, self.conditions)
        planned = planner.plan(groups, rows, scope)
        planned = pages.placed(planned, planner.order(query.sort), mark)
        plan = ReadPlan(
            node=planner.node(planned),
            data="groups",
            # The number of groups is only known when all are computed.
            total="none" if pages.page.total == "none" else "exact",
            scope=scope,
            has_cursors=pages.page.family == "cursor",
        )
        return self._paged(plan, query, pages, name, mark)

    def _paged(self, plan: ReadPlan, query: Query, pages: PagePlanner, name: str, mark: str) -> PlannedRead:
        return self.planned(
            plan,
            msgspec.structs.replace(query, page=pages.page),
            page_values=pages.values,
            list_name=name,
            cursor_mark=mark,
            cursor_parent=pages.cursor_parent,
        )

    def planned(self, plan: ReadPlan, query: Query, **facts: Any) -> PlannedRead:
        """Return the plan with all its values. facts: as in `PlannedRead`."""
        conditions, choices = self.conditions, self._choices
        grouped = () if query.groups is None else query.groups.filter
        near = () if query.near is None else (near_filter(query.near),)
        nodes = [*near, *query.filter, *grouped, *[node for choice in query.choices for node in choice.filter]]
        return PlannedRead(
            plan,
            query.page,
            tuple(conditions.values),
            readers=tuple(conditions.readers),
            filters=sent_filters(nodes, conditions.value_slots, conditions.checked),
            choices=choices.lists,
            has_form=choices.has_form,
            **facts,
        )

    def rows(self, query: Query, pages: PagePlanner, resource: Resource, mark: str, *, is_chosen: bool) -> Rows:
        """Plan the primary rows of a page. mark: that of the list, for its cursors. is_chosen: whether a path or a
        function chooses some of the rows."""
        rows = self.conditions.open(resource)
        conditions, rank = self._conditions(query, rows)
        self.sorts.is_of_all = not (is_chosen or conditions or query.near or is_part_of_table(rows))
        order = self.sorts.order(query.sort, resource, rows.alias)
        if rank is not None and not query.sort:
            order = (rank, *order)
        near = None if query.near is None else plan_near(query.near, resource, rows.alias, self.conditions)
        if near is not None:
            conditions, order = (*conditions, near.condition), (near.distance, *order)
            rows = msgspec.structs.replace(rows, nearest=near.nearest)
        joins = tuple(self.sorts.joins.values())
        return pages.placed(msgspec.structs.replace(rows, conditions=conditions, joins=joins), order, mark)

    def _conditions(self, query: Query, rows: Rows) -> tuple[tuple[Condition, ...], OrderKey | None]:
        """Return the conditions of the primary rows, and their rank if they are searched."""
        conditions = self.conditions.plan(query.filter, rows.resource, rows.alias)
        if query.search is None:
            return conditions, None
        ranked = plan_search(query.search, rows.resource, rows.alias, self.conditions)
        return (conditions, None) if ranked is None else ((*conditions, ranked.condition), ranked.rank)

    def _page(self, page: Page) -> Page:
        """Return the page. If rows may be hidden, its total is exact, because an estimate counts them."""
        is_exact = page.total == "estimated" and (self.context.access.read or self.limits.has_row_security)
        return msgspec.structs.replace(page, total="exact") if is_exact else page

    def _first_rows(self) -> int:
        """Return one row more than a list that is not streamed may have."""
        max_rows = self.limits.unpaginated
        return 1 + (min(max_rows, FIRST_ROWS) if isinstance(max_rows, int) else FIRST_ROWS)

    def _primary(
        self, query: Query, rows: Rows, *, shows_resources: bool | None, is_joining: bool, is_single: bool = False
    ) -> Node:
        """Return the node of the primary rows. Linkage without included resources only has ids."""
        is_single = shows_resources is None and is_single
        shown = shown_linkage(query, rows.resource)
        node = self.root(query, rows, shown, is_joining=is_joining, is_single=is_single)
        return node_of(rows, carried=carried(self._form, rows.resource)) if shows_resources is False else node

    def root(
        self, query: Query, rows: Rows, written: tuple[str, ...], *, is_joining: bool, is_single: bool = False
    ) -> Node:
        """Plan the node of the primary rows and its branches. is_joining: whether to-one includes may be joined.
        is_single: as for `node`."""
        query, self._labelled = browsed(query, rows.resource, self.limits, is_single=is_single)
        self._form = query.form
        tree, paths = self._include_tree(query, rows.resource)
        if query.choices and (tree or not query.include):
            known = self.catalog, self.limits, self.errors, self.conditions
            self._choices = ChoicePlanner(rows.resource, paths, *known).plan(query)
        fieldsets = self._fieldsets(query.fields)
        if (first := first_fields(query, rows.resource, is_single=is_single)) is not None:
            fieldsets[rows.resource.type] = first
        node = self.node(rows, tree, written, fieldsets, is_joining=is_joining, is_single=is_single)
        if is_joining and joined_width(node) > MAX_COLUMNS:
            return self.node(rows, tree, written, fieldsets, is_joining=False, is_single=is_single)
        return united(node) if is_joining and not written else node

    def _include_tree(self, query: Query, resource: Resource) -> tuple[IncludeTree, frozenset[Path]]:
        """Return the relationships of all paths as a tree, and as paths. Their number is limited: most need a separate
        statement."""
        tree: IncludeTree = {}
        opened: set[Path] = set()
        for path in query.include or ():
            if (too_deep := _too_deep(path, self.limits)) is not None:
                self.errors.append(too_deep)
            elif self._is_path(path, resource):
                opened.update(path[:end] for end in range(1, len(path) + 1))
                branch = tree
                for name in path:
                    branch = branch.setdefault(name, {})
        limit = self.limits.max_includes
        if len(opened) > limit:
            detail = f"it leads over {len(opened)} relationships, and at most {limit} are allowed: include less."
            self._refuse_include(detail)
            return {}, frozenset()
        return tree, frozenset(opened)

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
        is_single: bool = False,
        path: Path = (),
    ) -> Node:
        """Plan a node and its branches. path: the include path to it. is_joining: whether to-one includes are joined
        to these rows. is_single: whether the document is about one row. Its version is read even if it is not shown,
        for the tag."""
        resource = rows.resource
        attributes, relationships = fieldsets.get(resource.type, (resource.readable_attributes, resource.relationships))
        if path in self._labelled:
            attributes, relationships = (), ()
        branches = []
        for relationship in resource.relationships:
            if relationship.name in tree:
                own_path = (*path, relationship.name)
                chosen = self._choices.by_path.get(own_path)
                if chosen is None:
                    choice, related = None, self._branch_rows(relationship, rows)
                    fetch = included_fetch(relationship, related, is_joining=is_joining)
                else:
                    choice, related = chosen.choice, msgspec.structs.replace(chosen.rows, parent=rows.alias)
                    fetch = chosen_fetch(related, choice.size)
                if fetch == "join":
                    self._joined_count += 1
                    related = rows_with_alias(related, f"j{self._joined_count}")
                below = tree[relationship.name]
                child = self.node(related, below, (), fieldsets, is_joining=fetch == "join", path=own_path)
                branches.append(Branch(relationship, child, True, fetch, choice))
            elif relationship.name in written and relationship in relationships:
                related = self._branch_rows(relationship, rows)
                branches.append(Branch(relationship, node_of(related), False, linkage_fetch(relationship)))
        keys = {
            referring_key(own, own.own_columns, self.catalog.target(own)): branch.relationship
            for branch in branches
            if (own := own_key_of(branch.relationship)) is not None
        }
        targets = tuple([self._key_rows(relationship, rows) for relationship in keys.values()])
        version = resource.abilities.version
        if version is not None and not (version.column or is_single):
            version = None
        shown = attributes, relationships, tuple(keys), tuple(branches), targets if any(targets) else ()
        return node_of(rows, *shown, version, carried(self._form, resource))

    def _branch_rows(self, relationship: Relationship, parents: Rows) -> Rows:
        """Return the related rows, as they are fetched by the keys of the parents."""
        aliases = [LINK, FIRST_ALIAS]
        return open_related(relationship, parents.resource, parents.alias, aliases, self.catalog, self.context)

    def _key_rows(self, relationship: Relationship, parents: Rows) -> Rows | None:
        """Return the rows that a key of the parents refers to, if the context may hide some of them."""
        return open_key_rows(relationship, parents.resource, parents.alias, self.catalog, self.context)
