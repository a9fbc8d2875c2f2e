"""Plans what a read chooses of its included rows: which of them, in which order, and how many of each parent. What
comes in: choices whose names are not resolved, and the include paths. What goes out: for each path the rows that are
shown, and the lists that the links to further rows lead to.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from querybuild.cursors import mark_of
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Relationship, Resource
from querybuild.errors import ApiError, IncludeError, nearest, quoted
from querybuild.filters import field_filters, vals_of
from querybuild.parse import INCLUDE_SORT
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.plan import Choice
from querybuild.planning.reads.list_names import list_name
from querybuild.planning.reads.sorts import SortPlanner, has_cursor
from querybuild.planning.row_plan import FIRST_ALIAS, RelatedScope, Rows
from querybuild.query import IncludeChoice, Limits, Query

Path = tuple[str, ...]


class PlannedChoice(msgspec.Struct, frozen=True):
    """The list of the related rows that a choice shows the first of. Its route is that of the linkage.

    parameters: the names of the parameters of the choice, as sent. size: how many rows a page of the list has.
    list_name, cursor_mark: as of `PlannedRead`. vals: the indexes of its values among those of the request. max_bytes:
    of a link to a page.
    """

    parameters: tuple[str, ...]
    size: int
    list_name: str
    cursor_mark: str
    vals: tuple[int, ...]
    max_bytes: int


class ChosenRows(msgspec.Struct, frozen=True):
    """The rows of an include path that a request chooses. They are attached to no parents yet."""

    choice: Choice
    rows: Rows


class Choices(msgspec.Struct, frozen=True):
    """What a read chooses. by_path: by the include path. lists: by the index of the choice. has_form: whether another
    read of the same form has the same plan, whatever its values are."""

    by_path: Mapping[Path, ChosenRows] = {}
    lists: tuple[PlannedChoice, ...] = ()
    has_form: bool = True


NOTHING_CHOSEN = Choices()


class ChoicePlanner:
    """Plans the choices of one read. resource: that of the primary rows. paths: all include paths, and the beginnings
    of each."""

    def __init__(
        self,
        resource: Resource,
        paths: frozenset[Path],
        catalog: Catalog,
        limits: Limits,
        errors: list[ApiError],
        conditions: ConditionPlanner,
    ) -> None:
        self._resource = resource
        self._paths = paths
        self._catalog = catalog
        self._limits = limits
        self._errors = errors
        self._conditions = conditions

    def plan(self, query: Query) -> Choices:
        """Plan the choices of a query. Appends FilterError, SortError and IncludeError to the errors."""
        valid = [choice for choice in query.choices if self._is_valid(choice)]
        if not valid:
            return NOTHING_CHOSEN
        lists = [self._list(query, choice) for choice in valid]
        by_path = {choice.path: self._chosen(index, choice) for index, choice in enumerate(valid)}
        sizes = [(choice.size, choice.is_counted, choice.has_total) for choice in valid]
        chosen = {
            include_choice.path: (each.cursor_mark, size)
            for include_choice, each, size in zip(valid, lists, sizes, strict=True)
        }
        self._check_conflicts(chosen, {choice.path: choice.parameters[0] for choice in valid})
        steps = [self._step(choice.path) for choice in valid if vals_of(choice.filter)]
        return Choices(by_path, tuple(lists), len(set(steps)) == len(steps))

    def _step(self, path: Path) -> tuple[Resource, Relationship]:
        """Return the last relationship of a path, and the resource that has it."""
        owner = self._resource
        for name in path[:-1]:
            owner = self._catalog.target(_known(owner, name))
        return owner, _known(owner, path[-1])

    def _is_valid(self, choice: IncludeChoice) -> bool:
        path, parameter = ".".join(choice.path), choice.parameters[0]
        detail = ""
        if choice.path not in self._paths:
            known = sorted({".".join(names) for names in self._paths})
            detail = f"{quoted(path)} is not included: name a path of `include`, or the beginning of one."
            detail += nearest(path, known)
        elif not self._step(choice.path)[1].is_to_many:
            detail = f"{quoted(path)} is to-one: only of to-many relationships can some resources be chosen."
        if detail:
            self._errors.append(IncludeError(detail, parameter=parameter))
        return not detail

    def _list(self, query: Query, choice: IncludeChoice) -> PlannedChoice:
        owner, relationship = self._step(choice.path)
        target = self._catalog.target(relationship)
        listed = msgspec.structs.replace(query, filter=choice.filter, sort=choice.sort)
        name = list_name(listed, target, RelatedScope(owner, relationship, target))
        return PlannedChoice(
            choice.parameters,
            min(choice.size or 0, self._limits.max_page_size),
            name,
            mark_of(name, vals_of(choice.filter)),
            tuple([node.index for node in field_filters(choice.filter) if node.field is None]),
            self._limits.max_url_bytes,
        )

    def _chosen(self, index: int, choice: IncludeChoice) -> ChosenRows:
        owner, relationship = self._step(choice.path)
        rows = self._conditions.related(owner, FIRST_ALIAS, relationship)
        parameter = next((name for name in choice.parameters if name.startswith(INCLUDE_SORT)), "")
        sorts = SortPlanner(self._catalog, self._limits, self._errors, self._conditions, parameter)
        conditions = self._conditions.plan(choice.filter, rows.resource, rows.alias)
        order = sorts.order(choice.sort, rows.resource, rows.alias)
        joins = tuple(sorts.joins.values())
        chosen = msgspec.structs.replace(rows, conditions=conditions, joins=joins, order=order)
        return ChosenRows(
            Choice(
                index,
                is_partial=bool(choice.filter) or choice.size is not None,
                is_counted=choice.is_counted,
                size=choice.size,
                has_total=choice.has_total,
                has_next=bool(choice.size) and all(map(has_cursor, order)),
                is_by_id=len(order) == 1 and rows.resource.id_type.is_number and chosen.is_part_of_id(order[0]),
            ),
            chosen,
        )

    def _check_conflicts(self, chosen: Mapping[Path, object], parameters: Mapping[Path, str]) -> None:
        """Check that all paths to a relationship of a type choose the same: a resource has one linkage. chosen,
        parameters: what each path chooses, and by which parameter."""
        first: dict[tuple[Resource, Relationship], Path] = {}
        for path in sorted(self._paths):
            step = self._step(path)
            other = first.setdefault(step, path)
            if chosen.get(path) != chosen.get(other):
                owner, relationship = step
                detail = (
                    f"{quoted('.'.join(other))} and {quoted('.'.join(path))} both lead to {quoted(relationship.name)} "
                    f"of {owner.type}, which has one linkage: choose the same for both."
                )
                parameter = parameters[path] if path in parameters else parameters[other]
                self._errors.append(IncludeError(detail, parameter=parameter))


def _known(owner: Resource, name: str) -> Relationship:
    relationship = owner.relationship(name)
    assert relationship is not None
    return relationship


def with_marks(choices: tuple[PlannedChoice, ...], vals: list[Any]) -> tuple[PlannedChoice, ...]:
    """Return the choices with the marks of these values. vals: those of the request."""
    marks = [mark_of(choice.list_name, [vals[index] for index in choice.vals]) for choice in choices]
    return tuple(
        [msgspec.structs.replace(choice, cursor_mark=mark) for choice, mark in zip(choices, marks, strict=True)]
    )
