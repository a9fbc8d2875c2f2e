"""Defines the column types whose values are PostgreSQL's own texts: `"10.0.0.0/8"`, `"[1,5)"`. PostgreSQL reads and
writes these texts, so it also finds the invalid ones. A type of an extension is found by the search path, like its
operators.

It must not know: resources, requests, operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from pypika.terms import Function, Term

from querybuild.declarations import values
from querybuild.declarations.database_types.selected import to_json
from querybuild.declarations.id_types import CITEXT_IDS
from querybuild.declarations.terms import as_text, as_texts, cast_from_text
from querybuild.declarations.types import (
    BIGINT,
    DATE,
    INT,
    NUMERIC,
    TIMESTAMP,
    TIMESTAMPTZ,
    ColumnType,
    Comparison,
    JsonForm,
    SqlForm,
)
from querybuild.declarations.values import JsonSchema, ValueFault


def _text_type(
    name: str,
    example: str,
    *,
    prefix: str = "pg_catalog.",
    has_order: bool = True,
    is_compared_as_text: bool = False,
    may_be_empty: bool = False,
    select: Callable[[Term], Term] = as_text,
    read: Callable[[Any], str] = values.str_of,
    pattern: str = values.WITHOUT_NUL,
) -> ColumnType:
    """Return a type whose values are texts. Its schemas have the name of the type as their format. example: a value,
    for messages. prefix: before the name in a cast; empty for a type of an extension. may_be_empty: whether PostgreSQL
    takes the text without characters. read: converts a JSON value or a text. pattern: of what it takes."""
    min_length = {} if may_be_empty else {"minLength": 1}
    schema = {"type": "string", "format": name, "examples": [example]}
    return ColumnType(
        name=name,
        family=name,
        sql_names=(name,),
        json=JsonForm(
            from_json=read,
            from_text=read,
            example=example,
            schema=schema,
            written_schema=schema | {"pattern": pattern} | min_length,
        ),
        comparison=Comparison(
            is_ordered=has_order,
            has_order=has_order,
            is_compared_as_text=is_compared_as_text,
            is_of_extension=not prefix,
        ),
        is_checked_by_database=True,
        sql=SqlForm(
            select=select,
            select_array=as_texts if select is as_text else None,
            bound=cast_from_text(prefix + name),
            as_json=to_json,
        ),
        sql_type=prefix + name,
    )


def _geometric(name: str, example: str) -> ColumnType:
    """Return a type without an order. PostgreSQL's `=` compares areas or numbers of points, so texts are compared."""
    return _text_type(name, example, has_order=False, is_compared_as_text=True)


def _spatial(name: str, example: str) -> ColumnType:
    """Return a type of the extension PostGIS. Its texts are compared: they have all of a value, and the operator `<>`
    is ambiguous."""
    return _text_type(
        *(name, example),
        prefix="",
        has_order=False,
        is_compared_as_text=True,
        select=_well_known_text,
        read=_ascii_of,
        pattern=r"^[\u0001-\u007f]*$",
    )


def _well_known_text(column: Term) -> Term:
    """Return `ST_AsEWKT("t0"."place",30)`. PostGIS's own text is hexadecimal. With fewer digits it would round."""
    return Function("ST_AsEWKT", column, 30)


def _ascii_of(value: Any) -> str:
    """Convert a text that PostGIS can read. The message about another one is cut within a character, so that the driver
    cannot decode it."""
    text = values.str_of(value)
    if not text.isascii():
        raise ValueFault("a text of ASCII characters")
    return text


def _address(column: Term) -> Term:
    """Return `abbrev("t0"."address")`. A cast would write the address 10.0.0.1 as 10.0.0.1/32."""
    return Function("abbrev", column)


INET = _text_type("inet", "10.0.0.1", select=_address)
CIDR = _text_type("cidr", "10.0.0.0/8")
MACADDR = _text_type("macaddr", "08:00:2b:01:02:03")
MACADDR8 = _text_type("macaddr8", "08:00:2b:01:02:03:04:05")
MONEY = _text_type("money", "$12.50", may_be_empty=True)
BIT = _text_type("bit", "0101")
VARBIT = _text_type("varbit", "0101", may_be_empty=True)
TSVECTOR = replace(_text_type("tsvector", "'fat':2 'rat':3", may_be_empty=True), is_read_only=True)
XML = replace(
    _text_type("xml", "<a>1</a>", has_order=False, may_be_empty=True),
    comparison=Comparison(has_equality=False, has_order=False),
)

POINT = _geometric("point", "(1,2)")
LINE = _geometric("line", "{1,-1,0}")
LSEG = _geometric("lseg", "[(0,0),(1,1)]")
BOX = _geometric("box", "(2,2),(0,0)")
PATH = _geometric("path", "[(0,0),(1,1)]")
POLYGON = _geometric("polygon", "((0,0),(2,0),(2,2))")
CIRCLE = _geometric("circle", "<(0,0),1>")

INT4RANGE = _text_type("int4range", "[1,5)")
INT8RANGE = _text_type("int8range", "[1,5)")
NUMRANGE = _text_type("numrange", "[1.5,2]")
TSRANGE = _text_type("tsrange", '["2024-06-01 12:00:00",)')
TSTZRANGE = _text_type("tstzrange", '["2024-06-01 12:00:00+00",)')
DATERANGE = _text_type("daterange", "[2024-06-01,2024-07-01)")
INT4MULTIRANGE = _text_type("int4multirange", "{[1,5),[7,9)}")
INT8MULTIRANGE = _text_type("int8multirange", "{[1,5),[7,9)}")
NUMMULTIRANGE = _text_type("nummultirange", "{[1.5,2]}")
TSMULTIRANGE = _text_type("tsmultirange", '{["2024-06-01 12:00:00",)}')
TSTZMULTIRANGE = _text_type("tstzmultirange", '{["2024-06-01 12:00:00+00",)}')
DATEMULTIRANGE = _text_type("datemultirange", "{[2024-06-01,2024-07-01)}")

CITEXT = replace(
    _text_type("citext", "Anna", prefix="", may_be_empty=True),
    is_text=True,
    is_checked_by_database=False,
    id_type=CITEXT_IDS,
)
HSTORE = _text_type("hstore", '"a"=>"1"', prefix="", has_order=False, may_be_empty=True)
LTREE = _text_type("ltree", "top.science", prefix="", may_be_empty=True)
VECTOR = _text_type("vector", "[1,2,3]", prefix="")
"""Of the extension pgvector."""
GEOMETRY = _spatial("geometry", "SRID=4326;POINT(2.35 48.85)")
GEOGRAPHY = _spatial("geography", "SRID=4326;POINT(2.35 48.85)")

RANGES: dict[ColumnType, ColumnType] = {
    INT4RANGE: INT,
    INT8RANGE: BIGINT,
    NUMRANGE: NUMERIC,
    TSRANGE: TIMESTAMP,
    TSTZRANGE: TIMESTAMPTZ,
    DATERANGE: DATE,
}
"""Range -> the type of its bounds."""
MULTIRANGES: dict[ColumnType, ColumnType] = {
    INT4MULTIRANGE: INT,
    INT8MULTIRANGE: BIGINT,
    NUMMULTIRANGE: NUMERIC,
    TSMULTIRANGE: TIMESTAMP,
    TSTZMULTIRANGE: TIMESTAMPTZ,
    DATEMULTIRANGE: DATE,
}
"""Multirange -> the type of its bounds."""


def _with_members(column_type: ColumnType, bound: ColumnType) -> ColumnType:
    """Return the type of what a range or multirange may contain: a range, or one value, which is converted to the range
    of this value. bound: the type of its bounds."""
    is_multi = column_type in MULTIRANGES

    def read(value: Any, read_bound: Callable[[Any], Any]) -> str:
        is_range = isinstance(value, str) and value.lstrip().lower().startswith(("[", "(", "{", "empty"))
        if is_range:
            text = values.str_of(value)
        else:
            try:
                text = "[{0},{0}]".format(f'"{read_bound(value)}"')
            except ValueFault as error:
                raise ValueFault(f"a {column_type.name}, or {error}") from error
        return "{" + text + "}" if is_multi and not text.lstrip().startswith("{") else text

    return column_type.with_json(
        from_json=lambda value: read(value, bound.json.from_json),
        from_text=lambda text: read(text, bound.json.from_text),
        written_schema={"anyOf": [column_type.json.written_schema, _bound_schema(bound)]},
    )


def _bound_schema(bound: ColumnType) -> JsonSchema:
    """Return the schema of one value. PostgreSQL shows a range of integers with the number after its last one."""
    schema = bound.json.written_schema or bound.json.schema
    return schema | {"maximum": schema["maximum"] - 1} if "maximum" in schema else schema


CONTAINED: dict[ColumnType, ColumnType] = {
    **{column_type: _with_members(column_type, bound) for column_type, bound in (RANGES | MULTIRANGES).items()},
    **dict.fromkeys((BOX, PATH, POLYGON, CIRCLE), POINT),
    HSTORE: HSTORE,
}
"""Type -> the type of what its values may contain, with PostgreSQL's `@>`."""
CONTAINERS: dict[ColumnType, ColumnType] = {
    **{column_type: column_type for column_type in RANGES | MULTIRANGES},
    POINT: BOX,
    **{column_type: column_type for column_type in (BOX, POLYGON, CIRCLE, HSTORE)},
}
"""Type -> the type of what its values may be contained in, with PostgreSQL's `<@`."""
OVERLAPPING = frozenset((*RANGES, *MULTIRANGES, BOX, POLYGON, CIRCLE))
"""The types that have PostgreSQL's `&&`."""
SPATIAL = frozenset((GEOMETRY, GEOGRAPHY))
"""The types of the extension PostGIS, which has functions for what may be contained in what."""

TEXT_TYPES: tuple[ColumnType, ...] = (
    *(INET, CIDR, MACADDR, MACADDR8, MONEY, BIT, VARBIT, TSVECTOR, XML),
    *(POINT, LINE, LSEG, BOX, PATH, POLYGON, CIRCLE),
    *RANGES,
    *MULTIRANGES,
    *(CITEXT, HSTORE, LTREE, VECTOR, GEOMETRY, GEOGRAPHY),
)
