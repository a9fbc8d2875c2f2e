"""Rules are tried out with `waterspout token` and `waterspout explain --as`, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from server.resources import built_in
from tests.http.conftest import Start
from waterspout import SIGNED_IN, SUBJECT, Allow, Catalog, Role

RESOURCES = """
from msgspec.structs import replace
from server.resources import built_in
from waterspout import SIGNED_IN, SUBJECT, Allow, Role

OWN = {"name": "first_name", "op": "eq", "val": SUBJECT}
RULES = {"user": (Allow(SIGNED_IN, "read", rows=OWN), Allow(Role("editor"), "all"))}
RESOURCES = [replace(one, access=RULES.get(one.type, ())) for one in built_in()]
"""
SECRET = "x" * 64


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "server", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Path:
    """Return the settings of a server with rules and a secret."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "own.py").write_text(RESOURCES)
    path = tmp_path / "waterspout.toml"
    path.write_text(
        f"database_url = {json.dumps(database_url)}\nresources = {json.dumps(str(tmp_path / 'own.py'))}\n"
        f"auth_audience = 'api'\nauth_secret_file = {json.dumps(str(tmp_path / 'secret'))}\n"
    )
    return path


async def test_a_token_of_the_command_line(start: Start, database_url: str, config: Path) -> None:
    rules = {
        "user": (
            Allow(SIGNED_IN, "read", rows={"name": "first_name", "op": "eq", "val": SUBJECT}),
            Allow(Role("editor"), "all"),
        )
    }
    catalog = Catalog([msgspec.structs.replace(one, access=rules.get(one.type, ())) for one in built_in()])
    api = await start(database_url, catalog, auth_audience="api", auth_secret_file=config.with_name("secret"))
    await api.sql("INSERT INTO users (first_name, last_name, age) VALUES ('ann', 'x', 1), ('ben', 'x', 2)")
    for arguments, ids in ((["ann"], ["1"]), (["ben"], ["2"]), (["x"], []), (["x", "--role", "editor"], ["1", "2"])):
        made = run("token", "--config", str(config), "--development", "--subject", *arguments)
        assert (made.returncode, made.stderr) == (0, "")
        answer = await api.get("/users", Authorization=f"Bearer {made.stdout.strip()}")
        assert (answer.status, answer.ids) == (200, ids)
    assert (await api.get("/users")).status == 401


def test_explain_as_a_principal(config: Path, tmp_path: Path) -> None:
    """The rules for the claims apply: who has the role sees all rows, others only their own."""
    claims = tmp_path / "claims.json"
    for sent, is_ruled in (({"sub": "ann"}, True), ({"sub": "ann", "roles": ["editor"]}, False)):
        claims.write_text(json.dumps(sent))
        explained = run("explain", "--config", str(config), "--as", str(claims), "/users")
        assert explained.returncode == 0, explained.stderr
        assert ("rule      t0.first_name eq a value of the principal" in explained.stdout) is is_ruled
        assert ("$1 = 'ann'" in explained.stdout) is is_ruled


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (None, 1, "Error: 401 unauthenticated: "),
        ('{"sub": "ann"}', 1, "Error: 403 forbidden: "),
        ('{"roles": []}', 1, "Error: {path}: The token has no sub, or not a text.\n"),
        ("[]", 1, "Error: {path}: expected a JSON object, the claims of a token\n"),
        ("{", 1, "Error: {path} is no JSON: "),
        ("", 1, "Error: {path} is no JSON: "),
    ],
)
def test_what_explain_refuses(config: Path, tmp_path: Path, text: str | None, code: int, told: str) -> None:
    """The groups have no rules, so they are closed."""
    path = tmp_path / "claims.json"
    own = []
    if text is not None:
        path.write_text(text)
        own = ["--as", str(path)]
    explained = run("explain", "--config", str(config), *own, "/groups")
    assert (explained.returncode, explained.stdout) == (code, "")
    assert explained.stderr.startswith(told.replace("{path}", str(path)))


def test_a_file_of_claims_that_is_not_there(config: Path) -> None:
    explained = run("explain", "--config", str(config), "--as", "/nothing", "/users")
    assert (explained.returncode, explained.stderr) == (
        1,
        "Error: /nothing cannot be read: No such file or directory\n",
    )
