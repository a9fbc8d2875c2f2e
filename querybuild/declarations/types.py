"""Defines the column types: how JSON values and texts of simple filters are converted for asyncpg, how columns are
selected and shown, which types can be compared, and which types of PostgreSQL they are for.

It must not know: resources, requests, operators.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
from pypika import functions
from pypika.terms import Term

from querybuild.declarations import values
from querybuild.declarations.database_types.selected import (
    DAYS,
    MOMENTS,
    are_between,
    between,
    bytes_json,
    cast_first,
    clock_json,
    float_json,
    interval_bytes,
    moment_json,
    numeric_json,
    single,
    singles,
    to_json,
    utc_between,
)
from querybuild.declarations.id_types import (
    BYTEA_IDS,
    CHAR_IDS,
    DATE_IDS,
    NO_IDS,
    NUMERIC_IDS,
    TEXT_IDS,
    TIMESTAMP_IDS,
    TIMESTAMPTZ_IDS,
    UUID_IDS,
    IdType,
    enum_ids,
    integer_ids,
)
from querybuild.declarations.terms import as_text, as_texts, cast_from_text
from querybuild.declarations.values import JsonSchema, ReadAll, ValueFault


class JsonForm(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How the values of a type are sent and shown.

    from_json, from_text: convert a value of a request to the bound value. They raise ValueFault.
    read_all: converts many values of `from_json` at once. It returns None if they have to be converted one by one.
    shown: converts a selected value to the value that msgspec encodes.
    schema: the JSON Schema of the values that it shows. written_schema: that of the values that it accepts, if they
        are not the same.
    example: a text of which only PostgreSQL knows whether it is a value, for messages.
    """

    from_json: Callable[[Any], Any]
    from_text: Callable[[str], Any]
    read_all: ReadAll | None = None
    shown: Callable[[Any], Any] | None = None
    schema: JsonSchema = {}
    written_schema: JsonSchema | None = None
    example: str = ""


class SqlForm(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The terms for the columns and parameters of a type.

    select: the term that is selected, if it is not the plain column.
    select_array: the same for an array, if there is a cheaper way than `select` for each element. is_plain: whether an
    array is selected as it is, if that is cheaper than `select` for each element.
    compared: the term that filters and sorts compare, if PostgreSQL has no operators for the column itself.
    sorted_as: the term that sorts compare, if PostgreSQL sorts some values in another order.
    bound: the term of the parameter, if it needs a cast. bound_array: that of an array, if it is not a cast.
    as_text: whether the column must be cast for text operators and for comparison with columns of other types.
    as_json: the term of a selected value as JSON, if PostgreSQL can write it with the same bytes as the encoder. Of
        null it is null.
    """

    select: Callable[[Term], Term] | None = None
    select_array: Callable[[Term], Term] | None = None
    is_plain: Callable[[Term], Term] | None = None
    compared: Callable[[Term], Term] | None = None
    sorted_as: Callable[[Term], Term] | None = None
    bound: Callable[[Term], Term] | None = None
    bound_array: Callable[[Term], Term] | None = None
    as_text: bool = False
    as_json: Callable[[Term], Term] | None = None


class Comparison(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How the values of a type are compared with each other.

    is_ordered: whether it has the operators for less and greater.
    has_equality, has_order: whether filters can test for equality, and whether a sort can use it.
    is_compared_as_text: whether two values are equal if their texts are, because PostgreSQL's `=` means something else.
    is_of_extension: whether its operators are found by the search path.
    """

    is_ordered: bool = False
    has_equality: bool = True
    has_order: bool = True
    is_compared_as_text: bool = False
    is_of_extension: bool = False


class ColumnType(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A column type.

    name: as declared, and as shown in messages.
    family: types of one family can be compared with each other.
    sql_names: the names in pg_type that a column of this type may have.
    sql_type: the name of the PostgreSQL type in a cast, if only the live tables determine it.
    is_checked_by_database: whether only PostgreSQL knows which texts are values.
    choices: the values of an enum.
    element: the type of the elements of an array.
    fields: the names and types of the fields of a composite type.
    id_type: how its values are ids.
    parts: the types of the parts of an id with several columns.
    """

    name: str
    family: str
    sql_names: tuple[str, ...]
    json: JsonForm
    sql: SqlForm = SqlForm()
    comparison: Comparison = Comparison()
    sql_type: str = ""
    is_text: bool = False
    is_read_only: bool = False
    is_checked_by_database: bool = False
    choices: tuple[str, ...] = ()
    element: ColumnType | None = None
    fields: tuple[tuple[str, ColumnType], ...] = ()
    id_type: IdType = NO_IDS
    parts: tuple[ColumnType, ...] = ()

    @property
    def cast_name(self) -> str:
        """The name of the PostgreSQL type in a cast."""
        return self.sql_type or self.sql_names[0]

    def with_sql(self, **terms: Any) -> ColumnType:
        """Return the type with other terms."""
        return msgspec.structs.replace(self, sql=msgspec.structs.replace(self.sql, **terms))

    def with_json(self, **forms: Any) -> ColumnType:
        """Return the type with other conversions or schemas."""
        return msgspec.structs.replace(self, json=msgspec.structs.replace(self.json, **forms))

    def bind(self, parameter: Term) -> Term:
        """Return the term of a parameter, with the cast that it needs."""
        return parameter if self.sql.bound is None else self.sql.bound(parameter)

    def __repr__(self) -> str:
        return self.name


def _as_interval(parameter: Term) -> Term:
    return functions.Cast(functions.Cast(parameter, "TEXT"), "INTERVAL")


_INFINITE_INTERVALS = (
    b"\x7f" + b"\xff" * 7 + (b"\x7f" + b"\xff" * 3) * 2,
    b"\x80" + b"\0" * 7 + (b"\x80" + b"\0" * 3) * 2,
)
"""The infinite intervals of PostgreSQL 17 and later, in their binary form."""


def _interval_shown(parts: bytes | None) -> str | None:
    return None if parts in _INFINITE_INTERVALS else values.interval_shown(parts)


def raw_json(text: str | None) -> msgspec.Raw | None:
    """Return a JSON text for msgspec to encode as it is."""
    return None if text is None else msgspec.Raw(text.encode())


def _integer(name: str, bits: int) -> ColumnType:
    reader = values.Integer(bits)
    schema: JsonSchema = {"type": "integer", "minimum": reader.low, "maximum": reader.high}
    return ColumnType(
        name=name,
        family="number",
        sql_names=(f"int{bits // 8}",),
        json=JsonForm(
            from_json=reader,
            from_text=reader.text,
            read_all=reader.read_all,
            schema=schema if bits == 16 else schema | {"format": f"int{bits}"},
        ),
        comparison=Comparison(is_ordered=True),
        sql=SqlForm(as_json=to_json),
        id_type=integer_ids(reader),
    )


def _float(name: str, sql_name: str, largest: float) -> ColumnType:
    reader = values.Float(largest)
    return ColumnType(
        name=name,
        family="number",
        sql_names=(sql_name,),
        json=JsonForm(
            from_json=reader, from_text=reader.text, schema={"type": "number", "minimum": -largest, "maximum": largest}
        ),
        comparison=Comparison(is_ordered=True),
        sql=SqlForm(as_json=float_json),
    )


def _string(name: str, sql_names: tuple[str, ...], id_type: IdType, *, cast: bool) -> ColumnType:
    return ColumnType(
        name=name,
        family="text",
        sql_names=sql_names,
        json=JsonForm(
            from_json=values.str_of,
            from_text=values.str_of,
            read_all=values.strs_of,
            schema={"type": "string"},
            written_schema={"type": "string", "pattern": values.WITHOUT_NUL},
        ),
        comparison=Comparison(is_ordered=True),
        is_text=True,
        sql=SqlForm(
            as_text=cast,
            select=as_text if cast else None,
            select_array=as_texts if cast else None,
            as_json=to_json,
        ),
        id_type=id_type,
    )


def _from_string(
    name: str,
    family: str,
    reader: Callable[[Any], Any],
    *,
    schema: JsonSchema,
    sql: SqlForm = SqlForm(),  # noqa: B008  (it is frozen)
    shown: Callable[[Any], Any] | None = None,
    is_ordered: bool = True,
    has_equality: bool = True,
    id_type: IdType = NO_IDS,
) -> ColumnType:
    """Return a type whose JSON form is a string, with the same form in a body and in a simple filter."""
    return ColumnType(
        name=name,
        family=family,
        sql_names=(name,),
        json=JsonForm(from_json=reader, from_text=reader, shown=shown, schema={"type": "string"} | schema),
        comparison=Comparison(is_ordered=is_ordered, has_equality=has_equality),
        sql=sql,
        id_type=id_type,
    )


def _json(name: str) -> ColumnType:
    return ColumnType(
        name=name,
        family=name,
        sql_names=(name,),
        json=JsonForm(from_json=values.json_of, from_text=values.json_of_text, shown=raw_json),
        comparison=Comparison(has_equality=False, has_order=False),
        sql=SqlForm(as_json=as_text),
    )


def _numeric(
    name: str,
    read: Callable[[Any], Any],
    shown: Callable[[Any], Any] | None,
    schema: JsonSchema,
    pattern: str,
    id_type: IdType = NO_IDS,
) -> ColumnType:
    return ColumnType(
        name=name,
        family="number",
        sql_names=("numeric",),
        json=JsonForm(
            from_json=read,
            from_text=read,
            shown=shown,
            schema=schema,
            written_schema={"type": ["string", "number"], "pattern": pattern},
        ),
        comparison=Comparison(is_ordered=True),
        sql=SqlForm(select=as_text, select_array=as_texts, as_json=to_json if shown is None else numeric_json),
        id_type=id_type,
    )


def _finite_raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None or text.endswith(("NaN", "Infinity")) else msgspec.Raw(text.encode())


BOOL = ColumnType(
    name="bool",
    family="bool",
    sql_names=("bool",),
    json=JsonForm(from_json=values.bool_of, from_text=values.bool_of_text, schema={"type": "boolean"}),
    sql=SqlForm(as_json=to_json),
)
SMALLINT = _integer("smallint", 16)
INT = _integer("int", 32)
BIGINT = _integer("bigint", 64)
NUMERIC = _numeric(
    "numeric",
    values.numeric_of,
    None,
    {"type": "string", "format": "decimal"},
    f"^({values.NUMBER}|NaN|-?Infinity)$",
    NUMERIC_IDS,
)
"""Shown as a JSON string, so that no client rounds it. `"NaN"` and `"Infinity"` are possible."""
NUMERIC_NUMBER = _numeric(
    "numeric as a number", values.decimal_of, _finite_raw, {"type": "number"}, f"^{values.NUMBER}$"
)
"""Shown as a JSON number with all digits. NaN and infinities are shown as null."""
FLOAT = _float("float", "float8", 1.7976931348623157e308)
REAL = msgspec.structs.replace(
    _float("real", "float4", 3.4028235e38),  # the largest, as PostgreSQL shows it
    sql=SqlForm(select=single, select_array=singles, as_json=float_json),
)
TEXT = _string("text", ("text", "varchar", "citext", "name"), TEXT_IDS, cast=False)
CHAR = _string("char", ("bpchar",), CHAR_IDS, cast=True)
UUID = _from_string(
    *("uuid", "uuid", values.uuid_of), sql=SqlForm(as_json=to_json), schema={"format": "uuid"}, id_type=UUID_IDS
)
DATE = _from_string(
    "date",
    "date",
    values.date_of,
    sql=SqlForm(select=between(*DAYS), is_plain=are_between(*DAYS), as_json=to_json),
    schema={"format": "date"},
    id_type=DATE_IDS,
)
TIME = _from_string(
    "time",
    "time",
    values.time_of,
    sql=SqlForm(select=as_text, select_array=as_texts, as_json=clock_json),
    shown=values.time_shown,
    schema={"pattern": r"^(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?|24:00:00(\.0{1,6})?)$"},
)
"""A fraction of a second is shown with six digits, like that of a timestamp."""
TIMESTAMP = _from_string(
    "timestamp",
    "date",
    values.timestamp_of,
    sql=SqlForm(select=cast_first("timestamp", utc_between), as_json=moment_json),
    schema={"format": "date-time"},
    id_type=TIMESTAMP_IDS,
)
TIMESTAMPTZ = _from_string(
    "timestamptz",
    "date",
    values.timestamptz_of,
    sql=SqlForm(
        select=cast_first("timestamptz", between(*MOMENTS)),
        is_plain=are_between(*MOMENTS),
        as_json=moment_json,
    ),
    schema={"format": "date-time"},
    id_type=TIMESTAMPTZ_IDS,
)
INTERVAL = _from_string(
    "interval",
    "interval",
    values.interval_of,
    sql=SqlForm(select=interval_bytes, bound=_as_interval),
    shown=_interval_shown,
    schema={"pattern": f"^{values.INTERVAL}$"},
)
BYTEA = _from_string(
    "bytea",
    "bytea",
    values.bytes_of,
    sql=SqlForm(as_json=bytes_json),
    schema={
        "contentEncoding": "base64",
        "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    },
    id_type=BYTEA_IDS,
)
JSON = _json("json")
JSONB = _json("jsonb")


def is_structure(column_type: ColumnType) -> bool:
    """Return whether the values are JSON, arrays or objects."""
    return column_type in (JSON, JSONB) or column_type.element is not None or bool(column_type.fields)


OPAQUE = ColumnType(
    name="read-only text",
    family="opaque",
    sql_names=(),
    json=JsonForm(from_json=values.str_of, from_text=values.str_of, schema={"type": "string"}),
    is_read_only=True,
    comparison=Comparison(has_order=False),
    sql=SqlForm(select=as_text, compared=as_text, as_json=to_json),
)
"""Any other database type. It is shown and compared as PostgreSQL's text, and cannot be sorted."""


def opaque(sql_type: str) -> ColumnType:
    """Return OPAQUE for a type of PostgreSQL with an order. It is shown as text, but compared and sorted by the type.

    sql_type: the name in a cast, `pg_catalog.inet`. `CAST(CAST($1 AS TEXT) AS pg_catalog.inet)`
    """
    return msgspec.structs.replace(
        OPAQUE,
        sql_type=sql_type,
        comparison=Comparison(),
        # Another column may have another type, so their texts are compared.
        sql=SqlForm(select=as_text, as_text=True, bound=cast_from_text(sql_type), as_json=to_json),
        is_checked_by_database=True,
    )


def enum(*choices: str) -> ColumnType:
    """Return the type for one of the given texts. The column is text or an enum type of PostgreSQL with these
    labels."""
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise TypeError(f'enum takes its texts, such as enum("red", "green"), not {choices!r}')
    expected, schema = "one of " + ", ".join(choices), {"type": "string", "enum": list(choices)}

    def read(value: Any) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ValueFault(expected)

    return ColumnType(
        name="enum",
        family="text",
        sql_names=("text", "varchar", "enum"),
        json=JsonForm(from_json=read, from_text=read, schema=schema),
        comparison=Comparison(is_ordered=True),
        is_text=True,
        sql=SqlForm(as_text=True, as_json=to_json),
        choices=choices,
        id_type=enum_ids(read, schema),
    )


_BOUNDS: dict[ColumnType, tuple[type, ...]] = {
    **dict.fromkeys((SMALLINT, INT, BIGINT), (int,)),
    **dict.fromkeys((NUMERIC, NUMERIC_NUMBER), (int, Decimal)),
    **dict.fromkeys((FLOAT, REAL), (int, float)),
    **dict.fromkeys((TEXT, CHAR), (str,)),
    DATE: (date,),
    TIME: (time,),
    TIMESTAMP: (datetime,),
    TIMESTAMPTZ: (datetime,),
}


def is_bound_of(bound: Any, column_type: ColumnType) -> bool:
    """Return whether a declared minimum or maximum can be compared with the values of a type. A float is not allowed
    for a numeric, because 0.1 is more than Decimal("0.1"). timestamptz needs an aware datetime, timestamp a naive one,
    and a date is neither.

    Intervals have no bounds: they are bound as text, which is not ordered like durations.
    """
    classes = _BOUNDS.get(column_type, (str,) if column_type.choices else ())
    if isinstance(bound, datetime):
        return datetime in classes and (bound.tzinfo is not None) == (column_type is TIMESTAMPTZ)
    return isinstance(bound, classes) and not isinstance(bound, bool)
