"""Defines the command line, `waterspout`.

What comes in: arguments and the environment. What goes out: a call of a function with the settings, and an exit code:
0; 1 if the command failed, with one line on stderr; 2 if arguments or settings are wrong.

It must not know: single settings (the options are created from `SETTINGS`), and how a command works. The modules of a
command are imported when it runs, so that `--help` is fast.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from server.settings import CONFIG_VARIABLE, SETTINGS, SettingsError, StartError
from server.settings.groups import ACCESS, Setting
from server.settings.loading import CONFIG_FLAG, Loaded, as_toml, load

log = logging.getLogger("server")

SOURCES = (
    "Every setting is a flag of serve, a variable (WATERSPOUT_ and its name in capitals) and a key of the "
    "TOML file: --page-size, WATERSPOUT_PAGE_SIZE, page_size. Flags beat variables beat the file."
)
Read = Callable[[], Loaded]
"""Reads the settings again, because the file may have changed."""

FOLDER = Path(__file__).parents[1]
"""The folder of the server's packages: a clone of the repository, or the installed packages."""

OF_COMMANDS = [setting for setting in SETTINGS if setting.is_of_commands]
OF_TOKENS = [setting for setting in SETTINGS if setting.group == ACCESS]

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class SettingOption(click.Option):
    """The flag of one setting. It passes its text on unchanged. `load` converts and checks it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        is_boolean = setting.is_boolean
        negated = f"/--no-{setting.flag.removeprefix('--')}" if is_boolean else ""
        default = "" if setting.default in (None, False) else f"  [default: {_text(setting.default)}]"
        super().__init__(
            [setting.flag + negated, setting.name],
            type=bool if is_boolean else str,
            default=None,
            metavar=None if is_boolean else setting.metavar,
            help=setting.description + default,
        )


class SettingsCommand(click.Command):
    """A command that takes settings. Its help shows them by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if (record := option.get_help_record(ctx)) is not None:
                group = option.setting.group if isinstance(option, SettingOption) else "General"
                groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _command(
    name: str,
    run: Callable[..., int | None],
    help: str,
    own: Sequence[click.Parameter] = (),
    flags: Sequence[Setting] = OF_COMMANDS,
) -> click.Command:
    """Return a command. run: is called with a function that reads the settings, and with the command's own parameters.
    Returns the exit code. own: these parameters. flags: the settings that are flags of the command."""
    config = click.Option(
        [CONFIG_FLAG, "config"], metavar="PATH", help=f"TOML file of settings.  [variable: {CONFIG_VARIABLE}]"
    )
    options = [SettingOption(setting) for setting in flags]

    def callback(config: str | None, **given: object) -> None:
        others = {parameter.name: given.pop(parameter.name) for parameter in own if parameter.name is not None}
        with plain_errors():
            sent = {name: flag for name, flag in given.items() if flag is not None}
            sys.exit(run(lambda: load(sent, os.environ, config), **others) or 0)

    return SettingsCommand(
        name,
        params=[*own, config, *options],
        callback=callback,
        help=help,
        epilog=SOURCES,
        context_settings=CONTEXT,
    )


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors that a person can fix into a line on stderr and an exit code. Other exceptions keep their
    traceback."""
    from migrations import MigrationError
    from server.embedded.postgres import EmbeddedError

    try:
        yield
    except SettingsError as error:
        _fail(error.faults, 2)
    except (StartError, EmbeddedError, MigrationError) as error:
        _fail((str(error),), 1)


def _fail(messages: tuple[str, ...], code: int) -> None:
    for message in messages:
        click.echo(f"Error: {message}", err=True)
    sys.exit(code)


def _serve(read: Read) -> None:
    from server.processes.master import serve

    serve(_with_warnings(read()).settings, lambda: read().settings)


def _runs(function: str) -> Callable[..., int | None]:
    """Return a function that imports `server.commands` and calls the function with this name."""

    def run(read: Read, **own: object) -> int | None:
        from server import commands

        # A token is signed with few settings; the server has the others.
        loaded = read() if function == "token" else _with_warnings(read())
        code: int | None = getattr(commands, function)(loaded.settings, **own)
        return code

    return run


def _print_settings(read: Read) -> None:
    click.echo(as_toml(_with_warnings(read())), nl=False)


def _with_warnings(loaded: Loaded) -> Loaded:
    """Log the warnings about settings without effect. Return the settings."""
    if loaded.warnings:
        from server.observing.logs import configure_logging

        configure_logging(loaded.settings)
        for line in loaded.warnings:
            log.warning("%s", line)
    return loaded


@click.group(context_settings=CONTEXT)
@click.version_option(package_name="waterspout", message=f"%(package)s %(version)s, Python {sys.version.split()[0]}")
def main() -> None:
    """A JSON:API server on PostgreSQL."""


@main.group(context_settings=CONTEXT)
def migrate() -> None:
    """Bring the schema of the database up to date, or show its state."""


@main.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True}, short_help="Measure this server."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure this server and others, or the server at a URL. Only in a clone of the repository."""
    if not _is_clone(FOLDER):
        _fail(("the benchmark is not installed with the server: run it in a clone of the repository",), 1)
    sys.path.insert(0, str(FOLDER))
    try:
        measure = importlib.import_module("bench.__main__").main
    except ModuleNotFoundError as error:
        _fail((f"{error.name} is not installed: make install, in {FOLDER}, installs what the benchmark needs",), 1)
    else:
        measure(arguments, prog_name="waterspout bench")


def _is_clone(folder: Path) -> bool:
    # In a folder of installed packages there is no setup.py, and `bench` may be the package of another distribution.
    return (folder / "setup.py").is_file() and (folder / "bench" / "__main__.py").is_file()


FILE = click.Argument(["file"])
TOKEN_OPTIONS = (
    click.Option(["--development"], is_flag=True, help="Confirm that the token is for development. It is required."),
    click.Option(["--subject"], required=True, metavar="NAME", help="The sub of the token."),
    click.Option(["--role"], multiple=True, metavar="NAME", help="A role; may be repeated."),
    click.Option(["--scope"], multiple=True, metavar="NAME", help="A scope; may be repeated."),
    click.Option(
        ["--claim"],
        multiple=True,
        metavar="NAME=JSON",
        help="A further claim, with its value as JSON; may be repeated.",
    ),
    click.Option(["--secret-file"], metavar="FILE", help="The secret, if it is not that of auth_secret_file."),
    click.Option(
        ["--expires-in"],
        type=click.IntRange(1, 366 * 86_400),
        default=3600,
        show_default=True,
        metavar="SECONDS",
        help="How long the token is valid.",
    ),
)
MAIN_COMMANDS = (
    _command("serve", _serve, "Answer requests until a signal ends it.", flags=SETTINGS),
    _command("seed", _runs("seed"), "Load the sample rows into an empty database."),
    _command("settings", _print_settings, "Print the settings in effect, and their sources.", flags=SETTINGS),
    _command(
        "check",
        _runs("check"),
        "Compare the declarations with the database, and suggest indexes. Exit code 1 if they do not fit.",
        [click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")],
    ),
    _command(
        "explain",
        _runs("explain"),
        "Print how the read of a URL is answered: its query, plan, SQL and PostgreSQL's plans. Exit code 1 if the "
        "answer is an error.",
        [
            click.Argument(["url"]),
            click.Option(
                ["--as", "claims"], metavar="FILE", help="JSON file with the claims of a token: the rules for it apply."
            ),
        ],
    ),
    _command(
        "dump",
        _runs("dump"),
        "Write the whole embedded database into a FILE, or - for standard output.",
        [FILE],
    ),
    _command(
        "token",
        _runs("token"),
        "Print a token for development, signed with the secret of the settings auth_secret_file and auth_audience.",
        TOKEN_OPTIONS,
        OF_TOKENS,
    ),
    _command("restore", _runs("restore"), "Fill an empty embedded database from a dump.", [FILE]),
)
MIGRATE_COMMANDS = (
    _command(
        "up",
        _runs("migrate_up"),
        "Apply pending migrations.",
        [click.Option(["--dry-run"], is_flag=True, help="Print the SQL that would run, and change nothing.")],
    ),
    _command(
        "status",
        _runs("migrate_status"),
        "List the migrations and which are applied.",
        [click.Option(["--check"], is_flag=True, help="Exit code 1 if a file is pending.")],
    ),
    _command(
        "verify",
        _runs("migrate_verify"),
        "Compare the applied migrations with the files. Exit code 1 if they differ.",
    ),
    _command(
        "new", _runs("migrate_new"), "Create the next file in the folder --migrations.", [click.Argument(["name"])]
    ),
)
for made in MAIN_COMMANDS:
    main.add_command(made)
for made in MIGRATE_COMMANDS:
    migrate.add_command(made)

if __name__ == "__main__":
    main(prog_name="waterspout")
