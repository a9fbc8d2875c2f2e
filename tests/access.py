"""Makes contexts by hand, for tests of one part of the access rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from querybuild.declarations.access import Action
from querybuild.errors import ApiError
from querybuild.filters import FilterReader
from querybuild.planning.context import Access, Context
from querybuild.planning.criteria import CriteriaPlanner
from querybuild.principal import Principal
from server.engine import Engine

ME = Principal(subject="me")
Filters = Mapping[str, Any]
"""Filters as JSON trees, by type."""


def context(
    engine: Engine, principal: Principal = ME, *, refused: Iterable[tuple[str, Action]] = (), **filters: Filters
) -> Context:
    """Return a context. filters: by the names of the criteria in `Access`."""
    errors: list[ApiError] = []
    planner = CriteriaPlanner(engine.catalog, engine.limits, errors)
    reader = FilterReader(engine.limits, errors)
    criteria = {
        name: {
            type_name: planner.criteria(reader.full("filter", json.dumps(one)), engine.catalog.by_type[type_name])
            for type_name, one in by_type.items()
        }
        for name, by_type in filters.items()
    }
    assert not errors, errors
    access: Any = criteria
    return Context(Access(**access, refused=frozenset(refused)), tuple(planner.values), principal)
