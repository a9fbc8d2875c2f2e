"""The functions of the benchmark: rendered requests, comparison of answers, void rows, and the report of fixed figures.
No server and no database."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bench import goals
from bench.__main__ import main
from bench.ceilings import Script, _script
from bench.compare import bytes_differ, content_differs, without_new_ids
from bench.contest import Plan, Say, _seconds
from bench.load import Sample
from bench.report import as_markdown, number, read, short, write
from bench.requests import BY_NAME, PLACEHOLDERS, REQUESTS, Request, rendered, template
from bench.results import Cell, Contender, Figures, Page, Row, Spread, Stages, Stream, TwoWorkers
from bench.run import Keep, Options
from server.__main__ import main as server_main

ROOT = Path(__file__).parents[2]


def sample(per_second: int, *, errors: int = 0, connections: int = 16, cpu_us: float = 100.0) -> Sample:
    return Sample(per_second, 1_000_000, 5000.0, 10_000.0, errors, connections, cpu_us, 50.0)


def row(name: str, cells: dict[str, Cell]) -> Row:
    request = BY_NAME[name]
    return Row(request.name, request.label, request.total, request.writes, 16, cells)


def test_names_are_single_unique_words() -> None:
    assert len(BY_NAME) == len(REQUESTS)
    assert not [name for name in BY_NAME if not name.replace("-", "").isalnum()]


def test_each_list_has_a_row_with_and_without_a_total() -> None:
    exact = {name for name, request in BY_NAME.items() if request.total == "exact"}
    assert exact == {f"{name}-exact" for name, request in BY_NAME.items() if request.total == "none"}
    assert {BY_NAME[name].path.replace("exact", "none") for name in exact} == {
        request.path for request in REQUESTS if request.total == "none"
    }


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_bodies_are_documents(request_: Request) -> None:
    path, body = rendered(request_, 10_001, "CURSOR")
    assert path.isascii()
    assert not set(path) & set(' "{}[]')
    assert not body or isinstance(json.loads(body), dict)
    assert not [place for place in (*PLACEHOLDERS, "cursor") if f"{{{place}}}" in path + body]


@pytest.mark.parametrize(
    ("name", "number_", "path", "body"),
    [
        ("list-30", 5, "/users?page%5Bsize%5D=30&page%5Btotal%5D=none", ""),
        ("deep-cursor", 5, "/computers?page%5Bsize%5D=10&page%5Bafter%5D=a%2Bb", ""),
        ("delete", 10_001, "/users/10001", ""),
        ("detail", 10_001, "/users/2", ""),
        (
            "any-filter",
            13,
            "/users?filter=%5B%7B%22name%22%3A%22computers%22,%22op%22%3A%22any%22,%22val%22%3A%7B%22name%22%3A%22serial%22"
            ",%22op%22%3A%22startswith%22,%22val%22%3A%22SN-3%22%7D%7D%5D&page%5Bsize%5D=30&page%5Btotal%5D=none",
            "",
        ),
        (
            "update",
            10_001,
            "/users/2",
            '{"data":{"type":"user","id":"2","attributes":{"age":37,"email":"updated.10001@example.com"}}}',
        ),
        (
            "replace",
            10_002,
            "/users/3/relationships/computers",
            '{"data":[{"type":"computer","id":"7"},{"type":"computer","id":"8"},{"type":"computer","id":"9"}]}',
        ),
    ],
)
def test_rendered(name: str, number_: int, path: str, body: str) -> None:
    assert rendered(BY_NAME[name], number_, "a+b") == (path, body)


def test_a_template_keeps_only_its_placeholders() -> None:
    assert template(BY_NAME["replace"]) == "/users/{user}/relationships/computers"
    assert template(BY_NAME["deep-cursor"], "a+b") == "/computers?page%5Bsize%5D=10&page%5Bafter%5D=a%2Bb"


def document(age: int | None = 3, linked: str = "2", included: str = "2") -> bytes:
    owner = {"data": {"type": "user", "id": linked}}
    return json.dumps(
        {
            "data": [{"type": "computer", "id": "1", "attributes": {"age": age}, "relationships": {"owner": owner}}],
            "included": [{"type": "user", "id": included, "attributes": {}}],
            "links": {"self": str(age)},
        }
    ).encode()


@pytest.mark.parametrize(
    ("theirs", "difference"),
    [
        (document(), ""),
        (b'{"links":{},' + document()[1:], ""),
        (document(age=4), "computer/1: age is 3 and 4"),
        (document(age=None), "computer/1: age is 3 and None"),
        (document(linked="3"), "computer/1: owner links [('user', '2')] and [('user', '3')]"),
        (document(included="3"), "included: 1 resources and 1"),
        (b'{"data":[]}', "data: 1 resources, computer/1; and 0, "),
    ],
)
def test_content(theirs: bytes, difference: str) -> None:
    assert content_differs(document(), theirs) == difference


def test_bytes() -> None:
    assert bytes_differ(b"same", b"same") == ""
    assert bytes_differ(b'{"a":1}', b'{"a":2}') == """at byte 5: b'{"a":1}' and b'{"a":2}'"""


def test_new_ids_are_ignored() -> None:
    body = b'{"id":"10007","self":"/users/10007/computers","owner":"9","x":"/users/10003","email":"a10007"}'
    assert without_new_ids(body, 10_000) == (
        b'{"id":"new0","self":"/users/new0/computers","owner":"9","x":"/users/new1","email":"a10007"}'
    )


def test_ratios_are_calculated_round_by_round() -> None:
    cells = {
        "waterspout": Cell([sample(1000, cpu_us=50), sample(3000, cpu_us=50), sample(10, connections=1)]),
        "floor": Cell([sample(2000), sample(2000), sample(20, connections=1)]),
    }
    found = row("list-30", cells)
    assert found.ratio("waterspout", "floor") == Spread(1.0, 0.5, 1.5)
    assert found.ratio("waterspout", "floor", of_cpu=True) == Spread(2.0, 2.0, 2.0)
    assert found.ratio("waterspout", "fastapi-jsonapi") is None


def test_a_void_cell_has_no_figures() -> None:
    cells = {"waterspout": Cell([sample(1000)]), "floor": Cell([sample(2000, errors=1)], "1 errors")}
    found = row("list-30", cells)
    assert found.ratio("waterspout", "floor") is None
    assert found.cells["floor"].per_second(16) is None
    servers = [Contender("waterspout", "ours"), Contender("floor", "the sharpest floor")]
    text = as_markdown(Figures("x", {}, servers, [found]))
    assert "| list 30 (one URL) | void: 1 errors |  |" in text
    assert "| list 30 (one URL) | the sharpest floor | void: 1 errors |" in text
    assert "| list 30, relative to the sharpest floor | at least 0.85x |  | not measured |" in text


FIGURES = Figures(
    "waterspout bench",
    {"cores": "2"},
    [
        Contender("waterspout", "waterspout"),
        Contender("plain-floor", "the plain floor"),
        Contender("floor", "the sharpest floor"),
        Contender("fastapi-jsonapi", "the original"),
    ],
    rows=[
        row(
            "list-30",
            {
                "waterspout": Cell([sample(2000)], memory_mb=80, database_memory_mb=90),
                "plain-floor": Cell([sample(2000)], memory_mb=70),
                "floor": Cell([sample(2500)], memory_mb=60),
                "fastapi-jsonapi": Cell([sample(250)], memory_mb=120),
            },
        )
    ],
    stages=[Stages("list-30", "list 30", 900.0, 5.0, 200.0, 100.0, 300.0, 605.0, 550.0)],
    two_workers=[TwoWorkers("list-30-include", "list 30 + include", [sample(3000)], [5000.0])],
    pages=[Page(1_000_000, offset, "cursor", "id", cost) for offset, cost in ((0, 1.0), (999_990, 2.0))],
    streams=[Stream(1_000_000, 40.0, 9.0, 700.0, 80.0)],
    missing=["a peer: it is not there"],
)


def test_goals() -> None:
    met = {(line.what, line.goal, line.measured, line.is_met) for line in goals.goal_lines(FIGURES) if line.measured}
    assert met == {
        ("list 30, relative to FastAPI-JSONAPI", 6.5, 8.0, True),
        ("list 30, relative to the plain floor", 0.85, 1.0, True),
        ("list 30, relative to the sharpest floor", 0.85, 0.8, False),
        ("list 30 + include, two workers relative to SQL that makes the JSON", 0.5, 0.6, True),
        ("p99 relative to p50 of reads, the worst: list 30", 3.0, 2.0, True),
        ("any page of 1,000,000 users by cursor, relative to the first", 3.0, 2.0, True),
        ("1,000,000 users in one answer: first byte", 100.0, 40.0, True),
        ("1,000,000 users in one answer: additional memory", 64.0, 80.0, False),
    }


def test_every_goal_names_a_request() -> None:
    assert {name for ratio in goals.RATIOS for name in ratio.requests} <= BY_NAME.keys()
    assert goals.TWO_WORKERS.keys() <= BY_NAME.keys()


RATES = """\
| request | server | requests/s | p50 ms | p99 ms | CPU us | MB | PostgreSQL us | MB | requests/s at 1 | at 64 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| list 30 (one URL) | waterspout | **2,000** (2,000 to 2,000) | 5.00 | 10.0 | 100 | 80.0 | 50.0 | 90.0 |  |  |
| list 30 (one URL) | the plain floor | **2,000** (2,000 to 2,000) | 5.00 | 10.0 | 100 | 70.0 | 50.0 | 0.00 |  |  |
| list 30 (one URL) | the sharpest floor | **2,500** (2,500 to 2,500) | 5.00 | 10.0 | 100 | 60.0 | 50.0 | 0.00 |  |  |
| list 30 (one URL) | the original | **250** (250 to 250) | 5.00 | 10.0 | 100 | 120 | 50.0 | 0.00 |  |  |
"""


def test_report() -> None:
    text = as_markdown(FIGURES)
    assert text.startswith(
        "# Figures\n\nMade by `waterspout bench`.\n\n- cores: 2\n\nLeft out:\n\n- a peer: it is not there\n\n## Goals\n"
    )
    assert "| list 30, relative to the sharpest floor | at least 0.85x | 0.80 | **missed** |" in text
    ratios = "**1.00** (1.00 to 1.00) | 1.00 | **0.80** (0.80 to 0.80) | 1.00 | **8.00** (8.00 to 8.00) | 1.00"
    assert f"| list 30 (one URL) | {ratios} |" in text
    assert RATES in text
    assert "| list 30 | 900 | 5.00 | 200 | 100 | 300 | 605 | 550 |" in text
    assert "| list 30 + include | 3,000 | 5,000 | **0.60** (0.60 to 0.60) |" in text
    assert "| 1,000,000 users by id, after 999,990 |  | 2.00 |" in text
    assert "## Limits of PostgreSQL" not in text


def test_figures_are_written_and_read_back(tmp_path: Path) -> None:
    data, _ = write(FIGURES, tmp_path / "out")
    assert read(data) == FIGURES
    shorter = msgspec.structs.replace(FIGURES, rows=[])
    assert read(write(shorter, tmp_path / "out")[0]) == shorter
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"figures.json", "report.md"}


@pytest.mark.parametrize(("kept", "said"), [([FIGURES], "the figures so far are in "), ([], "nothing was measured\n")])
def test_figures_are_kept_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: list[Figures], said: str
) -> None:
    def interrupted(_: Options, __: Say, ___: Say, keep: Keep) -> Figures:
        for figures in kept:
            keep(figures)
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.__main__.run", interrupted)
    result = CliRunner().invoke(main, ["--output", str(tmp_path / "out")])
    assert result.exit_code == 130
    assert f"interrupted: {said}" in result.output
    assert [read(path) for path in tmp_path.glob("out/figures.json")] == kept


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0.8512, "0.85"), (12.345, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("rate", "connections", "seconds"),
    [
        (1000.0, 16, 1.0),
        (8.0, 16, 8.0),
        (4.0, 1, 5.0),
        (2.0, 16, 20.0),
        (1.0, 16, 24.0),
        (0.5, 16, 48.0),
        (2.0, 64, None),
        (8.0, 64, 20.0),
    ],
)
def test_slow_answers_get_more_time(rate: float, connections: int, seconds: float | None) -> None:
    assert _seconds(Plan(3, 1.0, (1, 16, 64), warm_up=True), rate, connections) == seconds


def test_a_reason_is_one_line() -> None:
    assert short("a\n b | c") == "a b / c"
    assert len(short("x" * 500)) == 80


def test_statements_are_converted_to_a_script() -> None:
    script = _script([("SELECT $1, $2, $1", (True, [1, 2])), ("SELECT 'a' LIKE $1", ("b%",))])
    assert script == Script(
        "SELECT :v0_1, :v0_2, :v0_1;\nSELECT 'a' LIKE :v1_1;\n", {"v0_1": "t", "v0_2": "{1,2}", "v1_1": "b%"}
    )


def test_plots(tmp_path: Path) -> None:
    plots = pytest.importorskip("bench.plots")
    written = plots.draw(FIGURES, tmp_path, ["svg"])
    assert [path.name for path in written] == ["ratios.svg", "time.svg"]
    drawn = [path.read_bytes() for path in written]
    plots.draw(FIGURES, tmp_path, ["svg"])
    assert [path.read_bytes() for path in written] == drawn


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--peers", "x"], "x is not one of fastapi-jsonapi, django-jsonapi"),
        (["--connections", "a"], "numbers, separated by commas"),
        (["--connections", "0"], "at least 1"),
    ],
)
def test_wrong_options(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_bench_is_a_command_of_the_server() -> None:
    result = CliRunner().invoke(server_main, ["bench", "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: waterspout bench [OPTIONS] [URL]\n")


def test_without_its_extra_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bench.__main__", None)
    result = CliRunner().invoke(server_main, ["bench", "--quick"])
    assert result.exit_code == 1
    assert result.output.endswith(f"is not installed: make install, in {ROOT}, installs what the benchmark needs\n")


@pytest.mark.parametrize(
    "files", [[], ["bench/__main__.py"], ["setup.py"]], ids=["nothing", "another-bench", "sources"]
)
def test_outside_a_clone_the_command_says_where_it_works(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise AssertionError")
    monkeypatch.setattr("server.__main__.FOLDER", tmp_path)
    result = CliRunner().invoke(server_main, ["bench", "--quick"])
    refused = "Error: the benchmark is not installed with the server: run it in a clone of the repository\n"
    assert (result.exit_code, result.output) == (1, refused)


def test_the_command_works_in_any_folder(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("waterspout")
    ran = subprocess.run([program, "bench", "--help"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout.startswith("Usage: waterspout bench [OPTIONS] [URL]\n")
