"""Asks PostgreSQL whether the patterns in rules are valid: only PostgreSQL knows. The pattern of a filter is not asked
about, because its request is answered with PostgreSQL's error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg

from querybuild.declarations.access import audience_name
from querybuild.declarations.catalog import Catalog
from querybuild.errors import quoted
from querybuild.filters import RELATION_OPERATORS

_ERRORS = (asyncpg.InvalidRegularExpressionError, asyncpg.InternalServerError)
"""PostgreSQL reports a pattern that is too complex as an internal error."""


async def pattern_faults(connection: asyncpg.Connection[Any], catalog: Catalog) -> list[str]:
    """Return a message for each pattern in a rule that PostgreSQL refuses. Without it, every request that the rule is
    for would fail."""
    faults: list[str] = []
    for where, pattern in _all_patterns(catalog):
        try:
            await connection.fetchval("SELECT '' ~ $1", pattern)
        except _ERRORS as error:
            faults.append(f"{where}: the pattern {quoted(pattern)} is refused: {error}")
    return faults


def _all_patterns(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield where each pattern is, and the pattern."""
    for resource in catalog:
        for number, allow in enumerate(resource.access, 1):
            where = f"resource {quoted(resource.type)}: rule {number} ({audience_name(allow.to)}): "
            for name in ("rows", "check"):
                for pattern in _patterns(getattr(allow, name)):
                    yield f"{where}`{name}`", pattern


def _patterns(rows: object) -> Iterator[str]:
    """Yield the patterns of a filter, at any depth."""
    if isinstance(rows, Mapping):
        op, val = rows.get("op"), rows.get("val")
        if op == "match" and isinstance(val, str):
            yield val
        # The val of another operator may be any JSON.
        for item in rows.values() if op is None else (val,) if op in RELATION_OPERATORS else ():
            yield from _patterns(item)
    elif isinstance(rows, list | tuple):
        for item in rows:
            yield from _patterns(item)
