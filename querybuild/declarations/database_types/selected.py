"""Defines the terms that select values of the types whose plain column would not do, and those that PostgreSQL writes
as JSON.

It must not know: column types, resources, requests.
"""

from __future__ import annotations

from collections.abc import Callable

from pypika import functions
from pypika.terms import Function, Term

from querybuild.declarations.terms import Template, as_text, as_texts

DAYS = ("0001-01-01", "9999-12-31")
MOMENTS = ("0001-01-01 23:59:59.999999+00", "9999-12-31 00:00+00")
"""The last moment before `values.FIRST_DATE`, and the first after `values.LAST_DATE`, which are not shown. The offset
has no effect on a timestamp without time zone, which contains UTC."""


def between(before: str, after: str) -> Callable[[Term], Term]:
    """Return the value if it is between the two, otherwise null. Python has no year before 1 or after 9999, and no
    infinite dates. The term is evaluated once, because it may be a subquery. LEAST and GREATEST ignore null.

    `NULLIF(NULLIF(GREATEST(LEAST("t0"."day",'9999-12-31'),'0001-01-01'),'0001-01-01'),'9999-12-31')`
    """
    text = f"NULLIF(NULLIF(GREATEST(LEAST({{}},'{after}'),'{before}'),'{before}'),'{after}')"
    return lambda column: Template(text, column)


def are_between(before: str, after: str) -> Callable[[Term], Term]:
    """Return whether no element of an array is out of range. This costs a tenth of unnesting it. For null, an empty
    array and null elements the check is not false.

    `('0001-01-01'<ALL("t0"."days") AND '9999-12-31'>ALL("t0"."days")) IS NOT FALSE`
    """
    text = f"('{before}'<ALL({{0}}) AND '{after}'>ALL({{0}})) IS NOT FALSE"
    return lambda array: Template(text, array)


def utc_between(column: Term) -> Term:
    """Return a timestamp, which is UTC, as a timestamptz, if it can be shown."""
    return Function("timezone", "UTC", between(*MOMENTS)(column))


def cast_first(sql_name: str, select: Callable[[Term], Term]) -> Callable[[Term], Term]:
    """Return the function for a column that is cast first. A cast to its own type does nothing. If a migration gives
    the column another type while the server runs, the value is still one of this type: the time zone of the session is
    UTC."""
    return lambda column: select(functions.Cast(column, sql_name))


def single(column: Term) -> Term:
    """Cast through text, because float4 0.1 cast to float8 is 0.10000000149011612."""
    return functions.Cast(as_text(column), "FLOAT8")


def singles(column: Term) -> Term:
    """The same for an array."""
    return functions.Cast(as_texts(column), "FLOAT8[]")


def interval_bytes(column: Term) -> Term:
    """Return an interval in its binary form: months, days and microseconds."""
    return Function("interval_send", column)


def to_json(selected: Term) -> Term:
    """Return a selected value as PostgreSQL writes it in JSON."""
    return Function("to_json", selected)


def moment_json(selected: Term) -> Term:
    """Return a selected timestamptz as a JSON string. A fraction of a second has six digits, as the encoder writes it.
    The time zone of the session is UTC."""
    text = """to_char({0},CASE WHEN {0}=date_trunc('second',{0}) THEN 'YYYY-MM-DD"T"HH24:MI:SS"Z"'"""
    return to_json(Template(text + """ ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' END)""", selected))


def float_json(selected: Term) -> Term:
    """Return a selected float8 as JSON, with a point, as the encoder writes it. It writes other exponents than
    PostgreSQL. So the division fails for a number that has one, for NaN and for infinity."""
    text = "CASE WHEN {0} IS NULL THEN NULL WHEN {0}=0 OR (abs({0})>=1e-4 AND abs({0})<1e15) THEN "
    text += "CAST({0} AS TEXT)||CASE WHEN CAST({0} AS TEXT) LIKE '%.%' THEN '' ELSE '.0' END "
    return Template(text + "ELSE CAST(1/CAST({0} IS NULL AS INT) AS TEXT) END", selected)


def numeric_json(selected: Term) -> Term:
    """Return the selected text of a numeric as a JSON number. NaN and infinity are null."""
    return Template("CASE WHEN {0} LIKE '%N' OR {0} LIKE '%y' THEN NULL ELSE {0} END", selected)


def clock_json(selected: Term) -> Term:
    """Return the selected text of a time as a JSON string. A fraction of a second has six digits."""
    return to_json(Template("CASE WHEN {0} LIKE '%.%' THEN rpad({0},15,'0') ELSE {0} END", selected))


def bytes_json(selected: Term) -> Term:
    """Return a selected bytea as a JSON string: in base64, without PostgreSQL's line breaks."""
    return to_json(Template("translate(encode({},'base64'),chr(10),'')", selected))
