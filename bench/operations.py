"""Atomic operations against as many single requests: `python -m bench --operations`. In: how often. Out:
`bench/figures/operations.json` and `.md`.

The same resources are added by one request of atomic operations and by one POST each on one connection, in turns; a run
of each before the first round is warm-up.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from bench.client import ask, connected
from bench.kinds import NEW_USER, Kind
from bench.report import machine_facts
from bench.servers import choose_cores, database, forget_created, running, server_command
from server.embedded_cluster import MAJOR

FIGURES = Path(__file__).with_name("figures")
COUNT = 1000
"""What max_operations allows."""

TARGET = 0.1
"""One request takes less than this share of the time of the single ones."""


class Row(msgspec.Struct, frozen=True):
    """One kind of resource: milliseconds of each round, pairwise."""

    kind: str
    together: list[float]
    single: list[float]

    @property
    def ratios(self) -> list[float]:
        return [one / other for one, other in zip(self.together, self.single, strict=True)]


class Figures(msgspec.Struct, frozen=True):
    command: str
    facts: dict[str, str]
    count: int
    rows: list[Row]


class Adds(msgspec.Struct, frozen=True):
    """resource: the number of the one that is added -> its object."""

    label: str
    path: str
    resource: Callable[[int], dict[str, Any]]


def _parent(number: int) -> dict[str, Any]:
    return {"type": "parent", "attributes": {"name": f"Parent {number}"}}


def _user(number: int) -> dict[str, Any]:
    user: dict[str, Any] = dict(NEW_USER["data"])
    return user | {"attributes": user["attributes"] | {"email": f"wanjiru.{number}@example.com"}}


KINDS = (Adds("parents: one attribute", "/parents", _parent), Adds("users: seven and a group", "/users", _user))


def _together(adds: Adds, count: int) -> Kind:
    operations = [{"op": "add", "data": adds.resource(number)} for number in range(count)]
    return Kind(adds.label, "/operations", method="POST", body=json.dumps({"atomic:operations": operations}))


def _single(adds: Adds, count: int) -> list[Kind]:
    bodies = [json.dumps({"data": adds.resource(number)}) for number in range(count)]
    return [Kind(adds.label, adds.path, method="POST", body=body) for body in bodies]


def _measured(port: int, requests: list[Kind]) -> float:
    """Milliseconds from the first byte that is sent to the last that is received, on one connection."""
    with connected(port) as connection:
        return sum([ask(connection, request).seconds for request in requests]) * 1000


def _rounds(port: int, url: str, adds: Adds, count: int, rounds: int) -> Row:
    together, single = [_together(adds, count)], _single(adds, count)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            took = _measured(port, (together, single)[which])
            if number:
                times[which].append(took)
            _forget(url)
    return Row(adds.label, *times)


def _forget(url: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("DELETE FROM parents")
            await connection.execute("VACUUM parents")
        finally:
            await connection.close()

    forget_created(url)
    asyncio.run(run())


def as_markdown(figures: Figures) -> str:
    facts = "; ".join(f"{name} {value}" for name, value in figures.facts.items())
    lines = [
        "# Atomic operations and single requests",
        "",
        f"Made by `{figures.command}`. {facts}.",
        "",
        f"{figures.count:,} resources, added by one request of atomic operations and by one POST each on one",
        "connection, in turns, on one worker with its default settings, access log and all. Milliseconds for all of",
        f"them: medians of the rounds, with the lowest and the highest. The ratio is to be below {TARGET}.",
        "",
        "| resources | one request | single requests | ratio |",
        "| --- | ---: | ---: | ---: |",
        *(_line(row) for row in figures.rows),
        "",
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    ratios = f"**{statistics.median(row.ratios):.3f}** ({min(row.ratios):.3f} to {max(row.ratios):.3f})"
    return f"| {row.kind} | {_spread(row.together)} | {_spread(row.single)} | {ratios} |"


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):,.1f} ({min(times):,.1f} to {max(times):,.1f})"


def compare(rounds: int) -> None:
    """Measures, and writes the figures."""
    cores = choose_cores()
    with database(cores) as url, running(server_command(url), cores) as server:
        rows = [_rounds(server.port, url, adds, COUNT, rounds) for adds in KINDS]
    facts = machine_facts(os.cpu_count() or 1, MAJOR, "one connection of a bare socket")
    figures = Figures(" ".join(["python -m bench", *sys.argv[1:]]), facts, COUNT, rows)
    data = msgspec.json.format(msgspec.json.encode(figures), indent=1)
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / "operations.json").write_bytes(data + b"\n")
    (FIGURES / "operations.md").write_text(as_markdown(figures), encoding="utf-8")
    print(as_markdown(figures))
