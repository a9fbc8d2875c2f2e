"""Runs `waterspout inspect` over a database that is hard to declare (`hard_schema.sql`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import asyncpg
import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import quote_ident
from server.__main__ import main
from server.startup.declarations import load_declarations
from tests.conftest import on_server, with_database

HERE = Path(__file__).parent
NAME = f"waterspout_hard_{os.getpid()}"


@pytest.fixture(scope="module")
def hard_url(postgres_url: str) -> Iterator[str]:
    """Yield the URL of a database with the tables and rows of `hard_schema.sql`."""
    url = with_database(postgres_url, NAME)
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {NAME}", f"CREATE DATABASE {NAME}")
    on_server(url, (HERE / "hard_schema.sql").read_text(encoding="utf-8"))
    yield url
    on_server(postgres_url, f"DROP DATABASE {NAME} WITH (FORCE)")


def inspect(url: str, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code of the command, the module that it writes, and its remarks."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err, pytest.raises(SystemExit) as end:
        main(("inspect", "--database-url", url, *arguments), prog_name="waterspout")
    assert isinstance(end.value.code, int)
    return end.value.code, out.getvalue().replace(NAME, "hard"), err.getvalue().replace(NAME, "hard")


def from_file(url: str) -> Catalog:
    return load_declarations(str(HERE / "hard_schema.py")).catalog


def text_of(parts: Sequence[str]) -> str:
    """Return the id of a row."""
    return parts[0] if len(parts) == 1 else ",".join(re.sub(r"([\\,])", r"\\\1", part) for part in parts)


async def rows_of(url: str, sql: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(sql)
    finally:
        await connection.close()


async def ids_of(url: str, resource: Resource) -> list[str]:
    table = f"{quote_ident(resource.schema or 'public')}.{quote_ident(resource.table)}"
    columns = [quote_ident(name) for name in resource.id.key.columns]
    shown = ",".join(f"{column}::text" for column in columns)
    return [text_of(row) for row in await rows_of(url, f"SELECT {shown} FROM {table} ORDER BY {','.join(columns)}")]
