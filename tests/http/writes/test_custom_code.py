"""Runs the page about custom code: its `python` blocks declare resources over the tables of its `sql` blocks, and every
request gets the answer that the page shows, as tests/http/test_docs.py checks for other pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from server.postgres.connection import RESET
from tests.conftest import on_server
from tests.http import test_docs
from tests.http.conftest import Answer, Api, Servers
from tests.http.test_docs import ROOT, WRITES_DOCS, Request, blocks, is_true, written
from waterspout import Hooks

PAGE = ROOT / "docs" / "custom-code.md"
EXAMPLE = test_docs._EXAMPLE


@pytest.fixture
def api(io_loop: IOLoop, corner_url: str) -> Iterator[Api]:
    """Yield a server with the module of the page. The database also has other tables, but none with a name of the
    page."""
    text = PAGE.read_text(encoding="utf-8")
    on_server(corner_url, "DROP SCHEMA corner CASCADE", *blocks(text, "sql"))
    names: dict[str, Any] = {}
    exec("\n".join(blocks(text, "python")), names)
    servers = Servers()
    yield io_loop.run_sync(lambda: servers.start(corner_url, names["CATALOG"], names["ROUTES"]))
    io_loop.run_sync(servers.stop)


def test_examples(api: Api, io_loop: IOLoop) -> None:
    def ask(_: str, request: Request) -> Answer:
        headers = {"X-Request-Id": "example", **request.headers}
        answer: Answer = io_loop.run_sync(
            lambda: api.request(request.method, request.path, headers=headers, body=request.body)
        )
        return answer

    text = PAGE.read_text(encoding="utf-8")
    if WRITES_DOCS:
        PAGE.write_text(EXAMPLE.sub(lambda found: written(found, ask), text), encoding="utf-8")
        return
    untrue = [found["request"] for found in EXAMPLE.finditer(text) if not is_true(found, ask)]
    assert untrue == []


def test_every_request_has_an_answer() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(re.findall(r"^```http", text, re.MULTILINE)) == len(list(EXAMPLE.finditer(text))) > 0


def test_the_page_names_every_hook() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| hook |")[2].partition("\n\n")[0]
    names = re.findall(r"`([a-z]+_[a-z]+)`", table)
    assert names == [
        name for begin in ("before", "after") for name in Hooks.__struct_fields__ if name.startswith(begin)
    ]


def test_the_page_names_everything_that_is_reset() -> None:
    text = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
    words = {
        "RESET ALL": "settings",
        "SESSION AUTHORIZATION": "a role",
        "advisory": "advisory locks",
        "DISCARD TEMP": "temporary tables",
        "UNLISTEN": "listeners",
        "CLOSE ALL": "cursors",
    }
    for statement, word in words.items():
        assert statement in RESET
        assert word in text
