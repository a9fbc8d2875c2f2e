r"""Compiles keys: ids and the columns that refer to them. What comes in: a key, and where its columns or its value are.
What goes out: terms. No other module writes the SQL of a key of several columns.

A key of one column is that column, and its value is one parameter: `"t0"."id"=$1`. If its value is a text
(`querybuild/declarations/id_types.py`), it is converted: `"t0"."day"=CAST(CAST($1 AS TEXT) AS date)`.

If the column is another integer than the id, the parameter has the type of the id: PostgreSQL would give it that of the
column, which may be too small: `"t0"."language_id"=CAST($1 AS int4)`.

The value of a key of several columns is the text of the id (`querybuild/declarations/keys.py`). It is split where it is
compared, so that an index can be used, and joined where it is selected. It is null if a column is null:

    ("t0"."order_id","t0"."line_no")=(CAST(split_part($1,',',1) AS int4),CAST(split_part($1,',',2) AS int4))
    SELECT CAST("t0"."order_id" AS TEXT)||','||CAST("t0"."line_no" AS TEXT)

The columns of a key may refer to other unique columns than the id. Its value is the id all the same, and each is looked
up by the other:

    "t0"."country_code"=(SELECT "its row"."code" FROM "countries" "its row" WHERE "its row"."id"=$1)
    SELECT (SELECT "its row"."id" AS "its id" FROM "countries" "its row" WHERE "its row"."code"="t0"."country_code")

It must not know: values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pypika import Field, Table
from pypika.terms import Criterion, Term

from querybuild.declarations.keys import Key, Referenced, bound_id
from querybuild.declarations.terms import Template, equals_any, escaped_braces, sql_of
from querybuild.declarations.types import ColumnType

REFERENCED = "its row"
"""The alias of the row that a key refers to by other columns than the id. No table has such a name."""

ColumnOf = Callable[[str], Term]
"""Returns the term of a column, by its name."""


def column(alias: str, name: str) -> Field:
    """Return `"t0"."age"`. PyPika only writes the alias, so the name of the table is not needed."""
    return Field(name, table=Table("", alias=alias))


def columns_of(alias: str) -> ColumnOf:
    """Return the function for the columns of the rows with this alias."""
    return partial(column, alias)


def shown_key(of: ColumnOf, key: Key) -> Term:
    """Return the key as it is selected: `"t0"."id"`, or the text of its columns."""
    if key.referenced is not None:
        referenced, by = key.referenced, _by_columns(of, key)
        shown = Template('{} AS "its id"', shown_key(columns_of(REFERENCED), referenced.id))
        return _looked_up([shown], referenced, by)
    if not key.is_composite:
        return _id_text(of(key.columns[0]), key.types[0]) if key.is_text else of(key.columns[0])
    texts = [_shown_part(of(name), column_type) for name, column_type in zip(key.columns, key.types, strict=True)]
    return Template("||','||".join(["{}"] * len(texts)), *texts)


def compared_key(of: ColumnOf, key: Key) -> Term:
    """Return the key as it is compared: `"t0"."id"`, or `("t0"."order_id","t0"."line_no")`."""
    if not key.is_composite:
        return of(key.columns[0])
    return _row([of(name) for name in key.columns])


def key_value(parameter: Term, key: Key) -> Term:
    """Return a value to compare with the key: `$1`, or the row of the parts of `$1`."""
    parts = key_parts(parameter, key)
    return _row(parts) if key.is_composite else parts[0]


def key_parts(parameter: Term, key: Key) -> list[Term]:
    """Return the value of each column of a key."""
    if key.referenced is not None:
        referenced = key.referenced
        by = is_key(columns_of(REFERENCED), referenced.id, parameter)
        return [_looked_up([column(REFERENCED, name)], referenced, by) for name in referenced.columns]
    if not key.is_composite:
        return [_converted(parameter, key)]
    has_text = any(column_type.is_text for column_type in key.types)
    return [_part(parameter, index, column_type, has_text=has_text) for index, column_type in enumerate(key.types, 1)]


def key_values(array: Term, key: Key) -> Term:
    """Return what ANY and ALL take for an array of values: `$1`, or a SELECT of the parts of each."""
    if key.referenced is not None:
        referenced = key.referenced
        by = is_any_key(columns_of(REFERENCED), referenced.id, array)
        return _select([column(REFERENCED, name) for name in referenced.columns], referenced, by)
    if not key.is_composite:
        return _converted(array, key, "[]")
    parts = key_parts(Template('"k"'), key)
    listed = ",".join(["{}"] * len(parts))
    return Template(f'SELECT {listed} FROM unnest(CAST({{}} AS TEXT[])) "k"', *parts, array)


def key_parameter(parameter: Term, key: Key, *, is_array: bool = False) -> Term:
    """Return a parameter with its type, where nothing else tells PostgreSQL what it is: `$1::int8`."""
    sql_type = "text" if key.is_text else key.types[0].sql_names[0]
    return Template(f"{{}}::{sql_type}" + "[]" * is_array, parameter)


def each_key_parts(array: Term, key: Key) -> list[Term]:
    """Return the columns of a SELECT that has a row for each value: `unnest($1::int8[])`."""
    return key_parts(Template("unnest({})", key_parameter(array, key, is_array=True)), key)


def is_key(of: ColumnOf, key: Key, parameter: Term) -> Criterion:
    """Return `"t0"."id"=$1`."""
    return Template("{}={}", compared_key(of, key), key_value(parameter, key))


def is_any_key(of: ColumnOf, key: Key, array: Term) -> Criterion:
    """Return `"t0"."id"=ANY($1)`."""
    return equals_any(compared_key(of, key), key_values(array, key))


def is_no_key(of: ColumnOf, key: Key, array: Term) -> Criterion:
    """Return `"t0"."id"<>ALL($1)`."""
    return Template("{}<>ALL({})", compared_key(of, key), key_values(array, key))


def key_is_not_null(of: ColumnOf, key: Key) -> Criterion:
    """Return `NOT "t0"."group_id" IS NULL`. A row IS NOT NULL if no column of it is null."""
    if key.is_composite:
        return Template("{} IS NOT NULL", compared_key(of, key))
    return of(key.columns[0]).notnull()


def equal_keys(near: ColumnOf, far: ColumnOf, pair: tuple[Key, Key]) -> Criterion:
    """Return `"t1"."id"="t0"."group_id"`, for each column of the keys."""
    names = zip(pair[0].columns, pair[1].columns, strict=True)
    equal = [Template("{}={}", far(theirs), near(own)) for own, theirs in names]
    return Template(" AND ".join(["{}"] * len(equal)), *equal)


def _by_columns(of: ColumnOf, key: Key) -> Criterion:
    assert key.referenced is not None
    near, far = Key(key.columns, ()), Key(key.referenced.columns, ())
    return equal_keys(lambda name: _Qualified("{}", of(name)), columns_of(REFERENCED), (near, far))


class _Qualified(Template):
    """A column with the name of its table, even in statements that write: the other table may have such a column."""

    def get_sql(self, **kwargs: Any) -> str:
        """Return the SQL, as PyPika calls it."""
        return super().get_sql(**{**kwargs, "with_namespace": True})


def _looked_up(terms: list[Term], referenced: Referenced, by: Criterion) -> Term:
    """Return `(SELECT "its row"."id" FROM "countries" "its row" WHERE "its row"."code"="t0"."country_code")`."""
    return Template("({})", _select(terms, referenced, by))


def _select(terms: list[Term], referenced: Referenced, by: Criterion) -> Term:
    rows = escaped_braces(sql_of(Table(referenced.table, schema=referenced.schema, alias=REFERENCED)))
    listed = ",".join(["{}"] * len(terms))
    return Template(f"SELECT {listed} FROM {rows} WHERE {{}}", *terms, by)


def _row(terms: list[Term]) -> Term:
    return Template("(" + ",".join(["{}"] * len(terms)) + ")", *terms)


def _shown_part(term: Term, part_type: ColumnType) -> Term:
    """Return the text of a part. A backslash escapes a comma and a backslash."""
    text = _id_text(term, part_type)
    if not part_type.is_text:
        return text
    return Template(r"replace(replace({},E'\\',E'\\\\'),',',E'\\,')", text)


def _id_text(term: Term, column_type: ColumnType) -> Term:
    """Return the text of an id, or of a part of one."""
    id_text = column_type.id_type.id_text
    return Template("CAST({} AS TEXT)", term) if id_text is None else id_text(term)


def _converted(parameter: Term, key: Key, array: str = "") -> Term:
    """Return the value of a key of one column. array: `[]` for an array of values."""
    if key.is_text:
        return bound_id(key.types[0], parameter, array)
    return Template(f"CAST({{}} AS {_cast(key.types[0])}{array})", parameter) if key.is_mixed else parameter


def _cast(column_type: ColumnType) -> str:
    return escaped_braces(column_type.cast_name)


def _part(value: Term, index: int, part_type: ColumnType, *, has_text: bool) -> Term:
    r"""Return a part of a value. has_text: whether parts may have commas and backslashes. Then the value is split at
    the commas that are left when `\\` and `\,` have been replaced by `\b` and `\c`."""
    text = Template(f"split_part({{}},',',{index})", value)
    if has_text:
        encoded = Template(r"replace(replace({},E'\\\\',E'\\b'),E'\\,',E'\\c')", value)
        split = Template(f"split_part({{}},',',{index})", encoded)
        text = Template(r"replace(replace({},E'\\c',','),E'\\b',E'\\')", split)
    to_column = part_type.id_type.to_column
    return Template(f"CAST({{}} AS {_cast(part_type)})", text) if to_column is None else to_column(text)
