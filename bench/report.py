"""Writes the figures as Markdown and as JSON. It takes `Figures`. It must not know how anything was measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench import goals
from bench.peers import PEERS
from bench.requests import BY_NAME
from bench.results import CONNECTIONS, OURS, Ceiling, Cell, Figures, Row, Spread, spread

MARKS = {True: "met", False: "**missed**", None: "not measured"}


def write(figures: Figures, folder: Path) -> list[Path]:
    """Write `figures.json`, with every sample, and `report.md`. Each file is complete at any time, even after an
    interruption.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data, text = folder / "figures.json", folder / "report.md"
    _replace(data, msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    _replace(text, as_markdown(figures).encode())
    return [data, text]


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(content)
    os.replace(beside, path)


def read(path: Path) -> Figures:
    """Read a `figures.json`. Raises msgspec.ValidationError if the file is something else."""
    return msgspec.json.decode(path.read_bytes(), type=Figures)


def _label(row: Row) -> str:
    """Return the label of a row, with a mark if all its requests are the same."""
    request = BY_NAME.get(row.request)
    return f"{row.label} (one URL)" if request is not None and request.is_fixed else row.label


def as_markdown(figures: Figures) -> str:
    """Return the report."""
    sections: Sequence[tuple[str, str, Callable[[Figures], str]]] = (
        ("Goals", "", _goals),
        ("Speed relative to other servers", _ABOUT_RATIOS, _ratios),
        ("Settings and requests of the other libraries", "", _notes),
        ("Requests per second, latency, processor time and memory", _ABOUT_RATES, _rates),
        ("Stages of one request", _ABOUT_STAGES, _stages),
        ("Limits of PostgreSQL", _ABOUT_CEILINGS, _ceilings),
        ("Two workers on two cores", _ABOUT_TWO, _two_workers),
        ("Cost by size of the table", _ABOUT_SIZES, _sizes),
        ("Cost by position of the page", _ABOUT_PAGES, _pages),
        ("The whole table in one answer", "", _streams),
        ("Many operations in one request", "", _batches),
    )
    parts = ["# Figures", f"Made by `{figures.command}`.", _facts(figures)]
    if figures.missing:
        parts.append("Left out:\n\n" + "\n".join(f"- {each}" for each in figures.missing))
    for title, about, section in sections:
        table = section(figures)
        if table:
            parts += [f"## {title}", *([about] if about else []), table]
    return "\n\n".join(parts) + "\n"


_ABOUT_RATIOS = (
    "Requests per second of this server divided by those of the other one: the median of the rounds, and in\n"
    f"parentheses the lowest and the highest. {CONNECTIONS} connections. *CPU* is the same ratio for each second\n"
    "that the server's core was busy; other work on the machine changes it less. Lists are compared without a total,\n"
    "unless the row says *exact total*."
)
_ABOUT_RATES = (
    "Medians of the rounds. *CPU* and *PostgreSQL* are the processor time for one request in microseconds, of the\n"
    "server and of PostgreSQL. *MB* is the memory that each uses afterwards."
)
_ABOUT_STAGES = (
    "Microseconds, medians, one connection, no other requests. *First* is the time to parse, plan and compile a new\n"
    "shape. *Plan* is the same for a known shape; for a write, it is the time to decode and plan. *Rest* is the rest\n"
    "of the round trip: HTTP, Tornado, the log line, the socket. *Floor* is the round trip of the sharpest\n"
    "hand-written server."
)
_ABOUT_CEILINGS = (
    "pgbench instead of the server, on its core. *Same SQL*: the statements that the server sends, prepared. *JSON in\n"
    "SQL*: one statement as PostgREST generates it, in which PostgreSQL makes the JSON."
)
_ABOUT_TWO = (
    f"{CONNECTIONS} connections. The server with two workers, PostgreSQL and the load share two cores. In turns with\n"
    "this, pgbench and PostgreSQL on the same cores run one statement that makes the JSON."
)
_ABOUT_SIZES = "One connection: milliseconds for one request (p50)."
_ABOUT_PAGES = "Milliseconds for a page of ten users, one connection, without a total."


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return ""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *lines))


def number(value: float | None) -> str:
    """Return a number with three significant digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _spread(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"**{number(found.middle)}** ({number(found.low)} to {number(found.high)})"


def _facts(figures: Figures) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in figures.facts.items())


def _goals(figures: Figures) -> str:
    found = [
        [line.what, f"{line.sense} {line.goal:g}{line.unit}", number(line.measured), MARKS[line.is_met]]
        for line in goals.goal_lines(figures)
    ]
    return _table(("goal", "required", "measured", ""), found)


def _ratios(figures: Figures) -> str:
    others = [server for server in figures.servers if server.name != OURS]
    heads = ["request", *(head for server in others for head in (f"relative to {server.label}", "CPU"))]
    lines = [[_label(row), *(text for server in others for text in _ratio(row, server.name))] for row in figures.rows]
    return _table(heads, lines) if others else ""


def _notes(figures: Figures) -> str:
    """Return for each peer the settings beyond its documentation, and why it has no figure for a request."""
    names = {server.name for server in figures.servers}
    blocks = []
    for peer in PEERS:
        if peer.name in names:
            lines = [*peer.notes, *(f"`{request}`: {reason}" for request, reason in peer.missing.items())]
            blocks.append("\n".join([f"**{peer.label}**", "", *(f"- {line}" for line in lines)]))
    return "\n\n".join(blocks)


def _ratio(row: Row, other: str) -> tuple[str, str]:
    if other not in row.cells:
        return "", ""
    if row.cells[other].void or (OURS in row.cells and row.cells[OURS].void):
        return f"void: {short(row.cells[other].void or row.cells[OURS].void)}", ""
    cpu = row.ratio(OURS, other, of_cpu=True)
    return _spread(row.ratio(OURS, other)), number(cpu.middle if cpu else None)


def short(reason: str) -> str:
    """Return the reason in one line that fits into a table."""
    line = " ".join(reason.split()).replace("|", "/")
    return line if len(line) <= 80 else f"{line[:77]}..."


def _rates(figures: Figures) -> str:
    heads = ("request", "server", "requests/s", "p50 ms", "p99 ms", "CPU us", "MB", "PostgreSQL us", "MB", *_LEVELS)
    return _table(heads, [line for row in figures.rows for line in _rate_lines(row, figures)])


_LEVELS = ("requests/s at 1", "at 64")


def _rate_lines(row: Row, figures: Figures) -> Iterator[list[str]]:
    for server in figures.servers:
        cell = row.cells.get(server.name)
        if cell is None:
            continue
        if cell.void or not cell.samples:
            yield [_label(row), server.label, f"void: {short(cell.void)}" if cell.void else "", *[""] * 8]
        else:
            yield [_label(row), server.label, *_rate(cell, row.connections)]


def _rate(cell: Cell, connections: int) -> list[str]:
    p50, p99 = (cell.median(field, connections) for field in ("p50_us", "p99_us"))
    cpu, database = (cell.median(field, connections) for field in ("cpu_us", "database_cpu_us"))
    at_one, at_many = (cell.per_second(level) for level in (1, 64))
    times = [number(None if value is None else value / 1000) for value in (p50, p99)]
    others = [number(None if rate is None else rate.middle) for rate in (at_one, at_many)]
    used = [number(value) for value in (cpu, cell.memory_mb, database, cell.database_memory_mb)]
    return [_spread(cell.per_second(connections)), *times, *used, *others]


def _stages(figures: Figures) -> str:
    heads = ("request", "first", "plan", "execute", "encode", "rest", "round trip", "floor")
    fields = ("first", "plan", "execute", "encode", "rest", "round_trip", "floor")
    lines = [[each.label, *(number(getattr(each, field)) for field in fields)] for each in figures.stages]
    table = _table(heads, lines)
    bare = f"\n\nA Tornado handler with a constant answer takes {number(figures.bare_us)}." if figures.bare_us else ""
    return table + bare if table else ""


def _ceilings(figures: Figures) -> str:
    names = {"same": "same SQL", "postgrest": "JSON in SQL"}
    lines = []
    for each in figures.ceilings:
        rates = [number(each.per_second), number(each.latency_ms), _share(each, figures)]
        lines.append([each.label, names[each.way], str(each.clients), *rates])
    return _table(("request", "SQL", "clients", "transactions/s", "ms for one", "the server's share"), lines)


def _share(each: Ceiling, figures: Figures) -> str:
    """Return the server's requests per second over pgbench's transactions."""
    cells = [row.cells[OURS] for row in figures.rows if row.request == each.request and OURS in row.cells]
    rate = cells[0].per_second(each.clients) if cells else None
    return "" if rate is None else number(rate.middle / each.per_second)


def _two_workers(figures: Figures) -> str:
    lines = [
        [
            pair.label,
            number(spread([sample.per_second for sample in pair.server]).middle),
            number(spread(pair.postgrest).middle),
            _spread(pair.ratio),
        ]
        for pair in figures.two_workers
    ]
    return _table(("request", "requests/s", "transactions/s of pgbench", "ratio"), lines)


def _sizes(figures: Figures) -> str:
    users = sorted({each.users for each in figures.sizes})
    found = {(each.request, each.server, each.users): each.p50_us / 1000 for each in figures.sizes}
    labels = {server.name: server.label for server in figures.servers}
    kinds = list(dict.fromkeys((each.request, each.label, each.server) for each in figures.sizes))
    lines = []
    for request, label, server in kinds:
        times = [number(found.get((request, server, size))) for size in users]
        lines.append([label, labels.get(server, server), *times])
    return _table(("request", "server", *(f"{size:,} users" for size in users)), lines)


def _pages(figures: Figures) -> str:
    kinds = list(dict.fromkeys((page.users, page.sort, page.offset) for page in figures.pages))
    found = {(page.users, page.sort, page.offset, page.by): page.milliseconds for page in figures.pages}
    lines = []
    for users, sort, offset in kinds:
        times = [number(found.get((users, sort, offset, by))) for by in ("number", "cursor")]
        lines.append([f"{users:,} users by {sort}, after {offset:,}", *times])
    return _table(("page", "by number", "by cursor"), lines)


def _streams(figures: Figures) -> str:
    lines = [
        [f"{each.users:,} users", *map(number, (each.first_byte_ms, each.seconds, each.megabytes, each.grown_mb))]
        for each in figures.streams
    ]
    return _table(("table", "first byte ms", "seconds", "MB", "highest additional memory of the server, MB"), lines)


def _batches(figures: Figures) -> str:
    lines = [
        [
            f"{each.count:,} users",
            number(spread(each.together).middle),
            number(spread(each.single).middle),
            _spread(each.ratio),
        ]
        for each in figures.batches
    ]
    return _table(("created", "one request ms", "single POSTs ms", "ratio"), lines)
