"""The command line, `waterspout bench`. It takes options, and optionally the URL of a running server. It writes JSON,
Markdown and plots into a folder, or for a URL a table. The exit code is 1 if it failed, with one line that says why.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from bench import peers
from bench.goals import goal_lines
from bench.load import WITHOUT_WRK, wrk_version
from bench.report import read, write
from bench.results import CONNECTIONS, Figures
from bench.run import Options, run
from bench.servers import StartFailed
from bench.target import NotReached, as_table, measure
from server.embedded.postgres import EmbeddedError
from server.tools.console.commands import CONTEXT, Example, WithExamples
from server.tools.console.exit_codes import INTERRUPTED

OUTPUT = Path("waterspout-bench")
SIZES = {"small": ("small",), "large": ("large",), "both": ("small", "large")}
PROGRESS_SECONDS = 10.0
_FAILURES = (EmbeddedError, StartFailed, NotReached, subprocess.CalledProcessError)


class Progress:
    """Shows the current step on one line that is overwritten. Without a terminal it prints a line now and then."""

    def __init__(self) -> None:
        self.is_watched = sys.stderr.isatty()
        self.begun = time.monotonic()
        self.shown_at = self.begun

    def say(self, what: str) -> None:
        """Show the current step."""
        now = time.monotonic()
        line = f"{(now - self.begun) / 60:5.1f} min  {what}"
        if self.is_watched:
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)
        elif now - self.shown_at > PROGRESS_SECONDS:
            click.echo(line, err=True)
            self.shown_at = now

    def print_line(self, what: str) -> None:
        """Print a line that stays."""
        self.clear()
        click.echo(what)

    def clear(self) -> None:
        """Remove the line of the current step."""
        if self.is_watched:
            click.echo("\r\x1b[K", nl=False, err=True)


def _connections(_: click.Context, __: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        levels = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise click.BadParameter("numbers, separated by commas") from None
    if min(levels) < 1:
        raise click.BadParameter("at least 1")
    return levels


def _names(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    known = [peer.name for peer in peers.PEERS]
    words = known if text == "all" else [word.strip() for word in text.split(",") if word.strip() not in ("", "none")]
    unknown = [word for word in words if word not in known]
    if unknown:
        raise click.BadParameter(f"{unknown[0]} is not one of {', '.join(known)}")
    return tuple(words)


@click.command(
    cls=WithExamples,
    context_settings=CONTEXT,
    examples=[
        Example("waterspout bench --quick --peers none", "This server alone, in about two minutes."),
        Example("waterspout bench http://localhost:8080", "A running server."),
        Example("waterspout bench --install-peers --output figures", "Everything, in about forty minutes."),
    ],
)
@click.argument("url", required=False)
@click.option("--only", default="", metavar="NAMES", help="Only requests whose name begins with one of these (a,b).")
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often each request is measured."
)
@click.option(
    "--seconds", default=1.0, show_default=True, help="Duration of one run of the load; slow answers get more."
)
@click.option(
    "--connections", default="1,16,64", show_default=True, callback=_connections, help="Connections of the load."
)
@click.option(
    "--peers", "names", default="all", metavar="NAMES", callback=_names, help="all, none, or some of them (a,b)."
)
@click.option("--install-peers", is_flag=True, help="Create the peers' environments with pip first.")
@click.option("--peers-folder", default=peers.FOLDER, type=click.Path(path_type=Path), show_default=True)
@click.option("--size", default="both", show_default=True, type=click.Choice(list(SIZES)), help="Size of the tables.")
@click.option("--quick", is_flag=True, help="Measure everything once, in about two minutes, on the smaller tables.")
@click.option(
    "--output", default=OUTPUT, type=click.Path(path_type=Path), show_default=True, help="Folder for the figures."
)
@click.option(
    "--redraw", type=click.Path(path_type=Path, exists=True), help="Write report and plots again, from a figures.json."
)
@click.option("--writes", is_flag=True, help="With a URL: also requests that create resources.")
@click.option("--json", "is_json", is_flag=True, help="With a URL: JSON instead of a table.")
def main(url: str | None, output: Path, redraw: Path | None, **given: Any) -> None:
    """Compare this server with hand-written servers, other libraries and the limits of PostgreSQL. With a URL, measure
    the server at this URL.

    It starts an embedded PostgreSQL with 10,000 and with 1,000,000 users. All servers are measured in turns on one
    core. A whole run takes about forty minutes.
    """
    progress = Progress()
    try:
        if url is not None:
            _target(url, progress, given)
        elif redraw is not None:
            _write(read(redraw), output)
        else:
            _run(_options(given), progress, output)
    except _FAILURES as error:
        progress.clear()
        raise click.ClickException(str(error)) from error


def _options(given: dict[str, Any]) -> Options:
    names = {"names", "only", "rounds", "seconds", "connections"}
    return Options(
        **{name: value for name, value in given.items() if name in names},
        folder=given["peers_folder"],
        is_installing=given["install_peers"],
        sizes=("small",) if given["quick"] else SIZES[given["size"]],
        is_quick=given["quick"],
    )


def _run(options: Options, progress: Progress, output: Path) -> None:
    """Run the benchmark. Ctrl-C ends it and keeps what was measured. Raises click.exceptions.Exit."""
    last: list[Figures] = []

    def keep(figures: Figures) -> None:
        write(figures, output)
        last[:] = [figures]

    try:
        run(options, progress.say, progress.print_line, keep)
    except KeyboardInterrupt:
        progress.clear()
        click.echo(
            f"interrupted: {f'the figures so far are in {output}' if last else 'nothing was measured'}", err=True
        )
        if last:
            _write(last[0], output)
        raise click.exceptions.Exit(INTERRUPTED) from None
    progress.clear()
    _write(last[0], output)


def _write(figures: Figures, output: Path) -> None:
    written = write(figures, output)
    try:
        from bench.plots import draw
    except ImportError:
        click.echo("no plots: matplotlib is not installed; run make install", err=True)
    else:
        written += draw(figures, output)
    for each in figures.missing:
        click.echo(f"left out: {each}", err=True)
    found = [line.is_met for line in goal_lines(figures)]
    click.echo(f"{found.count(True)} goals met, {found.count(False)} missed, {found.count(None)} not measured")
    click.echo("written: " + " ".join(map(str, written)))


def _target(url: str, progress: Progress, given: dict[str, Any]) -> None:
    if not wrk_version():
        raise NotReached(WITHOUT_WRK)
    level = CONNECTIONS if CONNECTIONS in given["connections"] else given["connections"][0]
    asked = {name: given[name] for name in ("seconds", "only", "writes")}
    found = list(measure(url, connections=level, say=progress.say, **asked))
    progress.clear()
    click.echo(msgspec.json.encode(found).decode() if given["is_json"] else as_table(found))


if __name__ == "__main__":
    main(prog_name="waterspout bench")
