"""Compiles calls of database functions: `"film_in_stock"("p_film_id"=>CAST($1 AS integer))`.

It must not know: values.
"""

from __future__ import annotations

from collections.abc import Sequence

from pypika.terms import Criterion, Term

from querybuild.declarations.function import Call, Returned
from querybuild.declarations.keys import Key
from querybuild.declarations.terms import Template, escaped_braces, quote_ident, sql_of
from querybuild.planning.row_plan import Slot
from querybuild.sql.binds import Binds
from querybuild.sql.keys import columns_of, is_any_key, shown_key
from querybuild.sql.statement import Statement

_ROWS = '"r"'


def is_returned(returned: Returned, binds: Binds) -> Criterion:
    """Return `"t0"."id"=ANY(ARRAY(SELECT "r"."id" FROM "film_in_stock"("p_film_id"=>CAST($1 AS integer)) "r"))`.
    PostgreSQL calls the function once, before it reads the first row. If it was called before: `"t0"."id"=ANY($1)`."""
    ids: Term
    if returned.call.is_done:
        ids = binds(Slot("returned"))
    else:
        ids = Template("ARRAY({})", _ids(returned.call, returned.key, 0, binds))
    return is_any_key(columns_of(returned.alias), returned.key, ids)


def compile_ids(call: Call, key: Key) -> Statement:
    """Return the statement that calls a function, and returns the ids of its rows. key: their columns."""
    binds = Binds()
    return Statement(sql_of(_ids(call, key, 0, binds)), binds.slots)


def compile_value(call: Call) -> Statement:
    """Return the statement that calls a function, and returns its value as JSON: `SELECT to_json("film_count"())`."""
    binds = Binds()
    return Statement(sql_of(_value(call, 0, binds)), binds.slots)


def compile_results(calls: Sequence[tuple[Call, Key | None]]) -> Statement:
    """Return the statement with the result of each call, which is only prepared: `SELECT (SELECT "r"."id" FROM
    "films_since"("since"=>CAST($1 AS integer)) "r"),(SELECT to_json("film_count"()))`. A key: the ids of the rows."""
    binds, slot = Binds(), 0
    results: list[Term] = []
    for call, key in calls:
        results.append(_value(call, slot, binds) if key is None else _ids(call, key, slot, binds))
        slot += len(call.arguments)
    return Statement(sql_of(Template(f"SELECT {','.join(['({})'] * len(results))}", *results)), binds.slots)


def _value(call: Call, slot: int, binds: Binds) -> Term:
    is_void = call.function.signature.is_void
    return Template("SELECT NULL::json FROM {}" if is_void else "SELECT to_json({})", _called(call, slot, binds))


def _ids(call: Call, key: Key, slot: int, binds: Binds) -> Term:
    # If the function returns values and not rows, the alias gives their column the name of the id.
    alias = f"{_ROWS}({_identifier(key.columns[0])})" if call.function.signature.is_scalar else _ROWS
    return Template("SELECT {} FROM {} " + alias, shown_key(columns_of("r"), key), _called(call, slot, binds))


def _called(call: Call, slot: int, binds: Binds) -> Term:
    function = call.function
    names = [function.name] if function.schema is None else [function.schema, function.name]
    given, terms = [], []
    for index, argument in enumerate(call.arguments, slot):
        terms.append(argument.type.bind(binds(Slot("argument", index))))
        sql_type = escaped_braces(function.signature.types[argument.name])
        given.append(f"{_identifier(argument.column_name)}=>CAST({{}} AS {sql_type})")
    return Template(f"{'.'.join(map(_identifier, names))}({','.join(given)})", *terms)


def _identifier(name: str) -> str:
    return escaped_braces(quote_ident(name))
