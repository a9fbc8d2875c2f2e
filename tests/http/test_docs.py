"""The examples of the documentation, run: every request that a page shows gets the answer that the page shows.

In a page a request is a block of the language `http`, and its answer the block of the language `json` that
follows. Continued lines of the target are indented; the target is shown decoded. A word after `http` is a setting
of the server that is asked, the number after `json` the answer's status, 200 without one:

    ```http max_included=3
    GET /users
        ?filter=[{"name":"age","op":"gt","val":60}]
        &sort=-age
    ```

    ```json 400
    {"errors": ...}
    ```

A block of the language `console` is a curl command and its answer, of any status. The requests of a page run in its
order on one database, which has the demo rows, or for the page of declarations what its `sql` blocks make. Each is
sent with `X-Request-Id: example`. WATERSPOUT_WRITE_DOCS=1 writes the answers into the pages instead of comparing.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest
from tornado.ioloop import IOLoop

from server.resources.demo import load_demo
from server.schema.live_schema import read_live_schema
from tests.http.conftest import Answer, Api, Serve
from tests.variables import VARIABLES
from waterspout import (
    DATE,
    INT,
    JSONB,
    TEXT,
    UUID,
    Attribute,
    Catalog,
    CatalogError,
    Id,
    Resource,
    ToMany,
    ToOne,
    functions,
)

ROOT = Path(__file__).parents[2]
WRITES_DOCS = bool(VARIABLES.get("WATERSPOUT_WRITE_DOCS"))
WIDTH = 120
PAGES = (
    "README.md",
    "docs/query-language.md",
    "docs/errors.md",
    "docs/resources.md",
    "docs/catalog.md",
    "docs/writing.md",
    "docs/operations.md",
    "docs/versions.md",
    "docs/retrying.md",
    "docs/observing.md",
)
DECLARATIONS = "docs/resources.md"

_BLOCK = re.compile(r"^```(?P<language>\w+)(?P<words>[^\n]*)\n(?P<text>.*?)\n```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(
    r"^```http(?P<settings>[^\n]*)\n(?P<request>[^`]*?)\n```\n\n```(?P<language>json|csv)(?P<status>[^\n]*)\n(?P<answer>.*?)\n```$"
    r"|^```console\n\$ (?P<curl>(?:[^\n]*\\\n)*[^\n]*)\n(?P<shown>[{].*?)\n```$",
    re.MULTILINE | re.DOTALL,
)


class Request(msgspec.Struct):
    method: str
    path: str
    headers: dict[str, str]
    body: str | None


def blocks(text: str, language: str) -> list[str]:
    return [found["text"] for found in _BLOCK.finditer(text) if found["language"] == language]


def request_of(text: str) -> Request:
    """Return the request of a block of the language `http`.

    >>> request_of("GET /users\\n    ?page[size]=1").path
    '/users?page%5Bsize%5D=1'
    """
    head, _, body = text.partition("\n\n")
    line, *rest = head.split("\n")
    while rest and rest[0].startswith(" "):
        line += rest.pop(0).strip()
    method, _, target = line.partition(" ")
    path, mark, query = target.partition("?")
    pairs = ["=".join(quote(part) for part in pair.split("=", 1)) for pair in query.split("&")]
    return Request(method, path + mark + "&".join(pairs), dict(header.split(": ", 1) for header in rest), body or None)


def request_of_curl(command: str) -> Request:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option in ("-X", "-d"):
        parser.add_argument(option)
    for flag in ("-s", "-g", "-gs"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("url")
    program, *words = shlex.split(command.replace("\\\n", " "))
    assert program == "curl"
    given = parser.parse_args(words)
    path = re.sub(r"^(http://)?localhost:8080", "", given.url)
    headers = dict(header.split(": ", 1) for header in given.H)
    return Request(given.X or ("POST" if given.d else "GET"), path, headers, given.d)


def laid_out(value: Any, indent: int = 0, taken: int = 0) -> str:
    """JSON with line breaks only where a value does not fit into a line. taken: the number of characters before it on
    its line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or taken + len(flat) <= WIDTH - indent:
        return flat
    inner, margin = indent + 2, "\n" + " " * (indent + 2)
    if isinstance(value, list):
        return f"[{margin}{f',{margin}'.join(laid_out(item, inner) for item in value)}\n{' ' * indent}]"
    members = [(json.dumps(name, ensure_ascii=False) + ": ", item) for name, item in value.items()]
    lines = [name + laid_out(item, inner, len(name)) for name, item in members]
    return f"{{{margin}{f',{margin}'.join(lines)}\n{' ' * indent}}}"


Ask = Callable[[str, Request], Answer]


def is_true(found: re.Match[str], ask: Ask) -> bool:
    """Return whether the answer in the example is that of the server. curl does not show the status."""
    answer = answer_of(found, ask)
    if found["curl"]:
        return bool(answer.document == json.loads(found["shown"]))
    if found["language"] == "csv":
        return lines_of(answer) == found["answer"]
    return (answer.status, answer.document) == (int(found["status"] or 200), json.loads(found["answer"]))


def lines_of(answer: Answer) -> str:
    return answer.body.decode().replace("\r\n", "\n").rstrip("\n")


def written(found: re.Match[str], ask: Ask) -> str:
    """Return the example with the answer of the server."""
    answer = answer_of(found, ask)
    if found["language"] == "csv":
        return f"```http{found['settings']}\n{found['request']}\n```\n\n```csv\n{lines_of(answer)}\n```"
    shown = laid_out(answer.document)
    if found["curl"]:
        return f"```console\n$ {found['curl']}\n{shown}\n```"
    status = "" if answer.status == 200 else f" {answer.status}"
    return f"```http{found['settings']}\n{found['request']}\n```\n\n```json{status}\n{shown}\n```"


def answer_of(found: re.Match[str], ask: Ask) -> Answer:
    request = request_of_curl(found["curl"]) if found["curl"] else request_of(found["request"])
    return ask((found["settings"] or "").strip(), request)


def declared(text: str) -> Catalog:
    """Return the catalog that the `python` blocks of a page declare together."""
    names: dict[str, Any] = {}
    exec("\n".join(blocks(text, "python")), names)
    catalog: Catalog = names["CATALOG"]
    return catalog


async def prepare(url: str, statements: list[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
        if not statements:
            await load_demo(connection)
    finally:
        await connection.close()


@pytest.fixture
def ask_on(serve: Serve, database_url: str, io_loop: IOLoop) -> Callable[[str], Ask]:
    """Return a function that sends a request to the server of this page. There is one server for each set of
    settings."""

    def on(text: str, is_declared: bool = False) -> Ask:
        io_loop.run_sync(lambda: prepare(database_url, blocks(text, "sql") if is_declared else []))
        catalog = declared(text) if is_declared else None
        servers: dict[str, Api] = {}

        def ask(words: str, request: Request) -> Answer:
            if words not in servers:
                settings = dict(word.split("=") for word in words.split())
                servers[words] = serve(
                    database_url, catalog, **{name: json.loads(value) for name, value in settings.items()}
                )
            headers = {"X-Request-Id": "example", **request.headers}
            answer: Answer = io_loop.run_sync(
                lambda: servers[words].request(request.method, request.path, headers=headers, body=request.body)
            )
            return answer

        return ask

    return on


@pytest.mark.parametrize("page", PAGES)
def test_examples(page: str, ask_on: Callable[..., Ask]) -> None:
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    ask = ask_on(text, page == DECLARATIONS)
    assert _EXAMPLE.search(text), "the page shows no request"
    if WRITES_DOCS:
        path.write_text(_EXAMPLE.sub(lambda found: written(found, ask), text), encoding="utf-8")
        return
    untrue = [found["curl"] or found["request"] for found in _EXAMPLE.finditer(text) if not is_true(found, ask)]
    told = "WATERSPOUT_WRITE_DOCS=1 writes these answers anew; look at the diff"
    assert not untrue, "\n\n".join([told, *untrue])


@pytest.mark.parametrize("page", PAGES)
def test_every_request_has_an_answer(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    requests = len(re.findall(r"^```http|^\$ curl", text, re.MULTILINE))
    assert requests == len(list(_EXAMPLE.finditer(text)))


# the messages about declarations that docs/resources.md quotes

CONTRADICTORY = (
    Resource("author", "/authors", "authors", relationships=(ToMany("books", "bok", foreign_key="author_id"),)),
    Resource(
        "book",
        "/books",
        "books",
        id=Id(type=JSONB),
        attributes=(Attribute("title", INT, max_length=255), Attribute("isbn", TEXT, required=True, creatable=False)),
        relationships=(ToOne("title", "author"), ToMany("subjects", "book")),
    ),
    Resource("subject", "/operations", "subjects"),
)
UNFIT = (
    Resource(
        "author",
        "/authors",
        "authors",
        schema="library",
        id=Id(type=UUID),
        attributes=(Attribute("given_name", TEXT, nullable=True),),
    ),
    Resource(
        "book",
        "/books",
        "books",
        schema="library",
        id=Id("isbn", TEXT),
        attributes=(
            Attribute("title", TEXT),
            Attribute("pages", TEXT, required=True),
            Attribute("publised", DATE, nullable=True),
            Attribute("title_length", TEXT, sql=lambda column: functions.Length(column("title"))),
            Attribute("in_capitals", TEXT, sql=lambda column: functions.Upper(column("titel"))),
        ),
        relationships=(ToOne("author", "author"),),
    ),
    Resource("subject", "/subjects", "subject", schema="library"),
)


async def faults_of(url: str, text: str) -> str:
    """Return the errors that the start finds for the tables of a page's `sql` blocks."""
    await prepare(url, blocks(text, "sql"))
    connection = await asyncpg.connect(url)
    try:
        return "\n".join(map(str, (await read_live_schema(connection, Catalog(UNFIT))).faults))
    finally:
        await connection.close()


def test_faults_of_declarations(database_url: str, io_loop: IOLoop) -> None:
    path = ROOT / DECLARATIONS
    text = path.read_text(encoding="utf-8")
    with pytest.raises(CatalogError) as refused:
        Catalog(CONTRADICTORY)
    found = [str(refused.value), io_loop.run_sync(lambda: faults_of(database_url, text))]
    shown = blocks(text, "text")
    if WRITES_DOCS:
        for old, new in zip(shown, found, strict=True):
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    else:
        assert shown == found
