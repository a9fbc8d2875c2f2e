"""How far a value is from another one: for numbers, dates, texts, points and vectors.

It must not know: values. The value that others are near to is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec
from pypika.terms import Term

from querybuild.declarations.database_types.texts import POINT, SPATIAL, VECTOR
from querybuild.declarations.resource import Attribute
from querybuild.declarations.terms import Template
from querybuild.declarations.types import (
    BIGINT,
    DATE,
    FLOAT,
    INT,
    NUMERIC,
    NUMERIC_NUMBER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
)

OF_VECTORS = {"l2": "<->", "cosine": "<=>", "inner_product": "<#>"}
"""The distances of pgvector, each with its operator. That of the inner product is negative."""


class Measure(msgspec.Struct, frozen=True, eq=False):
    """How the distance of a type is measured.

    value: the term of the parameter, of the type of the column. distance: takes the column and that term.
    is_ordered: whether the nearest values are next to the value in the order of the type, so that an index of the
    column finds them. is_strict: whether each value that is not null has a distance.
    """

    value: Callable[[Term], Term]
    distance: Callable[[Term, Term], Term]
    is_ordered: bool = False
    is_strict: bool = False


@lru_cache(maxsize=1024)
def measure_of(attribute: Attribute, *, has_trigrams: bool) -> Measure | None:
    """Return how the distance of an attribute is measured, or None if it has none. has_trigrams: whether the database
    has the extension pg_trgm, for texts. Plans compare it by identity, so the same attribute has the same."""
    kind = attribute.type
    if kind is VECTOR:
        return _by_operator(kind.bind, OF_VECTORS[attribute.distance or "l2"])
    if kind is POINT or kind in SPATIAL:
        # The distance of an empty geometry is null.
        return _by_operator(kind.bind, "<->", is_strict=kind is POINT)
    if kind is TEXT:
        return _by_operator(_cast("text"), "<->") if has_trigrams else None
    distance = _DISTANCES.get(kind.name)
    if distance is None:
        return None
    return Measure(_cast(kind.sql_names[0]), _template(distance), is_ordered=True, is_strict=distance is _NUMBER)


def _by_operator(value: Callable[[Term], Term], operator: str, *, is_strict: bool = True) -> Measure:
    return Measure(value, lambda column, other: Template(f"{{}}{operator}{{}}", column, other), is_strict=is_strict)


def _cast(sql_name: str) -> Callable[[Term], Term]:
    return lambda parameter: Template(f"CAST({{}} AS {sql_name})", parameter)


def _template(text: str) -> Callable[[Term, Term], Term]:
    return lambda column, other: Template(text, column, other)


_NUMBER = "abs(CAST({0} AS numeric)-CAST({1} AS numeric))"
# NaN and infinities have no place among the others.
_FINITE = "CASE WHEN {0}>'-Infinity' AND {0}<'Infinity' THEN %s END"
_SECONDS = "CASE WHEN isfinite({0}) THEN abs(EXTRACT(EPOCH FROM {0}-{1})) END"

_DISTANCES: dict[str, str] = {
    **dict.fromkeys((SMALLINT.name, INT.name, BIGINT.name), _NUMBER),
    **dict.fromkeys((NUMERIC.name, NUMERIC_NUMBER.name), _FINITE % "abs({0}-{1})"),
    **dict.fromkeys((FLOAT.name, REAL.name), _FINITE % "abs(CAST({0} AS float8)-CAST({1} AS float8))"),
    DATE.name: "CASE WHEN isfinite({0}) THEN abs({0}-{1}) END",
    **dict.fromkeys((TIMESTAMP.name, TIMESTAMPTZ.name), _SECONDS),
}
"""The name of a type -> the distance of a column from a value, null if it has none."""
