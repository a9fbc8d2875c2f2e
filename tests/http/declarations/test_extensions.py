"""Extensions define operators with the names of PostgreSQL's own. They change no answer."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tornado.ioloop import IOLoop

from server.settings import Settings
from server.startup.start import declarations
from tests.conftest import on_server
from tests.http.conftest import Serve
from tests.http.expected import target

INTARRAY = """
CREATE FUNCTION for_integers(int[], int[]) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN RAISE 'array must not contain nulls' USING ERRCODE = 'null_value_not_allowed'; END $$;
"""
"""Stands for the extension, which not every PostgreSQL has: its operators refuse arrays with nulls."""

OPERATORS = ("&&", "@>", "<@")

TABLES = """
CREATE TABLE game (id bigint PRIMARY KEY, small smallint[], medium int[], large bigint[]);
INSERT INTO game VALUES (1, '{1,NULL}', '{1,NULL}', '{1,NULL}'), (2, '{2}', '{2}', '{2}'), (3, '{}', '{}', NULL);
"""


@pytest.mark.parametrize("name", ["small", "medium", "large"])
def test_operators_of_intarray(serve: Serve, database_url: str, io_loop: IOLoop, name: str) -> None:
    created = [f"CREATE OPERATOR {one} (LEFTARG=int[], RIGHTARG=int[], FUNCTION=for_integers)" for one in OPERATORS]
    on_server(database_url, INTARRAY, *created, TABLES)
    api = serve(database_url, declarations(Settings(database_url=database_url, inspect=True)).catalog)

    def found(op: str, **other: object) -> list[str]:
        filters = json.dumps({"name": name, "op": op} | other)
        answer = io_loop.run_sync(partial(api.get, target("/games", [("filter", filters), ("sort", name)])))
        assert answer.status == 200, answer.body
        return sorted(answer.ids)

    assert found("in_", val=[1, 5]) == ["1"]
    assert found("in_", field=name) == ["1", "2"]
    assert "1" not in found("notin_", val=[1, 5])
    assert found("eq", val=[2]) == ["2"]
