"""The command line, `waterspout`.

In: arguments and the environment. Out: a call into `server.app` with the settings; exit code 0, 1 when it
could not be done (one line on stderr says why), 2 when arguments or settings are wrong.

It must not know: any setting by its own list (the options are made from `SETTINGS`), nor how anything is
done; what does it is imported when it is needed, so that `--help` is quick.
"""

import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import click

from server.loading import CONFIG_FLAG, CONFIG_VARIABLE, Loaded, as_toml, load
from server.settings import SETTINGS, Setting, SettingsError, StartError

DATABASE_NAMES = (
    "database_url",
    "data_dir",
    "migrations",
    "connect_timeout_seconds",
    "log_level",
    "log_format",
)
SOURCES = (
    "Every setting is a flag of serve, a variable (WATERSPOUT_ and its name in capitals) and a key of the "
    "TOML file: --page-size, WATERSPOUT_PAGE_SIZE, page_size. Flags beat variables beat the file."
)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class SettingOption(click.Option):
    """The flag of one setting. It hands its text on as it came; `load` converts and checks it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        is_boolean = isinstance(setting.default, bool)
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
    """A command that takes settings; its help shows them group by group."""

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
    name: str, run: Callable[[Loaded], None], help: str, names: Collection[str] | None = None
) -> click.Command:
    """A command with the settings in `names` as its flags, or all; every setting is loaded either way."""
    config = click.Option(
        [CONFIG_FLAG, "config"], metavar="PATH", help=f"TOML file of settings.  [variable: {CONFIG_VARIABLE}]"
    )
    options = [SettingOption(setting) for setting in SETTINGS if names is None or setting.name in names]

    def callback(config: str | None, **flags: object) -> None:
        with plain_errors():
            run(load({name: flag for name, flag in flags.items() if flag is not None}, os.environ, config))

    return SettingsCommand(
        name,
        params=[config, *options],
        callback=callback,
        help=help,
        epilog=SOURCES,
        context_settings=CONTEXT,
    )


@contextmanager
def plain_errors() -> Iterator[None]:
    """What a person can mend ends as a line on stderr and an exit code; a fault keeps its traceback."""
    from migrations.runner import MigrationError
    from server.embedded import EmbeddedError

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


def _serve(loaded: Loaded) -> None:
    from server.app import serve

    serve(loaded.settings)


def _seed(loaded: Loaded) -> None:
    from server.app import seed

    seed(loaded.settings)


def _migrate_up(loaded: Loaded) -> None:
    from server.app import migrate_up

    migrate_up(loaded.settings)


def _migrate_status(loaded: Loaded) -> None:
    from server.app import migrate_status

    migrate_status(loaded.settings)


def _print_settings(loaded: Loaded) -> None:
    click.echo(as_toml(loaded), nl=False)


@click.group(context_settings=CONTEXT)
@click.version_option(package_name="waterspout", message="%(package)s %(version)s")
def main() -> None:
    """A JSON:API server on PostgreSQL."""


@main.group(context_settings=CONTEXT)
def migrate() -> None:
    """Bring the schema of the database up to date, or show how it is."""


@main.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True}, short_help="Measure this server."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure this server beside others, or the one that answers at a URL."""
    try:
        measure = importlib.import_module("bench.__main__").main
    except ModuleNotFoundError as error:
        _fail((f"{error.name} is not installed: pip install 'waterspout[bench]' has what this needs",), 1)
    else:
        measure(arguments, prog_name="waterspout bench")


main.add_command(_command("serve", _serve, "Answer requests until a signal ends it."))
main.add_command(_command("seed", _seed, "Load the sample rows into an empty database.", DATABASE_NAMES))
main.add_command(
    _command(
        "settings",
        _print_settings,
        "Print the settings in effect, and their sources.",
    )
)
migrate.add_command(_command("up", _migrate_up, "Apply outstanding migrations.", DATABASE_NAMES))
migrate.add_command(_command("status", _migrate_status, "List the migrations and which are applied.", DATABASE_NAMES))

if __name__ == "__main__":
    main(prog_name="waterspout")
