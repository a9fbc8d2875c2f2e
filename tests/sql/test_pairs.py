"""PostgreSQL accepts every statement that can be planned: every operator with a field of each type on both sides, and
with a value and with null for each type. No request of this kind is answered with a fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
from tornado.ioloop import IOLoop

from querybuild.declarations.operators import OPERATORS
from querybuild.errors import ApiError
from querybuild.planning.planner import PlannedRead
from querybuild.sql.select import compile_read
from querybuild.sql.writes.modify import compile_write
from tests.catalog import SAMPLE, SAMPLE_TYPE
from tests.planning import create, filter_query, read_collection

NAMES = ["id", *(attribute.name for attribute in SAMPLE_TYPE.attributes)]
OPS = sorted({row.name for row in OPERATORS} | {"jsonb_contains"})


def _planned(filters: dict[str, Any]) -> Iterator[PlannedRead]:
    try:
        yield read_collection("sample", filter_query([filters]) + "&page[size]=0&fields[sample]=")
    except ApiError:
        return


def _reads() -> Iterator[PlannedRead]:
    for op in OPS:
        for name in NAMES:
            yield from _planned({"name": name, "op": op, "val": None})
            for val in (SAMPLE.get(name, 1), "a", [SAMPLE.get(name, 1)] * 2, [], {"a": 1}, "x%", "(1,2)", ["b"]):
                yield from _planned({"name": name, "op": op, "val": val})
            for other in NAMES:
                yield from _planned({"name": name, "op": op, "field": other})
    for name in NAMES:
        try:
            yield read_collection("sample", f"sort=-{name}&page[size]=0")
        except ApiError:
            continue


def test_nothing_that_is_planned_is_refused(io_loop: IOLoop, corner_url: str) -> None:
    async def run() -> tuple[int, dict[str, str]]:
        refused = {}
        connection = await asyncpg.connect(corner_url, statement_cache_size=0)
        try:
            written = create("sample", {"attributes": SAMPLE})
            insert = compile_write(written.plan).row
            assert insert is not None
            await connection.execute(insert.sql, *written.values)
            count = 0
            for planned in _reads():
                count += 1
                sql = compile_read(planned.plan).primary.sql
                try:
                    await connection.fetch(sql, *planned.values)
                except asyncpg.DataError as error:
                    if not any(one.is_checked for one in planned.filters):
                        refused[sql] = f"{error}"
                except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    refused[sql] = f"{error}"
            return count, refused
        finally:
            await connection.close()

    count, refused = io_loop.run_sync(run)
    assert count > 1000
    assert refused == {}
