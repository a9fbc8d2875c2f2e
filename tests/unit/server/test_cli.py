"""The command line, with the called functions replaced: their arguments, the output and the exit code. No database."""

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from platform import python_version
from types import ModuleType
from typing import NamedTuple

import click
import pytest
from click.shell_completion import ShellComplete

import server.tools
import server.tools.commands as real_commands
from migrations import MigrationError
from server.__main__ import main
from server.embedded.postgres import EmbeddedError
from server.settings import SETTINGS, Settings, StartError
from server.tools.console.exit_codes import EXIT_CODES, INTERRUPTED, TERMINATED

SECRET = "s3cr3t"
COMMANDS: dict[str, tuple[list[str], dict[str, object]]] = {
    # function: the command, the arguments of the function besides the settings
    "serve": (["serve"], {}),
    "seed": (["seed"], {}),
    "check": (["check", "--json"], {"as_json": True}),
    "explain": (
        ["explain", "/users", "--as", "claims.json"],
        {"url": "/users", "claims": "claims.json", "analyze": True, "as_json": False},
    ),
    "dump": (["dump", "-"], {"file": "-"}),
    "restore": (["restore", "/a/dump"], {"file": "/a/dump"}),
    "migrate_up": (["migrate", "up", "--dry-run"], {"dry_run": True}),
    "migrate_status": (["migrate", "status", "--check"], {"check": True}),
    "migrate_verify": (["migrate", "verify"], {}),
    "migrate_new": (["migrate", "new", "add prices"], {"name": "add prices"}),
}
TOKEN = {
    "development": False,
    "subject": "ann",
    "role": (),
    "scope": (),
    "claim": (),
    "secret_file": None,
    "expires_in": 3600,
}
DEFAULTS = {
    "explain": (
        ["explain", "/users", "--no-analyze", "--json"],
        {"url": "/users", "claims": None, "analyze": False, "as_json": True},
    ),
    "token": (["token", "--subject", "ann"], TOKEN),
    "check": (["check"], {"as_json": False}),
    "migrate_up": (["migrate", "up"], {"dry_run": False}),
    "migrate_status": (["migrate", "status"], {"check": False}),
}
Call = tuple[str, Settings, dict[str, object]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return the calls, in their order."""
    called: list[Call] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda settings, *_, **own: called.append((name, settings, own))

    put_functions(monkeypatch, {name: noting(name) for name in COMMANDS | DEFAULTS})
    return called


def put_functions(monkeypatch: pytest.MonkeyPatch, functions: dict[str, Callable[..., int | None]]) -> None:
    for module in (ModuleType("server.processes.master"), ModuleType("server.tools.commands")):
        for name, function in functions.items():
            if (name == "serve") == (module.__name__ == "server.processes.master"):
                setattr(module, name, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(server.tools, "commands", module, raising=False)


class Result(NamedTuple):
    exit_code: object
    stdout: str
    stderr: str


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def invoke(*arguments: str, stream: type[StringIO] = StringIO) -> Result:
    with redirect_stdout(stream()) as out, redirect_stderr(stream()) as err, pytest.raises(SystemExit) as end:
        main(arguments, prog_name="waterspout")
    return Result(end.value.code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_calls_its_function_with_the_settings(
    name: str, calls: list[Call], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "spout.toml"
    config.write_text("page_size = 7\nlog_level = 'error'\n", encoding="utf-8")
    monkeypatch.setenv("WATERSPOUT_MAX_INCLUDE_DEPTH", "5")
    arguments, own = COMMANDS[name]
    result = invoke(*arguments, "--config", str(config), "--data-dir", "/d", "--log-level", "debug")
    assert result == (0, "", "")
    expected = Settings(page_size=7, max_include_depth=5, data_dir=Path("/d"), log_level="debug")
    assert calls == [(name, expected, own)]


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_command_without_own_flags(name: str, calls: list[Call]) -> None:
    arguments, own = DEFAULTS[name]
    assert invoke(*arguments) == (0, "", "")
    assert calls == [(name, Settings(), own)]


def test_the_parameters_of_a_token(calls: list[Call]) -> None:
    arguments = ["--role", "a", "--role", "b", "--scope", "s", "--claim", "x=1", "--claim", 'y="z"', "--development"]
    paths = ["--secret-file", "/s", "--expires-in", "60", "--auth-audience", "api"]
    assert invoke("token", "--subject", "ann", *arguments, *paths) == (0, "", "")
    own = {"development": True, "role": ("a", "b"), "scope": ("s",), "claim": ("x=1", 'y="z"'), "secret_file": "/s"}
    assert calls == [("token", Settings(auth_audience="api"), TOKEN | own | {"expires_in": 60})]


@pytest.mark.parametrize("code", [0, 1])
def test_the_result_of_a_command_is_the_exit_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put_functions(monkeypatch, {"migrate_verify": lambda settings: code})
    assert invoke("migrate", "verify") == (code, "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["dump"], ["restore"], ["migrate", "new"], ["dump", "a", "b"], ["explain"]),
        ["token", "--subject", "ann", "--expires-in", "0"],
    ],
)
def test_a_command_that_lacks_an_argument_is_exit_code_2(arguments: list[str], calls: list[Call]) -> None:
    assert invoke(*arguments).exit_code == 2
    assert calls == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Settings()),
        (["--demo"], Settings(demo=True)),
        (["--no-demo"], Settings()),
        (["--no-server-timing"], Settings(server_timing=False)),
        (["--server-timing"], Settings(server_timing=True)),
        (["--read-only", "--port", "0"], Settings(read_only=True, port=0)),
        (["--unpaginated", "500", "--total", "none"], Settings(unpaginated=500, total="none")),
        (["--port=1", "--port=2"], Settings(port=2)),
        (
            ["--unix-socket", "/run/w.sock", "--workers", "3"],
            Settings(unix_socket=Path("/run/w.sock"), workers=3),
        ),
    ],
)
def test_flags_of_serve(arguments: list[str], expected: Settings, calls: list[Call]) -> None:
    assert invoke("serve", *arguments).exit_code == 0
    assert calls == [("serve", expected, {})]


def test_a_negated_flag_beats_the_environment(calls: list[Call], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSPOUT_DEMO", "true")
    invoke("serve")
    invoke("serve", "--no-demo")
    assert [settings.demo for _, settings, _ in calls] == [True, False]


@pytest.mark.parametrize("command", ["serve", "settings"])
def test_help_lists_every_setting(command: str) -> None:
    help = " ".join(invoke(command, "--help").stdout.split())
    assert [setting.flag for setting in SETTINGS if f" {setting.flag} " not in help] == []
    assert [setting.name for setting in SETTINGS if setting.description not in help] == []
    assert [setting.group for setting in SETTINGS if f" {setting.group}: " not in help] == []


def test_help_of_a_group() -> None:
    section = invoke("serve", "--help").stdout.partition("Migrations:\n")[2].partition("\n\n")[0]
    assert " ".join(section.split()) == (
        "--migration-lock-timeout-seconds SECONDS How long a migration waits for a lock, with requests to "
        "that table waiting behind it, before it lets them pass and tries again. [default: 2] "
        "--migration-wait-seconds SECONDS How long a migration tries to get its locks before it gives up. "
        "[default: 600]"
    )


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("serve", "explain")])
def test_database_commands_only_have_settings_of_the_database(name: str) -> None:
    help = invoke(*COMMANDS[name][0], "--help").stdout
    assert [s.name for s in SETTINGS if f"  {s.flag} " in help] == [
        "idempotency",
        *("database_url", "data_dir", "migrations", "resources", "inspect", "hints", "view_seconds", "python_path"),
        *("migration_lock_timeout_seconds", "migration_wait_seconds"),
        *("connect_timeout_seconds", "network_timeout_seconds", "pooler"),
        *("log_level", "log_format"),
    ]
    assert "--config PATH" in help


def test_help_of_the_program() -> None:
    help = invoke("--help").stdout
    assert help == invoke("-h").stdout
    commands = help.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in commands] == list(main.commands)
    codes = " ".join(help.partition("Exit codes:\n")[2].split())
    assert codes == " ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        elif name != "bench":  # it has a command line of its own
            yield (*path, name), command


@pytest.mark.parametrize("path", [path for path, _ in commands_of(main)], ids=" ".join)
def test_help_has_examples_and_fits_into_80_columns(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is a command line that the command takes. Its short help is not cut."""
    monkeypatch.setenv("COLUMNS", "80")
    help = invoke(*path, "--help").stdout
    assert [line for line in help.splitlines() if len(line) > 80] == []
    assert "..." not in help.partition("Commands:\n")[2].partition("\n\n")[0]
    examples = help.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    lines = [line.strip() for line in examples if line.startswith("  ") and not line.startswith("   ")]
    assert lines
    for line in lines:
        words = shlex.split(line.removeprefix('eval "$(').removesuffix(')"'))
        ends = [words.index(sign) for sign in ("|", ">") if sign in words]
        program, *arguments = words[: min(ends, default=None)]
        assert program == "waterspout"
        assert tuple(arguments[: len(path)]) == path
        arguments = arguments[len(path) :]
        with suppress(click.exceptions.Exit):
            dict(commands_of(main))[path].make_context("waterspout", arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serv"], "No such command 'serv'. Did you mean 'serve'?"),
        (["migrate", "stats"], "No such command 'stats'. Did you mean 'status'?"),
        (["token", "--subjetc", "ann"], "No such option '--subjetc'. Did you mean '--subject'?"),
        (["serve", "--prt", "1"], "No such option '--prt'. Did you mean '--port'?"),
        (["openapi", "--prt", "1"], "No such option '--prt'. '--port' is an option of serve and settings."),
        (["settings", "--jsn"], "No such option '--jsn'. '--json' is an option of check and explain."),
        (["completion", "--datbase-url"], "No such option '--datbase-url'."),
        (["version"], "No such command 'version'. Did you mean '--version'?"),
        (["check", "shop.py"], "an argument lacks its flag: write --resources before it"),
        (["serve", "--port", "0", "postgresql:///shop"], "an argument lacks its flag: write --database-url before it"),
        (["inspect", "shop.py"], "Got unexpected extra argument (shop.py)"),
        (["completion", "bsh"], "Invalid value for 'SHELL': expected bash, zsh or fish, not 'bsh'; did you mean bash?"),
        (["completion", "powershell"], "Invalid value for 'SHELL': expected bash, zsh or fish, not 'powershell'"),
        (["openapi", "--privat-alow", "1"], "No such option '--privat-alow'."),
        (["openapi", "--api-titel", "1"], "No such option '--api-titel'. Did you mean '--api-title'?"),
        (["--port", "1"], "settings follow the command: waterspout serve --port ..."),
        (
            ["check", "--port", "1"],
            "--port is a flag of serve. waterspout check reads the setting from WATERSPOUT_PORT or the file of "
            "--config.",
        ),
        (
            ["serve", "--log-level", "warn"],
            "--log-level: expected debug, info, warning or error, not 'warn'; did you mean warning?",
        ),
    ],
)
def test_what_may_have_been_meant(arguments: list[str], told: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {told}")


def test_every_flag_is_proposed_if_a_letter_is_missing() -> None:
    seen = set()
    for path, command in commands_of(main):
        for one in command.get_params(click.Context(command)):
            for flag in {*one.opts, *one.secondary_opts} - seen:
                if flag.startswith("--") and len(flag) > len("--no"):
                    assert f"Did you mean '{flag}'?" in invoke(*path, flag[:4] + flag[5:], "x").stderr
                    seen.add(flag)
    assert {"--page-size", "--no-analyze", "--only", "--subject", "--check"} <= seen


# colours


@pytest.mark.parametrize(
    ("environment", "is_terminal", "is_coloured"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colours(
    environment: dict[str, str], is_terminal: bool, is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal if is_terminal else StringIO
    assert ("\x1b[" in invoke("--help", stream=stream).stdout) == is_coloured
    assert ("\x1b[" in invoke("serve", "--port", "x", stream=stream).stderr) == is_coloured


# completion


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_script_of_a_shell(shell: str, check: str, tmp_path: Path) -> None:
    result = invoke("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_WATERSPOUT_COMPLETE={shell}_complete" in result.stdout
    if (program := shutil.which(shell)) is not None:
        path = tmp_path / "script"
        path.write_text(result.stdout, encoding="utf-8")
        assert subprocess.run([program, check, str(path)], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("serv", ["plain,serve"]),
        ("migrate ", ["plain,up", "plain,status", "plain,verify", "plain,new"]),
        ("check --js", ["plain,--json"]),
        ("serve --log-level ", ["plain,debug", "plain,info", "plain,warning", "plain,error"]),
        ("serve --unpaginated o", ["plain,on", "plain,off"]),
        ("serve --page-size ", []),
        ("serve --data-dir /t", ["dir,/t"]),
        ("serve --auth-secret-file /t", ["file,/t"]),
        ("serve --config w", ["file,w"]),
        ("explain /users --as c", ["file,c"]),
        ("completion z", ["plain,zsh"]),
    ],
)
def test_completion(typed: str, completed: list[str]) -> None:
    *words, incomplete = typed.split(" ")
    found = ShellComplete(main, {}, "waterspout", "").get_completions(words, incomplete)
    assert [f"{item.type},{item.value}" for item in found] == completed


# exit codes


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    put_functions(monkeypatch, {"seed": interrupt})
    assert invoke("seed") == (INTERRUPTED, "", "")


def test_sigterm_is_exit_code_143() -> None:
    settings = Settings(database_url="postgresql:///x")
    with pytest.raises(SystemExit, match=str(TERMINATED)), real_commands._database_url(settings, print):
        os.kill(os.getpid(), signal.SIGTERM)


def test_version() -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"waterspout {version('waterspout')}, Python {python_version()}\n")


@pytest.mark.parametrize("arguments", [["serve"], ["settings"], ["migrate", "up"]])
def test_bad_settings_end_with_a_line_each_and_exit_code_2(
    arguments: list[str], calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATERSPOUT_PORT", "http")
    result = invoke(*arguments, "--database-url", f"mysql://ann:{SECRET}@db/shop")
    assert result == (
        2,
        "",
        "Error: WATERSPOUT_PORT: expected a whole number from 0 to 65535, not 'http'\n"
        "Error: --database-url: expected postgresql://user:password@host:port/database\n",
    )
    assert calls == []


@pytest.mark.parametrize("arguments", [["serve"], ["settings"], ["migrate", "up"]])
def test_settings_without_effect_are_logged(
    arguments: list[str], calls: list[Call], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configured: list[Settings] = []
    monkeypatch.setattr("server.observing.logs.configure_logging", configured.append)
    monkeypatch.setenv("WATERSPOUT_DATABSE_URL", f"postgresql://ann:{SECRET}@db/shop")
    result = invoke(*arguments, "--log-format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    line = "the variable WATERSPOUT_DATABSE_URL belongs to no setting; did you mean WATERSPOUT_DATABASE_URL?"
    assert caplog.record_tuples == [("server", logging.WARNING, line)]
    assert configured == [Settings(log_format="json")]


def test_an_unknown_flag_is_exit_code_2() -> None:
    result = invoke("serve", "--prot", "1")
    assert result.exit_code == 2
    assert "--port" in result.stderr


@pytest.mark.parametrize("error", [StartError, EmbeddedError, MigrationError])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_expected_error_is_one_line_and_exit_code_1(
    name: str, error: type[RuntimeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **own: object) -> None:
        raise error("the folder is in use")

    put_functions(monkeypatch, {name: fail})
    result = invoke(*COMMANDS[name][0])
    assert result == (1, "", "Error: the folder is in use\n")


def test_a_fault_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    put_functions(monkeypatch, {"serve": fail})
    with pytest.raises(RuntimeError, match="ours"):
        main(["serve"])


def test_settings_prints_values_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSPOUT_DATABASE_URL", f"postgresql://ann:{SECRET}@db/shop")
    result = invoke("settings", "--port", "9000")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert len(lines) == len(SETTINGS)
    assert 'database_url = "postgresql://ann:***@db/shop" # WATERSPOUT_DATABASE_URL' in lines
    assert "port = 9000 # --port" in lines
    assert 'host = "127.0.0.1" # default' in lines
    assert SECRET not in result.stdout
