"""Compiles the comparison of arrays.

It must not know: values.
"""

from __future__ import annotations

from pypika.terms import Field, Function, Term

from querybuild.declarations.terms import Template
from querybuild.declarations.types import ColumnType


def compared_array(column_type: ColumnType, array: Term) -> Term:
    """Return an array as it is compared with another one: as answers show it."""
    return Function("to_jsonb", array) if is_of_json(column_type) else from_one(array)


def compared_value(column_type: ColumnType, value: Term) -> Term:
    """Return a value as it is compared with the arrays of `compared_array`."""
    return Function("to_jsonb", typed_json(column_type, value)) if is_of_json(column_type) else value


def is_of_json(column_type: ColumnType) -> bool:
    """Return whether the elements of an array are JSON. Answers show NULL and JSON's null alike."""
    return column_type.element is not None and column_type.element.family in ("json", "jsonb")


def typed_json(column_type: ColumnType, value: Term) -> Term:
    """Return `CAST($1 AS jsonb[])`, where nothing else tells PostgreSQL what it is."""
    assert column_type.element is not None
    return Template(f"CAST({{}} AS {column_type.element.sql_names[0]}[])", value)


def from_one(array: Term) -> Term:
    """Return `"t0"."words"[:]`, an array with the same elements whose subscripts begin at 1. PostgreSQL compares the
    subscripts of arrays too, and no answer shows them."""
    return Template("{}[:]" if isinstance(array, Field) else "({})[:]", array)
