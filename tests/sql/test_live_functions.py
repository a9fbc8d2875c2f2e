"""The functions of the database that declarations mean."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Resource
from querybuild.declarations.types import INT
from server.schema.live_functions import read_functions
from waterspout import Attribute

DDL = """
CREATE TABLE things (id bigint PRIMARY KEY);
DO $$ BEGIN FOR n IN 0..119 LOOP
    EXECUTE format('CREATE FUNCTION things_%s(above int) RETURNS SETOF %s LANGUAGE sql STABLE AS %L', n,
                   CASE n WHEN 3 THEN 'record' WHEN 77 THEN 'text' ELSE 'things' END, 'SELECT 1');
END LOOP; END $$;
"""
FAULTS = [
    'function “things_3”: it cannot be called: a column definition list is required for functions returning "record"',
    "function “things_77”: it returns text, and not rows of the table “things”, or ids, which are bigint: "
    "leave out `returns` to show the value in `meta`",
]


async def test_functions_are_read_together(database_url: str) -> None:
    """Their number only decides how many parts the trial of the calls has: 50 are prepared at once, and less to find
    one that is refused."""
    connection = await asyncpg.connect(database_url)
    statements: list[str] = []
    prepared: list[str] = []

    async def prepare(sql: str) -> Sequence[asyncpg.Attribute]:
        prepared.append(sql)
        return (await connection.prepare(sql)).get_attributes()

    try:
        await connection.execute("SET check_function_bodies = off")
        await connection.execute(DDL)
        connection.add_query_logger(lambda record: statements.append(record.query))
        argument = Attribute("above", INT, required=True)
        functions = [Function(f"things_{n}", arguments=(argument,), returns="thing") for n in range(120)]
        counts = []
        # The first time, asyncpg asks for the types.
        for some in (functions[:1], functions[4:5], functions[4:50], functions):
            statements.clear()
            prepared.clear()
            catalog = Catalog([Resource("thing", "/things", "things"), *some])
            found, faults = await read_functions(connection, catalog, prepare, has_roles=False)
            assert [one.name for one in found] == [one.name for one in some]
            counts.append((len(statements), len(prepared)))
    finally:
        await connection.close()
    assert [str(one) for one in faults] == FAULTS
    assert counts[1:] == [(2, 1), (2, 1), (2, 13)]
