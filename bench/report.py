"""The figures as JSON and as Markdown. In: samples by kind and server, stages, facts of the machine. Out: text."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.breakdown import Stages
from bench.load import Sample

TARGET = 0.6
SERVER_HEADS = ("server req/s", "p50 ms", "p99 ms", "CPU us")
PACKAGES = ("tornado", "uvloop", "asyncpg", "msgspec", "pypika")


class Row(msgspec.Struct, frozen=True):
    """One kind: the rounds of both servers, in the order in which they were run, pairwise."""

    kind: str
    server: list[Sample]
    floor: list[Sample]

    @property
    def errors(self) -> int:
        return sum(sample.errors for sample in (*self.server, *self.floor))

    @property
    def ratios(self) -> list[float]:
        """Server / floor of each round, in requests per second."""
        pairs = zip(self.server, self.floor, strict=True)
        return [server.per_second / floor.per_second for server, floor in pairs]

    @property
    def cpu_ratios(self) -> list[float]:
        """The same in requests per second of the server's core."""
        return [floor.cpu_us / server.cpu_us for server, floor in zip(self.server, self.floor, strict=True)]


class Figures(msgspec.Struct, frozen=True):
    """bare_us: one round trip to a Tornado handler that does nothing."""

    command: str
    facts: dict[str, str]
    rows: list[Row]
    stages: list[Stages]
    bare_us: float


def machine_facts(cores: int, postgresql: int, wrk: str) -> dict[str, str]:
    return {
        "processor": _processor(),
        "cores": str(cores),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "PostgreSQL": str(postgresql),
        **{name: version(name) for name in PACKAGES},
        "load by": wrk,
        "load average at the end": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def as_markdown(figures: Figures) -> str:
    facts = "; ".join(f"{name} {value}" for name, value in figures.facts.items())
    parts = [
        "# One request of each kind",
        f"Made by `{figures.command}`. {facts}.",
        "10,000 users, 30,000 computers, one worker with its default settings, access log and all. *Floor*: a handler\n"
        "written by hand for exactly these requests (`bench/floor.py`), which answers with the same bytes. Both take\n"
        "turns on the same core; PostgreSQL and wrk share the others. Medians of the rounds, with the lowest and the\n"
        f"highest; the target of the ratio is {TARGET} of the floor. *CPU* is what the server's own core was busy\n"
        "for one request: its ratio moves less with what else the machine does.",
        _table(
            (
                "kind",
                "req/s ratio",
                "CPU ratio",
                *SERVER_HEADS,
                *(head.replace("server", "floor") for head in SERVER_HEADS),
            ),
            [_line(row) for row in figures.rows],
        ),
        "## Where the time of one request goes",
        "Microseconds, medians, one connection, no other requests. *Parse*, *plan* and *compile* are those of a shape\n"
        "that was never seen; *cached* stands in their place afterwards (for a create, whose document is always read,\n"
        "it is decoding and planning). *Rest* is what remains of a round trip: HTTP, Tornado, the log line, the\n"
        "socket. *Floor* is the hand-written handler's whole round trip.\n"
        f"A Tornado handler that answers a constant takes {figures.bare_us:.0f}.",
        _table(
            ("kind", "parse", "plan", "compile", "cached", "execute", "encode", "rest", "round trip", "floor"),
            [_stage_line(stages) for stages in figures.stages],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *lines))


def _line(row: Row) -> list[str]:
    if row.errors:
        return [row.kind, f"void: {row.errors} errors", *[""] * 9]
    ratios = (_spread(row.ratios), _spread(row.cpu_ratios))
    return [row.kind, *ratios, *_columns(row.server), *_columns(row.floor)]


def _spread(ratios: list[float]) -> str:
    return f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"


def _columns(samples: list[Sample]) -> list[str]:
    rates = [sample.per_second for sample in samples]
    middle = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
    p50 = statistics.median(sample.p50_us for sample in samples) / 1000
    p99 = statistics.median(sample.p99_us for sample in samples) / 1000
    cpu = statistics.median(sample.cpu_us for sample in samples)
    return [middle, f"{p50:.2f}", f"{p99:.2f}", f"{cpu:,.0f}"]


def _stage_line(stages: Stages) -> list[str]:
    kind, *microseconds = msgspec.structs.astuple(stages)
    return [kind, *(f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in microseconds)]
