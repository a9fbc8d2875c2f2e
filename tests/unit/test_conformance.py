"""docs/conformance.md is complete: it has every normative statement of JSON:API 1.0, and every test that it names
exists. `normative_statements.json` has the statements, in the order of the specification."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATEMENTS: list[dict[str, str]] = json.loads((Path(__file__).parent / "normative_statements.json").read_text())
MAY_BE_OVERRULED = {
    "response-content-type",
    "response-unsupported-media-type",
    "response-not-acceptable",
    "error-object-key",
    "additional-members",
    "update-interpret-resource-attributes",
}
OVERRULED, NOT_HERE = "overruled: ", "does not apply: "
SECTIONS = {
    "Content negotiation": "content-negotiation",
    "Document structure": "document-structure",
    "Fetching data": "reading",
    "Creating, updating and deleting resources": "creating-updating-deleting",
    "Query parameters": "query-parameters",
    "Errors": "errors",
}
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_TESTS_ALONE = re.compile(rf"{_TEST.pattern}(?:, {_TEST.pattern})*")

Row = tuple[str, str, str, str]


def read_table() -> list[Row]:
    """(section, statement, level, tests or reason) of each row."""
    rows, section = [], ""
    for line in (ROOT / "docs/conformance.md").read_text().splitlines():
        if line.startswith("## "):
            section = SECTIONS[line.removeprefix("## ")]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("statement", "---"):
            statement, level, said = cells
            rows.append((section, statement, level, said))
    return rows


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


ROWS = read_table()


def test_every_statement_has_a_row() -> None:
    assert len(STATEMENTS) == 184
    listed = [(row["section"], row["id"], row["level"]) for row in STATEMENTS]
    assert [row[:3] for row in ROWS] == listed


@pytest.mark.parametrize("path", sorted({path for row in ROWS for path, _ in _TEST.findall(row[3])}))
def test_every_named_test_exists(path: str) -> None:
    named = {name for row in ROWS for where, name in _TEST.findall(row[3]) if where == path}
    assert named <= functions_of(path)


def test_each_row_has_tests_or_a_reason() -> None:
    for _, statement, _, said in ROWS:
        is_reason = said.startswith((OVERRULED, NOT_HERE)) and len(said) > len(NOT_HERE) + 10
        assert is_reason or _TESTS_ALONE.fullmatch(said), (statement, said)


def test_no_other_statement_is_overruled() -> None:
    assert {row[1] for row in ROWS if row[3].startswith(OVERRULED)} == MAY_BE_OVERRULED
