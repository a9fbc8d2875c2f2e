"""Measures the limits of PostgreSQL: pgbench with only SQL, without a server. It takes a request and returns
transactions per second.

`same`: the statements that the server sends for the request, prepared. `postgrest`: one statement in which PostgreSQL
makes the JSON, of the shape that PostgREST generates; PostgREST itself cannot exceed it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from bench.breakdown import read_shape
from bench.requests import Request, rendered
from bench.servers import Cpus, pin_own
from querybuild.planning.context import Context
from server.embedded.cluster import find_software
from server.embedded.folder import SoftwareMissing
from server.engine import ANYBODY, Engine
from server.execution.arguments import arguments_of
from server.execution.execute import execute_read
from server.postgres.opening import open_database
from server.resources import built_in
from server.routes import match_route
from server.schema.live_schema import read_live_schema
from server.settings import Settings
from server.startup.start import connected

WITHOUT_PGBENCH = "pgbench is not installed: pip install 'waterspout[embedded]' has it, or `apt-get install postgresql`"

USER_COLUMNS = (
    "id, first_name, last_name, first_name || ' ' || last_name AS display_name, age, email, status, birth_date, gender,"
    " words, date_create"
)
# One statement for rows, count and JSON; an embedded collection is a LATERAL for each row.
_AROUND = """
WITH pgrst_source AS (
{source}
)
SELECT null::bigint AS total_result_set, pg_catalog.count(_postgrest_t) AS page_total,
    coalesce(json_agg(_postgrest_t), '[]') AS body,
    nullif(current_setting('response.headers', true), '') AS response_headers,
    nullif(current_setting('response.status', true), '') AS response_status
FROM (SELECT * FROM pgrst_source) _postgrest_t;
"""
_LIST = """
SELECT {columns} FROM public.users ORDER BY public.users.id ASC LIMIT {size} OFFSET 0
"""
_WITH_COMPUTERS = """
SELECT {columns}, coalesce(users_computers_1.users_computers_1, '[]') AS computers
FROM public.users
LEFT JOIN LATERAL (
    SELECT json_agg(users_computers_1)::jsonb AS users_computers_1 FROM (
        SELECT computers_1.id, computers_1.name, computers_1.serial
        FROM public.computers AS computers_1 WHERE computers_1.owner_id = public.users.id
    ) AS users_computers_1
) AS users_computers_1 ON TRUE
ORDER BY public.users.id ASC LIMIT {size} OFFSET 0
"""
POSTGREST = {
    "list-30": _AROUND.format(source=_LIST.format(columns=USER_COLUMNS, size=30)),
    "list-30-include": _AROUND.format(source=_WITH_COMPUTERS.format(columns=USER_COLUMNS, size=30)),
    "list-1000-include": _AROUND.format(source=_WITH_COMPUTERS.format(columns=USER_COLUMNS, size=1000)),
}
"""Scripts by the names of requests."""

_TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
_LATENCY = re.compile(r"^latency average = ([\d.]+) ms", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    """The statements of one transaction; its variables are bound as parameters."""

    text: str
    variables: dict[str, str] = {}


def find_pgbench() -> str | None:
    """Return the path of pgbench, preferably that of the embedded PostgreSQL, or None if there is none."""
    try:
        own = find_software() / "bin" / "pgbench"
    except SoftwareMissing:
        return shutil.which("pgbench")
    return str(own) if own.exists() else shutil.which("pgbench")


def run_script(
    pgbench: str, url: str, script: Script, *, seconds: float, clients: int, cpus: Cpus
) -> tuple[float, float]:
    """Run pgbench and return transactions per second, and milliseconds for one. Raises
    subprocess.CalledProcessError.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
        file.write(script.text)
        file.flush()
        options = ["-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", str(max(1, round(seconds)))]
        values = [f"-D{name}={value}" for name, value in script.variables.items()]
        command = [pgbench, *options, *values, "-f", file.name, url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=lambda: pin_own(cpus))
    tps, latency = _TPS.search(done.stdout), _LATENCY.search(done.stdout)
    if tps is None or latency is None:
        raise RuntimeError(f"pgbench says {done.stdout!r} {done.stderr!r}")
    return float(tps[1]), float(latency[1])


def same_script(url: str, request: Request, cursor: str = "") -> Script:
    """Return the statements that the server sends for a reading request, with the values that it binds."""
    return _script(asyncio.run(_sent(url, request, cursor)))


async def _sent(url: str, request: Request, cursor: str) -> list[tuple[str, Sequence[Any]]]:
    settings, catalog = Settings(), built_in()
    async with connected(url, settings) as connection:
        engine = Engine(settings, catalog, await read_live_schema(connection, catalog))
    path, _, query_string = rendered(request, 1, cursor)[0].partition("?")
    route = match_route(path, engine.catalog, engine.fixed_paths)
    assert route is not None
    prepared = engine.reads.prepare(read_shape(request, engine), query_string, ANYBODY)
    database = await open_database(url, settings, 1)
    sent: list[tuple[str, Sequence[Any]]] = []
    try:
        async with database.connection() as connection:
            connection.add_query_logger(lambda query: sent.append((query.query, query.args or ())))
        path_id = int(route.id) if route.id else None
        # In the first execution the driver also looks up types.
        for _ in range(2):
            sent.clear()
            await execute_read(database, prepared, arguments_of(prepared, Context(), path_id), engine)
    finally:
        await database.close()
    return sent


def _script(sent: Sequence[tuple[str, Sequence[Any]]]) -> Script:
    lines: list[str] = []
    variables: dict[str, str] = {}
    for index, (sql, values) in enumerate(sent):
        variables |= {f"v{index}_{number}": _text(value) for number, value in enumerate(values, 1)}
        lines.append(re.sub(r"\$(\d+)", rf":v{index}_\1", sql.rstrip().rstrip(";")) + ";")
    return Script("\n".join(lines) + "\n", variables)


def _text(value: Any) -> str:
    """Return the value as text for PostgreSQL."""
    match value:
        case bool():
            return "t" if value else "f"
        case list() | tuple():
            return "{" + ",".join(map(_text, value)) + "}"
        case date():
            return value.isoformat()
        case _:
            return str(value)
