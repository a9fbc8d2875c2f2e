"""The SQL of calls of database functions."""

from __future__ import annotations

import pytest

from querybuild.declarations.function import Call, Function, Returned, Signature
from querybuild.declarations.keys import Key
from querybuild.planning.row_plan import Slot
from querybuild.sql.binds import Binds
from querybuild.sql.calls import compile_ids, compile_results, compile_value, is_returned
from waterspout import BIGINT, INT, INTERVAL, TEXT, Attribute

ARGUMENTS = (Attribute("since", INT, column="p_since"), Attribute('a"{b}', TEXT), Attribute("age", INTERVAL))
TYPES = {"since": "integer", 'a"{b}': "text", "age": "interval"}
ROWS = Function("rows of", "/rows", ARGUMENTS, "film", schema="my {shop}", signature=Signature(TYPES))
IDS = Function("ids", "/ids", ARGUMENTS, "film", signature=Signature(TYPES, is_scalar=True))
ONE, TWO = Key(("id",), (BIGINT,)), Key(("a", "b"), (BIGINT, TEXT))


@pytest.mark.parametrize(
    ("call", "key", "sql"),
    [
        (Call(ROWS), ONE, 'SELECT "r"."id" FROM "my {shop}"."rows of"() "r"'),
        (
            *(Call(ROWS, ("since", 'a"{b}')), ONE),
            'SELECT "r"."id" FROM "my {shop}"."rows of"("p_since"=>CAST($1 AS integer),"a""{b}"=>CAST($2 AS text)) "r"',
        ),
        (
            *(Call(IDS, ("age",)), ONE),
            'SELECT "r"."id" FROM "ids"("age"=>CAST(CAST(CAST($1 AS TEXT) AS INTERVAL) AS interval)) "r"("id")',
        ),
        (
            *(Call(ROWS), TWO),
            "SELECT CAST(\"r\".\"a\" AS TEXT)||','||replace(replace(CAST(\"r\".\"b\" AS TEXT),E'\\\\',E'\\\\\\\\'),',',"
            'E\'\\\\,\') FROM "my {shop}"."rows of"() "r"',
        ),
    ],
)
def test_ids(call: Call, key: Key, sql: str) -> None:
    statement = compile_ids(call, key)
    assert (statement.sql, statement.slots) == (sql, tuple(Slot("argument", one) for one in range(len(call.names))))


def test_results_of_several_calls() -> None:
    calls = ((Call(IDS, ("since",)), ONE), (Call(IDS, ("since",)), None))
    assert compile_results(calls).sql == (
        'SELECT (SELECT "r"."id" FROM "ids"("p_since"=>CAST($1 AS integer)) "r"("id")),'
        '(SELECT to_json("ids"("p_since"=>CAST($2 AS integer))))'
    )


@pytest.mark.parametrize(
    ("signature", "sql"),
    [
        (Signature(TYPES), 'SELECT to_json("ids"("p_since"=>CAST($1 AS integer)))'),
        (Signature(TYPES, is_void=True), 'SELECT NULL::json FROM "ids"("p_since"=>CAST($1 AS integer))'),
    ],
)
def test_values(signature: Signature, sql: str) -> None:
    function = Function("ids", "/ids", ARGUMENTS, signature=signature)
    assert compile_value(Call(function, ("since",))).sql == sql


@pytest.mark.parametrize(
    ("call", "sql", "slot"),
    [
        (
            Call(IDS, ("since",)),
            '"t0"."id"=ANY(ARRAY(SELECT "r"."id" FROM "ids"("p_since"=>CAST($1 AS integer)) "r"("id")))',
            Slot("argument"),
        ),
        (Call(IDS, is_done=True), '"t0"."id"=ANY($1)', Slot("returned")),
    ],
)
def test_rows_that_a_call_returns(call: Call, sql: str, slot: Slot) -> None:
    binds = Binds()
    assert is_returned(Returned("t0", ONE, call), binds).get_sql(quote_char='"') == sql
    assert binds.slots == (slot,)
