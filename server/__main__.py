"""Defines the command line, `waterspout`.

What comes in: arguments and the environment. What goes out: a call of a function with the settings, and an exit code
(server/tools/console/exit_codes.py).

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
from server.settings.groups import ACCESS, FRONT, LIMITS, LISTS, Setting
from server.settings.loading import CONFIG_FLAG, Loaded, as_toml, load
from server.tools.console import completion, exit_codes
from server.tools.console.commands import (
    CONTEXT,
    CommandGroup,
    Example,
    NamedChoice,
    Program,
    SettingOption,
    SettingsCommand,
    print_error,
)

log = logging.getLogger("server")

SOURCES = (
    "Every setting is a flag of serve, a variable (WATERSPOUT_ and its name in capitals) and a key of the "
    "TOML file: --page-size, WATERSPOUT_PAGE_SIZE, page_size. Flags beat variables beat the file. "
    "Exit codes: waterspout --help."
)
Read = Callable[[], Loaded]
"""Reads the settings again, because the file may have changed."""

FOLDER = Path(__file__).parents[1]
"""The folder of the server's packages: a clone of the repository, or the installed packages."""

OF_COMMANDS = [setting for setting in SETTINGS if setting.is_of_commands]
OF_TOKENS = [setting for setting in SETTINGS if setting.group == ACCESS]
OF_READS = [
    setting
    for setting in SETTINGS
    if setting in OF_COMMANDS
    or setting.group in (ACCESS, LISTS.group, LIMITS.group)
    or setting.name in ("path_prefix", "statement_timeout_seconds")
]
"""The settings of commands, and those that a read depends on."""

OF_DOCUMENT = [
    setting for setting in SETTINGS if setting in OF_READS or setting.group == FRONT or setting.name == "read_only"
]
"""Those that the OpenAPI document depends on, too."""


def _command(
    name: str,
    run: Callable[..., int | None],
    help: str,
    own: Sequence[click.Parameter] = (),
    flags: Sequence[Setting] = OF_COMMANDS,
    *,
    examples: Sequence[Example] = (),
) -> click.Command:
    """Return a command. run: is called with a function that reads the settings, and with the command's own parameters.
    Returns the exit code. own: these parameters. flags: the settings that are flags of the command."""
    config = click.Option(
        [CONFIG_FLAG, "config"],
        metavar="PATH",
        type=click.Path(),
        help=f"TOML file of settings.  [variable: {CONFIG_VARIABLE}]",
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
        examples=examples,
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
        _fail(error.faults, exit_codes.WRONG_USAGE)
    except (StartError, EmbeddedError, MigrationError) as error:
        _fail((str(error),), exit_codes.FAILED)
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)


def _fail(messages: tuple[str, ...], code: int) -> None:
    for message in messages:
        print_error(message)
    sys.exit(code)


def _serve(read: Read) -> None:
    from server.processes.master import serve

    serve(_with_warnings(read()).settings, lambda: read().settings)


def _runs(function: str) -> Callable[..., int | None]:
    """Return a function that imports `server.tools.commands` and calls the function with this name."""

    def run(read: Read, **own: object) -> int | None:
        from server.tools import commands

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


@click.group(
    cls=Program,
    context_settings=CONTEXT,
    examples=[
        Example("waterspout serve --demo", "Serve sample rows on port 8080, with an embedded PostgreSQL."),
        Example(
            "waterspout serve --database-url postgresql:///shop --resources shop.py",
            "Serve the tables of your database that shop.py declares.",
        ),
        Example("waterspout serve --help", "Show all settings, by group."),
    ],
)
@click.version_option(package_name="waterspout", message=f"%(package)s %(version)s, Python {sys.version.split()[0]}")
def main() -> None:
    """A JSON:API server on PostgreSQL."""


@click.group(
    cls=CommandGroup,
    context_settings=CONTEXT,
    examples=[
        Example("waterspout migrate up", "Apply what is pending."),
        Example("waterspout migrate status", "Show what is applied and what is pending."),
    ],
)
def migrate() -> None:
    """Bring the schema up to date, or show its state."""


@click.command(
    "completion",
    cls=SettingsCommand,
    context_settings=CONTEXT,
    examples=[
        Example('eval "$(waterspout completion bash)"', "In ~/.bashrc."),
        Example('eval "$(waterspout completion zsh)"', "In ~/.zshrc, after compinit."),
        Example("waterspout completion fish > ~/.config/fish/completions/waterspout.fish", "Once, for fish."),
    ],
)
@click.argument("shell", type=NamedChoice(completion.SHELLS), metavar="SHELL")
@click.pass_context
def complete(context: click.Context, shell: str) -> None:
    """Print the script for completion in a shell: bash, zsh or fish. It completes commands, flags and their values."""
    click.echo(completion.script(main, str(context.find_root().info_name), shell))


@click.command(
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


def _dump_file(stream: str) -> click.Argument:
    return click.Argument(["file"], type=click.Path(allow_dash=True), help=f"The dump; - is standard {stream}.")


JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")
TOKEN_OPTIONS = (
    click.Option(["--development"], is_flag=True, help="Confirm that the token is for development. It is required."),
    click.Option(["--subject"], metavar="NAME", help="The sub of the token. It is required."),
    click.Option(["--role"], multiple=True, metavar="NAME", help="A role; may be repeated."),
    click.Option(["--scope"], multiple=True, metavar="NAME", help="A scope; may be repeated."),
    click.Option(
        ["--claim"],
        multiple=True,
        metavar="NAME=JSON",
        help="A further claim, with its value as JSON; may be repeated.",
    ),
    click.Option(
        ["--secret-file"],
        metavar="FILE",
        type=click.Path(),
        help="The secret, if it is not that of auth_secret_file.",
    ),
    click.Option(
        ["--expires-in"],
        type=click.IntRange(1, 366 * 86_400),
        default=3600,
        show_default=True,
        metavar="SECONDS",
        help="How long the token is valid.",
    ),
)
EXPLAIN_OPTIONS = (
    click.Argument(["url"], help="The path and the query of a read, or a whole URL. Quote it: shells read ? [ ] &."),
    click.Option(
        ["--as", "claims"],
        metavar="FILE",
        type=click.Path(),
        help="JSON file with the claims of a token: the rules for it apply.",
    ),
    click.Option(
        ["--analyze/--no-analyze"],
        default=True,
        help="Whether the read is run, to measure it. It is run read-only, with the time limit of a statement.",
    ),
    JSON,
)
INSPECT_OPTIONS = tuple(
    click.Option([flag], multiple=True, metavar=metavar, help=help)
    for flag, metavar, help in (
        ("--schema", "NAME", "A schema to look at; may be repeated.  [default: all]"),
        ("--only", "PATTERN", "Tables and functions to declare, such as order* or sales.*; may be repeated."),
        (
            "--skip",
            "PATTERN",
            "Tables and functions to leave out, such as audit_*; *() for all functions; may be repeated.",
        ),
    )
)
MAIN_COMMANDS = (
    _command(
        "serve",
        _serve,
        "Answer requests until a signal ends it.",
        flags=SETTINGS,
        examples=[
            Example("waterspout serve --demo", "Sample rows on port 8080, with an embedded PostgreSQL."),
            Example("waterspout serve --config waterspout.toml --port 9000", "Settings of a file, but another port."),
            Example(
                "waterspout serve --database-url postgresql:///shop --resources shop.py",
                "The tables of your database that shop.py declares.",
            ),
        ],
    ),
    _command(
        "check",
        _runs("check"),
        "Compare declarations and database, and suggest indexes. Exit code 1 if they do not fit.",
        [JSON],
        examples=[
            Example("waterspout check --resources shop.py", "What does not fit, and which indexes would help."),
            Example("waterspout check --json | jq -r '.suggestions[].sql'", "Only the statements that create indexes."),
        ],
    ),
    _command(
        "inspect",
        _runs("inspect"),
        "Declare the tables and functions of a database. What cannot be declared is a comment that says why.",
        INSPECT_OPTIONS,
        [setting for setting in OF_COMMANDS if setting.name not in ("inspect", "resources")],
        examples=[
            Example("waterspout inspect --database-url postgresql:///shop > resources.py", "Declare all tables."),
            Example(
                "waterspout inspect --schema sales --skip 'audit_*' --hints shop.toml", "Some of them, with hints."
            ),
        ],
    ),
    _command(
        "explain",
        _runs("explain"),
        "Print how a read is answered. The stages are its query, its plan, the SQL and PostgreSQL's plans; then come "
        "indexes that would help. Exit code 1 if the answer is an error.",
        EXPLAIN_OPTIONS,
        OF_READS,
        examples=[
            Example("waterspout explain '/users?filter[age][gt]=30&include=group'", "What this request costs."),
            Example(
                "waterspout explain '/users?sort=-age' --as claims.json", "The same request of somebody with a token."
            ),
            Example("waterspout explain '/users?sort=-age' --no-analyze", "Only the plans of a read that is too slow."),
        ],
    ),
    _command(
        "openapi",
        _runs("openapi"),
        "Print the OpenAPI document of the declarations. It needs no database.",
        flags=OF_DOCUMENT,
        examples=[
            Example("waterspout openapi --resources shop.py > openapi.json", "What /-/openapi.json answers."),
            Example("waterspout openapi --public-url https://api.example.org", "With the address of the server in it."),
        ],
    ),
    migrate,
    _command(
        "seed",
        _runs("seed"),
        "Load the sample rows into an empty database.",
        examples=[
            Example("waterspout seed --data-dir /tmp/trial", "Rows to try requests with, in a folder of its own.")
        ],
    ),
    _command(
        "dump",
        _runs("dump"),
        "Write the embedded database into a file.",
        [_dump_file("output")],
        examples=[
            Example("waterspout dump monday.dump", "A server may run meanwhile."),
            Example("waterspout dump - | ssh backup 'cat > monday.dump'", "Without a file on this machine."),
        ],
    ),
    _command(
        "restore",
        _runs("restore"),
        "Fill an empty embedded database from a dump.",
        [_dump_file("input")],
        examples=[Example("waterspout restore monday.dump --data-dir /srv/new", "Into a new folder.")],
    ),
    _command(
        "token",
        _runs("token"),
        "Print a token for development. It is signed with the secret of auth_secret_file, and for auth_audience.",
        TOKEN_OPTIONS,
        OF_TOKENS,
        examples=[
            Example("waterspout token --development --subject ann --role editor", "A token of ann, who is an editor."),
            Example(
                "waterspout token --development --subject ann --claim 'tenant=\"acme\"'", "With a claim of its own."
            ),
        ],
    ),
    _command(
        "settings",
        _print_settings,
        "Print the settings in effect, and their sources.",
        flags=SETTINGS,
        examples=[
            Example("waterspout settings > waterspout.toml", "A file to begin with: every setting, with its value."),
            Example(
                "waterspout settings --config waterspout.toml | grep -v default",
                "What does not come from the defaults.",
            ),
        ],
    ),
    complete,
    bench,
)
MIGRATE_COMMANDS = (
    _command(
        "up",
        _runs("migrate_up"),
        "Apply pending migrations.",
        [click.Option(["--dry-run"], is_flag=True, help="Print the SQL that would run, and change nothing.")],
        examples=[
            Example("waterspout migrate up --migrations migrations", "Apply the files of your own folder."),
            Example("waterspout migrate up --dry-run | less", "Read the SQL first."),
        ],
    ),
    _command(
        "status",
        _runs("migrate_status"),
        "List the migrations and which are applied.",
        [click.Option(["--check"], is_flag=True, help="Exit code 1 if a file is pending.")],
        examples=[Example("waterspout migrate status --check", "In a deployment: fails while a file is pending.")],
    ),
    _command(
        "verify",
        _runs("migrate_verify"),
        "Compare the applied migrations with the files. Exit code 1 if they differ.",
        examples=[Example("waterspout migrate verify --migrations migrations", "Whether anybody changed a file.")],
    ),
    _command(
        "new",
        _runs("migrate_new"),
        "Create the next file in the folder --migrations.",
        [click.Argument(["name"], help="What it does, in some words.")],
        examples=[
            Example("waterspout migrate new 'add prices' --migrations migrations", "Creates 0003_add_prices.sql.")
        ],
    ),
)
for made in MAIN_COMMANDS:
    main.add_command(made)
for made in MIGRATE_COMMANDS:
    migrate.add_command(made)

if __name__ == "__main__":
    main(prog_name="waterspout")
