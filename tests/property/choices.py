"""Strategies for what a request chooses of its included resources: `includeFilter`, `includeSort`, `includePage`. What
comes in: include paths. What goes out: query parameters, and what they mean."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from tests.property.filters import PATHS, filters, simple, sorts
from tests.property.model import Rows

Pairs = list[tuple[str, str]]
Step = tuple[str, str]
"""A type, and a relationship of it."""


class Chosen(msgspec.Struct, frozen=True):
    """What is chosen of a relationship. is_simple: whether a simple filter is sent, if there is one."""

    filter: Any = None
    sort: str = ""
    size: int | None = None
    total: str = ""
    is_simple: bool = False

    @property
    def is_counted(self) -> bool:
        return self.size is not None or bool(self.total)

    @property
    def is_partial(self) -> bool:
        return self.size is not None or self.filter is not None

    def pairs(self, path: str) -> Pairs:
        found: Pairs = []
        is_text = self.is_simple and "val" in (self.filter or ()) and self.filter["op"] not in ("any", "has")
        pair = simple(self.filter) if is_text else None
        if pair is not None:
            found.append((f"includeFilter[{path}]{pair[0].removeprefix('filter')}", pair[1]))
        elif self.filter is not None:
            found.append((f"includeFilter[{path}]", json.dumps([self.filter])))
        if self.sort:
            found.append((f"includeSort[{path}]", self.sort))
        if self.size is not None:
            found.append((f"includePage[{path}][size]", str(self.size)))
        if self.total:
            found.append((f"includePage[{path}][total]", self.total))
        return found


@st.composite
def chosen(draw: DrawFn, type_name: str, rows: Rows) -> Chosen:
    """Draw a choice of resources of a type."""
    own = draw(filters(type_name, rows)) if type_name in PATHS and draw(st.booleans()) else None
    return Chosen(
        own,
        draw(sorts(type_name)) if type_name in PATHS and draw(st.booleans()) else "",
        draw(st.sampled_from((None, 0, 1, 1, 2, 3, 1000))),
        draw(st.sampled_from(("", "exact", "none"))),
        draw(st.booleans()),
    )


def to_many_steps(catalog: Catalog, resource: Resource, paths: list[str]) -> dict[str, Step]:
    """Return the paths, and their beginnings, that end in a to-many, each with its last step."""
    found: dict[str, Step] = {}
    for path in paths:
        at, names = resource, list[str]()
        for name in path.split("."):
            relationship = at.relationship(name)
            assert relationship is not None
            names.append(name)
            if relationship.is_to_many:
                found[".".join(names)] = at.type, name
            at = catalog.target(relationship)
    return found


@st.composite
def choices(
    draw: DrawFn, catalog: Catalog, resource: Resource, paths: list[str], rows: Rows
) -> tuple[Pairs, dict[Step, Chosen]]:
    """Draw choices for some of the to-many relationships of a compound document. All paths to one have the same."""
    steps = to_many_steps(catalog, resource, paths)
    by_step: dict[Step, Chosen] = {}
    for owner, name in dict.fromkeys(steps.values()):
        relationship = catalog.by_type[owner].relationship(name)
        assert relationship is not None
        if draw(st.booleans()):
            by_step[owner, name] = draw(chosen(catalog.target(relationship).type, rows))
    pairs = [pair for path, step in steps.items() if step in by_step for pair in by_step[step].pairs(path)]
    return draw(st.permutations(pairs)), by_step
