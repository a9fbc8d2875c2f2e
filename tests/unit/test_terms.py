"""A field of ours has the SQL of PyPika's, in all that can be made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pypika
import pytest
from pypika import functions
from pypika.terms import Term

from querybuild.terms import Field

USES: tuple[Callable[[Any], Term], ...] = (
    lambda column: column,
    lambda column: column.as_("n0"),
    lambda column: column == pypika.Table("named").name,
    lambda column: pypika.Table("named").field("name") < column,
    lambda column: column.table.field("other") == column,
    lambda column: column + 1,
    lambda column: column.isnull() | ~(column > pypika.Parameter("$1")),
    lambda column: column.like(pypika.Parameter("$1")) & column.notnull(),
    lambda column: column.contains(pypika.Parameter("$1")),
    lambda column: column.get_text_value("a"),
    lambda column: column.isin([1, 2]),
    lambda column: functions.Lower(functions.Cast(column, "text")),
    lambda column: pypika.Case().when(column == 1, column).else_(pypika.NULL),
)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("alias", ["t0", 'a"b', "größe {}"])
@pytest.mark.parametrize("name", ["age", 'a"b', "größe", "a{b}", "A b.c"])
def test_a_field_has_the_sql_of_pypika(name: str, alias: str, use: Callable[[Any], Term]) -> None:
    table = pypika.Table("users", alias=alias)
    ours, theirs = use(Field(name, table)), use(pypika.Field(name, table=table))
    for options in ({}, {"with_alias": True}, {"with_namespace": True, "subquery": True}):
        assert ours.get_sql(quote_char='"', **options) == theirs.get_sql(quote_char='"', **options)
    selected = [pypika.PostgreSQLQuery.from_(table).select(one).where(one.notnull()) for one in (ours, theirs)]
    assert selected[0].get_sql() == selected[1].get_sql()
