"""Draws the figures as SVG and PNG. It takes `Figures` and writes files. It must not know how anything was measured.

Figures that were not measured are not drawn, and empty plots are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from bench.goals import goal_for
from bench.report import number
from bench.results import CONNECTIONS, FLOOR, FLOORS, ORIGINAL, OURS, PLAIN, Figures, Page, Row, Stages

INK, SOFT, GRID = "#1d2733", "#67727e", "#e3e7eb"
COLOURS = {OURS: "#1763b6", PLAIN: "#5f6b77", FLOOR: "#b3bcc4", ORIGINAL: "#e07a2f", "django-jsonapi": "#8a4f9e"}
OTHER_COLOUR = "#3c8d5a"
STAGE_COLOURS = {"plan": "#9cc3ea", "execute": "#1763b6", "encode": "#f0a35e", "rest": "#cfd6dd"}
STAGE_LABELS = {
    "plan": "plan",
    "execute": "PostgreSQL and its driver",
    "encode": "encode",
    "rest": "HTTP and the socket",
}
MET = "#2c8a57"
SHORT = {PLAIN: "plain", FLOOR: "sharpest"}
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": GRID,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": SOFT,
    "ytick.color": INK,
    "xtick.labelcolor": SOFT,
    "figure.facecolor": "white",
    "svg.hashsalt": "waterspout",
}
LATENCIES = ("detail", "list-30", "list-30-include", "list-1000-include", "dotted-filter", "create")
LEVELS = (1, 16, 64)
TIMES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Ticks in milliseconds."""

Kinds = Sequence[tuple[str, str, str]]
"""Label, colour, mark."""


def draw(figures: Figures, folder: Path, endings: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Draw all plots and return the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: Sequence[tuple[str, Callable[[Figures], Figure | None]]] = (
        ("ratios", ratios),
        ("latency", latency),
        ("growth", growth),
        ("time", time),
    )
    written = []
    with pyplot.rc_context(STYLE):
        for name, picture in pictures:
            figure = picture(figures)
            if figure is not None:
                for ending in endings:
                    path = folder / f"{name}.{ending}"
                    # Without the date: the same figures are the same file.
                    metadata = {"Date": None} if ending == "svg" else {}
                    figure.savefig(path, bbox_inches="tight", pad_inches=0.25, dpi=150, metadata=metadata)
                    written.append(path)
                pyplot.close(figure)
    return written


def _labels(figures: Figures) -> dict[str, str]:
    return {server.name: server.label for server in figures.servers}


def _bare(axes: Axes, *, grid: Literal["x", "y"] = "x") -> None:
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(which="both", length=0)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _head(figure: Figure, title: str, below: str, kinds: Kinds = ()) -> None:
    """Write title, description and the servers' colours above all axes, at the left edge."""
    width, inches = figure.get_size_inches()
    up = 0.32 if kinds else 0.0
    figure.text(0.01, 1 + (0.50 + up) / inches, title, fontsize=16, fontweight="bold", va="bottom")
    figure.text(0.01, 1 + (0.18 + up) / inches, below, fontsize=11, color=SOFT, va="bottom")
    right = 0.01
    for label, colour, mark in kinds:
        figure.text(right, 1 + 0.12 / inches, mark, fontsize=11, color=colour, va="bottom")
        figure.text(right + 0.2 / width, 1 + 0.12 / inches, label, fontsize=11, va="bottom")
        right += (0.095 * len(label) + 0.5) / width


def _legend(axes: Axes, kinds: Kinds, *, up: float = 5) -> None:
    """Return a legend in one line above the axes."""
    right = 0.0
    for label, colour, mark in kinds:
        for text, ink, width in ((mark, colour, 14.0), (label, INK, 5.5 * len(label) + 18)):
            axes.annotate(
                text,
                (0, 1),
                (right, up),
                xycoords="axes fraction",
                textcoords="offset points",
                color=ink,
                fontsize=10,
                va="bottom",
            ).set_in_layout(False)
            right += width


def _colour(name: str) -> str:
    return COLOURS.get(name, OTHER_COLOUR)


def _servers(figures: Figures) -> Kinds:
    return [(server.label, _colour(server.name), "■") for server in figures.servers]


# Ratios


def ratios(figures: Figures) -> Figure | None:
    """Draw one row for each request: the other libraries at the left, the floors at the right; the goals as ticks."""
    rows = [row for row in figures.rows if row.total != "exact" and _best(row)]
    others = [server.name for server in figures.servers if server.name not in (OURS, *FLOORS)]
    if not rows:
        return None
    figure, panels = pyplot.subplots(
        1, 2, figsize=(12, 0.44 * len(rows) + 1.0), sharey=True, width_ratios=(3, 2), layout="constrained"
    )
    labels = _labels(figures)
    _draw_libraries(panels[0], rows, others, labels)
    _draw_floors(panels[1], rows, figures)
    panels[0].set_yticks(range(len(rows)), [row.label for row in rows])
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    _head(
        figure,
        "Speed relative to other servers",
        f"requests per second of waterspout divided by those of another server, {CONNECTIONS} connections, "
        "the same core, rows and answers",
    )
    return figure


def _best(row: Row) -> bool:
    return any(row.ratio(OURS, name) for name in row.cells if name != OURS)


def _draw_libraries(axes: Axes, rows: Sequence[Row], others: Sequence[str], labels: dict[str, str]) -> None:
    _bare(axes)
    height = 0.78 / max(1, len(others))
    for y, row in enumerate(rows):
        for turn, name in enumerate(others):
            ratio, goal = row.ratio(OURS, name), goal_for(row, name)
            at = y + (turn - (len(others) - 1) / 2) * height
            if ratio is not None:
                axes.barh(at, ratio.middle - 1, height * 0.86, left=1, color=_colour(name))
                # After the goal's tick if they would overlap.
                is_near = goal is not None and 1 < goal / ratio.middle < 1.4
                right = goal if is_near and goal is not None else max(ratio.middle, 1)
                axes.text(right * 1.05, at, f"{_times(ratio.middle)}x", va="center", fontsize=9.5)
            if goal is not None:
                _goal(axes, goal, at, height)
    _log(axes)
    axes.set_title("relative to other libraries", pad=24)
    _legend(axes, [*((labels[name], _colour(name), "■") for name in others), ("goal", MET, "|")])


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}"


def _draw_floors(axes: Axes, rows: Sequence[Row], figures: Figures) -> None:
    """Draw one bar for each floor, without a total, and a dot for an exact total."""
    _bare(axes)
    exact = {row.request.removesuffix("-exact"): row for row in figures.rows if row.total == "exact"}
    floors = [server.name for server in figures.servers if server.name in FLOORS]
    height = 0.78 / max(1, len(floors))
    for y, row in enumerate(rows):
        for turn, name in enumerate(floors):
            at = y + (turn - (len(floors) - 1) / 2) * height
            ratio = row.ratio(OURS, name)
            other = exact[row.request].ratio(OURS, name) if row.request in exact else None
            if ratio is not None:
                axes.barh(at, ratio.middle, height * 0.86, color=_colour(name))
                ink = "white" if name == PLAIN else INK
                axes.text(0.02, at, f"{ratio.middle:.2f}", va="center", fontsize=8, color=ink)
            if other is not None:
                axes.plot(
                    other.middle, at, "o", color=INK, markeredgecolor="white", markersize=5.5, clip_on=False, zorder=4
                )
        goal = goal_for(row, FLOOR)
        if goal is not None:
            _goal(axes, goal, y, 0.78)
    axes.axvline(1, color=INK, linewidth=0.9)
    axes.set_xlim(0, max(1.25, axes.get_xlim()[1]))
    axes.set_title("relative to hand-written Tornado handlers", pad=24)
    bars = [(SHORT[name], _colour(name), "■") for name in floors]
    _legend(axes, [*bars, ("exact total", INK, "●"), ("goal", MET, "|")])


def _goal(axes: Axes, goal: float, y: float, height: float) -> None:
    axes.plot([goal, goal], [y - height / 2, y + height / 2], color=MET, linewidth=2.2, solid_capstyle="butt")


def _log(axes: Axes) -> None:
    axes.set_xscale("log")
    high = max(axes.get_xlim()[1], 2.0)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if tick <= high]
    axes.set_xticks(ticks, [f"{tick}x" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(1, high * 1.3)


# Latency


def latency(figures: Figures) -> Figure | None:
    """Draw one panel for each request: p50 by number of connections, with a band up to p99."""
    found = {row.request: row for row in figures.rows}
    rows = [found[name] for name in LATENCIES if name in found and _levels(found[name])]
    if not rows:
        return None
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure, panels = pyplot.subplots(
        lines, columns, figsize=(4 * columns, 3.1 * lines), squeeze=False, layout="constrained"
    )
    for axes, row in zip(panels.flat, rows, strict=False):
        _latencies(axes, row)
    for axes in panels.flat[len(rows) :]:
        axes.set_visible(False)
    about = "milliseconds for one request by number of connections: p50 as a line, up to p99 as a thin line"
    _head(figure, "Latency by number of connections", about, _servers(figures))
    return figure


def _levels(row: Row) -> bool:
    return any(len({sample.connections for sample in cell.samples}) > 1 for cell in row.cells.values())


def _latencies(axes: Axes, row: Row) -> None:
    _bare(axes, grid="y")
    for turn, (name, cell) in enumerate(row.cells.items()):
        points = [
            (level, p50 / 1000, p99 / 1000)
            for level in LEVELS
            if (p50 := cell.median("p50_us", level)) and (p99 := cell.median("p99_us", level))
        ]
        if points:
            levels, middles, highs = zip(*points, strict=True)
            # Side by side, so that the lines can be distinguished.
            xs = [level * 1.09 ** (turn - (len(row.cells) - 1) / 2) for level in levels]
            over = 3 if name == OURS else 2
            axes.plot(xs, middles, marker="o", color=_colour(name), linewidth=2, markersize=5, zorder=over)
            axes.vlines(xs, middles, highs, color=_colour(name), linewidth=1.2, alpha=0.75, zorder=over)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(LEVELS, [f"{level}" for level in LEVELS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(row.label)


# Growth


def growth(figures: Figures) -> Figure | None:
    """Draw at the left the cost of a request in a small and a large table, at the right the cost of distant pages."""
    users = sorted({each.users for each in figures.sizes})
    if len(users) < 2:
        return None
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 6), width_ratios=(3, 2), layout="constrained")
    _sizes(panels[0], figures, users)
    _pages(panels[1], [page for page in figures.pages if page.users == users[-1] and page.sort == "last_name"])
    _head(figure, "Cost by size of the table", "for one request, one connection", _servers(figures))
    return figure


def _sizes(axes: Axes, figures: Figures, users: Sequence[int]) -> None:
    _bare(axes)
    found = {(each.request, each.server, each.users): each.p50_us / 1000 for each in figures.sizes}
    kinds = list(dict.fromkeys((each.request, each.label) for each in figures.sizes))
    servers = [server.name for server in figures.servers]
    step = 0.8 / max(4, len(servers))
    for y, (request, _) in enumerate(kinds):
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color=GRID, alpha=0.35, linewidth=0)
        for turn, name in enumerate(servers):
            times = [found[request, name, size] for size in users if (request, name, size) in found]
            at, colour = y + (turn - (len(servers) - 1) / 2) * step, _colour(name)
            axes.plot(times, [at] * len(times), color=colour, linewidth=1.6, alpha=0.6)
            if len(times) == len(users):
                axes.plot(times[0], at, "o", color="white", markeredgecolor=colour, markersize=6)
                axes.plot(times[-1], at, "o", color=colour, markersize=6)
    axes.set_yticks(range(len(kinds)), [label for _, label in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in TIMES if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g} ms" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(low, high)
    axes.set_title(f"○ {users[0]:,} users   ● {users[-1]:,} users")


def _pages(axes: Axes, pages: Sequence[Page]) -> None:
    _bare(axes, grid="y")
    for by, colour, label in (("number", COLOURS[ORIGINAL], "page[number]"), ("cursor", COLOURS[OURS], "page[after]")):
        points = sorted((max(page.offset, 10), page.milliseconds) for page in pages if page.by == by)
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", linewidth=2, markersize=5)
            below = {"xytext": (-9, 7 if by == "cursor" else -2), "textcoords": "offset points"}
            axes.annotate(label, points[-1], color=colour, ha="right", fontweight="bold", **below)  # type: ignore[arg-type]
    axes.set_xscale("log")
    axes.set_yscale("log")
    # A logarithmic axis has no zero: the first page is drawn at ten rows.
    axes.set_xticks((10, 1000, 100_000), ("none", "1,000", "100,000"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ms"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("rows before the page")
    axes.set_title("a page of ten, sorted by last name")


# Time


def time(figures: Figures) -> Figure | None:
    """Draw one bar for each request: the stages as shares of its round trip, and the sharpest floor's round trip as a
    tick."""
    stages = figures.stages
    if not stages:
        return None
    figure, axes = pyplot.subplots(figsize=(11, 0.5 * len(stages) + 1.0), layout="constrained")
    _bare(axes)
    for y, each in enumerate(stages):
        _stacked(axes, y, each)
    axes.set_yticks(range(len(stages)), [each.label for each in stages])
    axes.set_ylim(len(stages) - 0.5, -0.5)
    axes.set_xlim(0, 1.16)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    kinds = [(STAGE_LABELS[name], colour, "■") for name, colour in STAGE_COLOURS.items()]
    about = "microseconds of one request's round trip, as shares of it; one connection, no other requests"
    _head(figure, "Stages of one request", about, [*kinds, ("the whole round trip of the sharpest floor", INK, "|")])
    return figure


def _stacked(axes: Axes, y: int, stages: Stages) -> None:
    """Draw one bar made of the parts, because their medians do not add up exactly to the median of the whole."""
    begin, whole = 0.0, sum(getattr(stages, name) for name in STAGE_COLOURS)
    by_hand = None if stages.floor is None else stages.floor / stages.round_trip
    for name, colour in STAGE_COLOURS.items():
        share = getattr(stages, name) / whole
        axes.barh(y, share, 0.62, left=begin, color=colour)
        if share > 0.07:
            middle = begin + share / 2
            # Beside the tick of the floor, not under it.
            is_under = by_hand is not None and abs(by_hand - middle) < 0.035
            at = begin + share / 4 if is_under else middle
            ink = "white" if name == "execute" else INK
            if share > 0.12 or not is_under:
                axes.text(at, y, number(getattr(stages, name)), ha="center", va="center", fontsize=9.5, color=ink)
        begin += share
    if by_hand is not None:
        axes.plot([by_hand, by_hand], [y - 0.4, y + 0.4], color=INK, linewidth=2.2)
    axes.text(1.02, y, f"{number(stages.round_trip)} µs", va="center", fontsize=10, fontweight="bold")
