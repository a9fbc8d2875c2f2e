"""Defines the column types of composite types: JSON objects of their fields. PostgreSQL makes a row of the JSON that it
gets, and JSON of the row that it shows.

It must not know: resources, requests, operators.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pypika.terms import Function, Term

from querybuild.declarations.arrays import each_element
from querybuild.declarations.json_texts import JsonFault, dump_json, load_json
from querybuild.declarations.terms import Template, as_text, escaped_braces, quote_ident, unnested
from querybuild.declarations.types import (
    BYTEA,
    FLOAT,
    INTERVAL,
    JSON,
    JSONB,
    REAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    ColumnType,
    Comparison,
    JsonForm,
    SqlForm,
)
from querybuild.declarations.values import EndOfDay, JsonSchema, ValueFault, nullable

Convert = Callable[[Any], Any]


def composite(name: str, schema: str | None = None, /, **fields: ColumnType) -> ColumnType:
    """Return the type for a composite type of PostgreSQL. schema: that of the type; without it, PostgreSQL finds the
    type by its search path. fields: all of its fields, in any order. Each of them may be null.

    >>> composite("address", "library", street=TEXT, city=TEXT)
    address
    """
    _check_arguments(name, schema, fields)
    sql_type = ".".join([quote_ident(part) for part in (schema, name) if part is not None])
    from_json, from_text = _readers(name, fields)
    return ColumnType(
        name=name,
        family=name,
        sql_names=(name,),
        json=JsonForm(
            from_json=from_json,
            from_text=from_text,
            shown=_shown(fields),
            schema=_object(fields, lambda column_type: column_type.json.schema),
            written_schema=_object(
                fields, lambda column_type: column_type.json.written_schema or column_type.json.schema
            ),
        ),
        comparison=Comparison(
            has_equality=all(
                field.comparison.has_equality and not field.comparison.is_compared_as_text for field in fields.values()
            ),
            has_order=False,
        ),
        is_checked_by_database=True,
        sql=SqlForm(
            select=_select(fields),
            select_array=_select_array(_select(fields)),
            bound=_populated(sql_type),
            bound_array=_populated_array(sql_type),
        ),
        sql_type=sql_type,
        fields=tuple(fields.items()),
    )


def _check_arguments(name: object, schema: object, fields: Mapping[str, object]) -> None:
    if wrong := [part for part in (name, "" if schema is None else schema) if not isinstance(part, str)]:
        example = 'composite("address", street=TEXT)'
        raise TypeError(f"composite takes the name of a type, such as {example}, not {wrong[0]!r}")
    if not fields or not all(isinstance(field, ColumnType) for field in fields.values()):
        raise TypeError(f'composite takes the types of its fields, such as composite("{name}", street=TEXT)')


def _object(fields: Mapping[str, ColumnType], schema_of: Callable[[ColumnType], JsonSchema]) -> JsonSchema:
    properties = {field: nullable(schema_of(column_type)) for field, column_type in fields.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _readers(name: str, fields: Mapping[str, ColumnType]) -> tuple[Callable[[Any], str], Callable[[str], str]]:
    """Return the functions that convert an object from JSON, and a text with one, to the JSON that PostgreSQL reads. A
    field that is not sent is null. They raise ValueFault."""
    writers = {field: _writer(column_type) for field, column_type in fields.items()}

    def read(value: Any) -> str:
        if not isinstance(value, dict) or not value.keys() <= fields.keys():
            raise ValueFault(f"an object, of the type {name}, with the members {', '.join(fields)}")
        written = {}
        for field, sent in value.items():
            if fields[field].is_read_only and sent is not None:
                raise ValueFault(f"an object without the member {field}, which is read-only")
            try:
                written[field] = None if sent is None else writers[field](fields[field].json.from_json(sent))
            except ValueFault as error:
                raise ValueFault(f"an object whose member {field} is {error}") from error
        return dump_json(written)

    def read_text(text: str) -> str:
        try:
            return read(load_json(text))
        except JsonFault as error:
            raise ValueFault(f"JSON ({error})") from error

    return read, read_text


def _writer(column_type: ColumnType) -> Convert:
    """Return the function that converts the bound value of a field to JSON for PostgreSQL."""
    element = column_type.element
    if element is not None:
        write = _writer(element)

        def write_items(items: Any) -> Any:
            return [
                write_items(item) if isinstance(item, list) else None if item is None else write(item) for item in items
            ]

        return write_items
    if column_type.fields or column_type in (JSON, JSONB):
        return _parsed
    if column_type is BYTEA:
        return lambda data: "\\x" + data.hex()
    return _written


def _parsed(text: str) -> Any:
    try:
        return load_json(text, sys.maxsize)
    except JsonFault as error:
        raise ValueFault(f"JSON ({error})") from error


def _written(value: Any) -> Any:
    # As a number, NaN would not be JSON.
    return "24:00:00" if isinstance(value, EndOfDay) else str(value) if isinstance(value, Decimal) else value


def _shown(fields: Mapping[str, ColumnType]) -> Convert:
    """Return the function that converts PostgreSQL's JSON of a value to what is shown."""
    shown_fields = {field: _shown_field(column_type) for field, column_type in fields.items()}

    def show(shown: Any) -> Any:
        # Inside of another composite type it is parsed already.
        tree = json.loads(shown) if isinstance(shown, str) else shown
        return None if tree is None else {field: shown_fields[field](value) for field, value in tree.items()}

    return show


def _shown_field(column_type: ColumnType) -> Convert:
    """Return the function that converts a field in PostgreSQL's JSON to what is shown."""
    if column_type.element is not None:
        return each_element(_shown_field(column_type.element))
    loaded, shown = _LOADED.get(column_type), column_type.json.shown
    if loaded is None:
        return (lambda value: value) if shown is None else shown
    if shown is None:
        return lambda value: None if value is None else loaded(value)
    return lambda value: None if value is None else shown(loaded(value))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _finite(number: Any) -> Any:
    return None if isinstance(number, str) else number


_LOADED: dict[ColumnType, Convert] = {
    **dict.fromkeys((TIMESTAMP, TIMESTAMPTZ), _moment),
    **dict.fromkeys((BYTEA, INTERVAL), bytes.fromhex),
    **dict.fromkeys((FLOAT, REAL), _finite),
}
"""Type -> the function that converts its JSON to the value that a column has. PostgreSQL's JSON has NaN as a string."""


def _hex(column: Term) -> Term:
    return Function("encode", column, "hex")


def _hex_of_interval(column: Term) -> Term:
    assert INTERVAL.sql.select is not None
    return _hex(INTERVAL.sql.select(column))


_SELECTED: dict[ColumnType, Callable[[Term], Term]] = {
    BYTEA: _hex,
    INTERVAL: _hex_of_interval,
    JSON: as_text,
    JSONB: as_text,
}
"""Type -> how a field is selected, if its JSON would depend on settings, or would be parsed with the object."""


def _selected(column_type: ColumnType) -> Callable[[Term], Term] | None:
    if column_type.element is None:
        return _SELECTED.get(column_type, column_type.sql.select)
    each = _SELECTED.get(column_type.element)
    return column_type.sql.select if each is None else unnested(each)


def _select(fields: Mapping[str, ColumnType]) -> Callable[[Term], Term]:
    """Return the JSON object of a value. A row of nulls IS NULL, but it is not the same as null:

    `CASE WHEN "t0"."address" IS DISTINCT FROM NULL THEN json_build_object('street',("t0"."address")."street") END`
    """
    selects = {field: _selected(column_type) for field, column_type in fields.items()}

    def select(column: Term) -> Term:
        terms: list[Term] = []
        for field, select_field in selects.items():
            part = Template("({})." + escaped_braces(quote_ident(field)), column)
            terms.append(part if select_field is None else select_field(part))
        names = [escaped_braces("'" + field.replace("'", "''") + "'") for field in fields]
        members = ",".join([f"{field},{{}}" for field in names])
        text = f"CASE WHEN {{}} IS DISTINCT FROM NULL THEN json_build_object({members}) END"
        return Template(text, column, *terms)

    return select


def _select_array(select: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """Return an array of composite values as they are shown. `unnest` would make a row of nulls of null."""
    text = 'CASE WHEN {0} IS NOT NULL THEN ARRAY(SELECT {1} FROM generate_subscripts({0},1) "i") END'
    return lambda array: Template(text, array, select(Template('({})["i"]', array)))


def _populated(sql_type: str) -> Callable[[Term], Term]:
    """Return `json_populate_record(CAST(NULL AS "address"),CAST(CAST($1 AS TEXT) AS JSON))`. It is null for null."""
    text = f"json_populate_record(CAST(NULL AS {escaped_braces(sql_type)}),CAST(CAST({{}} AS TEXT) AS JSON))"
    return lambda parameter: Template(text, parameter)


def _populated_array(sql_type: str) -> Callable[[Term], Term]:
    """Return the parameter of an array of one dimension: `CASE WHEN $1 IS NOT NULL THEN ARRAY(SELECT ...) END`."""
    each = _populated(sql_type)(Template('"x"'))
    rows = 'unnest({0}) WITH ORDINALITY "u" ("x","n") ORDER BY "n"'
    text = f"CASE WHEN {{0}} IS NOT NULL THEN ARRAY(SELECT {{1}} FROM {rows}) END"
    return lambda parameter: Template(text, Template("CAST({} AS TEXT[])", parameter), each)
