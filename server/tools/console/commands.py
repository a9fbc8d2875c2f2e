"""Makes commands whose help has examples, whose settings are grouped, and which propose what may have been meant.

It must not know: what the commands do, single settings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from server.settings import SETTINGS
from server.settings.groups import Setting
from server.tools.console.exit_codes import EXIT_CODES

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_BY_FLAG = {setting.flag: setting for setting in SETTINGS}


class Example(NamedTuple):
    """A command line, and what it is for."""

    line: str
    purpose: str


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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the choices of the setting, or let the shell complete a path."""
        if self.setting.is_path:
            return [CompletionItem(incomplete, type="dir" if self.setting.metavar == "FOLDER" else "file")]
        return [CompletionItem(word) for word in self.setting.choices if word.startswith(incomplete)]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


class Formatter(click.HelpFormatter):
    """Writes headings, in bold on a terminal."""

    def write_heading(self, heading: str) -> None:
        super().write_heading(click.style(heading, bold=True))


class _Context(click.Context):
    formatter_class = Formatter


class WithExamples(click.Command):
    """A command with examples, which its help shows before its options. Headings are bold on a terminal."""

    context_class = _Context

    def __init__(self, *args: Any, examples: Sequence[Example] = (), **given: Any) -> None:
        super().__init__(*args, **given)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Propose the nearest flag, compared without dashes. If that is a flag of other commands, say of which."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            users = _users_of_flags(ctx)
            near = get_close_matches(error.option_name.strip("-"), [flag.strip("-") for flag in users], 1)
            proposals = [_proposal(f"--{name}", users[f"--{name}"], self) for name in near]
            told = f"No such option {error.option_name!r}.{''.join(proposals)}"
            raise click.NoSuchOption(error.option_name, told, ctx=ctx) from None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line, purpose in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                    with formatter.indentation(), formatter.indentation():
                        formatter.write_text(purpose)
        self.format_arguments(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)


def _flag_of(word: str) -> str:
    """Return the flag that a value needs, if its form tells, or an empty text."""
    if word.startswith(("postgresql://", "postgres://")):
        return "--database-url"
    return {".py": "--resources", ".toml": "--config"}.get(os.path.splitext(word)[1], "")


def _users_of_flags(ctx: click.Context) -> dict[str, list[click.Command]]:
    """Return the long flags of all commands, each with its commands."""
    users: dict[str, list[click.Command]] = {}
    pending = [ctx.find_root().command, ctx.command]
    seen: list[click.Command] = []
    while pending:
        command = pending.pop()
        if command in seen:
            continue
        seen.append(command)
        pending += command.commands.values() if isinstance(command, click.Group) else []
        for parameter in command.get_params(ctx):
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("--"):
                    users.setdefault(flag, []).append(command)
    return users


def _proposal(flag: str, users: list[click.Command], own: click.Command) -> str:
    if own in users:
        return f" Did you mean {flag!r}?"
    names = sorted([str(user.name) for user in users])
    return f" {flag!r} is an option of {' and '.join(names)}." if len(names) <= 3 else ""


class NamedChoice(click.Choice[str]):
    """Texts to choose from. It proposes the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        near = get_close_matches(str(value).lower(), self.choices, 1)
        told = f"expected {', '.join(self.choices[:-1])} or {self.choices[-1]}, not {value!r}"
        return f"{told}; did you mean {near[0]}?" if near else told


class SettingsCommand(WithExamples):
    """A command that takes settings. Its help shows them by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and not isinstance(option, click.Argument):
                group = option.setting.group if isinstance(option, SettingOption) else "General"
                groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (setting := _BY_FLAG.get(error.option_name)) is None:
                raise
            raise click.UsageError(
                f"{setting.flag} is a flag of serve. {ctx.command_path} reads the setting from {setting.variable} or "
                "the file of --config.",
                ctx,
            ) from None
        except click.UsageError as error:
            own = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
            needed = [flag for word in given if f"({word})" in error.message and (flag := _flag_of(word)) in own]
            if not needed:
                raise
            # Without the argument, which may be a URL with a password.
            raise click.UsageError(f"an argument lacks its flag: write {needed[0]} before it", ctx) from None


class CommandGroup(WithExamples, click.Group):
    """A group of commands, in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Propose the nearest command, or else name all of them."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if get_close_matches(args[0], self.commands):
                raise
            if any(f"--{args[0]}" in parameter.opts for parameter in self.get_params(ctx)):
                raise click.UsageError(f"{error.message} Did you mean '--{args[0]}'?", ctx) from None
            raise click.UsageError(f"{error.message} There are: {', '.join(self.commands)}.", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _BY_FLAG:
                raise
            raise click.UsageError(
                f"settings follow the command: {ctx.command_path} serve {error.option_name} ...", ctx
            ) from None


class Program(CommandGroup):
    """The program. It decides about colours: NO_COLOR and FORCE_COLOR beat the terminal (https://no-color.org,
    https://force-color.org). Its help lists the exit codes."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        extra.setdefault("color", _wants_colour())
        return super().make_context(*args, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
        super().format_epilog(ctx, formatter)


def print_error(message: str) -> None:
    """Print an error on standard error."""
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {message}", err=True)


def _wants_colour() -> bool | None:
    """Return None if it depends on the terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None
