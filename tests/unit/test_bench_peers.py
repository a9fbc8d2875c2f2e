"""The requests that the benchmark sends to other libraries: each in their form, or the reason why there is none."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from bench.peers import PEERS, Peer, install, python_of, why_missing
from bench.requests import BY_NAME, REQUESTS, rendered

FASTAPI, DJANGO = PEERS
PROJECT = {"bench", "server", "serializers", "querybuild", "migrations", "waterspout"}


def translated(peer: Peer, name: str) -> str:
    """Return the path of the seventh request, decoded."""
    request = peer.translate(BY_NAME[name])
    assert request is not None, why_missing(peer, BY_NAME[name])
    return unquote(rendered(request, 7)[0])


def unknown(peer: Peer) -> set[str]:
    return {request.name for request in REQUESTS if peer.translate(request) is None}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_exactly_the_missing_requests_have_a_reason(peer: Peer) -> None:
    for request in REQUESTS:
        if request.name in unknown(peer):
            assert why_missing(peer, request)
        else:
            with pytest.raises(KeyError):
                why_missing(peer, request)


def test_missing_requests() -> None:
    exact = {request.name for request in REQUESTS if request.total == "exact"}
    assert unknown(FASTAPI) == {*exact, "deep-cursor"}
    filters = {"boolean-filter", "boolean-filter-exact"}
    assert unknown(DJANGO) == {*filters, "deep-cursor", "operations-3", "operations-1000"}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_translation_keeps_method_name_and_label(peer: Peer) -> None:
    for request in REQUESTS:
        if (theirs := peer.translate(request)) is not None:
            kept = ("name", "label", "method", "total", "writes")
            assert [getattr(theirs, field) for field in kept] == [getattr(request, field) for field in kept]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("detail", "/users/8"),
        ("list-30", "/users?page[size]=30&sort=id"),
        ("to-one-sorted", "/computers?sort=name,id&include=owner&page[size]=30"),
        ("related", "/groups/8/relationships/users?page[size]=30&sort=id"),
        ("everything", "/users?page[size]=0&sort=id"),
        ("create", "/users"),
        ("update", "/users/8"),
        ("delete", "/users/7"),
        ("replace", "/users/8?include=computers"),
        ("operations-3", "/operations"),
    ],
)
def test_paths_of_fastapi_jsonapi(name: str, path: str) -> None:
    assert translated(FASTAPI, name) == path


def test_requests_to_fastapi_jsonapi_have_no_total() -> None:
    assert [name for name in BY_NAME.keys() - unknown(FASTAPI) if "total" in translated(FASTAPI, name)] == []


def test_fastapi_jsonapi_replaces_linkage_in_the_user() -> None:
    request = FASTAPI.translate(BY_NAME["replace"])
    assert request is not None
    user = json.loads(rendered(request, 7)[1])["data"]
    computers = [{"type": "computer", "id": id} for id in ("22", "23", "24")]
    assert user == {"type": "user", "id": "8", "attributes": {}, "relationships": {"computers": {"data": computers}}}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("list-30", "/users?page[size]=30&page[total]=none"),
        ("list-30-exact", "/users?page[size]=30&page[total]=exact"),
        ("to-one-sorted", "/computers?sort=name,id&include=owner&page[size]=30&page[total]=none"),
        ("related", "/groups/8/users?page[size]=30&page[total]=none"),
        (
            "dotted-filter-exact",
            "/users?filter[group.name]=Group 8&filter[age.gte]=27&page[size]=30&page[total]=exact",
        ),
        ("any-filter", "/users?filter[computers.serial.startswith]=SN-7&page[size]=30&page[total]=none"),
        ("everything", "/users?page[size]=1000000&page[total]=none"),
        ("replace", "/users/8/relationships/computers"),
    ],
)
def test_paths_of_django_jsonapi(name: str, path: str) -> None:
    assert translated(DJANGO, name) == path


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_command(peer: Peer) -> None:
    command = peer.command("/there/bin/python", "postgresql:///it", 8081, 10)
    assert command[0] == "/there/bin/python"
    assert Path(command[1]).is_file()
    assert command[2:] == ["--database-url", "postgresql:///it", "--port", "8081", "--pool-size", "10"]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_requirements_are_pinned(peer: Peer) -> None:
    lines = peer.requirements.read_text().splitlines()
    assert lines
    assert [line for line in lines if line.count("==") != 1] == []


def test_the_programs_do_not_import_the_project() -> None:
    programs = sorted(FASTAPI.program.parent.rglob("*.py"))
    assert {DJANGO.program, FASTAPI.program} < set(programs)
    found = {
        (program.name, name.split(".")[0])
        for program in programs
        for node in ast.walk(ast.parse(program.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    assert [each for each in found if each[1] in PROJECT] == []


def test_an_environment_with_the_same_requirements_is_kept(tmp_path: Path) -> None:
    python = python_of(FASTAPI, tmp_path)
    python.parent.mkdir(parents=True)
    python.write_text("not to be made anew")
    (tmp_path / FASTAPI.name / "requirements.txt").write_text(FASTAPI.requirements.read_text())
    assert install(FASTAPI, tmp_path) == python
    assert python.read_text() == "not to be made anew"


def test_an_environment_with_other_requirements_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr("bench.peers.subprocess.run", lambda command, check: commands.append(command))
    python = python_of(DJANGO, tmp_path)
    python.parent.mkdir(parents=True)
    installed = tmp_path / DJANGO.name / "requirements.txt"
    installed.write_text("Django==1.0\n")
    install(DJANGO, tmp_path)
    assert commands[0] == [sys.executable, "-m", "venv", "--clear", str(tmp_path / DJANGO.name)]
    assert (commands[1][0], commands[1][-1]) == (str(python), str(DJANGO.requirements))
    assert installed.read_text() == DJANGO.requirements.read_text()
