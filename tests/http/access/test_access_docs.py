"""The complete file of docs/access.md runs, with the table of its commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.startup.declarations import load_declarations
from tests.conftest import on_server
from tests.http.conftest import Api, Serve
from tests.http.people import document
from tests.issuer import AUDIENCE, claims, signed
from tests.unit.test_access_docs import FILES, PAGE

SECRET = b"s" * 32


@pytest.fixture
def api(serve: Serve, database_url: str, tmp_path: Path) -> Api:
    (code,) = FILES
    (tmp_path / "notes.py").write_text(code)
    (tmp_path / "secret").write_bytes(SECRET)
    (table,) = re.findall(r"CREATE TABLE notes \(.*?\)(?=\')", PAGE, re.DOTALL)
    on_server(database_url, table)
    catalog = load_declarations(str(tmp_path / "notes.py")).catalog
    return serve(database_url, catalog, auth_secret_file=tmp_path / "secret", auth_audience=AUDIENCE)


async def test_the_complete_file(api: Api) -> None:
    ann, bob = [{"Authorization": f"Bearer {signed(claims(sub=who), SECRET, 'HS256')}"} for who in ("ann", "bob")]
    made = await api.request("POST", "/notes", document("note", {"text": "mine"}), headers=ann)
    assert made.status == 201, made.body
    assert [(await api.get("/notes", **who)).ids for who in (ann, bob)] == [["1"], []]
    assert (await api.get("/notes")).status == 401
