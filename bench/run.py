"""Runs the whole benchmark. It takes options and returns `Figures`. If a tool is missing on this machine, it is
reported and its part of the run is left out.

The order: PostgreSQL with the smaller rows; the server, the floors and the peers on it, request by request in turns;
the stages; pgbench with only SQL; two workers; then the larger rows.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from bench import peers
from bench.breakdown import bare_round_trip, break_down
from bench.ceilings import POSTGREST, WITHOUT_PGBENCH, Script, find_pgbench, run_script, same_script
from bench.client import Refused
from bench.contest import Course, Entrant, Plan, Say, chosen, find_cursor, run_row, unchanged
from bench.duels import batches, two_workers
from bench.growth import SIZED, at_size, pages, stream
from bench.load import WITHOUT_WRK, wrk_version
from bench.requests import BY_NAME, Request
from bench.results import CONNECTIONS, FLOOR, OURS, PLAIN, Ceiling, Contender, Figures, Row, Stages
from bench.rows import LARGE, compact, restore
from bench.servers import (
    POOL_SIZE,
    Cores,
    Rows,
    Running,
    StartFailed,
    choose_cores,
    database,
    database_settings,
    floor_command,
    free_port,
    larger,
    running,
    server_command,
)

PACKAGES = ("tornado", "uvloop", "asyncpg", "msgspec", "pypika")
EXPLAINED = (
    *("detail", "list-30", "list-30-include", "list-1000-include", "to-one-sorted", "dotted-filter", "deep-page"),
    *("create", "update", "operations-3"),
)
"""Requests whose stages are measured."""

DEEP = "deep-page"
"""PostgreSQL's time for this request is also measured with one client."""


Keep = Callable[[Figures], None]


class Options(msgspec.Struct, frozen=True):
    """The options of a run. only: prefixes of the names of requests, separated by commas. names: the peers that take
    part. folder: where their environments are. sizes: `small`, `large`. is_quick: everything once, without requests
    that differ only in their exact total.
    """

    rounds: int = 3
    seconds: float = 1.0
    connections: tuple[int, ...] = (1, 16, 64)
    only: str = ""
    names: tuple[str, ...] = tuple(peer.name for peer in peers.PEERS)
    folder: Path = peers.FOLDER
    is_installing: bool = False
    sizes: tuple[str, ...] = ("small", "large")
    is_quick: bool = False


class Setting(msgspec.Struct, frozen=True):
    """What all parts of a run share. missing: each part may append to it. say: shows the current step. print_line:
    prints a result. keep: gets all figures so far, after each part.
    """

    options: Options
    cores: Cores
    has_load: bool
    pgbench: str | None
    missing: list[str]
    say: Say
    print_line: Say
    keep: Keep


Start = Callable[[Setting, Rows, ExitStack], Entrant | None]


def run(options: Options, say: Say, print_line: Say, keep: Keep) -> Figures:
    """Run everything. keep: gets the figures after each part; the last ones are complete. Raises EmbeddedError,
    StartFailed.
    """
    begun, wrk = time.monotonic(), wrk_version()
    missing: list[str] = []

    def keep_unfinished(figures: Figures) -> None:
        keep(_ended(figures, missing, begun, " so far: the run had not ended"))

    setting = Setting(options, choose_cores(), bool(wrk), find_pgbench(), missing, say, print_line, keep_unfinished)
    if not wrk:
        setting.missing.append(f"every rate and latency: {WITHOUT_WRK}")
    if setting.pgbench is None:
        setting.missing.append(f"the ceilings: {WITHOUT_PGBENCH}")
    _install(setting)
    say("PostgreSQL and its rows")
    with database(setting.cores) as rows:
        figures = Figures(_command(), _facts(setting.cores, rows, wrk), [])
        if "small" in options.sizes:
            figures = _small(setting, rows, figures)
        if "large" in options.sizes and wrk:
            figures = _large(setting, rows, figures)
    figures = _ended(figures, missing, begun)
    keep(figures)
    return figures


def _ended(figures: Figures, missing: list[str], begun: float, how: str = "") -> Figures:
    took = f"{(time.monotonic() - begun) / 60:.1f} minutes{how}"
    return msgspec.structs.replace(figures, facts=figures.facts | {"took": took}, missing=list(dict.fromkeys(missing)))


def _command() -> str:
    words = sys.argv[2:] if sys.argv[1:2] == ["bench"] else sys.argv[1:]
    return " ".join(["waterspout bench", *words])


def _facts(cores: Cores, rows: Rows, wrk: str) -> dict[str, str]:
    """Return facts about the machine and the software."""
    settings = database_settings(rows)
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "bound to": f"the server to {_named(cores.server)}, PostgreSQL and the load to {_named(cores.others)}",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "PostgreSQL": settings.pop("server_version"),
        **settings,
        "pool": f"{POOL_SIZE} connections",
        **{name: version(name) for name in PACKAGES},
        "load": wrk or "none",
    }


def _named(cpus: frozenset[int]) -> str:
    return ("core " if len(cpus) == 1 else "cores ") + ", ".join(map(str, sorted(cpus)))


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _install(setting: Setting) -> None:
    """Create the environments of the peers, if requested."""
    for peer in _peers(setting.options):
        if setting.options.is_installing:
            setting.say(f"installing {peer.label}")
            try:
                peers.install(peer, setting.options.folder)
            except subprocess.CalledProcessError as error:
                setting.missing.append(f"{peer.label}: pip ended with {error.returncode}")


def _peers(options: Options) -> list[peers.Peer]:
    return [peer for peer in peers.PEERS if peer.name in options.names]


@contextmanager
def _entrants(setting: Setting, rows: Rows) -> Iterator[list[Entrant]]:
    """Yield the running servers, ours first. A server that cannot be started is reported as missing."""
    cpus = setting.cores.server
    with ExitStack() as stack:
        setting.say("the servers")
        ours = stack.enter_context(running(OURS, "waterspout", server_command(rows.url), cpus))
        entrants = [Entrant(ours, unchanged)]
        starts: list[Start] = [_plain_floor, _floor, *(partial(_peer, peer) for peer in _peers(setting.options))]
        for start in starts:
            try:
                found = start(setting, rows, stack)
            except StartFailed as error:
                setting.missing.append(str(error))
            else:
                entrants += [found] if found is not None else []
        yield entrants


def _plain_floor(setting: Setting, rows: Rows, stack: ExitStack) -> Entrant:
    command = floor_command(rows.url, is_plain=True)
    return Entrant(stack.enter_context(running(PLAIN, "the plain floor", command, setting.cores.server)), unchanged)


def _floor(setting: Setting, rows: Rows, stack: ExitStack) -> Entrant:
    command = floor_command(rows.url)
    return Entrant(stack.enter_context(running(FLOOR, "the sharpest floor", command, setting.cores.server)), unchanged)


def _peer(peer: peers.Peer, setting: Setting, rows: Rows, stack: ExitStack) -> Entrant | None:
    python = peers.python_of(peer, setting.options.folder)
    if not python.exists():
        setting.missing.append(f"{peer.label}: `waterspout bench --install-peers` creates its environment")
        return None
    port = free_port()
    command = peer.command(str(python), rows.url, port, POOL_SIZE)
    server = running(peer.name, peer.label, command, setting.cores.server, port=port, environment=peer.environment)
    return Entrant(stack.enter_context(server), peer.translate)


def _small(setting: Setting, rows: Rows, figures: Figures) -> Figures:
    """Measure everything over 10,000 users."""
    options, plan = setting.options, _plan(setting.options)
    with _entrants(setting, rows) as entrants:
        ours, floor = entrants[0].running, next((each.running for each in entrants if each.name == FLOOR), None)
        course = Course(entrants, rows, plan, setting.has_load, find_cursor(ours), setting.say)
        figures = msgspec.structs.replace(
            figures, servers=[Contender(each.name, each.running.label) for each in entrants]
        )
        for row in _rows(setting, course):
            figures = _kept(setting, figures, rows=[*figures.rows, row])
        stages = list(_stages(setting, course, floor))
        figures = _kept(setting, figures, stages=stages, bare_us=_bare_us(floor, options.seconds))
        if not options.only:
            figures = _kept(setting, figures, batches=[batches(ours, rows, plan.rounds)])
    if setting.pgbench is None or options.only:
        return figures
    figures = _kept(setting, figures, ceilings=list(_ceilings(setting, rows, course.cursor, setting.pgbench)))
    if setting.has_load and len(setting.cores.both) == 2:
        setting.say("two workers on two cores")
        pairs = two_workers(rows, setting.cores, setting.pgbench, options.seconds, plan.rounds)
        figures = _kept(setting, figures, two_workers=pairs)
    return figures


def _kept(setting: Setting, figures: Figures, **found: Any) -> Figures:
    """Return the figures with the results of a part; `keep` gets them too."""
    figures = msgspec.structs.replace(figures, **found)
    setting.keep(figures)
    return figures


def _rows(setting: Setting, course: Course) -> Iterator[Row]:
    requests = _requests(setting.options)
    for number, request in enumerate(requests, 1):
        row = run_row(course, request)
        _print_row(setting, row, number, requests)
        yield row


def _plan(options: Options) -> Plan:
    if options.is_quick:
        return Plan(1, options.seconds, (CONNECTIONS,), warm_up=False, max_seconds=5)
    return Plan(options.rounds, options.seconds, options.connections, warm_up=True)


def _requests(options: Options) -> list[Request]:
    return [request for request in chosen(options.only) if not (options.is_quick and request.total == "exact")]


def _print_row(setting: Setting, row: Row, number: int, requests: list[Request]) -> None:
    width = max(len(request.label) for request in requests)
    texts = []
    for name, cell in row.cells.items():
        rate, ratio = cell.per_second(row.connections), row.ratio(OURS, name)
        if cell.void:
            texts.append(f"{name} void ({cell.void[:60]})")
        elif rate is not None:
            more = f" ({ratio.middle:.2f})" if ratio is not None and name != OURS else ""
            texts.append(f"{name} {rate.middle:,.0f}/s{more}")
    setting.print_line(f"[{number:>2}/{len(requests)}] {row.label:<{width}}  {'  '.join(texts)}")


def _stages(setting: Setting, course: Course, floor: Running | None) -> Iterator[Stages]:
    words = {request.name for request in _requests(setting.options)}
    command = server_command(course.rows.url, has_stages=True)
    with running(OURS, "waterspout", command, setting.cores.server) as ours:
        for name in EXPLAINED:
            if name in words:
                setting.say(f"stages: {BY_NAME[name].label}")
                with suppress(Refused, OSError):
                    seconds = 0.3 if setting.options.is_quick else setting.options.seconds
                    yield break_down(BY_NAME[name], ours, floor, seconds, course.cursor)
    if any(BY_NAME[name].writes for name in EXPLAINED if name in words):
        course.rows.run(restore)


def _bare_us(floor: Running | None, seconds: float) -> float:
    """Return the round trip of an answer without a database; 0 if no floor runs."""
    if floor is not None:
        with suppress(OSError):
            return bare_round_trip(floor, seconds)
    return 0.0


def _ceilings(setting: Setting, rows: Rows, cursor: str, pgbench: str) -> Iterator[Ceiling]:
    """Run pgbench in place of the server: on its core, with PostgreSQL on the others, with the tables as they were
    before any writes.
    """
    cores, seconds = setting.cores, setting.options.seconds
    rows.run(compact)
    for request in _requests(setting.options):
        if request.writes or request.alone or (setting.options.is_quick and request.name not in (DEEP, *POSTGREST)):
            continue
        ways = {"same": same_script(rows.url, request, cursor)}
        if request.name in POSTGREST:
            ways["postgrest"] = Script(POSTGREST[request.name])
        for way, script in ways.items():
            setting.say(f"pgbench: {request.label}, {way}")
            for number in (1, CONNECTIONS) if request.name == DEEP else (CONNECTIONS,):
                figures = run_script(pgbench, rows.url, script, seconds=seconds, clients=number, cpus=cores.server)
                yield Ceiling(request.name, request.label, way, _named(cores.server), number, *figures)


def _large(setting: Setting, rows: Rows, figures: Figures) -> Figures:
    """Measure everything over 1,000,000 users, and the same over 10,000."""
    setting.say(f"{LARGE:,} users and {3 * LARGE:,} computers")
    for each in (rows, larger(rows, LARGE)):
        with _entrants(setting, each) as entrants:
            servers = [Contender(entrant.name, entrant.running.label) for entrant in entrants]
            names = [request.name for request in _requests(setting.options) if request.name in SIZED]
            found = at_size(names, entrants, each, setting.options.seconds, setting.say)
            figures = _kept(setting, figures, servers=figures.servers or servers, sizes=[*figures.sizes, *found])
            if not setting.options.only:
                figures = _kept(
                    setting, figures, **_distant_pages_and_stream(setting, entrants[0].running, each, figures)
                )
    return figures


def _distant_pages_and_stream(setting: Setting, ours: Running, rows: Rows, figures: Figures) -> dict[str, Any]:
    """Measure distant pages, and the whole table in one answer."""
    streams = list(figures.streams)
    found = list(pages(ours, rows.users, setting.say))
    with suppress(Refused, OSError):
        streams.append(stream(ours, rows.users))
    return {"pages": [*figures.pages, *found], "streams": streams}
